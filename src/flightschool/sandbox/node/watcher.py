"""Counts what a sandbox uses, from inside: needs no cgroup and no privilege, sees every process of the pid namespace.

The cheap sum (resident sets, pages shared counted once a process) is an upper bound; only when it passes the limit is
the exact one taken (proportional anonymous and shared memory). Not seen: shared anonymous pages that a process unmapped
from its page tables but kept the mapping of; those are bounded by pids x address space only.
"""

from __future__ import annotations

import os
import resource
from dataclasses import dataclass
from typing import Final

from flightschool.sandbox.node.plan import Plan

__all__ = ["Usage", "others", "pause_s", "processes_of", "usage"]

_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_TICK: Final = os.sysconf("SC_CLK_TCK")
_FASTEST_BYTES_PER_S: Final = 4 << 30
_SHORTEST_S, _LONGEST_S = 0.005, 0.2


@dataclass(frozen=True)
class Usage:
    """What all processes but the agent use now."""

    processes: int
    memory_bytes: int
    """An upper bound below the limit, near exact above it."""
    cpu_s: float
    """Of living and of reaped processes."""


def others() -> list[int]:
    """Every process but the agent and the init, which are one except under a relay."""
    own = {"1", str(os.getpid())}
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and name not in own]  # noqa: PTH208 - hot


def usage(plan: Plan) -> Usage:
    """Count."""
    pids = others()
    reaped = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = reaped.ru_utime + reaped.ru_stime
    memory = _system_v_bytes()
    for pid in pids:
        resident, seconds = _of_process(pid)
        memory += resident
        cpu_s += seconds
    if memory > plan.memory_bytes:
        memory = _system_v_bytes() + sum(_exact_bytes(pid) for pid in pids)
    return Usage(len(pids), memory, cpu_s)


def pause_s(plan: Plan, used: Usage) -> float:
    """Until the next look: no longer than memory could take to fill at a fast machine's speed."""
    left = max(0, plan.memory_bytes - used.memory_bytes)
    return min(_LONGEST_S, max(_SHORTEST_S, left / _FASTEST_BYTES_PER_S))


def _of_process(pid: int) -> tuple[int, float]:
    try:
        words = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    except OSError:  # it ended
        return 0, 0.0
    user, system, of_children_user, of_children_system = (int(words[place]) for place in (11, 12, 13, 14))
    return int(words[21]) * _PAGE, (user + system + of_children_user + of_children_system) / _TICK


def _exact_bytes(pid: int) -> int:
    try:
        text, wanted = _read(f"/proc/{pid}/smaps_rollup"), (b"Pss_Anon:", b"Pss_Shmem:")
    except OSError:  # it ended, or it made itself unreadable: then its whole resident sets count
        try:
            text, wanted = _read(f"/proc/{pid}/status"), (b"RssAnon:", b"RssShmem:")
        except OSError:
            return 0
    return sum(int(line.split()[1]) << 10 for line in text.splitlines() if line.startswith(wanted))


def _system_v_bytes() -> int:
    """Shared memory segments live on without a process, so no process's figures hold them."""
    try:  # whole: small segments could be made first, to push large ones out of a part that is read
        with open("/proc/sysvipc/shm", "rb") as file:  # noqa: PTH123 - hot
            lines = file.read().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[14]) for line in lines[1:])


def _read(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, 1 << 16)
    finally:
        os.close(fd)


def processes_of(session: int, root: int) -> list[int]:
    """Processes of one session, and the descendants of one process whatever their session."""
    parents: dict[int, int] = {}
    found: set[int] = set()
    for pid in others():
        try:
            words = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
        except OSError:
            continue
        parents[pid] = int(words[1])
        if int(words[3]) == session:
            found.add(pid)
    found.add(root)
    grew = True
    while grew:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        found |= more
        grew = bool(more)
    return [pid for pid in found if pid in parents]
