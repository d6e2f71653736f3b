"""The main job as a user runs it: one fresh process and one fresh workspace a seed, one after the other.

The figures of several seeds are drawn together on the side of caution: before training the *best* seed counts, after it
the *worst*. The model is in the cache before the clock starts; all else that a fresh process does is measured.
"""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from flightschool.bench.targets import Target, all_met, at_least, at_most, more_than
from flightschool.bench.watching import Watched, watch
from flightschool.errors import InfrastructureError, InputError
from flightschool.records import Record

__all__ = ["QuickstartBench", "SeedFlight", "bench_quickstart", "quickstart_command", "summarise_flights"]

MOST_WALL_S = 480.0
MOST_MEMORY_MB = 6_000.0
MOST_SUCCESS_BEFORE = 0.15
LEAST_SUCCESS_AFTER = 0.9
NUM_SEEDS = 3

Command = Callable[[Path, int, bool], Sequence[str]]
"""Workspace, seed, offline → command line."""


class _Figures(msgspec.Struct, frozen=True):
    """What is read of ``quickstart.json``; it holds more."""

    report: str
    success_before: float
    success_after: float
    gain_low: float
    gain_high: float
    perturbed_before: float
    perturbed_after: float


class SeedFlight(Record, frozen=True, kw_only=True):
    """One seed's job."""

    seed: int
    workspace: str
    wall_s: float
    """From the start of the process to its end."""
    peak_rss_mb: float
    """Largest summed proportional set size of the process tree, in 10⁶ bytes."""
    num_samples: int
    """Looks at the memory."""
    report: str
    success_before: float
    success_after: float
    gain_low: float
    gain_high: float
    perturbed_before: float
    perturbed_after: float
    figures: dict[str, Any]
    """``quickstart.json`` as it was written."""


class QuickstartBench(Record, frozen=True, kw_only=True):
    """All seeds together."""

    wall_s: float
    """Slowest seed."""
    peak_rss_mb: float
    """Largest of all seeds."""
    success_before: float
    """Largest over seeds."""
    success_after: float
    """Smallest over seeds."""
    gain_low: float
    """Smallest lower bound over seeds."""
    gain_high: float
    """Largest upper bound over seeds."""
    perturbed_before: float
    """Largest over seeds."""
    perturbed_after: float
    """Smallest over seeds."""
    report: str
    """Report of the first seed."""
    seeds: tuple[SeedFlight, ...]
    targets: tuple[Target, ...]
    met: bool


def quickstart_command(workspace: Path, seed: int, offline: bool) -> list[str]:
    """The command line that a user would type, by this very Python."""
    words = [sys.executable, "-m", "flightschool.cli", "quickstart", "--workspace", str(workspace), "--seed", str(seed)]
    return [*words, "--json", *(["--offline"] if offline else [])]


def bench_quickstart(
    folder: Path,
    seeds: Sequence[int],
    *,
    offline: bool = False,
    quick: bool = False,
    command: Command = quickstart_command,
    tell: Callable[[str], None] = lambda _: None,
) -> QuickstartBench:
    """Run the main job once a seed and draw the figures together.

    Args:
        folder: where the workspaces are made, ``seed-N`` each.
        seeds: seeds of the jobs, distinct.
        offline: train the small model that ships with the package.
        quick: fewer seeds than promised are no shortfall.
        command: gives the command lines.
        tell: told in a line what goes on.

    Raises:
        InputError: no seeds, or a workspace that is not fresh.
        InfrastructureError: a job failed.
    """
    _check(folder, seeds)
    if not offline:
        from flightschool.engines import get_model

        get_model(_embedded_model(), progress=tell)
    flights = []
    for seed in seeds:
        workspace = folder / f"seed-{seed}"
        tell(f"seed {seed}: {workspace}")
        flights.append(_flight(seed, workspace, watch(command(workspace, seed, offline))))
        flown = flights[-1]
        tell(f"seed {seed}: {flown.wall_s:.0f} s, {flown.peak_rss_mb:.0f} MB, {flown.success_after:.3f} after")
    return summarise_flights(flights, least_seeds=1 if quick else NUM_SEEDS)


def summarise_flights(flights: Sequence[SeedFlight], least_seeds: int = NUM_SEEDS) -> QuickstartBench:
    """Draw seeds together: slowest, largest, best before, worst after."""
    wall_s = max(flight.wall_s for flight in flights)
    peak_rss_mb = max(flight.peak_rss_mb for flight in flights)
    success_before = max(flight.success_before for flight in flights)
    success_after = min(flight.success_after for flight in flights)
    gain_low = min(flight.gain_low for flight in flights)
    rise = min(flight.perturbed_after - flight.perturbed_before for flight in flights)
    targets = (
        at_most("wall_s", wall_s, MOST_WALL_S),
        at_most("peak_rss_mb", peak_rss_mb, MOST_MEMORY_MB),
        at_most("success_before", success_before, MOST_SUCCESS_BEFORE),
        at_least("success_after", success_after, LEAST_SUCCESS_AFTER),
        more_than("gain_low", gain_low, 0.0),
        more_than("smallest rise under faults", rise, 0.0),
        at_least("number of seeds", len(flights), least_seeds),
    )
    return QuickstartBench(
        wall_s=wall_s,
        peak_rss_mb=peak_rss_mb,
        success_before=success_before,
        success_after=success_after,
        gain_low=gain_low,
        gain_high=max(flight.gain_high for flight in flights),
        perturbed_before=max(flight.perturbed_before for flight in flights),
        perturbed_after=min(flight.perturbed_after for flight in flights),
        report=flights[0].report,
        seeds=tuple(flights),
        targets=targets,
        met=all_met(targets),
    )


def _check(folder: Path, seeds: Sequence[int]) -> None:
    if not seeds or len(set(seeds)) < len(seeds):
        raise InputError(
            "no seeds, or one twice", where="--seeds", expected="distinct numbers, such as 0,1,2", mend="correct them"
        )
    used = [path for path in (folder / f"seed-{seed}" for seed in seeds) if path.exists()]
    if used:
        raise InputError(
            "a workspace of the benchmark exists already",
            where=str(used[0]),
            expected="a fresh folder: a job that finds its own results measures nothing",
            mend="remove it, or name another folder with --out",
        )


def _embedded_model() -> str:
    table = tomllib.loads((files("flightschool.stations") / "quickstart.toml").read_text(encoding="utf-8"))
    return str(table["model"]["name"])


def _flight(seed: int, workspace: Path, watched: Watched) -> SeedFlight:
    path = workspace / "quickstart.json"
    if watched.exit_code != 0:
        raise InfrastructureError(
            f"the job of seed {seed} ended with {watched.exit_code}: {_last_words(watched.stdout)}",
            where=str(workspace),
            expected="exit code 0",
            mend="run flightschool quickstart by itself and see what it says",
        )
    try:
        written = json.loads(path.read_bytes())
        figures = msgspec.convert(written, _Figures)
    except (OSError, ValueError) as error:
        raise InfrastructureError(
            f"the job of seed {seed} left no usable quickstart.json: {error}",
            where=str(path),
            expected="a JSON object with the job's figures",
            mend="run flightschool quickstart by itself and see what it says",
        ) from error
    return SeedFlight(
        seed=seed,
        workspace=str(workspace),
        wall_s=watched.wall_s,
        peak_rss_mb=watched.peak_bytes / 1e6,
        num_samples=watched.num_samples,
        figures=written,
        **msgspec.structs.asdict(figures),
    )


def _last_words(stdout: str) -> str:
    """What the job itself named as its error, if it did."""
    try:
        return str(json.loads(stdout)["error"]["what"])
    except (ValueError, KeyError, TypeError):
        return "no error was named"
