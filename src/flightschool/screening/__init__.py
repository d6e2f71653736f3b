"""Screening: which audited tasks of the pool carry signal for the model that is to be trained.

Takes a ``TrainingPool`` and nothing else: a suite has no pass rate to be filtered by.
"""

from flightschool.screening.evidence import Evidence, graded
from flightschool.screening.pool import TrainingPool
from flightschool.screening.records import Funnel
from flightschool.screening.screening import Rollouts, measure_funnel, require_screened, save_decisions, screen

__all__ = [
    "Evidence",
    "Funnel",
    "Rollouts",
    "TrainingPool",
    "graded",
    "measure_funnel",
    "require_screened",
    "save_decisions",
    "screen",
]
