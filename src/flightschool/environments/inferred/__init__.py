"""Tools inferred from recordings and a state: the second rung of the ladder.

``observe`` stands each recorded call before the state that it met, ``learn`` finds programs that explain the calls,
``run`` answers by them. Nothing here knows any domain.
"""

from flightschool.environments.inferred.database import Base, Database
from flightschool.environments.inferred.drifting import Drift, drifts
from flightschool.environments.inferred.effects import Execute
from flightschool.environments.inferred.learning import Observation, infer, learn_all, observe
from flightschool.environments.inferred.programs import Answer, Change, Outcome, Program, Put, absorb, run, take_effect

__all__ = [
    "Answer",
    "Base",
    "Change",
    "Database",
    "Drift",
    "Execute",
    "Observation",
    "Outcome",
    "Program",
    "Put",
    "absorb",
    "drifts",
    "infer",
    "learn_all",
    "observe",
    "run",
    "take_effect",
]
