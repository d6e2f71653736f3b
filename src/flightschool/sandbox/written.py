"""What a stopped sandbox wrote, read from outside as a whole: files, folders, links by their text, and what it removed.

Only the written layers are walked, through a descriptor that no path inside leads to. No link is followed and nothing
but regular files is opened, so the worst that can be planted is a file with odd content.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Final

from flightschool.errors import InfrastructureError, InputError
from flightschool.records import Record
from flightschool.sandbox.node.files import open_beneath
from flightschool.sandbox.node.layered import SYSTEM_UPPER, UPPER

__all__ = ["Written", "WrittenKind", "check_way_in", "walk_written"]

MOST_DEPTH: Final = 128
_RANGE_BASE: Final = 0x70000000
_RANGE_COUNT: Final = 65536
_SKIPPED: Final = frozenset({"/dev", "/proc", "/sys", "/run"})
"""Not part of a state: made anew in each sandbox."""
_OPAQUE: Final = "user.overlay.opaque"


class WrittenKind(StrEnum):
    """What was written at a path."""

    FILE = "file"
    FOLDER = "folder"
    LINK = "link"
    GONE = "gone"  # was in the tree and was removed
    ODD = "odd"  # a FIFO, socket or device: told, never carried


class Written(Record, frozen=True, kw_only=True):
    """One path that a sandbox wrote."""

    path: str
    """Absolute, inside."""
    kind: WrittenKind
    mode: int = 0
    """Permissions, without set-user and set-group bits."""
    uid: int = 0
    gid: int = 0
    """Ids inside."""
    modified_ns: int = 0
    target: str = ""
    """Text of a link."""
    data: bytes = b""
    opaque: bool = False
    """A folder that hides what the tree has below it."""


class _Caps:
    def __init__(self, most_bytes: int, most_entries: int) -> None:
        self.bytes_left = most_bytes
        self.entries_left = most_entries

    def take(self, path: str, size: int) -> None:
        self.bytes_left -= size
        self.entries_left -= 1
        if self.bytes_left < 0 or self.entries_left < 0:
            raise InputError(
                "the end state is too large",
                where=path,
                expected="fewer bytes and files",
                mend="raise the caps, or write less",
            )


def check_way_in(layers_fd: int) -> None:
    """Raise ``InfrastructureError`` unless the descriptor leads to layers."""
    try:
        os.close(open_beneath(layers_fd, UPPER, os.O_PATH | os.O_DIRECTORY))
    except OSError as error:
        raise InfrastructureError(
            "the sandbox's written layer cannot be reached",
            where="sandbox",
            expected="a launcher that gives a way in to it",
            mend="use the native mechanism",
        ) from error


def walk_written(layers_fd: int, own_id: tuple[int, int], *, most_bytes: int, most_entries: int) -> Iterator[Written]:
    """Everything below the written layers in order of the paths, a folder before what it holds.

    Args:
        layers_fd: descriptor of the folder that holds the layers.
        own_id: user and group inside, where only one is mapped.
        most_bytes: sum of the sizes of all files, holes included.
        most_entries: number of paths.

    Raises:
        InputError: past a cap, or deeper than ``MOST_DEPTH`` folders.
    """
    caps = _Caps(most_bytes, most_entries)
    for layer, prefix in ((UPPER, ""), (SYSTEM_UPPER, "/usr")):
        try:
            fd = open_beneath(layers_fd, layer, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            continue
        try:
            yield from _walk(fd, prefix, own_id, caps, 0)
        finally:
            os.close(fd)


def _walk(folder: int, prefix: str, own_id: tuple[int, int], caps: _Caps, depth: int) -> Iterator[Written]:
    if depth > MOST_DEPTH:
        raise InputError(
            f"folders lie more than {MOST_DEPTH} deep", where=prefix, expected="a shallower tree", mend="write less"
        )
    for name in sorted(os.listdir(folder)):
        path = f"{prefix}/{name}"
        if path in _SKIPPED or not _is_text(name):
            continue
        place = open_beneath(folder, name, os.O_PATH | os.O_NOFOLLOW)
        try:
            yield from _entry(place, path, own_id, caps, depth)
        finally:
            os.close(place)


def _entry(place: int, path: str, own_id: tuple[int, int], caps: _Caps, depth: int) -> Iterator[Written]:
    found = os.fstat(place)
    mode = stat.S_IMODE(found.st_mode) & 0o1777
    ids = _inside(found.st_uid, own_id[0]), _inside(found.st_gid, own_id[1])

    def written(kind: WrittenKind, target: str = "", data: bytes = b"", opaque: bool = False) -> Written:
        return Written(
            path=path,
            kind=kind,
            mode=mode,
            uid=ids[0],
            gid=ids[1],
            modified_ns=found.st_mtime_ns,
            target=target,
            data=data,
            opaque=opaque,
        )

    if stat.S_ISDIR(found.st_mode):
        caps.take(path, 0)
        with _opened(place, mode, os.O_RDONLY | os.O_DIRECTORY) as fd:
            yield written(WrittenKind.FOLDER, opaque=_is_opaque(fd))
            yield from _walk(fd, path, own_id, caps, depth + 1)
    elif stat.S_ISREG(found.st_mode):
        caps.take(path, found.st_size)
        with _opened(place, mode, os.O_RDONLY | os.O_NONBLOCK) as fd:
            yield written(WrittenKind.FILE, data=_read(fd, found.st_size))
    elif stat.S_ISLNK(found.st_mode):
        caps.take(path, 0)
        target = os.readlink("", dir_fd=place)
        yield written(WrittenKind.LINK, target=target) if _is_text(target) else written(WrittenKind.ODD)
    elif _is_removal(found):
        caps.take(path, 0)
        yield Written(path=path, kind=WrittenKind.GONE)
    else:
        caps.take(path, 0)
        yield written(WrittenKind.ODD)


@contextlib.contextmanager
def _opened(place: int, mode: int, flags: int) -> Iterator[int]:
    """Open what a place descriptor names; an owner may have taken the right to read from itself."""
    own = f"/proc/self/fd/{place}"
    try:
        fd = os.open(own, flags | os.O_CLOEXEC)
    except PermissionError:
        os.chmod(own, mode | 0o700)  # noqa: PTH101 - through the descriptor: no name is followed
        fd = os.open(own, flags | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def _read(fd: int, size: int) -> bytes:
    pieces: list[bytes] = []
    while size > 0 and (piece := os.read(fd, min(size, 1 << 24))):
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def _is_opaque(fd: int) -> bool:
    try:
        return os.getxattr(fd, _OPAQUE) == b"y"
    except OSError as error:
        if error.errno in (errno.ENODATA, errno.ENOTSUP):
            return False
        raise


def _is_removal(found: os.stat_result) -> bool:
    """How an overlay notes that a path of a lower layer is gone."""
    return stat.S_ISCHR(found.st_mode) and found.st_rdev == 0


def _inside(host_id: int, own: int) -> int:
    """An id as it is seen inside: ranges begin at multiples of their length."""
    return (host_id - _RANGE_BASE) % _RANGE_COUNT if host_id >= _RANGE_BASE else own


def _is_text(name: str) -> bool:
    """Names that are no UTF-8 cannot be told to anyone; they are left behind."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def find_written(layers_fd: int, path: str, read: Callable[[int, str], bytes]) -> bytes | None:
    """What ``read(layers, path below them)`` gives for a path inside; None: it was not written, or was removed."""
    parts = [part for part in path.split("/") if part]
    layer = [SYSTEM_UPPER, *parts[1:]] if parts[:1] == ["usr"] and _has(layers_fd, SYSTEM_UPPER) else [UPPER, *parts]
    try:
        place = open_beneath(layers_fd, "/".join(layer), os.O_PATH)
    except FileNotFoundError:
        return None
    try:
        found = os.fstat(place)
    finally:
        os.close(place)
    return None if _is_removal(found) else read(layers_fd, "/".join(layer))


def _has(layers_fd: int, name: str) -> bool:
    try:
        os.close(open_beneath(layers_fd, name, os.O_PATH))
    except FileNotFoundError:
        return False
    return True
