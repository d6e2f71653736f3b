"""COPY and ADD onto a tree: bytes from the build context, places by the plan."""

from __future__ import annotations

import io
import os
import posixpath
import stat
import tarfile
from pathlib import Path
from typing import Final

from flightschool.environments.terminal.copying import copy_targets
from flightschool.environments.terminal.plan_records import CopyItem, CopyStep
from flightschool.environments.terminal.trees.accounts import find_owner
from flightschool.environments.terminal.trees.laying import Tree
from flightschool.errors import InputError
from flightschool.sandbox.node.files import open_beneath

__all__ = ["copy_onto", "read_plain"]

MOST_BYTES: Final = 2 << 30
"""Of one file, and of one unpacked archive."""


def copy_onto(tree: Tree, step: CopyStep, context: Path, where: str) -> None:
    """Do one step.

    Args:
        context: the build context on this machine.
        where: file and line, for errors.

    Raises:
        InputError: a place is taken by something else, an unknown owner, an unreadable mode or archive.
    """
    owner = find_owner(tree, step.owner, where)
    mode = _mode(step.mode, where)
    fd = os.open(context, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for source, item, target in copy_targets(step, tree.is_folder):
            if item is None and source.content is not None:
                tree.write(target, source.content.encode(), mode=mode or 0o644, owner=owner)
            elif item is None and source.unpack:
                _unpack(tree, read_plain(fd, source.path, MOST_BYTES)[0], target, owner, where)
            elif item is not None:
                _copy_item(tree, fd, item, target, owner, mode)
        if step.destination.endswith("/") or any(source.is_folder for source in step.sources):
            tree.make_folder(step.destination, owner=owner)
    finally:
        os.close(fd)


def _copy_item(tree: Tree, context: int, item: CopyItem, target: str, owner: tuple[int, int], mode: int) -> None:
    if item.kind == "folder":
        tree.make_folder(target, owner=owner, mode=mode or 0o755)
        return
    tree.make_folder(posixpath.dirname(target), owner=owner)
    if item.kind == "link":
        tree.link(target, item.target, owner=owner)
        return
    data, modified_ns = read_plain(context, item.path, MOST_BYTES)
    tree.write(target, data, mode=mode or (0o755 if item.executable else 0o644), owner=owner, modified_ns=modified_ns)


def read_plain(folder: int, path: str, most_bytes: int) -> tuple[bytes, int]:
    """Content and modification time (ns) of a regular file below a folder; no link is followed.

    Raises:
        InputError: it is no regular file any more, or too long.
    """
    fd = open_beneath(folder, path, os.O_RDONLY | os.O_NONBLOCK)
    with os.fdopen(fd, "rb") as file:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_size > most_bytes:
            raise InputError(
                "no ordinary file", where=path, expected=f"a file of at most {most_bytes} bytes", mend="replace it"
            )
        return file.read(), found.st_mtime_ns


def _mode(text: str, where: str) -> int:
    if not text:
        return 0
    try:
        return int(text, 8) & 0o1777
    except ValueError:
        raise InputError(f"mode {text!r}", where=where, expected="octal digits", mend="write --chmod=755") from None


def _unpack(tree: Tree, data: bytes, target: str, owner: tuple[int, int], where: str) -> None:
    left = MOST_BYTES
    tree.make_folder(target)
    try:
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            for member in archive:
                name = posixpath.normpath(member.name.lstrip("/"))
                if name == ".." or name.startswith("../"):
                    raise InputError(
                        f"the archive leaves its folder by {member.name!r}",
                        where=where,
                        expected="paths that stay inside",
                        mend="pack it again",
                    )
                place = posixpath.join(target, name)
                if member.isdir():
                    tree.make_folder(place, owner=owner, mode=member.mode & 0o777)
                elif member.issym():
                    tree.link(place, member.linkname, owner=owner)
                elif member.isfile() or member.islnk():
                    content = archive.extractfile(member)
                    left -= member.size
                    if content is None or left < 0:
                        raise tarfile.ReadError(f"{member.name} cannot be read or is too long")
                    tree.write(place, content.read(), mode=member.mode & 0o777, owner=owner)
    except (tarfile.TarError, EOFError, KeyError, OSError) as error:
        raise InputError(
            f"the archive cannot be unpacked: {error}", where=where, expected="a tar", mend="pack it again"
        ) from error
