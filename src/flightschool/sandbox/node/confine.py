"""From a fresh clone to a process that can do nothing but serve: the order matters and is the defence.

Ids, root, network, limits; then everything that can be taken away is: capabilities, privileges to come, readability of
this process, life beyond the launcher's; the filter last, since the steps before it need what it forbids.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import resource
import select
import signal
import socket
import struct
from functools import cache
from pathlib import Path

from flightschool.sandbox.node import roots, seccomp, syscalls
from flightschool.sandbox.node.plan import Plan

__all__ = ["confine", "last_capability", "limit", "limits_of", "renounce"]


def confine(plan: Plan, keep: int, tree_fd: int | None = None, gate: int | None = None) -> int:
    """Make the calling process the init of its sandbox; returns a descriptor of the root.

    Args:
        plan: what to build.
        keep: the one descriptor, besides the one returned, that stays open.
        tree_fd: a detached mount of the image tree, where one could be made.
        gate: socket whose other end the launcher has for as long as it lives; the caller's to close.

    Raises:
        OSError: a step failed, or the launcher died meanwhile.
    """
    lifeline = [] if gate is None else [gate]
    if plan.has("close_descriptors"):
        syscalls.close_all_but([0, 1, 2, keep, *lifeline, *([] if tree_fd is None else [tree_fd])])
    sources = roots.open_sources(plan)
    if plan.mode == "range":
        os.setgroups([])
        os.setresgid(0, 0, 0)
        os.setresuid(0, 0, 0)
    os.umask(0o022)
    with contextlib.suppress(OSError):  # an outer limit may forbid it; it only makes the host's choice better
        Path("/proc/self/oom_score_adj").write_text("1000")
    root = roots.build_root(plan, sources, tree_fd)
    root_fd = roots.enter_root(root, str(Path(root).parent) if plan.changes else "")
    if plan.has("close_descriptors"):
        syscalls.close_all_but([0, 1, 2, keep, *lifeline, root_fd])
    _quiet_streams()
    socket.sethostname(plan.hostname)
    if plan.has("network"):
        _loopback_up()
    limit(plan)
    if plan.has("capabilities"):
        _drop_bounding_set()
    os.setresgid(plan.gid, plan.gid, plan.gid)
    os.setresuid(plan.uid, plan.uid, plan.uid)
    renounce(plan)
    if gate is not None and plan.has("parent_death") and select.select([gate], [], [], 0)[0]:
        raise OSError(errno.EPIPE, "the launcher died")  # before its death was asked for: no signal comes any more
    return root_fd


def limits_of(plan: Plan) -> dict[int, int]:
    """Resource → value of the limits that the kernel counts for each process or for each user namespace."""
    wanted = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: plan.open_files,
        resource.RLIMIT_AS: plan.address_space_bytes,
        resource.RLIMIT_FSIZE: plan.disk_bytes,
        resource.RLIMIT_MSGQUEUE: 0,
        resource.RLIMIT_MEMLOCK: 8 << 20,
    }
    if plan.has("pids"):
        wanted[resource.RLIMIT_NPROC] = plan.pids
    return wanted


def limit(plan: Plan) -> None:
    """Set them, as far as the limits that this process has already allow."""
    for name, value in limits_of(plan).items():
        _, hard = resource.getrlimit(name)
        least = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(name, (least, least))


def renounce(plan: Plan) -> None:
    """Give up, for this process and all that it will start, what can be given up without privileges."""
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0 if plan.has("dumpable") else 1)
    if plan.has("capabilities"):
        syscalls.prctl(syscalls.PR_CAP_AMBIENT, syscalls.PR_CAP_AMBIENT_CLEAR_ALL)
        _clear_capabilities()
    if plan.has("parent_death"):  # a change of ids clears it: hence after them
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
    if plan.has("no_new_privs"):
        syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
    if plan.has("seccomp"):
        seccomp.install()


def _quiet_streams() -> None:
    """Standard streams of the launcher are nothing to a sandbox."""
    null = os.open("/dev/null", os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    if null > 2:
        os.close(null)


def _loopback_up() -> None:
    """``lo`` only: servers of the task can be talked to, nothing else exists."""
    up_running, set_flags = 0x41, 0x8914
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, set_flags, struct.pack("16sH14x", b"lo", up_running))


@cache
def last_capability() -> int:
    """Number of the last capability that this kernel has."""
    return int(Path("/proc/sys/kernel/cap_last_cap").read_text())


def _drop_bounding_set() -> None:
    for capability in range(last_capability() + 1):
        syscalls.prctl(syscalls.PR_CAPBSET_DROP, capability)
    no_root_privileges_locked = 0x2F
    syscalls.prctl(syscalls.PR_SET_SECUREBITS, no_root_privileges_locked)


def _clear_capabilities() -> None:
    version_3 = 0x20080522
    header = struct.pack("<Ii", version_3, 0)
    empty = bytes(24)
    syscalls.check(syscalls.raw("capset", header, empty), "capset")
