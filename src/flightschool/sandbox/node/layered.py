"""A root of layers whose written part can be harvested as a whole, and which may lie over the host's programs.

The root is one overlay. Where the tree is only a layer over the curated view, ``/usr`` is a second one over the host's,
since an overlay does not look into what is mounted below its layers. A folder takes its owner from the uppermost layer
that has it, so a handful of folders made once in the layer are enough for files to be added among the host's.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Final

from flightschool.sandbox.node import syscalls
from flightschool.sandbox.node.rooted import Rooted
from flightschool.sandbox.node.syscalls import MS_NODEV, MS_NOSUID

__all__ = ["ROOT", "SYSTEM_UPPER", "UPPER", "build", "build_system", "open_folders"]

ROOT: Final = "merged"
UPPER: Final = "upper"
"""Folder, beside the root, of what was written."""
SYSTEM_UPPER: Final = "system_upper"
"""The same below ``/usr``."""
_OPEN_FOLDERS: Final = (
    "bin",
    "include",
    "lib",
    "libexec",
    "sbin",
    "share",
    "src",
    "local",
    "local/bin",
    "local/etc",
    "local/include",
    "local/lib",
    "local/sbin",
    "local/share",
    "local/src",
)
"""Of ``/usr``: where programs are installed by hand."""
_OPEN_PATTERNS: Final = ("lib/python3/dist-packages", "local/lib/python3*", "local/lib/python3*/*-packages")
"""Likewise for modules of Python."""
_NO_LINKS: Final = 0x0C


def build(tree: str, stage: str, tree_fd: int | None) -> str:
    """Mount the layers under ``stage``, which is writable, with the root at its ``ROOT``; the path of the tree."""
    for name in ("lower", UPPER, "work", ROOT):
        Path(stage, name).mkdir(mode=0o755)
    if tree_fd is not None:
        syscalls.attach(tree_fd, f"{stage}/lower")
        tree = f"{stage}/lower"
    _overlay([tree], f"{stage}/{UPPER}", f"{stage}/work", f"{stage}/{ROOT}")
    return tree


def build_system(tree: str, stage: str, under: Rooted) -> None:
    """The second overlay: what the tree has below ``/usr`` over the host's."""
    own = f"{tree}/usr"
    upper = f"{stage}/{SYSTEM_UPPER}"
    for name in (SYSTEM_UPPER, "system_work"):
        Path(stage, name).mkdir(mode=0o755)
    has_own = Path(own).is_dir() and not Path(own).is_symlink()
    for name in open_folders():
        if not (has_own and _has(own, name)):
            Path(upper, name).mkdir(mode=0o755, parents=True, exist_ok=True)
    place = under.folder("/usr", 0o755)
    _overlay([own, "/usr"] if has_own else ["/usr"], upper, f"{stage}/system_work", place)


def _has(own: str, name: str) -> bool:
    """Whether the tree has its own, or a link or file on the way to it, which then stands."""
    try:
        with_fd = os.open(own, os.O_PATH | os.O_DIRECTORY)
        try:
            os.close(syscalls.openat2(with_fd, name, os.O_PATH, _NO_LINKS))
        finally:
            os.close(with_fd)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return True


@cache
def open_folders() -> tuple[str, ...]:
    """Folders below ``/usr`` that files can be added to."""
    host = Path("/usr")
    found = [host / name for name in _OPEN_FOLDERS]
    found += [place for pattern in _OPEN_PATTERNS for place in sorted(host.glob(pattern))]
    return tuple(str(place.relative_to(host)) for place in found if place.is_dir() and not place.is_symlink())


def _overlay(lowers: list[str], upper: str, work: str, root: str) -> None:
    data = f"lowerdir={':'.join(lowers)},upperdir={upper},workdir={work},userxattr"
    syscalls.mount("overlay", os.fspath(root), "overlay", MS_NOSUID | MS_NODEV, data)
