"""The instrument itself, measured: coverage of its intervals, errors of its tests, and what it costs beside Inspect.

Coverage of intervals and errors of the sequential test: see ``coverage``. Orchestration is
compared in one run on one machine with scripted models on both sides: ours makes two tool calls a sample, the peer
one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import msgspec

from flightschool.bench import inspect_loop
from flightschool.bench.coverage import (
    CLUSTERED_RATES,
    CORRELATIONS,
    RARE,
    STRATA_RATES,
    clustered_cell,
    exact_coverage,
    sequential_errors,
    weighted_coverage,
)
from flightschool.bench.targets import Target, all_met, at_least, at_most
from flightschool.errors import InfrastructureError
from flightschool.records import Record
from flightschool.statistics import (
    plan_sequential,
    required_pairs,
)

__all__ = [
    "EvaluationBench",
    "bench_evaluation",
    "install_peer",
    "peer_python",
]

TRIALS, RARE_TRIALS, QUICK_RARE_TRIALS = 20_000, 20_000, 2_000
FULL_SAMPLES, QUICK_SAMPLES = 100_000, 10_000
PEER_SAMPLES, QUICK_PEER_SAMPLES = 2_000, 500
SUMMARY_SAMPLES = 200_000
PEER_PACKAGE = "inspect-ai"
PEER_CLIENT = "openai"
"""With which it asks endpoints; the measurement needs none, running our suite under Inspect does."""
_INSTALLED = ".installed"
TIMEOUT_S = 1_800.0


class EvaluationBench(Record, frozen=True, kw_only=True):
    """What was measured. Figures of the peer are None where it could not be installed."""

    coverage_min: float
    coverage_max: float
    """Exact coverage of the interval of independent items, over all sizes and rates."""
    clustered_coverage_min: float
    """Coverage of the interval of 25 families of 8, over correlations and rates."""
    num_simulations: int
    """Of each cell."""
    rare_coverage_min: float
    """The same where failures are rare (.97): the conservative interval."""
    weighted_coverage_min: float
    """Coverage of the headline of a suite of 23 families in five strata weighted by traffic, over rates."""
    rare_warned: float
    """Share of the simulations with few failing families whose interval says so: 1."""
    type1_sequential: float
    """Exact error of the sequential comparison with a look after every item."""
    power_sequential: float
    """Exact power at the planned effect."""
    sample_ratio_sequential: float
    """Largest sample of the plan / sample of the fixed-size test."""
    mean_sample_ratio: float
    """Mean sample at the planned effect / sample of the fixed-size test."""
    cpu_ms_per_sample: float
    bytes_per_sample: float
    rss_mb: float
    num_samples: int
    summary_s_200k: float
    inspect_cpu_ms_per_sample: float | None
    inspect_bytes_per_sample: float | None
    inspect_version: str
    """Empty where it was not measured."""
    ratio: float | None
    read_ratio: float | None
    """Peer's time to read a sample back in full / ours."""
    targets: tuple[Target, ...]

    @property
    def met(self) -> bool:
        """Whether every promise was kept, the peer's figures included."""
        return all_met(self.targets) and self.ratio is not None


def bench_evaluation(
    *, quick: bool = False, peer: bool = True, folder: Path | None = None, tell: Callable[[str], None] = lambda _: None
) -> EvaluationBench:
    """Measure everything.

    Args:
        quick: fewer samples, and fewer simulations of rare failures.
        peer: install and measure Inspect in an environment of its own.
        folder: keeps the peer's environment; by default ``flightschool/peers`` in the user's cache.
        tell: is told of progress.

    Raises:
        InfrastructureError: a measuring process died.
    """
    figures = _coverages(quick, tell) | _sequential(tell)
    with tempfile.TemporaryDirectory(prefix="flightschool-bench-") as scratch:
        ours = _ours(Path(scratch), QUICK_SAMPLES if quick else FULL_SAMPLES, tell)
        theirs = _peer(peer_python(folder), Path(scratch), quick, tell) if peer else None
    figures |= {
        "cpu_ms_per_sample": ours["cpu_ms"],
        "bytes_per_sample": ours["bytes"],
        "rss_mb": ours["rss_mb"],
        "summary_s_200k": ours["summary_s"],
    }
    ratio = read_ratio = None
    if theirs is not None:
        ratio = theirs.figures["cpu_ms"] / ours["cpu_ms"]
        read_ratio = (theirs.figures["read_s"] / theirs.figures["samples"]) / (ours["read_s"] / ours["samples"])
    return EvaluationBench(
        **figures,
        num_simulations=TRIALS,
        num_samples=int(ours["samples"]),
        inspect_cpu_ms_per_sample=None if theirs is None else theirs.figures["cpu_ms"],
        inspect_bytes_per_sample=None if theirs is None else theirs.figures["bytes"],
        inspect_version="" if theirs is None else theirs.version,
        ratio=ratio,
        read_ratio=read_ratio,
        targets=_targets(figures, ratio, read_ratio),
    )


def _coverages(quick: bool, tell: Callable[[str], None]) -> dict[str, float]:
    """Coverage of the intervals; the cells are simulated side by side, one process a core."""
    tell("coverage of the exact interval")
    exact = exact_coverage()
    rare_trials = QUICK_RARE_TRIALS if quick else RARE_TRIALS
    tell(f"coverage of the clustered interval, {TRIALS} simulations a cell")
    cells = [(icc, rate, TRIALS) for icc in CORRELATIONS for rate in CLUSTERED_RATES]
    cells += [(icc, RARE, rare_trials) for icc in CORRELATIONS]
    with ProcessPoolExecutor(max_workers=os.cpu_count(), mp_context=get_context("spawn")) as pool:
        weighing = pool.map(weighted_coverage, STRATA_RATES)
        found, weighted = list(pool.map(clustered_cell, cells)), list(weighing)
    common, rare = found[: -len(CORRELATIONS)], found[-len(CORRELATIONS) :]
    return {
        "coverage_min": min(exact),
        "coverage_max": max(exact),
        "clustered_coverage_min": min(one.coverage for one in common),
        "rare_coverage_min": min(one.coverage for one in rare),
        "weighted_coverage_min": min(weighted),
        "rare_warned": min(one.warned for one in rare),
    }


def _sequential(tell: Callable[[str], None]) -> dict[str, float]:
    tell("errors of the sequential comparison")
    plan, fixed = plan_sequential(0.1, 0.3), required_pairs(0.1, 0.3)
    type1, _ = sequential_errors(plan, 0.0, 0.3)
    power, mean = sequential_errors(plan, 0.1, 0.3)
    return {
        "type1_sequential": type1,
        "power_sequential": power,
        "sample_ratio_sequential": plan.num_pairs / fixed,
        "mean_sample_ratio": mean / fixed,
    }


# ------------------------------------------------------------------------------------------------ processes


def _ours(scratch: Path, samples: int, tell: Callable[[str], None]) -> dict[str, float]:
    from flightschool.bench.evaluation_load import make_summary

    tell(f"{samples} samples of our own tool loop")
    module = "flightschool.bench.evaluation_load"
    place = scratch / "ours"
    place.mkdir()
    found = _answer([sys.executable, "-m", module, "run", str(samples), str(place)])
    found |= {"read_s": _answer([sys.executable, "-m", module, "read", "0", str(place)])["read_s"]}
    tell(f"a summary of {SUMMARY_SAMPLES} samples")
    make_summary(scratch, SUMMARY_SAMPLES)
    found |= {"summary_s": _answer([sys.executable, "-m", module, "summary", "0", str(scratch)])["summary_s"]}
    return found


class _Peer(Record, frozen=True, kw_only=True):
    """What the peer took."""

    version: str
    figures: dict[str, float]


def peer_python(folder: Path | None = None) -> Path:
    """Inspect's Python, in an environment of its own that is kept in the user's cache from run to run."""
    base = os.environ.get("XDG_CACHE_HOME")
    cache = (Path(base) if base else Path.home() / ".cache") / "flightschool" / "peers"
    return (folder or cache) / "inspect" / "bin" / "python"


def _peer(python: Path, scratch: Path, quick: bool, tell: Callable[[str], None]) -> _Peer | None:
    """Inspect in an environment of its own; None where it cannot be installed."""
    if not install_peer(python, tell):
        return None
    samples = QUICK_PEER_SAMPLES if quick else PEER_SAMPLES
    asked = "import importlib.metadata as m; print(m.version('inspect-ai'))"
    version = subprocess.run([str(python), "-c", asked], capture_output=True, check=False).stdout.decode().strip()
    tell(f"{samples} samples of the peer's tool loop ({PEER_PACKAGE} {version})")
    found = _answer([str(python), str(inspect_loop.__file__), str(samples), str(scratch / "logs")])
    return _Peer(version=version, figures=found)


def install_peer(python: Path, tell: Callable[[str], None] = lambda _: None) -> bool:
    """Install Inspect where ``peer_python`` says, unless it is there; whether it is there now."""
    home = python.parent.parent
    if (home / _INSTALLED).is_file():  # written last: an installation that was cut short begins anew
        return True
    tell(f"installing {PEER_PACKAGE} into {home}")
    shutil.rmtree(home, ignore_errors=True)
    made = subprocess.run([sys.executable, "-m", "venv", str(home)], capture_output=True, check=False)
    if made.returncode == 0:
        install = [str(python), "-m", "pip", "install", "--quiet", PEER_PACKAGE, PEER_CLIENT]
        made = subprocess.run(install, capture_output=True, timeout=TIMEOUT_S, check=False)
    if made.returncode:
        said = made.stderr.decode(errors="replace").strip().splitlines()
        tell(f"{PEER_PACKAGE} could not be installed, its figures are left out: {said[-1] if said else 'no word'}")
        shutil.rmtree(home, ignore_errors=True)
        return False
    (home / _INSTALLED).touch()
    return True


def _answer(command: Sequence[str]) -> dict[str, float]:
    done = subprocess.run(command, capture_output=True, timeout=TIMEOUT_S, check=False)
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise InfrastructureError(
            f"a measuring process died: {said[-1] if said else 'it said nothing'}",
            where=" ".join(command[:4]),
            expected="one JSON object",
            mend="free memory and disk, and run again",
        )
    return msgspec.json.decode(done.stdout.strip().splitlines()[-1], type=dict[str, float])


def _targets(figures: dict[str, float], ratio: float | None, read_ratio: float | None) -> tuple[Target, ...]:
    found = [
        at_least("coverage_min", figures["coverage_min"], 0.95),
        at_most("coverage_max", figures["coverage_max"], 0.985),
        at_least("clustered_coverage_min", figures["clustered_coverage_min"], 0.93),
        at_least("rare_coverage_min", figures["rare_coverage_min"], 0.93),
        at_least("weighted_coverage_min", figures["weighted_coverage_min"], 0.93),
        at_least("rare_warned", figures["rare_warned"], 1.0),
        at_most("type1_sequential", figures["type1_sequential"], 0.05),
        at_least("power_sequential", figures["power_sequential"], 0.8),
        at_most("sample_ratio_sequential", round(figures["sample_ratio_sequential"], 2), 1.3),
        at_most("cpu_ms_per_sample", figures["cpu_ms_per_sample"], 2.0),
        at_most("bytes_per_sample", figures["bytes_per_sample"], 3000.0),
        at_most("rss_mb", figures["rss_mb"], 200.0),
        at_most("summary_s_200k", figures["summary_s_200k"], 1.0),
    ]
    if ratio is not None and read_ratio is not None:
        found += [at_least("ratio", ratio, 8.0), at_least("read_ratio", read_ratio, 10.0)]
    return tuple(found)
