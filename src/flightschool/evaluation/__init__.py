"""Evaluation: the checkride. Freeze before training, measure the same items before and after, compare in pairs.

What is measured here are ``Measurement`` s, never rewards, and a suite has no way into a training pool.
"""

from flightschool.evaluation.acceptance import Acceptance, accept
from flightschool.evaluation.comparison import compare
from flightschool.evaluation.design import DIMENSIONS, Realism, SuiteDesign, TaskDesign, design_suite, require_design
from flightschool.evaluation.freezing import freeze
from flightschool.evaluation.keeping import keep_run, load_run
from flightschool.evaluation.kinship import Ancestry, Kin, count_sealed_kin, kinship, refuse_kin, task_texts
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
from flightschool.evaluation.reliability import Reliability, SystemReliability, reliability
from flightschool.evaluation.running import evaluate, evaluate_async
from flightschool.evaluation.sealing import (
    SealedHoldout,
    finish_sealing,
    load_sealed,
    seal_holdout,
)
from flightschool.evaluation.suites import (
    load_design,
    load_pool,
    load_suite,
    num_looks,
    open_holdout,
    require_unchanged,
    save_design,
    save_frozen,
    save_suite,
)
from flightschool.evaluation.summary import latency, summarise
from flightschool.evaluation.upkeep import Upkeep, upkeep
from flightschool.evaluation.validity import DeploymentOutcome, Transported, Validity, read_deployment, validity

__all__ = [
    "DIMENSIONS",
    "METRICS",
    "Acceptance",
    "Ancestry",
    "Comparison",
    "DeploymentOutcome",
    "Difference",
    "EvaluationItem",
    "EvaluationRun",
    "Frozen",
    "Kin",
    "Metric",
    "Pool",
    "Realism",
    "Reliability",
    "SealedHoldout",
    "SuiteDesign",
    "Summary",
    "SystemReliability",
    "TaskDesign",
    "Transported",
    "Upkeep",
    "Validity",
    "accept",
    "compare",
    "count_sealed_kin",
    "design_suite",
    "evaluate",
    "evaluate_async",
    "finish_sealing",
    "freeze",
    "keep_run",
    "kinship",
    "latency",
    "load_design",
    "load_pool",
    "load_run",
    "load_sealed",
    "load_suite",
    "num_looks",
    "open_holdout",
    "read_deployment",
    "refuse_kin",
    "reliability",
    "require_design",
    "require_unchanged",
    "save_design",
    "save_frozen",
    "save_suite",
    "seal_holdout",
    "summarise",
    "task_texts",
    "upkeep",
    "validity",
]
