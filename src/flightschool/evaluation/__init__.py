"""Evaluation: the checkride. Freeze before training, measure the same items before and after, compare in pairs.

What is measured here are ``Measurement`` s, never rewards, and a suite has no way into a training pool.
"""

from flightschool.evaluation.acceptance import Acceptance, Asked, accept
from flightschool.evaluation.comparison import compare
from flightschool.evaluation.design import (
    DIMENSIONS,
    Realism,
    SuiteDesign,
    TaskDesign,
    common_tasks,
    design_suite,
    require_design,
)
from flightschool.evaluation.early import EARLY_KIND, EarlyComparison, Look, compare_early, keep_early, load_earlies
from flightschool.evaluation.exposure import Exposure, exposure
from flightschool.evaluation.freezing import freeze
from flightschool.evaluation.judging import Judged, judged, judges_of
from flightschool.evaluation.keeping import keep_run, load_run, load_runs, logged_digest
from flightschool.evaluation.kept_texts import frozen_tasks, load_texts, save_texts
from flightschool.evaluation.kinship import (
    Ancestry,
    Kin,
    count_sealed_kin,
    kinship,
    refuse_kin,
    refuse_measured,
    refuse_sealed_kin,
    suite_texts,
    task_texts,
)
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
from flightschool.evaluation.regrading import Judge, Regraded, regrade_run
from flightschool.evaluation.reliability import Reliability, SystemReliability, reliability
from flightschool.evaluation.rules import Limits, Prices, RunRules
from flightschool.evaluation.running import AttemptRunner, How, evaluate, evaluate_async
from flightschool.evaluation.sealed import SealedHoldout, Terms, load_sealed
from flightschool.evaluation.sealing import finish_sealing, seal_holdout
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
from flightschool.evaluation.summary import latency, repeated, summarise
from flightschool.evaluation.targets import TARGETS, TargetRow, check_targets, held_against
from flightschool.evaluation.upkeep import Upkeep, upkeep
from flightschool.evaluation.validity import DeploymentOutcome, Transported, Validity, read_deployment, validity
from flightschool.evaluation.versions import (
    Equated,
    SuiteChange,
    changelog,
    changes,
    equate,
    lineage_of,
    on_anchors,
)

__all__ = [
    "DIMENSIONS",
    "EARLY_KIND",
    "METRICS",
    "TARGETS",
    "Acceptance",
    "Ancestry",
    "Asked",
    "AttemptRunner",
    "Comparison",
    "DeploymentOutcome",
    "Difference",
    "EarlyComparison",
    "Equated",
    "EvaluationItem",
    "EvaluationRun",
    "Exposure",
    "Frozen",
    "How",
    "Judge",
    "Judged",
    "Kin",
    "Limits",
    "Look",
    "Metric",
    "Pool",
    "Prices",
    "Realism",
    "Regraded",
    "Reliability",
    "RunRules",
    "SealedHoldout",
    "SuiteChange",
    "SuiteDesign",
    "Summary",
    "SystemReliability",
    "TargetRow",
    "TaskDesign",
    "Terms",
    "Transported",
    "Upkeep",
    "Validity",
    "accept",
    "changelog",
    "changes",
    "check_targets",
    "common_tasks",
    "compare",
    "compare_early",
    "count_sealed_kin",
    "design_suite",
    "equate",
    "evaluate",
    "evaluate_async",
    "exposure",
    "finish_sealing",
    "freeze",
    "frozen_tasks",
    "held_against",
    "judged",
    "judges_of",
    "keep_early",
    "keep_run",
    "kinship",
    "latency",
    "lineage_of",
    "load_design",
    "load_earlies",
    "load_pool",
    "load_run",
    "load_runs",
    "load_sealed",
    "load_suite",
    "load_texts",
    "logged_digest",
    "num_looks",
    "on_anchors",
    "open_holdout",
    "read_deployment",
    "refuse_kin",
    "refuse_measured",
    "refuse_sealed_kin",
    "regrade_run",
    "reliability",
    "repeated",
    "require_design",
    "require_unchanged",
    "save_design",
    "save_frozen",
    "save_suite",
    "save_texts",
    "seal_holdout",
    "suite_texts",
    "summarise",
    "task_texts",
    "upkeep",
    "validity",
]
