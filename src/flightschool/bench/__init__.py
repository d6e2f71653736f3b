"""Benchmarks: figures that are promised elsewhere, measured by one command and held against their targets."""

from flightschool.bench.episodes import EpisodesBench, bench_episodes
from flightschool.bench.evaluation import EvaluationBench, bench_evaluation
from flightschool.bench.openenv_steps import OpenenvBench, bench_openenv
from flightschool.bench.quickstart import QuickstartBench, SeedFlight, bench_quickstart, summarise_flights
from flightschool.bench.robustness import FittedPolicy, RobustnessBench, Variant, bench_robustness
from flightschool.bench.sandbox import SandboxBench, bench_sandbox
from flightschool.bench.sandbox_leaks import Leftovers, count_leftovers, fly_and_count
from flightschool.bench.staleness import RuleFigures, StalenessBench, StalenessRow, bench_staleness
from flightschool.bench.targets import Target, all_met
from flightschool.bench.training import DEFAULT_PARTS, TrainingBench, bench_training
from flightschool.bench.watching import Watched, watch

__all__ = [
    "DEFAULT_PARTS",
    "EpisodesBench",
    "EvaluationBench",
    "FittedPolicy",
    "Leftovers",
    "OpenenvBench",
    "QuickstartBench",
    "RobustnessBench",
    "RuleFigures",
    "SandboxBench",
    "SeedFlight",
    "StalenessBench",
    "StalenessRow",
    "Target",
    "TrainingBench",
    "Variant",
    "Watched",
    "all_met",
    "bench_episodes",
    "bench_evaluation",
    "bench_openenv",
    "bench_quickstart",
    "bench_robustness",
    "bench_sandbox",
    "bench_staleness",
    "bench_training",
    "count_leftovers",
    "fly_and_count",
    "summarise_flights",
    "watch",
]
