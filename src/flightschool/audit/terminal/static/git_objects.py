"""Objects of a git repository read from its files: loose ones, and those of packs that are stored whole.

Formats: gitformat-pack(5) and gitrepository-layout(5). Deltas are not resolved: a commit is seldom one, and the count
of commits is what matters here.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

__all__ = ["Repository", "read_repository"]

MOST_OBJECTS: Final = 5000
MOST_SIZE: Final = 256 << 10
MOST_TOTAL: Final = 16 << 20
_KINDS: Final = {1: b"commit", 2: b"tree", 3: b"blob", 4: b"tag"}


@dataclass(slots=True)
class Repository:
    """What could be read."""

    commits: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Commit → its parents."""
    blobs: list[bytes] = field(default_factory=list)
    head: str = ""

    def reachable(self) -> set[str]:
        """Commits that HEAD leads to."""
        found: set[str] = set()
        todo = [self.head]
        while todo:
            commit = todo.pop()
            if commit in self.commits and commit not in found:
                found.add(commit)
                todo += self.commits[commit]
        return found if found else set(self.commits)  # where HEAD is not known, nothing is newer


def read_repository(files: Mapping[str, bytes]) -> Repository:
    """Read a repository from its files by path below ``.git``."""
    repository = Repository(head=_head(files))
    total = 0
    for name, kind, content in _objects(files):
        total += len(content)
        if total > MOST_TOTAL:
            break
        if kind == b"commit":
            lines = content.split(b"\n\n", 1)[0].splitlines()
            parents = tuple(line[7:].decode(errors="replace") for line in lines if line.startswith(b"parent "))
            repository.commits[name] = parents
        elif kind == b"blob":
            repository.blobs.append(content)
    return repository


def _head(files: Mapping[str, bytes]) -> str:
    text = files.get("HEAD", b"").decode(errors="replace").strip()
    if not text.startswith("ref: "):
        return text
    name = text[5:].strip()
    if name in files:
        return files[name].decode(errors="replace").strip()
    for line in files.get("packed-refs", b"").decode(errors="replace").splitlines():
        commit, _, ref = line.partition(" ")
        if ref == name:
            return commit
    return ""


def _objects(files: Mapping[str, bytes]) -> Iterator[tuple[str, bytes, bytes]]:
    count = 0
    for path, data in files.items():
        parts = path.split("/")
        if len(parts) == 3 and parts[0] == "objects" and len(parts[1]) == 2 and len(parts[2]) == 38:
            content, _ = _inflate(data)
            head, _, body = content.partition(b"\0")
            yield parts[1] + parts[2], head.partition(b" ")[0], body
            count += 1
        elif path.startswith("objects/pack/") and path.endswith(".pack"):
            for found in _packed(data):
                yield found
                count += 1
                if count > MOST_OBJECTS:
                    return
        if count > MOST_OBJECTS:
            return


def _inflate(data: bytes) -> tuple[bytes, int]:
    """Content, and how many bytes of the input it took (0: it is none)."""
    reader = zlib.decompressobj()
    try:
        content = reader.decompress(data, MOST_SIZE)
        if reader.unconsumed_tail:
            tail = reader.decompress(reader.unconsumed_tail, MOST_TOTAL)
            del tail
    except zlib.error:
        return b"", 0
    return content, len(data) - len(reader.unused_data) if reader.eof else 0


def _packed(data: bytes) -> Iterator[tuple[str, bytes, bytes]]:
    if data[:4] != b"PACK" or len(data) < 32:
        return
    at = 12
    for _ in range(min(int.from_bytes(data[8:12], "big"), MOST_OBJECTS)):
        start = at
        if at >= len(data):
            return
        byte = data[at]
        kind = byte >> 4 & 7
        at += 1
        while byte & 0x80 and at < len(data):
            byte = data[at]
            at += 1
        if kind == 6:  # an offset of variable length
            while at < len(data) and data[at] & 0x80:
                at += 1
            at += 1
        elif kind == 7:
            at += 20
        content, used = _inflate(data[at : at + MOST_TOTAL])
        if not used or at <= start:
            return
        at += used
        name = _KINDS.get(kind)
        if name is not None:
            yield (
                hashlib.sha1(name + b" %d\0" % len(content) + content, usedforsecurity=False).hexdigest(),
                name,
                content,
            )
