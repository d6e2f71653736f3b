"""What the trainer is promised to do, measured on two cores: beside TRL, beside the machine, and beside itself."""

from flightschool.bench.training.duel import Duel, Race
from flightschool.bench.training.kernels import Generated, Kernels, Passed
from flightschool.bench.training.kills import Kills
from flightschool.bench.training.limits import Limits
from flightschool.bench.training.measuring import DEFAULT_PARTS, PARTS, Plan, TrainingBench, bench_training
from flightschool.bench.training.overlap import Flown, Overlap
from flightschool.bench.training.workload import Side, StepFigures, Workload

__all__ = [
    "DEFAULT_PARTS",
    "PARTS",
    "Duel",
    "Flown",
    "Generated",
    "Kernels",
    "Kills",
    "Limits",
    "Overlap",
    "Passed",
    "Plan",
    "Race",
    "Side",
    "StepFigures",
    "TrainingBench",
    "Workload",
    "bench_training",
]
