"""The records of this room: what a sandbox shall be, what a command gave, what was tried."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec

from flightschool.errors import InputError
from flightschool.records import Record

__all__ = [
    "DEFAULT_ENV",
    "Enforcement",
    "ExecResult",
    "ImageTree",
    "Limits",
    "Mechanism",
    "ReadOnlyMount",
    "SandboxSpec",
    "Stopped",
    "Usage",
]

MIB: Final = 1 << 20

DEFAULT_ENV: Final = {
    "HOME": "/home/user",
    "LANG": "C.UTF-8",
    "LC_ALL": "C.UTF-8",
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "PYTHONHASHSEED": "0",
    "SHELL": "/bin/bash",
    "SOURCE_DATE_EPOCH": "315532800",
    "TERM": "xterm-256color",
    "TZ": "UTC",
    "USER": "user",
}
"""The whole environment of a command unless the spec adds to it: nothing of the caller's is in it."""


class Limits(Record, frozen=True, kw_only=True):
    """Upper bounds of one sandbox."""

    cpu_s: float = 600.0
    """Processor seconds of all its processes together."""
    wall_s: float = 3600.0
    """Seconds after which everything in it is killed; its files can still be harvested."""
    memory_bytes: int = 1024 * MIB
    """Memory of all its processes together (anonymous and shared), watched."""
    address_space_bytes: int = 8192 * MIB
    """Address space of one process: kept by the kernel, whatever the watcher sees."""
    pids: int = 128
    """Processes and threads, the agent's included."""
    open_files: int = 1024
    disk_bytes: int = 512 * MIB
    """Bytes of all files it writes (they live in memory)."""
    inodes: int = 65536
    cpus: float = 0.0
    """Processors used at a time; 0: as many as there are. Kept where control groups can be written, and only there."""


class ImageTree(Record, frozen=True, kw_only=True):
    """A folder with an unpacked image; mounted read-only under a copy-on-write layer."""

    path: str
    over_host: bool = False
    """Whether it is no whole system but a layer over the curated view, whose programs then can be added to."""


class ReadOnlyMount(Record, frozen=True, kw_only=True):
    """A file or folder of the host that the sandbox may read."""

    source: str
    target: str


class SandboxSpec(Record, frozen=True, kw_only=True):
    """What a sandbox shall be. There is no field for network: it has none but its own loopback."""

    root: ImageTree | None = None
    """None: a curated read-only view of the host's programs and libraries."""
    limits: Limits = Limits()
    env: dict[str, str] = {}  # noqa: RUF012 - msgspec copies it
    """Added to ``DEFAULT_ENV``. Readable by everything in the sandbox: no secrets."""
    uid: int = 1000
    gid: int = 1000
    workdir: str = "/home/user"
    hostname: str = "sandbox"
    mounts: tuple[ReadOnlyMount, ...] = ()
    changes: bool = False
    """Whether all that was written can be read once the sandbox is stopped (``AgentSandbox.written``). Wants a tree,
    and the working directory then belongs to whom the tree says."""
    file_powers: bool = False
    """Whether root inside (uid 0) may change owners and pass over modes, as root of a container does. No other
    capability is left to any command."""

    def __post_init__(self) -> None:
        _check(self)


class Stopped(StrEnum):
    """Why a command was ended from outside it. All of these the policy could have caused."""

    NO = ""
    TIMEOUT = "timeout"  # the command's own
    MEMORY = "memory"  # the sandbox's processes together passed the limit; everything in it was killed
    CPU = "cpu"  # the sandbox's processor seconds are used up; nothing starts in it any more
    WALL = "wall"  # the sandbox's wall clock ran out; nothing starts in it any more


class ExecResult(Record, frozen=True, kw_only=True):
    """What one command gave. A *lost* sandbox has no result: it raises ``InfrastructureError``."""

    exit_code: int | None
    """None when a signal ended it, or when it was never started because a limit of the sandbox had been passed."""
    signal: int | None = None
    """Number of the signal that ended it."""
    stdout: bytes = b""
    stderr: bytes = b""
    stdout_truncated: bool = False
    stderr_truncated: bool = False
    cpu_s: float = 0.0
    """Of the command and of the children it waited for."""
    wall_s: float = 0.0
    stopped: Stopped = Stopped.NO
    failed_to_start: str = ""
    """Why it could not be started (exit code 126 or 127, as a shell has it)."""

    @property
    def timed_out(self) -> bool:
        """Whether its own time limit ended it."""
        return self.stopped is Stopped.TIMEOUT

    @property
    def ok(self) -> bool:
        """Whether it ran to its end and returned 0."""
        return self.exit_code == 0 and self.stopped is Stopped.NO


class Usage(Record, frozen=True, kw_only=True):
    """What a sandbox uses now, its agent left out."""

    processes: int
    memory_bytes: int
    cpu_s: float


class Enforcement(Record, frozen=True, kw_only=True):
    """How one limit is kept: an honest line for the record of an episode."""

    limit: str
    mechanism: str
    bound: str
    """What is never exceeded, and by what it can be for a moment."""


class Mechanism(Record, frozen=True, kw_only=True):
    """One way of making sandboxes, as it was found by trying."""

    name: str
    works: bool
    found: str
    """What happened."""
    mend: str = ""
    """What to enable, where it does not work."""


_LEAST = {
    "cpu_s": 0.1,
    "wall_s": 0.1,
    "memory_bytes": 8 * MIB,
    "address_space_bytes": 64 * MIB,
    "pids": 2,
    "open_files": 16,
    "disk_bytes": 1 * MIB,
    "inodes": 128,
}


def _check_limits(limits: Limits) -> None:
    for name, least in _LEAST.items():
        value = getattr(limits, name)
        if not least <= value < 1 << 50:
            raise InputError(
                f"limit {name} is {value}", where=f"limits.{name}", expected=f"at least {least}", mend="raise it"
            )
    if not 0 <= limits.cpus < 1 << 20:
        raise InputError(f"{limits.cpus} processors", where="limits.cpus", expected="0 or more", mend="correct it")


def _check(spec: SandboxSpec) -> None:
    _check_limits(spec.limits)
    for name in ("uid", "gid"):
        if not 0 <= getattr(spec, name) < 65536:
            raise InputError(
                f"{name} is {getattr(spec, name)}", where=name, expected="0 to 65535", mend="choose another"
            )
    _check_path(spec.workdir, "workdir")
    for place in spec.mounts:
        _check_path(place.target, "mounts.target")
        _check_path(place.source, "mounts.source")
        if place.source == "/" or place.target == "/":
            raise InputError(
                "the host's root cannot be mounted", where="mounts", expected="one folder", mend="name what is needed"
            )
        if not Path(place.source).exists():
            raise InputError("nothing to mount", where=place.source, expected="a file or folder", mend="check the path")
    if spec.root is not None:
        _check_tree(spec.root.path)
    elif spec.changes:
        raise InputError("changes of the curated view", where="changes", expected="a tree", mend="give an image tree")
    if not spec.hostname or len(spec.hostname) > 63 or not spec.hostname.replace("-", "").isalnum():
        raise InputError(
            f"host name {spec.hostname!r}", where="hostname", expected="letters, digits, dashes", mend="choose another"
        )
    for key, value in spec.env.items():
        if not key or "=" in key or "\0" in key + value:
            raise InputError(
                f"environment variable {key!r}", where="env", expected="a name without = and NUL", mend="correct it"
            )


def _check_path(path: str, where: str) -> None:
    if not path.startswith("/") or ".." in path.split("/") or "\0" in path:
        raise InputError(
            f"path {path!r}", where=where, expected="an absolute path without '..'", mend="write it in full"
        )


def _check_tree(path: str) -> None:
    _check_path(path, "root.path")
    if path == "/" or not Path(path).is_dir():
        raise InputError(
            "not an image tree", where=path, expected="a folder with an unpacked image", mend="unpack one there"
        )
    if set(path) & {":", ",", "\\"}:
        raise InputError(
            "an overlay cannot name this path", where=path, expected="no ':', ',' or '\\'", mend="move the tree"
        )


def changed(spec: SandboxSpec, **fields: object) -> SandboxSpec:
    """A copy with some fields replaced, checked again."""
    return msgspec.structs.replace(spec, **fields)
