"""COPY and ADD: from words to paths of the build context, and from there to paths of the tree.

Docker cuts ``..`` off a source silently and follows links only inside the context. Here both are refused by name when
they lead out: a task that names what it does not ship is broken or hostile, and neither should build.
"""

from __future__ import annotations

import io
import posixpath
import re
import tarfile
from collections.abc import Callable, Iterator, Sequence

from flightschool.environments.terminal.contents import Contents, Entry, EntryKind, relative_path
from flightschool.environments.terminal.ignoring import IgnoreRules, PathPattern
from flightschool.environments.terminal.plan_records import CopyItem, CopySource, CopyStep
from flightschool.errors import InputError

__all__ = ["Context", "copy_targets"]

_WILD = re.compile(r"[*?\[]")
_TAR_HEAD = 1 << 20


class Context:
    """A build context: a folder of the task without what ``.dockerignore`` leaves out."""

    def __init__(self, contents: Contents, ignored: IgnoreRules) -> None:
        self.contents = contents
        self.ignored = ignored

    def sources(self, pattern: str, where: str, unpack: bool = False) -> list[CopySource]:
        """What one source word means. A wildcard may match nothing; a plain path may not.

        Raises:
            InputError: the path leads out of the context, is left out by ``.dockerignore``, or is not there.
        """
        path = relative_path(pattern)
        if path is None:
            raise _refused(f"source {pattern!r} leaves the build context", where)
        if _WILD.search(path):
            rule = PathPattern(path.replace("**", "*"))
            matches = [found for found in self.contents.entries if rule.matches(found) and not self.ignored(found)]
            return [self._source(match, where, unpack) for match in matches]
        return [self._source(path, where, unpack)]

    def _source(self, path: str, where: str, unpack: bool) -> CopySource:
        try:
            real = self.contents.resolve(path)
        except InputError as error:
            raise _refused(f"source {path!r} leaves the build context: {error.what}", where) from None
        if real is None or self.ignored(path):
            why = "is left out by .dockerignore" if real is not None else "is not in the build context"
            raise InputError(
                f"source {path!r} {why}",
                where=where,
                expected="a file or folder to copy",
                mend="add it, or mend the line",
            )
        if real == "" or self.contents.entries[real].kind is EntryKind.FOLDER:
            return CopySource(
                path=real, name=posixpath.basename(path), is_folder=True, items=tuple(self._below(real, path))
            )
        entry = self.contents.entries[real]
        item = CopyItem(path=real, below="", kind=entry.kind.value, executable=entry.executable)
        return CopySource(
            path=real,
            name=posixpath.basename(path),
            is_folder=False,
            items=(item,),
            unpack=unpack and self._is_archive(real),
        )

    def _below(self, real: str, named: str) -> Iterator[CopyItem]:
        cut = len(real) + 1 if real else 0
        for entry in self.contents.below(real):
            below = entry.path[cut:]
            if not self.ignored(f"{named}/{below}" if named else below):
                yield CopyItem(
                    path=entry.path,
                    below=below,
                    kind=entry.kind.value,
                    executable=entry.executable,
                    target=entry.target,
                )

    def _is_archive(self, path: str) -> bool:
        # Only the head is read: a first member that can be read makes it an archive, as for the builder.
        head = self.contents.read_head(path, _TAR_HEAD)
        try:
            with tarfile.open(fileobj=io.BytesIO(head)) as archive:
                return archive.next() is not None
        except (tarfile.TarError, EOFError, OSError):
            return False

    def digest(self, sources: Sequence[CopySource]) -> str:
        """Digest of everything that the sources bring."""
        return self.contents.digest_of(self._entry(item) for source in sources for item in source.items)

    def _entry(self, item: CopyItem) -> Entry:
        return self.contents.entries[item.path]


def copy_targets(step: CopyStep, is_folder: Callable[[str], bool]) -> Iterator[tuple[CopySource, CopyItem | None, str]]:
    """Where everything goes: (source, item, absolute path); the item is None for a heredoc and a tar to unpack.

    Args:
        step: a copy step.
        is_folder: whether a folder lies at an absolute path of the tree so far; a file copied onto a folder goes into
            it.
    """
    base = step.destination.rstrip("/") or "/"
    into = step.destination.endswith("/") or len(step.sources) > 1
    for source in step.sources:
        if source.unpack:
            yield source, None, base
        elif source.is_folder:
            yield from ((source, item, posixpath.join(base, item.below)) for item in source.items)
        else:
            target = posixpath.join(base, source.name) if into or is_folder(base) else base
            yield source, source.items[0] if source.items else None, target


def _refused(what: str, where: str) -> InputError:
    return InputError(
        what, where=where, expected="a path inside the build context", mend="put the file into the task's environment"
    )
