"""A folder in memory for copies of small trees, where this machine has a file system for that."""

from __future__ import annotations

import os
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

__all__ = ["memory_folder"]

_PLACE: Final = Path("/dev/shm")
LEAST_FREE: Final = 1 << 30
"""Bytes that must be free there."""


def memory_folder() -> Path | None:
    """A folder of this user's on a file system in memory that keeps what trees need; None: there is none."""
    return _folder_of(os.geteuid())


@cache
def _folder_of(user: int) -> Path | None:
    folder = _PLACE / f"flightschool-{user}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
        if found.st_uid != user or folder.is_symlink() or not _is_in_memory(_PLACE):
            return None
        folder.chmod(0o700)
        room = os.statvfs(folder)
        if room.f_bavail * room.f_frsize < LEAST_FREE:
            return None
        with tempfile.NamedTemporaryFile(dir=folder) as file:
            os.setxattr(file.name, "user.overlay.opaque", b"y")  # of older kernels only disks keep these
    except OSError:
        return None
    return folder


def _is_in_memory(place: Path) -> bool:
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    return any(words[1] == str(place) and words[2] == "tmpfs" for words in mounts if len(words) > 2)
