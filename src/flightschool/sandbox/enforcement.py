"""The honest lines: which limit is kept by what, and how exactly."""

from __future__ import annotations

from collections.abc import Collection

from flightschool.sandbox.cgroups import ControlGroups, memory_max
from flightschool.sandbox.records import Enforcement, Limits, SandboxSpec

__all__ = ["native_enforcement", "spawned_enforcement"]


def native_enforcement(
    spec: SandboxSpec, mode: str, without: Collection[str], groups: ControlGroups | str = "they were not looked for"
) -> tuple[Enforcement, ...]:
    """Of the native mechanism (its agent is the same in the others).

    Args:
        spec: the sandbox.
        mode: ``range`` or ``single``.
        without: defences that are left out.
        groups: the control groups that it is put into one of, or why into none.
    """
    limits = spec.limits
    ids = "host ids from an unprivileged range of its own" if mode == "range" else "the caller's own id, never 0"
    lines = [
        _memory(limits, groups),
        Enforcement(limit="address_space_bytes", mechanism="RLIMIT_AS", bound="exact, each process"),
        _pids(groups),
        Enforcement(limit="disk_bytes", mechanism="size of its tmpfs", bound="exact; beside memory_bytes, not in it"),
        Enforcement(limit="inodes", mechanism="nr_inodes of its tmpfs", bound="exact"),
        Enforcement(limit="open_files", mechanism="RLIMIT_NOFILE", bound="exact, each process"),
        Enforcement(
            limit="cpu_s",
            mechanism="watcher in the sandbox; RLIMIT_CPU for each command",
            bound="and for a moment pids x 200 ms",
        ),
        _cpus(limits, groups),
        Enforcement(
            limit="wall_s", mechanism="clock of the agent, then of the launcher", bound="30 s more if the agent hangs"
        ),
        Enforcement(limit="network", mechanism="network namespace with loopback only; socket families", bound="none"),
        Enforcement(limit="ids", mechanism="user namespace", bound=ids),
    ]
    if spec.file_powers and spec.uid == 0:
        how = "real" if mode == "range" else "changes of owner succeed and do nothing: there is one id"
        lines.append(Enforcement(limit="capabilities", mechanism="owners and modes of files only", bound=how))
    if without:
        lines.append(Enforcement(limit="WEAKENED", mechanism="by request", bound=f"left out: {', '.join(without)}"))
    return tuple(lines)


def _memory(limits: Limits, groups: ControlGroups | str) -> Enforcement:
    watcher = "watcher in the sandbox: summed resident sets, then proportional ones; kills everything"
    moment = f"{limits.memory_bytes} bytes, and for a moment what fills between two looks (5 to 200 ms)"
    if isinstance(groups, str):
        kernel = limits.pids * limits.address_space_bytes
        bound = f"{moment}; by the kernel alone: pids x address space = {kernel} bytes"
        return Enforcement(limit="memory_bytes", mechanism=watcher, bound=bound)
    bound = f"{moment}; files included never more than {memory_max(limits)} bytes, where the kernel kills a process"
    return Enforcement(limit="memory_bytes", mechanism=f"cgroup memory.max; {watcher}", bound=bound)


def _pids(groups: ControlGroups | str) -> Enforcement:
    own = "RLIMIT_NPROC, counted in the sandbox's user namespace"
    return Enforcement(
        limit="pids", mechanism=own if isinstance(groups, str) else f"cgroup pids.max; {own}", bound="exact"
    )


def _cpus(limits: Limits, groups: ControlGroups | str) -> Enforcement:
    if not limits.cpus:
        return Enforcement(limit="cpus", mechanism="none", bound="as many as there are")
    if isinstance(groups, str) or "cpu" not in groups.controllers:
        why = groups if isinstance(groups, str) else "the controller for processors is not handed down"
        return Enforcement(limit="cpus", mechanism=f"none: {why}", bound="as many as there are")
    return Enforcement(limit="cpus", mechanism="cgroup cpu.max", bound="exact over 100 ms")


def spawned_enforcement(spec: SandboxSpec, *, inodes: str, shm_bytes: int) -> tuple[Enforcement, ...]:
    """Of a mechanism that makes the walls itself and runs the agent inside."""
    lines = []
    for line in native_enforcement(spec, "single", ()):
        if line.limit == "inodes":
            lines.append(Enforcement(limit="inodes", mechanism=inodes, bound="see the mechanism"))
        elif line.limit == "disk_bytes":
            bound = f"exact for each, and {shm_bytes} bytes of /dev/shm beside"
            lines.append(Enforcement(limit="disk_bytes", mechanism="size of its tmpfs", bound=bound))
        elif line.limit == "wall_s":
            lines.append(Enforcement(limit="wall_s", mechanism="clock of the agent", bound="exact while it answers"))
        else:
            lines.append(line)
    return tuple(lines)
