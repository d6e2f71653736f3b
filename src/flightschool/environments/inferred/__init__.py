"""Tools inferred from recordings and a state: the second rung of the ladder.

``observe`` stands each recorded call before the state that it met, ``learn`` finds programs that explain the calls,
``run`` answers by them. Nothing here knows any domain.
"""

from flightschool.environments.inferred.database import Base, Database
from flightschool.environments.inferred.drifting import Drift, drifts
from flightschool.environments.inferred.learning import Observation, infer, learn, observe
from flightschool.environments.inferred.programs import Answer, Outcome, Program, Put, absorb, run

__all__ = [
    "Answer",
    "Base",
    "Database",
    "Drift",
    "Observation",
    "Outcome",
    "Program",
    "Put",
    "absorb",
    "drifts",
    "infer",
    "learn",
    "observe",
    "run",
]
