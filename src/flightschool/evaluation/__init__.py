"""Evaluation: the checkride. Freeze before training, measure the same items before and after, compare in pairs.

What is measured here are ``Measurement`` s, never rewards, and a suite has no way into a training pool.
"""

from flightschool.evaluation.comparison import compare
from flightschool.evaluation.freezing import freeze
from flightschool.evaluation.metrics import METRICS, Metric
from flightschool.evaluation.records import (
    Comparison,
    Difference,
    EvaluationItem,
    EvaluationRun,
    Frozen,
    Pool,
    Summary,
)
from flightschool.evaluation.running import evaluate, evaluate_async
from flightschool.evaluation.suites import (
    load_pool,
    load_suite,
    num_looks,
    open_holdout,
    require_unchanged,
    save_frozen,
    save_suite,
)
from flightschool.evaluation.summary import summarise

__all__ = [
    "METRICS",
    "Comparison",
    "Difference",
    "EvaluationItem",
    "EvaluationRun",
    "Frozen",
    "Metric",
    "Pool",
    "Summary",
    "compare",
    "evaluate",
    "evaluate_async",
    "freeze",
    "load_pool",
    "load_suite",
    "num_looks",
    "open_holdout",
    "require_unchanged",
    "save_frozen",
    "save_suite",
    "summarise",
]
