"""Benchmarks: figures that are promised elsewhere, measured by one command and held against their targets."""

from flightschool.bench.episodes import EpisodesBench, bench_episodes
from flightschool.bench.quickstart import QuickstartBench, SeedFlight, bench_quickstart, summarise_flights
from flightschool.bench.robustness import FittedPolicy, RobustnessBench, Variant, bench_robustness
from flightschool.bench.targets import Target, all_met
from flightschool.bench.watching import Watched, watch

__all__ = [
    "EpisodesBench",
    "FittedPolicy",
    "QuickstartBench",
    "RobustnessBench",
    "SeedFlight",
    "Target",
    "Variant",
    "Watched",
    "all_met",
    "bench_episodes",
    "bench_quickstart",
    "bench_robustness",
    "summarise_flights",
    "watch",
]
