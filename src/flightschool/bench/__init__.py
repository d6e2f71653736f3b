"""Benchmarks: figures that are promised elsewhere, measured by one command and held against their targets."""

from flightschool.bench.episodes import EpisodesBench, bench_episodes
from flightschool.bench.quickstart import QuickstartBench, SeedFlight, bench_quickstart, summarise_flights
from flightschool.bench.robustness import FittedPolicy, RobustnessBench, Variant, bench_robustness
from flightschool.bench.sandbox import SandboxBench, bench_sandbox
from flightschool.bench.sandbox_leaks import Leftovers, count_leftovers, fly_and_count
from flightschool.bench.targets import Target, all_met
from flightschool.bench.watching import Watched, watch

__all__ = [
    "EpisodesBench",
    "FittedPolicy",
    "Leftovers",
    "QuickstartBench",
    "RobustnessBench",
    "SandboxBench",
    "SeedFlight",
    "Target",
    "Variant",
    "Watched",
    "all_met",
    "bench_episodes",
    "bench_quickstart",
    "bench_robustness",
    "bench_sandbox",
    "count_leftovers",
    "fly_and_count",
    "summarise_flights",
    "watch",
]
