"""Control groups (version 2) for sandboxes, where this user may make them: then the kernel itself keeps the limits.

Found by trying, not by reading settings: a group is made, limits are written, a process is put into it and taken out.
Searched are the group that this process is in and those above it, since one that holds processes can seldom have groups
with limits below it. Nothing of ours is ever moved. A sandbox's process is put in by the launcher while it still waits
at its gate; the group is removed by whoever outlives the other: the caller after the sandbox, the launcher after the
caller, and the next caller after both.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import subprocess
import time
from pathlib import Path
from typing import Final, Protocol

from flightschool.sandbox.records import Limits

__all__ = ["GROUP_PREFIX", "ControlGroup", "ControlGroups", "GroupFiles", "find_control_groups", "memory_max"]

GROUP_PREFIX: Final = "flightschool-"
_NEEDED: Final = ("memory", "pids")
_WANTED: Final = (*_NEEDED, "cpu")
_AGENT_BYTES: Final = 32 << 20
"""Of the agent, the page tables and the kernel's own for it."""
_PERIOD_US: Final = 100_000
_LEAST_QUOTA_US: Final = 1000
_REMOVAL_S: Final = 2.0
_numbers = itertools.count(1)


class GroupFiles(Protocol):
    """The five things that are done to the file system of control groups."""

    def make(self, group: Path) -> None:
        """A group; it may be there."""
        ...

    def read(self, group: Path, name: str) -> str:
        """Text of one of its files."""
        ...

    def write(self, group: Path, name: str, text: str) -> None:
        """Write to one of its files, which the kernel made."""
        ...

    def below(self, group: Path) -> list[Path]:
        """Groups in it."""
        ...

    def remove(self, group: Path) -> None:
        """Remove it; it must hold nothing."""
        ...


class KernelFiles:
    """The real ones."""

    def make(self, group: Path) -> None:
        """See ``GroupFiles``."""
        group.mkdir(exist_ok=True)

    def read(self, group: Path, name: str) -> str:
        """See ``GroupFiles``."""
        return (group / name).read_text()

    def write(self, group: Path, name: str, text: str) -> None:
        """See ``GroupFiles``."""
        fd = os.open(group / name, os.O_WRONLY | os.O_CLOEXEC)  # what the kernel did not make is not made here
        try:
            os.write(fd, text.encode())
        finally:
            os.close(fd)

    def below(self, group: Path) -> list[Path]:
        """See ``GroupFiles``."""
        return [path for path in group.iterdir() if path.is_dir()]

    def remove(self, group: Path) -> None:
        """See ``GroupFiles``."""
        group.rmdir()


class ControlGroup:
    """One sandbox's group."""

    def __init__(self, path: Path, files: GroupFiles) -> None:
        self.path = path
        self._files = files

    def oom_kills(self) -> int:
        """How often the kernel killed a process of it for memory."""
        with contextlib.suppress(OSError, ValueError):
            for line in self._files.read(self.path, "memory.events").splitlines():
                name, _, value = line.partition(" ")
                if name == "oom_kill":
                    return int(value)
        return 0

    def remove(self) -> None:
        """Remove it once its processes are dead, which the kernel notices a moment later."""
        _remove(self.path, self._files, _REMOVAL_S)


class ControlGroups:
    """Makes groups below one of this process's own.

    Args:
        base: the group of ours, which holds no process itself.
        controllers: those that groups below it have.
        files: the file system.
    """

    def __init__(self, base: Path, controllers: frozenset[str], files: GroupFiles) -> None:
        self.base = base
        self.controllers = controllers
        self._files = files

    def make(self, limits: Limits) -> ControlGroup:
        """A group with the limits written.

        Raises:
            OSError: it cannot be made now.
        """
        path = self.base / str(next(_numbers))
        self._files.make(path)
        try:
            self._limit(path, limits)
        except OSError:
            _remove(path, self._files, 0.0)
            raise
        return ControlGroup(path, self._files)

    def _limit(self, path: Path, limits: Limits) -> None:
        self._files.write(path, "memory.max", str(memory_max(limits)))
        with contextlib.suppress(OSError):  # no swap, or not counted
            self._files.write(path, "memory.swap.max", "0")
        self._files.write(path, "pids.max", str(limits.pids))
        if limits.cpus and "cpu" in self.controllers:
            quota = max(_LEAST_QUOTA_US, int(limits.cpus * _PERIOD_US))
            self._files.write(path, "cpu.max", f"{quota} {_PERIOD_US}")

    def close(self) -> None:
        """Remove all that was made."""
        _remove_tree(self.base, self._files)


def memory_max(limits: Limits) -> int:
    """Bytes that the group may hold: of processes and, since its file system lives in memory, of files."""
    return limits.memory_bytes + limits.disk_bytes + _AGENT_BYTES


def find_control_groups(
    *, mounts: str | None = None, own: str | None = None, files: GroupFiles | None = None
) -> ControlGroups | str:
    """A place for groups with limits on memory and processes; or why there is none.

    Args:
        mounts: text of ``/proc/self/mountinfo``.
        own: text of ``/proc/self/cgroup``.
        files: the file system of control groups.
    """
    mounts = Path("/proc/self/mountinfo").read_text() if mounts is None else mounts
    own = Path("/proc/self/cgroup").read_text() if own is None else own
    files = files or KernelFiles()
    root = _mount_point(mounts)
    path = next((line[3:] for line in own.splitlines() if line.startswith("0::")), None)
    if root is None or path is None:
        return "no control groups of version 2 are mounted"
    if ".." in path.split("/"):
        return "this process's own control group lies outside what is mounted"
    place = root / path.strip("/") if path.strip("/") else root
    said = ""
    while True:
        found = _tried(place, files)
        if isinstance(found, ControlGroups):
            return found
        said = said or found
        if place == root:
            return said
        place = place.parent


def _mount_point(mounts: str) -> Path | None:
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        if after.split(" ")[0] == "cgroup2":
            return Path(before.split(" ")[4].encode().decode("unicode_escape"))
    return None


def _tried(place: Path, files: GroupFiles) -> ControlGroups | str:
    """Make a group for us in ``place``, with one below it, and put a process there."""
    base = place / f"{GROUP_PREFIX}{os.getpid()}-{next(_numbers)}"
    try:
        lacking = [name for name in _NEEDED if name not in files.read(place, "cgroup.controllers").split()]
        if lacking:
            return f"the kernel's controllers for {' and '.join(lacking)} are not in {place}"
        _sweep(place, files)
        files.make(base)
    except OSError as error:
        return f"no group can be made in {place}: {error.strerror}"
    try:
        found = ControlGroups(base, _enabled(place, base, files), files)
        group = found.make(Limits())
        _visit(group, files)
        group.remove()
    except OSError as error:
        _remove_tree(base, files)
        return f"no group with limits can be made in {place}: {error.strerror}"
    return found


def _enabled(place: Path, base: Path, files: GroupFiles) -> frozenset[str]:
    """The controllers that groups in ``base`` have, handed down where they were not yet."""
    for folder in (place, base):
        there = files.read(folder, "cgroup.controllers").split()
        on = files.read(folder, "cgroup.subtree_control").split()
        for name in _WANTED:
            if name in on or name not in there:
                continue
            try:
                files.write(folder, "cgroup.subtree_control", f"+{name}")
            except OSError:
                if name in _NEEDED:
                    raise
    found = frozenset(files.read(base, "cgroup.subtree_control").split())
    if not found.issuperset(_NEEDED):
        raise OSError(errno.EOPNOTSUPP, "limits on memory and processes are not handed down")
    return found


def _visit(group: ControlGroup, files: GroupFiles) -> None:
    """Whether a process can be put there: limits may be written where processes may not be moved."""
    with subprocess.Popen(["sleep", "60"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env={}) as process:
        try:
            files.write(group.path, "cgroup.procs", str(process.pid))
        finally:
            process.kill()


def _sweep(place: Path, files: GroupFiles) -> None:
    """Remove what callers left that were killed together with their launchers."""
    for path in files.below(place):
        pid = path.name.removeprefix(GROUP_PREFIX).partition("-")[0]
        if path.name.startswith(GROUP_PREFIX) and pid.isdigit() and not Path("/proc", pid).exists():
            _remove_tree(path, files)


def _remove_tree(base: Path, files: GroupFiles) -> None:
    with contextlib.suppress(OSError):
        for path in files.below(base):
            _remove(path, files, _REMOVAL_S)
    _remove(base, files, 0.0)


def _remove(path: Path, files: GroupFiles, patience_s: float) -> None:
    end = time.monotonic() + patience_s
    while True:
        try:
            files.remove(path)
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > end:
                return
            time.sleep(0.002)
        else:
            return
