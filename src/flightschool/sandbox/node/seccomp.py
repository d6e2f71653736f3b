"""The system-call filter, assembled by hand: classic BPF over ``struct seccomp_data``.

A deny list over an otherwise capless, namespaced process: what it names is kernel surface that no ordinary tool needs
and that has let processes out before. Calls that a C library probes answer ``ENOSYS``, so that it falls back; the rest
``EPERM``.
"""

from __future__ import annotations

import ctypes
import errno
import struct
from functools import cache
from typing import Final

from flightschool.sandbox.node.syscalls import MACHINE, NUMBERS, PR_SET_SECCOMP, prctl

__all__ = ["DENIED", "MISSING", "install", "program", "succeeding"]

DENIED: Final = (
    "acct",
    "add_key",
    "adjtimex",
    "bpf",
    "chroot",
    "clock_adjtime",
    "clock_settime",
    "create_module",
    "delete_module",
    "fanotify_init",
    "finit_module",
    "fsconfig",
    "fsmount",
    "fsopen",
    "fspick",
    "init_module",
    "ioperm",
    "iopl",
    "kcmp",
    "kexec_file_load",
    "kexec_load",
    "keyctl",
    "lookup_dcookie",
    "migrate_pages",
    "modify_ldt",
    "mount",
    "mount_setattr",
    "move_mount",
    "move_pages",
    "name_to_handle_at",
    "nfsservctl",
    "open_by_handle_at",
    "open_tree",
    "open_tree_attr",
    "perf_event_open",
    "pidfd_getfd",
    "pivot_root",
    "process_madvise",
    "process_vm_readv",
    "process_vm_writev",
    "ptrace",
    "quotactl",
    "quotactl_fd",
    "reboot",
    "request_key",
    "setdomainname",
    "sethostname",
    "setns",
    "settimeofday",
    "swapoff",
    "swapon",
    "syslog",
    "umount2",
    "unshare",
    "uselib",
    "userfaultfd",
    "vhangup",
)
"""Answered with ``EPERM``."""

MISSING: Final = ("clone3", "io_uring_enter", "io_uring_register", "io_uring_setup", "memfd_create", "memfd_secret")
"""Answered with ``ENOSYS``. ``memfd`` pages belong to no process while unmapped: the memory watcher cannot see them."""

_ON_A_PROCESS: Final = ("prlimit64", "sched_setaffinity", "sched_setattr", "sched_setparam", "sched_setscheduler")
_ON_WHOM: Final = {"setpriority": 2, "ioprio_set": 3}
"""Call → the kind of target that means every process of a user."""
_AGENT: Final = 1
"""Its id shields an init from signals, not from having its limits or its share of the processor taken by a process of
the same user. A policy that could lose its sandbox that way would turn a failure of its own into one of the world.
"""

_NEW_NAMESPACES: Final = 0x7E020000
_FAMILIES: Final = (1, 2, 10)  # AF_UNIX, AF_INET, AF_INET6
_TERMINAL_REQUESTS: Final = (0x5412, 0x541C, 0x5423)  # TIOCSTI (type into a terminal), TIOCLINUX, TIOCSETD
_AUDIT_ARCH: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32_BIT: Final = 0x40000000

_LOAD, _JEQ, _JGE, _JSET, _RET = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16

Instruction = tuple[int, int, int, int]


def _argument(index: int) -> int:
    """Offset of the low word of an argument (both machines are little endian)."""
    return _ARGUMENTS + 8 * index


def _when(name: str, body: list[Instruction]) -> list[Instruction]:
    """``body`` for one call, which must end in a return; skipped for all others."""
    return [(_JEQ, 0, len(body), NUMBERS[name]), *body]


def _refuse(number: int) -> Instruction:
    return (_RET, 0, 0, _ERRNO | number)


@cache
def program() -> bytes:
    """The filter of this machine as ``struct sock_filter`` records."""
    code: list[Instruction] = [
        (_LOAD, 0, 0, _ARCH),
        (_JEQ, 1, 0, _AUDIT_ARCH[MACHINE]),
        (_RET, 0, 0, _KILL),  # another calling convention has other numbers: nothing below would hold
        (_LOAD, 0, 0, _NUMBER),
    ]
    if MACHINE == "x86_64":
        code += [(_JGE, 0, 1, _X32_BIT), _refuse(errno.ENOSYS)]
    for names, number in ((DENIED, errno.EPERM), (MISSING, errno.ENOSYS)):
        for name in names:
            if name in NUMBERS:
                code += _when(name, [_refuse(number)])
    allow: Instruction = (_RET, 0, 0, _ALLOW)
    flags: list[Instruction] = [
        (_LOAD, 0, 0, _argument(0)),
        (_JSET, 0, 1, _NEW_NAMESPACES),
        _refuse(errno.EPERM),
        allow,
    ]
    code += _when("clone", flags)
    for name in ("socket", "socketpair"):
        family: list[Instruction] = [(_LOAD, 0, 0, _argument(0))]
        for place, known in enumerate(_FAMILIES):
            family.append((_JEQ, len(_FAMILIES) - place, 0, known))
        code += _when(name, [*family, _refuse(errno.EAFNOSUPPORT), allow])
    for name in _ON_A_PROCESS:
        code += _when(name, [(_LOAD, 0, 0, _argument(0)), (_JEQ, 0, 1, _AGENT), _refuse(errno.EPERM), allow])
    for name, everyone in _ON_WHOM.items():
        kind: list[Instruction] = [(_LOAD, 0, 0, _argument(0)), (_JEQ, 2, 0, everyone)]
        whom: list[Instruction] = [(_LOAD, 0, 0, _argument(1)), (_JEQ, 0, 1, _AGENT)]
        code += _when(name, [*kind, *whom, _refuse(errno.EPERM), allow])
    requests: list[Instruction] = [(_LOAD, 0, 0, _argument(1))]
    for place, request in enumerate(_TERMINAL_REQUESTS):
        requests.append((_JEQ, len(_TERMINAL_REQUESTS) - place, 0, request))
    code += _when("ioctl", [*requests, allow, _refuse(errno.EPERM)])
    code.append(allow)
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in code)


@cache
def succeeding(names: tuple[str, ...]) -> bytes:
    """A further filter under which some calls do nothing and say that they have done it."""
    code: list[Instruction] = [(_LOAD, 0, 0, _NUMBER)]
    for name in names:
        if name in NUMBERS:
            code += _when(name, [_refuse(0)])
    code.append((_RET, 0, 0, _ALLOW))
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in code)


def install(code: bytes | None = None) -> None:
    """Put a filter (``program``) on this process and its descendants, for good. Wants ``no_new_privs``."""
    code = code or program()
    buffer = ctypes.create_string_buffer(code, len(code))
    header = struct.pack("<HxxxxxxQ", len(code) // 8, ctypes.addressof(buffer))
    mode_filter = 2
    prctl_header = ctypes.create_string_buffer(header, len(header))
    prctl(PR_SET_SECCOMP, mode_filter, ctypes.addressof(prctl_header))
