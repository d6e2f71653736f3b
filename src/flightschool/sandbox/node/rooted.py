"""Names below a root that is not entered yet, resolved as the kernel will resolve them once it is.

A tree is someone else's: a link in it, absolute ones and ``..`` included, leads to where it leads inside. ``openat2``
with its root as the root says where that is, and what is done there is done by a path without links. Nothing else runs
below the root at that time, so what was resolved stays so.
"""

from __future__ import annotations

import errno
import os

from flightschool.sandbox.node import syscalls

__all__ = ["Rooted"]

_IN_ROOT = 0x10


class Rooted:
    """Names inside → paths outside.

    Args:
        root: path of the root.
        has_links: whether links may stand below it; a root that was just made has none, and is not asked.
    """

    def __init__(self, root: str, *, has_links: bool) -> None:
        self._root = root
        self._fd = os.open(root, os.O_PATH | os.O_DIRECTORY) if has_links else -1

    def close(self) -> None:
        """Let the root go."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def real(self, path: str) -> str:
        """Where ``path`` leads, its last link followed.

        Raises:
            OSError: nothing is there, or links lead in a circle.
        """
        if self._fd < 0:
            return self._root + path
        fd = syscalls.openat2(self._fd, path, os.O_PATH, _IN_ROOT)
        try:
            return os.readlink(f"/proc/self/fd/{fd}")  # noqa: PTH115 - hot
        finally:
            os.close(fd)

    def name(self, path: str) -> str:
        """``path`` itself, which need not be there, with the folders above it followed."""
        above, _, last = path.rpartition("/")
        return f"{self.real(above or '/').rstrip('/')}/{last}"

    def there(self, path: str) -> bool:
        """Whether anything stands at ``path``, be it a link that leads nowhere."""
        try:
            return os.path.lexists(self.name(path))
        except OSError:
            return False

    def is_folder(self, path: str) -> bool:
        """Whether it leads to a folder."""
        try:
            return os.path.isdir(self.real(path))  # noqa: PTH112 - hot
        except OSError:
            return False

    def folder(self, path: str, mode: int = 0o777) -> str:
        """A folder, made with those above it unless it is there; where it is.

        Raises:
            OSError: something else is in the way, a link that leads nowhere for instance.
        """
        done = ""
        for part in path.strip("/").split("/"):
            done = f"{done}/{part}"
            try:
                real = self.real(done)
            except FileNotFoundError:
                real = self.name(done)
            if os.path.islink(real) or not os.path.isdir(real):  # noqa: PTH112, PTH114 - hot
                _make(real, mode)  # which fails on a link: one that is still there leads nowhere inside
        return self.real(path)

    def write(self, path: str, content: bytes) -> str:
        """A new file, in place of a file or link that had the name; its path."""
        place = self.name(path)
        if self._fd >= 0 and os.path.lexists(place):
            os.unlink(place)  # noqa: PTH108 - hot
        fd = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        try:
            os.write(fd, content)
        finally:
            os.close(fd)
        return place

    def touch(self, path: str) -> str:
        """Something to mount a file on; its path."""
        try:
            place = self.real(path)
            if os.path.exists(place):  # noqa: PTH110 - hot
                return place
        except FileNotFoundError:
            place = self.name(path)
        os.close(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666))
        return place


def _make(place: str, mode: int) -> None:
    try:
        os.mkdir(place, mode)  # noqa: PTH102 - hot
    except FileExistsError:
        raise OSError(errno.ENOTDIR, f"{place} is no folder and leads to none") from None
