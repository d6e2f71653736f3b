"""Files in and out. Reading never follows a link, never leaves the root it is given and never opens what is no file."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from flightschool.sandbox.node import syscalls

__all__ = ["get", "open_beneath", "put", "read_beneath"]

_NO_XDEV, _NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH = 0x01, 0x02, 0x04, 0x08
SAFE: Final = _NO_XDEV | _NO_MAGICLINKS | _NO_SYMLINKS | _BENEATH


def open_beneath(dirfd: int, path: str, flags: int) -> int:
    """A descriptor of ``path`` below ``dirfd``: no link on the way, no other mount.

    Raises:
        OSError: ``ELOOP`` for a link, ``EXDEV`` for leaving the root or crossing into a mount, and the ordinary ones.
    """
    return syscalls.openat2(dirfd, path.lstrip("/") or ".", flags, SAFE)


def read_beneath(dirfd: int, path: str, most: int) -> bytes:
    """Bytes of a regular file with one name.

    The place is opened first without opening what is there, looked at, and only then read through the same descriptor:
    a FIFO cannot block and a device cannot act.

    Raises:
        OSError: see ``open_beneath``; ``EINVAL`` for what is no regular file, ``EMLINK`` for a second name of another
            file, ``EFBIG`` when it is longer than ``most``.
    """
    place = open_beneath(dirfd, path, os.O_PATH)
    try:
        found = os.fstat(place)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", path)
        if found.st_nlink > 1:
            raise OSError(errno.EMLINK, "a hard link", path)
        if found.st_size > most:
            raise OSError(errno.EFBIG, f"longer than {most} bytes", path)
        fd = os.open(f"/proc/self/fd/{place}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    finally:
        os.close(place)
    with os.fdopen(fd, "rb") as file:
        data = file.read(most + 1)
    if len(data) > most:  # it grew meanwhile
        raise OSError(errno.EFBIG, f"longer than {most} bytes", path)
    return data


def put(header: dict[str, Any], body: bytes) -> None:
    """Write one piece of a file beside its place; the last piece moves it there, over whatever had the name.

    Raises:
        OSError: no room, no permission, no such folder.
    """
    target = Path(header["path"])
    if header["first"]:
        target.parent.mkdir(parents=True, exist_ok=True)
    aside = target.with_name(f".{target.name}.{header['key']}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_EXCL if header["first"] else os.O_APPEND)
    try:
        fd = os.open(aside, flags, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(body)
        if header["last"]:
            aside.chmod(header["mode"])
            aside.replace(target)
    except OSError:
        with contextlib.suppress(OSError):
            aside.unlink()
        raise


def get(path: str, most: int, folders: Iterable[str] = ()) -> bytes:
    """Bytes of a file, read from inside: for mechanisms that give no descriptor of the root.

    Args:
        path: absolute.
        most: bytes.
        folders: mounts that the sandbox writes to, where each is one of its own; a path below one is read beneath it.
    """
    inner = (folder.rstrip("/") for folder in folders)
    above = max((one for one in inner if one and path.startswith(f"{one}/")), key=len, default="")
    root = syscalls.openat2(-100, above or "/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, _NO_SYMLINKS)
    try:
        return read_beneath(root, path.removeprefix(above), most)
    finally:
        os.close(root)
