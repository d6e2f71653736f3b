"""What a sandbox costs, beside what it cannot do without and beside other mechanisms: ratios measured in one run.

What is compared is made in turns, one after the other, so that other people's use of the machine meets all of it. Start
means: opened, ``true`` run in it, destroyed and reaped; no warm pool. Targets are held to the quietest round, since
interference only ever adds; medians over all rounds stand beside them.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import psutil

from flightschool.bench.sandbox_floor import Bubblewrap, Floor, Runc, bubblewrap, floor, runc
from flightschool.bench.sandbox_leaks import fly_and_count, grown
from flightschool.bench.sandbox_task import light_task_s, parse_rate
from flightschool.bench.targets import Target, at_least, at_most
from flightschool.errors import InfrastructureError
from flightschool.records import Record
from flightschool.sandbox import NativeProvider, Sandbox, SandboxSpec, try_mechanisms

__all__ = ["SandboxBench", "bench_sandbox"]

CORES = 2
CONCURRENCY = 8
MOST_RATIO = 2.0
LEAST_PER_S = 250.0
MOST_EXEC_MS = 2.0
MOST_LIVE_MIB = 6.0
LEAST_VS_BUBBLEWRAP = 3.0
LEAST_VS_RUNC = 4.0
MOST_TASK_S = 1.5
LEAST_PARSED_PER_S = 350.0
"""3,500 task folders in 10 seconds."""
_MIB = 1 << 20


class SandboxBench(Record, frozen=True, kw_only=True):
    """What was measured. None: not installed here, or no compiler."""

    mechanism: str
    """As ``flightschool doctor`` names it."""
    launcher: str
    """What makes the sandboxes: the native helper, or Python."""
    uid: int
    """Of the user who measured."""
    cores: int
    floor_ms_p50: float | None
    """A bare clone in C with the same namespaces and mounts, `true`, wait."""
    start_ms_p50: float
    """Opened, `true`, destroyed and reaped."""
    python_start_ms_p50: float | None
    """The same by the launcher in Python, where the helper is used."""
    ratio_to_floor: float | None
    """Median start / median floor, in the quietest round."""
    ratio_to_floor_p50: float | None
    """Median of the same over rounds."""
    per_s_at_8: float
    """Sandboxes started, used and destroyed a second, eight at a time, in the quietest round."""
    per_s_at_8_p50: float
    floor_per_s_at_8: float | None
    """Bare clones a second by eight processes, in the quietest round."""
    exec_ms_p50: float
    """`true` in a live sandbox, median of the quietest round."""
    live_mib: float
    """MiB a live idle sandbox: proportional sets of its processes, its files, and what the kernel's slabs grew by."""
    bubblewrap_ms_p50: float | None
    """A fresh `bwrap` for each command."""
    vs_bubblewrap: float | None
    """Commands a second in a live sandbox / commands a second by a bubblewrap each, median over rounds."""
    runc_ms_p50: float | None
    vs_runc: float | None
    """Starts a second / starts a second by runc, median over rounds."""
    harbor_parse_tasks_per_s: float
    """Task folders of the Harbor format read a second."""
    light_task_s: float | None
    """A small task from the start of the command to its verdict, its image built before; median."""
    num_rounds: int
    num_starts: int
    """In all rounds together, one at a time."""
    num_episodes: int
    """Littering episodes flown to see what is left behind; 0 when that was not asked for."""
    left_behind: dict[str, int] | None
    """What there was more of after them, by kind."""
    targets: tuple[Target, ...]
    met: bool


class _Round:
    """Samples of one round, in milliseconds by what was measured."""

    def __init__(self) -> None:
        self.samples: dict[str, list[float]] = {}
        self.rates: dict[str, float] = {}

    def add(self, name: str, value: float) -> None:
        self.samples.setdefault(name, []).append(value)

    def median(self, name: str) -> float | None:
        return statistics.median(self.samples[name]) if name in self.samples else None

    def ratio(self, name: str, other: str) -> float | None:
        above, below = self.median(name), self.median(other)
        return None if above is None or below is None else above / below


def bench_sandbox(
    *, quick: bool = False, num_episodes: int = 0, tell: Callable[[str], None] = lambda _: None
) -> SandboxBench:
    """Measure the native mechanism of the present user.

    Args:
        quick: fewer rounds and folders; under two minutes.
        num_episodes: littering episodes to fly and count what they leave; 0 for none.
        tell: told what is going on.

    Raises:
        InfrastructureError: no sandbox can be made here natively.
    """
    mode = "range" if os.geteuid() == 0 else "single"
    folder = Path(tempfile.mkdtemp(prefix="flightschool-bench-"))
    folder.chmod(0o755)
    bare: Floor | None = None
    try:
        with _on_cores(CORES) as cores:
            bare = floor(folder, mode)
            rivals = _Rivals(bare, bubblewrap(), runc(folder / "runc"))
            return asyncio.run(_measured(rivals, QUICK if quick else FULL, folder, cores, num_episodes, tell))
    finally:
        if bare is not None:
            bare.close()
        shutil.rmtree(folder, ignore_errors=True)


class Sizes(NamedTuple):
    """How much is measured."""

    rounds: int
    starts: int
    """One at a time, in a round."""
    many: int
    """Eight at a time, in a round."""
    live: int
    folders: int
    tasks: int
    """Small tasks, one after the other."""


QUICK = Sizes(rounds=6, starts=16, many=96, live=20, folders=700, tasks=3)
FULL = Sizes(rounds=15, starts=24, many=96, live=20, folders=3500, tasks=7)


class _Rivals(NamedTuple):
    """What stands beside the sandbox, where it is here."""

    bare: Floor | None
    bwrap: Bubblewrap | None
    container: Runc | None


@contextmanager
def _on_cores(count: int) -> Iterator[int]:
    """Keep this process and all it starts to so many cores."""
    before = os.sched_getaffinity(0)
    chosen = set(sorted(before)[:count])
    os.sched_setaffinity(0, chosen)
    try:
        yield len(chosen)
    finally:
        os.sched_setaffinity(0, before)


async def _measured(
    rivals: _Rivals, sizes: Sizes, folder: Path, cores: int, num_episodes: int, tell: Callable[[str], None]
) -> SandboxBench:
    provider, in_python = NativeProvider(), NativeProvider(helper=False)
    try:
        async with provider.open(SandboxSpec()) as box:
            launcher = next(line for line in box.enforcement if line.limit == "launcher")
        helped = launcher.mechanism.endswith("C")
        rounds = []
        for number in range(sizes.rounds):
            tell(f"round {number + 1} of {sizes.rounds}")
            rounds.append(await _round(rivals, sizes, provider, in_python if helped else None))
        live_mib = await _live_mib(provider, sizes.live)
        before_after = None
        if num_episodes:
            tell(f"{num_episodes} littering episodes")
            before_after = await fly_and_count(provider, num_episodes)
    except InfrastructureError as error:
        tried = "; ".join(f"{one.name}: {one.found}" for one in await try_mechanisms())
        raise InfrastructureError(
            f"{error.what} ({tried})", where="bench sandbox", expected="a native sandbox", mend=error.mend
        ) from error
    finally:
        await provider.aclose()
        await in_python.aclose()
    tell("reading task folders")
    return _summary(
        rounds,
        num_starts=sizes.rounds * sizes.starts,
        mechanism=provider.name,
        launcher=f"{launcher.mechanism} ({launcher.bound})",
        cores=cores,
        live_mib=live_mib,
        parsed=parse_rate(folder / "tasks", sizes.folders),
        task_s=light_task_s(folder / "light", sizes.tasks),
        num_episodes=num_episodes,
        left_behind=None if before_after is None else grown(*before_after),
    )


async def _round(rivals: _Rivals, sizes: Sizes, provider: NativeProvider, in_python: NativeProvider | None) -> _Round:
    found = _Round()
    async with provider.open(SandboxSpec()) as live:
        turns = _turns(rivals, provider, in_python, live)
        for number in range(sizes.starts):
            # There and back: the kernel takes a network namespace apart behind the back of whatever comes next.
            for name, measure in turns if number % 2 == 0 else reversed(turns):
                if name != "runc" or number % 4 == 0:
                    found.add(name, await measure())
    if rivals.bare is not None:
        found.rates["floor"] = rivals.bare.rate(sizes.many, CONCURRENCY)
    found.rates["start"] = await _rate(provider, sizes.many)
    return found


def _turns(
    rivals: _Rivals, provider: NativeProvider, in_python: NativeProvider | None, live: Sandbox
) -> list[tuple[str, Callable[[], Awaitable[float]]]]:
    """What is measured in turns: name → milliseconds of one."""

    async def command() -> float:
        began = time.perf_counter()
        await live.exec(["true"])
        return (time.perf_counter() - began) * 1e3

    async def bare() -> float:
        return rivals.bare.once() if rivals.bare is not None else 0.0

    turns: list[tuple[str, Callable[[], Awaitable[float]]]] = []
    if rivals.bare is not None:
        turns.append(("floor", bare))
    turns.append(("start", lambda: _start_ms(provider)))
    if in_python is not None:
        turns.append(("python", lambda: _start_ms(in_python)))
    turns.append(("exec", command))
    for name, rival in (("bubblewrap", rivals.bwrap), ("runc", rivals.container)):
        if rival is not None:
            turns.append((name, partial(asyncio.to_thread, rival.once)))
    return turns


async def _start_ms(provider: NativeProvider) -> float:
    began = time.perf_counter()
    async with provider.open(SandboxSpec()) as box:
        await box.exec(["true"])
    return (time.perf_counter() - began) * 1e3


async def _rate(provider: NativeProvider, count: int) -> float:
    gate = asyncio.Semaphore(CONCURRENCY)

    async def one() -> None:
        async with gate:
            await _start_ms(provider)

    began = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(count)))
    return count / (time.perf_counter() - began)


async def _live_mib(provider: NativeProvider, count: int) -> float:
    """MiB for each of ``count`` idle sandboxes that have run a command."""
    before = _kernel_bytes()
    boxes = [await provider.start(SandboxSpec()) for _ in range(count)]
    try:
        used = 0
        for box in boxes:
            told = await box.exec(["stat", "-f", "-c", "%b %f %S", "/"])
            blocks, free, size = (int(word) for word in told.stdout.split())
            used += (blocks - free) * size
        below = psutil.Process(provider.launcher_pid).children(recursive=True)
        processes = sum(_process_bytes(process) for process in below)
        return (used + processes + max(0, _kernel_bytes() - before)) / count / _MIB
    finally:
        for box in boxes:
            await box.close()


def _process_bytes(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().pss)
    except psutil.AccessDenied:  # an ordinary user: then pages that are shared count whole
        return int(process.memory_info().rss)


def _kernel_bytes() -> int:
    wanted = ("SUnreclaim:", "KernelStack:")
    lines = Path("/proc/meminfo").read_text().splitlines()
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith(wanted))


# ------------------------------------------------------------------------------------------------ drawing together


def _all(rounds: list[_Round], name: str) -> float | None:
    """Median over all samples."""
    together = [value for one in rounds for value in one.samples.get(name, ())]
    return statistics.median(together) if together else None


def _over_rounds(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _quietest(rounds: list[_Round]) -> _Round:
    return min(rounds, key=lambda one: (one.median("floor") or 0.0) + (one.median("start") or 0.0))


def _if_known(
    judge: Callable[[str, float, float], Target], name: str, value: float | None, bound: float
) -> tuple[Target, ...]:
    """The target of a figure, where the machine gave one."""
    return () if value is None else (judge(name, value, bound),)


def _summary(
    rounds: list[_Round],
    *,
    num_starts: int,
    mechanism: str,
    launcher: str,
    cores: int,
    live_mib: float,
    parsed: float,
    task_s: float | None,
    num_episodes: int,
    left_behind: dict[str, int] | None,
) -> SandboxBench:
    nan = float("nan")
    ratio = _quietest(rounds).ratio("start", "floor")
    per_s = max(one.rates["start"] for one in rounds)
    exec_ms = min(one.median("exec") or nan for one in rounds)
    vs_bubblewrap = _over_rounds([one.ratio("bubblewrap", "exec") for one in rounds])
    vs_runc = _over_rounds([one.ratio("runc", "start") for one in rounds])
    floor_rates = [one.rates["floor"] for one in rounds if "floor" in one.rates]
    targets = [
        *_if_known(at_most, "ratio_to_floor", ratio, MOST_RATIO),
        at_least("per_s_at_8", per_s, LEAST_PER_S),
        at_most("exec_ms_p50", exec_ms, MOST_EXEC_MS),
        at_most("live_mib", live_mib, MOST_LIVE_MIB),
        at_least("harbor_parse_tasks_per_s", parsed, LEAST_PARSED_PER_S),
        *_if_known(at_most, "light_task_s", task_s, MOST_TASK_S),
        *_if_known(at_least, "vs_bubblewrap", vs_bubblewrap, LEAST_VS_BUBBLEWRAP),
        *_if_known(at_least, "vs_runc", vs_runc, LEAST_VS_RUNC),
        *_if_known(at_most, "left_behind", None if left_behind is None else float(sum(left_behind.values())), 0.0),
    ]
    return SandboxBench(
        mechanism=mechanism,
        launcher=launcher,
        uid=os.geteuid(),
        cores=cores,
        floor_ms_p50=_all(rounds, "floor"),
        start_ms_p50=_all(rounds, "start") or nan,
        python_start_ms_p50=_all(rounds, "python"),
        ratio_to_floor=ratio,
        ratio_to_floor_p50=_over_rounds([one.ratio("start", "floor") for one in rounds]),
        per_s_at_8=per_s,
        per_s_at_8_p50=statistics.median(one.rates["start"] for one in rounds),
        floor_per_s_at_8=max(floor_rates) if floor_rates else None,
        exec_ms_p50=exec_ms,
        live_mib=live_mib,
        bubblewrap_ms_p50=_all(rounds, "bubblewrap"),
        vs_bubblewrap=vs_bubblewrap,
        runc_ms_p50=_all(rounds, "runc"),
        vs_runc=vs_runc,
        harbor_parse_tasks_per_s=parsed,
        light_task_s=task_s,
        num_rounds=len(rounds),
        num_starts=num_starts,
        num_episodes=num_episodes,
        left_behind=left_behind,
        targets=tuple(targets),
        met=all(target.met for target in targets),
    )
