"""Episodes by the thousand, and what they left behind, counted before and after."""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path

import msgspec
import psutil

from flightschool.records import Record
from flightschool.sandbox import NativeProvider, SandboxSpec

__all__ = ["SEGMENT_BYTES", "Leftovers", "count_leftovers", "fly_and_count"]

MARK = "fs-left"
SEGMENT_BYTES = 19_553
"""Marks System V memory, which has no name: what else runs on this host makes and ends segments meanwhile."""
CONCURRENCY = 8
_LITTER = (
    f"echo $$ > /tmp/{MARK}-$$; echo $$ > /dev/shm/{MARK}-$$; mkfifo /tmp/{MARK}-fifo;"
    f" if command -v ipcmk >/dev/null; then ipcmk -M {SEGMENT_BYTES} >/dev/null; fi;"
    f" (setsid sleep 955 >/dev/null 2>&1 &) ; sleep 954 >/dev/null 2>&1 & cat /tmp/{MARK}-$$"
)


class Leftovers(Record, frozen=True, kw_only=True):
    """How much there is of what episodes could leave behind."""

    descriptors: int
    """Of this process and of its launchers."""
    processes: int
    """Below this process, launchers apart; zombies count."""
    zombies: int
    mounts: int
    """Lines of the mount table that this process and its launchers see."""
    namespaces: int
    """Distinct ones, of processes below this one."""
    cgroups: int
    segments: int
    """System V memory of the marked size, and marked files of POSIX memory."""
    files: int
    """Marked ones in the host's temporary folders, and all in the folder for temporary files of this run."""


def count_leftovers(launchers: tuple[int, ...] = (), folder: Path | None = None) -> Leftovers:
    """Count now.

    Args:
        launchers: process ids of launchers that live.
        folder: temporary folder of this run.
    """
    own = psutil.Process()
    below = own.children(recursive=True)
    watched = [own, *(psutil.Process(pid) for pid in launchers)]
    tables = [Path(f"/proc/{process.pid}/mountinfo").read_text() for process in watched]
    temporary = {Path("/tmp"), Path("/var/tmp"), Path(tempfile.gettempdir())}
    marked = [path for place in temporary if place.is_dir() for path in place.glob(f"{MARK}*")]
    in_memory = list(Path("/dev/shm").glob(f"{MARK}*"))
    segments = _marked_segments() + len(in_memory)
    return Leftovers(
        descriptors=sum(process.num_fds() for process in watched),
        processes=len(below) - len(launchers),
        zombies=sum(_status(process) == psutil.STATUS_ZOMBIE for process in below),
        mounts=sum(len(table.splitlines()) for table in tables),
        namespaces=len(set().union(*(_namespaces(process.pid) for process in (own, *below)))),
        cgroups=sum(1 for _ in Path("/sys/fs/cgroup").glob("*/**/")),
        segments=segments,
        files=len(marked) + (sum(len(names) for _, _, names in os.walk(folder)) if folder is not None else 0),
    )


def _marked_segments() -> int:
    try:
        rows = Path("/proc/sysvipc/shm").read_text().splitlines()[1:]
    except OSError:  # a kernel without System V memory
        return 0
    return sum(int(row.split()[3]) == SEGMENT_BYTES for row in rows)


def _status(process: psutil.Process) -> str:
    try:
        return str(process.status())
    except psutil.NoSuchProcess:
        return ""


def _namespaces(pid: int) -> set[str]:
    found = set()
    for name in ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup"):
        try:
            found.add(os.readlink(f"/proc/{pid}/ns/{name}"))  # noqa: PTH115 - not a path but a name
        except OSError:  # it ended, or it hides them: then it is counted as a process
            continue
    return found


async def fly_and_count(
    provider: NativeProvider, num_episodes: int, *, concurrency: int = CONCURRENCY, folder: Path | None = None
) -> tuple[Leftovers, Leftovers]:
    """Run episodes that litter: files, shared memory, a FIFO, daemons. What there was before, and what is after.

    Args:
        provider: has its launcher running after this; stays the caller's.
        num_episodes: how many, each in a sandbox of its own.
        concurrency: sandboxes at a time.
        folder: temporary folder of this run.

    Raises:
        InfrastructureError: an episode was lost.
    """
    gate = asyncio.Semaphore(concurrency)

    async def episode() -> None:
        async with gate, provider.open(SandboxSpec()) as box:
            told = await box.exec(_LITTER)
            assert told.stdout.strip().isdigit(), told
            await box.stop()
            await box.get(f"/tmp/{MARK}-{told.stdout.decode().strip()}")

    await asyncio.gather(*(episode() for _ in range(concurrency)))
    launchers = () if provider.launcher_pid is None else (provider.launcher_pid,)
    before = count_leftovers(launchers, folder)
    for start in range(0, num_episodes, 500):
        await asyncio.gather(*(episode() for _ in range(min(500, num_episodes - start))))
    after = count_leftovers(launchers, folder)
    for _ in range(50):  # the kernel takes some things apart a little later
        if after == before:
            break
        await asyncio.sleep(0.1)
        after = count_leftovers(launchers, folder)
    return before, after


def grown(before: Leftovers, after: Leftovers) -> dict[str, int]:
    """What there is more of, by name; empty when nothing was left."""
    first, last = msgspec.structs.asdict(before), msgspec.structs.asdict(after)
    return {name: last[name] - first[name] for name in first if last[name] > first[name]}
