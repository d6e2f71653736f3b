"""An image tree as a folder on disk, written the way a builder would: paths mean the tree's own, never the host's.

What lies in a tree was made by other people's commands, links included, so every path is resolved by the kernel with
the tree as the root. Nothing is written in place: trees may share files by hard links.
"""

from __future__ import annotations

import contextlib
import errno
import os
import posixpath
import shutil
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from flightschool.errors import InputError
from flightschool.sandbox.node import syscalls
from flightschool.sandbox.written import Written, WrittenKind

__all__ = ["Tree"]

_IN_ROOT, _BENEATH, _NO_SYMLINKS, _NO_XDEV = 0x10, 0x08, 0x04, 0x01
_COPIED_BYTES: Final = 32 << 20
_OPAQUE: Final = "user.overlay.opaque"
_WHITEOUT: Final = stat.S_IFCHR


class Tree:
    """A folder that is, or will be, the tree of an image.

    Args:
        root: the folder; must exist.
        over_host: whether it lies over the curated view, so that what it lacks below ``/usr`` may be the host's.
    """

    def __init__(self, root: Path, *, over_host: bool) -> None:
        self.root = root
        self.over_host = over_host
        self._keeps_owners = os.geteuid() == 0

    # -------------------------------------------------------------------------------------------- looking

    def is_folder(self, path: str) -> bool:
        """Whether a folder lies at an absolute path, links of the tree followed."""
        try:
            with self._open(path, os.O_PATH | os.O_DIRECTORY):
                return True
        except OSError:
            return self._is_hosts(path) and Path(path).is_dir()

    def read(self, path: str, most_bytes: int = 1 << 20) -> bytes | None:
        """Content of a regular file, links of the tree followed; None: there is none."""
        try:
            with self._open(path, os.O_RDONLY | os.O_NONBLOCK) as fd:
                return os.read(fd, most_bytes) if stat.S_ISREG(os.fstat(fd).st_mode) else None
        except OSError:
            return None

    def has(self, path: str) -> bool:
        """Whether the tree itself has something at exactly this path, no link followed."""
        try:
            with self._parent(path, _BENEATH | _NO_SYMLINKS) as (folder, name):
                found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except OSError:
            return False
        return not _is_whiteout(found)

    def identity(self, path: str) -> tuple[int, int] | None:
        """What tells a file from its replacement: an image shares its base's files. None: there is nothing there."""
        try:
            with self._parent(path, _BENEATH | _NO_SYMLINKS) as (folder, name):
                found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except OSError:
            return None
        if _is_whiteout(found):
            return None
        # Folders and links are made anew in each copy; of these only being there is known.
        return (found.st_dev, found.st_ino) if stat.S_ISREG(found.st_mode) else (0, stat.S_IFMT(found.st_mode))

    def link_text(self, path: str) -> str | None:
        """Text of the link at exactly this path, in the tree or in the host's part below it; None: it is no link."""
        try:
            with self._parent(path, _BENEATH | _NO_SYMLINKS) as (folder, name):
                return os.readlink(name, dir_fd=folder)
        except OSError:
            pass
        if self._is_hosts(path) and not self.has(path) and Path(path).is_symlink():
            return str(Path(path).readlink())
        return None

    def _is_hosts(self, path: str) -> bool:
        return self.over_host and path.startswith("/usr/")

    # -------------------------------------------------------------------------------------------- building

    def make_folder(self, path: str, *, owner: tuple[int, int] = (0, 0), mode: int = 0o755) -> None:
        """A folder with those above it; what is there already stays as it is.

        Raises:
            InputError: something else is in the way.
        """
        done = ""
        for part in [part for part in path.split("/") if part]:
            done += "/" + part
            try:
                with self._open(done, os.O_PATH | os.O_DIRECTORY):
                    continue
            except FileNotFoundError:
                pass
            except OSError as error:
                raise _in_the_way(done, error) from None
            with self._parent(done, _IN_ROOT) as (folder, name):
                try:
                    os.mkdir(name, dir_fd=folder)
                except OSError as error:
                    raise _in_the_way(done, error) from None
                self._settle(folder, name, owner, mode)

    def write(
        self, path: str, data: bytes, *, mode: int = 0o644, owner: tuple[int, int] = (0, 0), modified_ns: int = 0
    ) -> None:
        """A file in the place of whatever has the name, except a folder. Folders above it are made."""
        self.make_folder(posixpath.dirname(path))
        with self._parent(path, _IN_ROOT) as (folder, name):
            self._write_at(folder, name, path, data, (mode, owner, modified_ns))

    def link(self, path: str, target: str, *, owner: tuple[int, int] = (0, 0)) -> None:
        """A symbolic link by its text. Folders above it are made."""
        self.make_folder(posixpath.dirname(path))
        with self._parent(path, _IN_ROOT) as (folder, name):
            self._link_at(folder, name, path, target, owner)

    # -------------------------------------------------------------------------------------------- changes

    def apply(self, changes: Iterable[Written]) -> None:
        """Lay what a sandbox wrote over the tree. Paths are exact: no link is followed."""
        for change in changes:
            with self._parent(change.path, _BENEATH | _NO_SYMLINKS) as (folder, name):
                self._apply_at(folder, name, change)

    def remove(self, path: str) -> None:
        """Take a path, and all below it, out of the tree; no link is followed."""
        with contextlib.suppress(FileNotFoundError), self._parent(path, _BENEATH | _NO_SYMLINKS) as (folder, name):
            _remove_at(folder, name)

    def _apply_at(self, folder: int, name: str, change: Written) -> None:
        owner = (change.uid, change.gid)
        match change.kind:
            case WrittenKind.GONE:
                _remove_at(folder, name)
                if self._is_hosts(change.path):
                    os.mknod(name, _WHITEOUT, 0, dir_fd=folder)
            case WrittenKind.FOLDER:
                if change.opaque or not _is_folder_at(folder, name):
                    _remove_at(folder, name)
                    os.mkdir(name, dir_fd=folder)
                    if change.opaque and self._is_hosts(change.path):
                        self._make_opaque(folder, name)
                self._settle(folder, name, owner, change.mode)
            case WrittenKind.FILE:
                _remove_at(folder, name)
                self._write_at(folder, name, change.path, change.data, (change.mode, owner, change.modified_ns))
            case WrittenKind.LINK:
                _remove_at(folder, name)
                self._link_at(folder, name, change.path, change.target, owner)

    def _make_opaque(self, folder: int, name: str) -> None:
        fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
        try:
            os.setxattr(fd, _OPAQUE, b"y")
        finally:
            os.close(fd)

    def _write_at(self, folder: int, name: str, path: str, data: bytes, how: tuple[int, tuple[int, int], int]) -> None:
        mode, owner, modified_ns = how
        if _is_folder_at(folder, name):
            raise _in_the_way(path, IsADirectoryError("a folder"))
        _remove_at(folder, name)
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            if self._keeps_owners:
                os.fchown(fd, *owner)
            os.fchmod(fd, mode & 0o1777)
            if modified_ns:
                os.utime(fd, ns=(modified_ns, modified_ns))

    def _link_at(self, folder: int, name: str, path: str, target: str, owner: tuple[int, int]) -> None:
        if _is_folder_at(folder, name):
            raise _in_the_way(path, IsADirectoryError("a folder"))
        _remove_at(folder, name)
        os.symlink(target, name, dir_fd=folder)
        if self._keeps_owners:
            os.chown(name, *owner, dir_fd=folder, follow_symlinks=False)

    def _settle(self, folder: int, name: str, owner: tuple[int, int], mode: int) -> None:
        fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        try:
            if self._keeps_owners:
                os.fchown(fd, *owner)
            # With one id the owner inside is the owner here, who must be able to walk the tree.
            os.fchmod(fd, (mode if self._keeps_owners else mode | 0o700) & 0o1777)
        finally:
            os.close(fd)

    # -------------------------------------------------------------------------------------------- copies

    def copy_to(self, root: Path, *, shared: bool = False) -> Tree:
        """The same tree in an empty folder; folders are its own.

        A layer's files are copied, since a file that seems to have another link is refused by honest tools (``gzip``);
        hard links within the tree stay. Whole systems and large files are shared by hard links.

        Args:
            root: the empty folder.
            shared: share all files, so that ``identity`` tells what stays as it was.
        """
        most_bytes = _COPIED_BYTES if self.over_host and not shared else -1
        _Copying(self._keeps_owners, most_bytes=most_bytes).folder(str(self.root), str(root))
        return Tree(root, over_host=self.over_host)

    # -------------------------------------------------------------------------------------------- descriptors

    @contextlib.contextmanager
    def _open(self, path: str, flags: int, how: int = _IN_ROOT) -> Iterator[int]:
        root = os.open(self.root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fd = syscalls.openat2(root, path.strip("/") or ".", flags, how | _NO_XDEV)
        finally:
            os.close(root)
        try:
            yield fd
        finally:
            os.close(fd)

    @contextlib.contextmanager
    def _parent(self, path: str, how: int) -> Iterator[tuple[int, str]]:
        parent, name = os.path.split(path.rstrip("/"))
        if name in ("", ".", ".."):
            raise InputError(f"{path!r} names no place", where=path, expected="a path below /", mend="name one")
        with self._open(parent, os.O_PATH | os.O_DIRECTORY, how) as folder:
            yield folder, name


def _is_whiteout(found: os.stat_result) -> bool:
    return stat.S_ISCHR(found.st_mode) and found.st_rdev == 0


def _is_folder_at(folder: int, name: str) -> bool:
    try:
        return stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


def _remove_at(folder: int, name: str) -> None:
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return
    except (IsADirectoryError, PermissionError):
        inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        try:
            for below in os.listdir(inner):  # noqa: PTH208 - of a descriptor
                _remove_at(inner, below)
        finally:
            os.close(inner)
        os.rmdir(name, dir_fd=folder)


class _Copying:
    """One copy of a tree: which file of the source became which of the copy.

    Paths are plain text here: a tree is copied for every grading, and path objects took longer than the kernel did.
    """

    def __init__(self, keeps_owners: bool, *, most_bytes: int) -> None:
        self._keeps_owners = keeps_owners
        self._most_bytes = most_bytes
        self._copied: dict[int, str] = {}

    def folder(self, source: str, target: str) -> None:
        """Everything in it, then its own owner, mode and times."""
        found = os.stat(source)  # noqa: PTH116
        with os.scandir(source) as entries:
            for entry in entries:
                place = f"{target}/{entry.name}"
                of_entry = entry.stat(follow_symlinks=False)
                if entry.is_symlink():
                    os.symlink(os.readlink(entry.path), place)  # noqa: PTH115, PTH211 - text as it is
                    if self._keeps_owners:
                        os.chown(place, of_entry.st_uid, of_entry.st_gid, follow_symlinks=False)
                elif entry.is_dir(follow_symlinks=False):
                    os.mkdir(place)  # noqa: PTH102
                    self.folder(entry.path, place)
                elif entry.is_file(follow_symlinks=False) and of_entry.st_size <= self._most_bytes:
                    self._file(entry.path, place, of_entry)
                elif entry.is_file(follow_symlinks=False) or _is_whiteout(of_entry):
                    _share(entry.path, place)
        for name in os.listxattr(source):
            if name == _OPAQUE:
                os.setxattr(target, name, os.getxattr(source, name))
        if self._keeps_owners:
            os.chown(target, found.st_uid, found.st_gid)
        os.chmod(target, stat.S_IMODE(found.st_mode))  # noqa: PTH101
        os.utime(target, ns=(found.st_atime_ns, found.st_mtime_ns))

    def _file(self, source: str, target: str, found: os.stat_result) -> None:
        first = self._copied.get(found.st_ino)
        if first is not None:
            os.link(first, target)
            return
        try:
            shutil.copyfile(source, target)
        except PermissionError:  # an ordinary user's tree may hold files that its owner made unreadable
            _share(source, target)
            return
        self._copied[found.st_ino] = target
        if self._keeps_owners:
            os.chown(target, found.st_uid, found.st_gid)
        shutil.copystat(source, target)  # after the owner: a change of owner takes the bits for set-user-id away


def _share(source: str, target: str) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError as error:  # another file system, or a file of another user
        if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK):
            raise
        shutil.copy2(source, target, follow_symlinks=False)


def _in_the_way(path: str, error: OSError) -> InputError:
    return InputError(
        f"cannot be written: {error.strerror or error}", where=path, expected="a free place", mend="mend the step"
    )
