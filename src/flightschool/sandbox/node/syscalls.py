"""System calls that the standard library does not offer, by number, and the constants that go with them.

Calls go through ``PyDLL``, which keeps the interpreter's lock: a child made by ``clone`` owns it, as after ``fork``.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
from typing import Final

__all__ = [
    "MACHINE",
    "NAMESPACE_FLAGS",
    "NUMBERS",
    "attach",
    "check",
    "clone",
    "close_all_but",
    "idmapped_tree",
    "mount",
    "mount_setattr",
    "openat2",
    "pivot_root",
    "prctl",
    "raw",
    "umount_detach",
    "unshare",
]

MACHINE: Final = platform.machine()

# name: (x86_64, aarch64); None where the machine has no such call
_TABLE: Final[dict[str, tuple[int | None, int | None]]] = {
    "acct": (163, 89),
    "add_key": (248, 217),
    "adjtimex": (159, 171),
    "bpf": (321, 280),
    "capset": (126, 91),
    "chown": (92, None),
    "chroot": (161, 51),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "clone": (56, 220),
    "clone3": (435, 435),
    "close_range": (436, 436),
    "create_module": (174, None),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "fchown": (93, 55),
    "fchownat": (260, 54),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "init_module": (175, 105),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioctl": (16, 29),
    "ioperm": (173, None),
    "ioprio_set": (251, 30),
    "iopl": (172, None),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "lchown": (94, None),
    "lookup_dcookie": (212, 18),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "migrate_pages": (256, 238),
    "modify_ldt": (154, None),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "move_pages": (279, 239),
    "name_to_handle_at": (303, 264),
    "nfsservctl": (180, 42),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "open_tree_attr": (467, 467),
    "openat2": (437, 437),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "prctl": (157, 167),
    "prlimit64": (302, 261),
    "process_madvise": (440, 440),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "setdomainname": (171, 162),
    "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "setpriority": (141, 140),
    "settimeofday": (164, 170),
    "socket": (41, 198),
    "socketpair": (53, 199),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "uselib": (134, None),
    "userfaultfd": (323, 282),
    "vhangup": (153, 58),
}

_COLUMN: Final = {"x86_64": 0, "aarch64": 1}.get(MACHINE)
NUMBERS: Final[dict[str, int]] = (
    {} if _COLUMN is None else {name: n for name, row in _TABLE.items() if (n := row[_COLUMN]) is not None}
)
"""Call numbers of this machine; empty where the native mechanism does not know the machine."""

CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS = 0x00020000, 0x02000000, 0x04000000
CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x08000000, 0x10000000, 0x20000000, 0x40000000
NAMESPACE_FLAGS: Final = {
    "user": CLONE_NEWUSER,
    "mount": CLONE_NEWNS,
    "pid": CLONE_NEWPID,
    "network": CLONE_NEWNET,
    "ipc": CLONE_NEWIPC,
    "uts": CLONE_NEWUTS,
    "cgroup": CLONE_NEWCGROUP,
}

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 32, 4096, 16384, 1 << 18
MNT_DETACH = 2
MOUNT_ATTR_RDONLY, MOUNT_ATTR_NOSUID, MOUNT_ATTR_NODEV, MOUNT_ATTR_NOEXEC = 1, 2, 4, 8
MOUNT_ATTR_IDMAP = 0x00100000
AT_FDCWD, AT_EMPTY_PATH, AT_RECURSIVE = -100, 0x1000, 0x8000

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_CAPBSET_DROP = 1, 4, 22, 24
PR_SET_SECUREBITS, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 28, 38, 47, 4
PR_SET_CHILD_SUBREAPER = 36

_MOST_TRIES: Final = 10_000
"""Of ``openat2``: ``EAGAIN`` when anything on the machine is mounted or renamed as it follows ``..``."""

_libc: Final = ctypes.PyDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def raw(name: str, *arguments: int | bytes | ctypes.Array[ctypes.c_char] | None) -> int:
    """Make one call and return its value, -1 on failure (``ctypes.get_errno`` tells why)."""
    words = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    return int(_libc.syscall(ctypes.c_long(NUMBERS[name]), *words))


def check(value: int, doing: str) -> int:
    """``value``, or ``OSError`` with ``doing`` in its text where it is negative."""
    if value < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{doing}: {os.strerror(number)}")
    return value


def clone(flags: int) -> int:
    """A child in new namespaces: its pid here, 0 in the child. Only for single-threaded processes."""
    sigchld = 17
    return check(raw("clone", flags | sigchld, 0, 0, 0, 0), "clone")


def unshare(flags: int) -> None:
    """New namespaces for the calling process."""
    check(raw("unshare", flags), "unshare")


def mount(source: str, target: str, kind: str | None, flags: int, data: str = "") -> None:
    """``mount(2)``."""
    kind_word = kind.encode() if kind is not None else None
    value = raw("mount", os.fsencode(source), os.fsencode(target), kind_word, flags, data.encode() or None)
    check(value, f"mount {kind or 'bind'} on {target}")


def mount_setattr(target: str, attributes: int, *, recursive: bool = True) -> None:
    """Add attributes to a mount and those below it; flags that are locked stay as they are."""
    words = b"".join(n.to_bytes(8, "little") for n in (attributes, 0, 0, 0))
    flags = AT_RECURSIVE if recursive else 0
    check(raw("mount_setattr", AT_FDCWD, os.fsencode(target), flags, words, len(words)), f"mount_setattr on {target}")


def idmapped_tree(path: str, user_namespace_fd: int) -> int:
    """A detached read-only mount of ``path`` whose owners are seen through a user namespace: a descriptor of it.

    Files that belong to the host's root then belong to the namespace's. Needs root over a file system that can.
    """
    open_clone, recursive_cloexec = 1, AT_RECURSIVE | os.O_CLOEXEC
    fd = check(raw("open_tree", AT_FDCWD, os.fsencode(path), open_clone | recursive_cloexec), f"open_tree {path}")
    attributes = MOUNT_ATTR_IDMAP | MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV
    words = b"".join(n.to_bytes(8, "little") for n in (attributes, 0, 0, user_namespace_fd))
    try:
        check(raw("mount_setattr", fd, b"", AT_EMPTY_PATH, words, len(words)), f"idmapped mount of {path}")
    except OSError:
        os.close(fd)
        raise
    return fd


def attach(mount_fd: int, target: str) -> None:
    """Put a detached mount into the tree."""
    from_empty_path = 4
    check(raw("move_mount", mount_fd, b"", AT_FDCWD, os.fsencode(target), from_empty_path), f"attach to {target}")


def pivot_root(new: str, old: str) -> None:
    """``pivot_root(2)``."""
    check(raw("pivot_root", os.fsencode(new), os.fsencode(old)), "pivot_root")


def umount_detach(target: str) -> None:
    """Unmount lazily: gone from the tree at once."""
    check(raw("umount2", os.fsencode(target), MNT_DETACH), f"unmount {target}")


def prctl(option: int, value: int, third: int = 0) -> None:
    """``prctl(2)``."""
    check(raw("prctl", option, value, third, 0, 0), f"prctl {option}")


def openat2(dirfd: int, path: str, flags: int, resolve: int) -> int:
    """``openat2(2)``: a descriptor, or ``OSError``."""
    how = b"".join(n.to_bytes(8, "little") for n in (flags | os.O_CLOEXEC, 0, resolve))
    for _ in range(_MOST_TRIES):
        value = raw("openat2", dirfd, os.fsencode(path), how, len(how))
        if value >= 0 or ctypes.get_errno() != errno.EAGAIN:
            break
    if value < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
    return value


def close_all_but(keep: list[int]) -> None:
    """Close every descriptor that is not in ``keep``, also those above the soft limit."""
    start = 0
    for fd in [*sorted(keep), 1 << 31]:
        if fd > start:
            check(raw("close_range", start, fd - 1, 0), "close_range")
        start = fd + 1
