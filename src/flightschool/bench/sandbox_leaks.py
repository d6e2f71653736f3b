"""Episodes by the thousand, and what they left behind, counted before and after.

Only what is ours is counted: processes below this one, and what bears a mark of this process (names of files, sizes of
segments and of file systems, names of control groups). Whatever else runs on the host comes and goes as it likes.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path

import msgspec
import psutil

from flightschool.records import Record
from flightschool.sandbox import Limits, NativeProvider, SandboxSpec
from flightschool.sandbox.cgroups import GROUP_PREFIX

__all__ = ["Leftovers", "count_leftovers", "disk_bytes", "fly_and_count", "grown", "segment_bytes"]

CONCURRENCY = 8
_PAGE = 4096
_DISK_BYTES = 512 << 20


def mark() -> str:
    """Beginning of the names of files that the episodes of this process write."""
    return f"fs-left-{os.getpid()}-"


def segment_bytes() -> int:
    """Size of the System V memory that they make, which has no name."""
    return 10_007 + os.getpid() % 99_991


def disk_bytes() -> int:
    """Size of their file systems: the mount table shows it, and everything else of a sandbox is mounted beneath."""
    return _DISK_BYTES + os.getpid() % 65_521 * _PAGE


def _litter() -> str:
    name = mark()
    return (
        f"echo $$ > /tmp/{name}$$; echo $$ > /dev/shm/{name}$$; mkfifo /tmp/{name}fifo;"
        f" if command -v ipcmk >/dev/null; then ipcmk -M {segment_bytes()} >/dev/null; fi;"
        f" (setsid sleep 955 >/dev/null 2>&1 &) ; sleep 954 >/dev/null 2>&1 & cat /tmp/{name}$$"
    )


class Leftovers(Record, frozen=True, kw_only=True):
    """How much there is of what episodes could leave behind."""

    descriptors: int
    """Of this process and of its launchers."""
    processes: int
    """Below this process, launchers apart; zombies count."""
    zombies: int
    mounts: int
    """Marked file systems, and what is mounted beneath them, where this process and its launchers see them."""
    namespaces: int
    """Distinct ones, of processes below this one."""
    cgroups: int
    """Made for this process's sandboxes."""
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
    marked = [path for place in temporary if place.is_dir() for path in place.glob(f"{mark()}*")]
    in_memory = list(Path("/dev/shm").glob(f"{mark()}*"))
    segments = _marked_segments() + len(in_memory)
    return Leftovers(
        descriptors=sum(process.num_fds() for process in watched),
        processes=len(below) - len(launchers),
        zombies=sum(_status(process) == psutil.STATUS_ZOMBIE for process in below),
        mounts=sum(map(_marked_mounts, tables)),
        namespaces=len(set().union(*(_namespaces(process.pid) for process in (own, *below)))),
        cgroups=sum(1 for _ in Path("/sys/fs/cgroup").glob(f"**/{GROUP_PREFIX}{os.getpid()}-*/**/")),
        segments=segments,
        files=len(marked) + (sum(len(names) for _, _, names in os.walk(folder)) if folder is not None else 0),
    )


def _marked_segments() -> int:
    try:
        rows = Path("/proc/sysvipc/shm").read_text().splitlines()[1:]
    except OSError:  # a kernel without System V memory
        return 0
    return sum(int(row.split()[3]) == segment_bytes() for row in rows)


def _marked_mounts(table: str) -> int:
    """Lines of a mount table (``/proc/PID/mountinfo``) that are a marked file system, or are mounted beneath one."""
    ours: set[str] = set()
    size = f"size={disk_bytes() >> 10}k"
    for line in table.splitlines():  # a mount stands after the one that it is mounted on
        number, above = line.split()[:2]
        if above in ours or size in line.rpartition(" - ")[2].split()[-1].split(","):
            ours.add(number)
    return len(ours)


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
    gate, litter = asyncio.Semaphore(concurrency), _litter()

    async def episode() -> None:
        async with gate, provider.open(SandboxSpec(limits=Limits(disk_bytes=disk_bytes()))) as box:
            told = await box.exec(litter)
            assert told.stdout.strip().isdigit(), told
            await box.stop()
            await box.get(f"/tmp/{mark()}{told.stdout.decode().strip()}")

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
