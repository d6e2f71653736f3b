"""The content of a folder, listed once: no link is followed, nothing outside is opened, everything has a digest.

A task folder is data of other people's making. Links are listed as links and resolved by their text, so that a link
to a file of the host cannot be read by way of a task.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import posixpath
import stat
from collections.abc import Iterator
from enum import StrEnum
from io import FileIO
from pathlib import Path

import msgspec

from flightschool.errors import InputError

__all__ = ["Contents", "Entry", "EntryKind", "list_contents", "relative_path"]

MAX_ENTRIES = 200_000
"""Entries of one folder; a task is small, and what is not is refused instead of filling memory."""
MAX_TEXT_BYTES = 4 << 20
"""Size of a file that is read as text (settings, instruction, Dockerfile)."""
MAX_LINKS = 16
MAX_DEPTH = 64
_CHUNK = 1 << 20


class EntryKind(StrEnum):
    """What lies at a path."""

    FILE = "file"
    FOLDER = "folder"
    LINK = "link"


class Entry(msgspec.Struct, frozen=True):
    """One path below a folder."""

    path: str
    kind: EntryKind
    executable: bool = False
    target: str = ""
    """Text of a link."""
    size: int = 0


class Contents:
    """Entries of a folder by relative path, in sorted order (a folder stands before what it holds)."""

    def __init__(self, root: Path, entries: dict[str, Entry]) -> None:
        self.root = root
        self.entries = entries
        self._digests: dict[str, bytes] = {}

    def kind(self, path: str) -> EntryKind | None:
        """What lies at ``path`` when links are followed inside the folder; None: nothing."""
        if path in ("", "."):
            return EntryKind.FOLDER
        found = self.entries.get(path)
        if found is not None and found.kind is not EntryKind.LINK:
            return found.kind
        real = self.resolve(path)
        return None if real is None else EntryKind.FOLDER if real == "" else self.entries[real].kind

    def is_file(self, path: str) -> bool:
        """Whether a regular file lies there."""
        return self.kind(path) is EntryKind.FILE

    def is_folder(self, path: str) -> bool:
        """Whether a folder lies there."""
        return self.kind(path) is EntryKind.FOLDER

    def resolve(self, path: str) -> str | None:
        """The path with all links followed; None: nothing lies there.

        Raises:
            InputError: a link or ``..`` leads out of the folder, or links lead in a circle.
        """
        done: list[str] = []
        todo = [part for part in reversed(path.split("/")) if part not in ("", ".")]
        links, last = 0, None
        while todo:
            part = todo.pop()
            if part == "..":
                if not done:
                    raise self._leaves(path, last)
                done.pop()
                continue
            here = "/".join((*done, part))
            entry = self.entries.get(here)
            if entry is None:
                return None
            if entry.kind is not EntryKind.LINK:
                done.append(part)
                continue
            links, last = links + 1, entry
            if entry.target.startswith("/"):
                raise self._leaves(path, entry)
            if links > MAX_LINKS:
                raise self._leaves(path, entry, "leads in a circle")
            todo += [piece for piece in reversed(entry.target.split("/")) if piece not in ("", ".")]
        return "/".join(done)

    def _leaves(self, path: str, link: Entry | None = None, how: str = "leads out of the folder") -> InputError:
        through = f" by the link {link.path!r} to {link.target!r}" if link else ""
        return InputError(
            f"path {path!r} {how}{through}",
            where=str(self.root),
            expected="a path that stays inside",
            mend="put the file itself into the folder",
        )

    @contextlib.contextmanager
    def opened(self) -> Iterator[int]:
        """A descriptor of the folder, to open paths beneath."""
        fd = os.open(self.root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield fd
        finally:
            os.close(fd)

    def within(self, folder: str) -> Contents:
        """The listing of a (real) folder inside, as if it had been listed itself."""
        prefix = folder.rstrip("/") + "/"
        entries = {
            path.removeprefix(prefix): Entry(
                path.removeprefix(prefix), entry.kind, entry.executable, entry.target, entry.size
            )
            for path, entry in self.entries.items()
            if path.startswith(prefix)
        }
        return Contents(self.root / folder, entries)

    def below(self, folder: str) -> Iterator[Entry]:
        """Entries below a (real) folder, in order, the folder itself left out."""
        prefix = "" if folder in ("", ".") else folder + "/"
        return (entry for path, entry in self.entries.items() if path.startswith(prefix))

    def read_bytes(self, path: str, limit: int = MAX_TEXT_BYTES) -> bytes:
        """Content of a file, links inside the folder followed.

        Raises:
            InputError: no regular file lies there, or it is larger than ``limit`` bytes.
        """
        data = self.read_head(path, limit + 1)
        if len(data) > limit:
            raise InputError(
                f"{path!r} is larger than {limit} bytes",
                where=str(self.root / path),
                expected="a text of ordinary size",
                mend="shorten it",
            )
        return data

    def read_head(self, path: str, count: int) -> bytes:
        """The first ``count`` bytes of a file at most, links inside the folder followed.

        Raises:
            InputError: no regular file lies there.
        """
        real = self.resolve(path)
        if not real or self.entries[real].kind is not EntryKind.FILE:
            raise InputError(
                f"no file {path!r}", where=str(self.root), expected="a regular file", mend=f"add {path!r} to the folder"
            )
        with _open(self.root / real) as file:
            return file.read(count)

    def read_text(self, path: str) -> str:
        """Content of a UTF-8 file (a byte order mark is dropped).

        Raises:
            InputError: as ``read_bytes``, and when the file is no UTF-8.
        """
        try:
            return self.read_bytes(path).decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise InputError(
                f"{path!r} is not UTF-8 text",
                where=f"{self.root / path}, byte {error.start}",
                expected="UTF-8",
                mend="save it as UTF-8",
            ) from None

    def file_digest(self, path: str) -> bytes:
        """SHA-256 of one real file, read piece by piece, once."""
        known = self._digests.get(path)
        if known is not None:
            return known
        hasher = hashlib.sha256()
        with _open(self.root / path) as file:
            while piece := file.read(_CHUNK):
                hasher.update(piece)
        return self._digests.setdefault(path, hasher.digest())

    def digest(self, folder: str = "") -> str:
        """Digest of everything below ``folder``: names, kinds, executable bits, content, link texts."""
        return self.digest_of(self.below(folder))

    def digest_of(self, entries: Iterator[Entry]) -> str:
        """Digest of chosen entries. Lengths stand before names, so no two listings spell the same bytes."""
        hasher = hashlib.sha256()
        for entry in entries:
            name, target = entry.path.encode(), entry.target.encode()
            hasher.update(f"{entry.kind.value} {int(entry.executable)} {len(name)} {len(target)} ".encode())
            hasher.update(name + target)
            if entry.kind is EntryKind.FILE:
                hasher.update(self.file_digest(entry.path))
        return "sha256:" + hasher.hexdigest()


def _open(path: Path) -> FileIO:
    # Links were resolved by text, so a link here means that the folder changed meanwhile.
    return FileIO(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK))


def list_contents(root: Path) -> Contents:
    """List a folder.

    Raises:
        InputError: it is no folder, holds a device, FIFO or socket, a name that is no UTF-8, or too many entries.
    """
    entries: dict[str, Entry] = {}
    try:
        _list_into(root, "", entries)
    except NotADirectoryError:
        raise InputError(
            "not a folder", where=str(root), expected="a task folder", mend="name the folder, not a file in it"
        ) from None
    except FileNotFoundError:
        raise InputError("folder not found", where=str(root), expected="a task folder", mend="check the path") from None
    except OSError as error:
        raise InputError(
            f"cannot be listed: {error.strerror}",
            where=str(root),
            expected="a readable folder",
            mend="check its rights",
        ) from error
    return Contents(root, entries)


def _list_into(root: Path, prefix: str, entries: dict[str, Entry]) -> None:
    with os.scandir(root / prefix if prefix else root) as found:
        children = sorted(found, key=lambda child: child.name)
    for child in children:
        path = f"{prefix}/{child.name}" if prefix else child.name
        if len(entries) >= MAX_ENTRIES:
            raise InputError(
                f"more than {MAX_ENTRIES} files",
                where=str(root),
                expected="a task folder",
                mend="name a task, not a disk",
            )
        _check_name(root, path)
        if child.is_symlink():
            entries[path] = Entry(path, EntryKind.LINK, target=os.readlink(child.path))  # noqa: PTH115 - text as it is
            _check_name(root, entries[path].target)
        elif child.is_dir(follow_symlinks=False):
            if path.count("/") >= MAX_DEPTH:
                raise InputError(
                    f"folders lie more than {MAX_DEPTH} deep",
                    where=str(root),
                    expected="a task folder",
                    mend="flatten it",
                )
            entries[path] = Entry(path, EntryKind.FOLDER)
            _list_into(root, path, entries)
        else:
            status = child.stat(follow_symlinks=False)
            if not stat.S_ISREG(status.st_mode):
                raise InputError(
                    f"{path!r} is a device, FIFO or socket",
                    where=str(root),
                    expected="files, folders and links",
                    mend="remove it",
                )
            executable = bool(status.st_mode & stat.S_IXUSR)
            entries[path] = Entry(path, EntryKind.FILE, executable, "", status.st_size)


def _check_name(root: Path, name: str) -> None:
    try:
        name.encode()
    except UnicodeEncodeError:
        raise InputError(
            f"the name {os.fsencode(name)!r} is not UTF-8", where=str(root), expected="UTF-8 names", mend="rename it"
        ) from None


def relative_path(path: str) -> str | None:
    """``path`` as a normal relative path (`` `` for the top itself); None: it leads above the top.

    A leading ``/`` means the top, as a build context reads it.
    """
    normal = posixpath.normpath(path.lstrip("/") or ".")
    if normal == "..":
        return None
    return None if normal.startswith("../") else "" if normal == "." else normal
