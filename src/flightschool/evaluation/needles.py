"""Finding sealed text wherever it may lie: in records, blobs and files, whatever they are encoded in.

A *needle* is a text that only sealed tasks have: an instruction, an example, or a longer text of a reference. What a
task outside says as well is no secret and is left out, else half the workspace would have to be sealed with it.
Texts are compared as words without case and signs, so that escapes, line breaks and quotes hide nothing. Besides,
a record that names the digest of a sealed task speaks about it.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import re
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
import zstandard

from flightschool.environments.examining import underlying
from flightschool.protocols import Environment
from flightschool.records import Json, Task

__all__ = ["Needles", "texts_in"]

FEWEST_WORDS = 4
"""Shorter texts ("yes", an id) are no text that could be recognised."""
MOST_DEPTH = 6
"""Encodings inside encodings that are opened."""
MOST_BYTES = 64 * 1024 * 1024
"""Unpacked size above which a file is searched for raw bytes alone."""

_ZSTANDARD = b"\x28\xb5\x2f\xfd"
_WORD = re.compile(r"[^\W_]+")


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())


class Needles:
    """What must not be found outside the seal.

    Args:
        environment: the whole environment.
        sealed: its tasks that are sealed.
    """

    def __init__(self, environment: Environment, sealed: Sequence[Task]) -> None:
        hidden = {task.id for task in sealed}
        others = [task for task in environment.tasks() if task.id not in hidden]
        known = [_words(text) for task in others for text in _texts_of(environment, task)]
        known += [_words(environment.policy_text), *(_words(tool.description) for tool in environment.tools())]
        self.digests = frozenset(task.digest for task in sealed)
        self._by_start: defaultdict[tuple[str, ...], list[tuple[str, ...]]] = defaultdict(list)
        self._raw: list[bytes] = []
        public = _Spoken(known)
        for text in dict.fromkeys(text for task in sealed for text in _texts_of(environment, task)):
            words = tuple(_words(text))
            if len(words) >= FEWEST_WORDS and not public.says(words):
                self._by_start[words[:FEWEST_WORDS]].append(words)
                self._raw.append(text.encode())

    def __len__(self) -> int:
        return len(self._raw)

    def in_text(self, text: str) -> bool:
        """Whether a needle, or the digest of a sealed task, stands in the text."""
        if any(digest in text for digest in self.digests):
            return True
        words = _words(text)
        for start in range(len(words) - FEWEST_WORDS + 1):
            for needle in self._by_start.get(tuple(words[start : start + FEWEST_WORDS]), ()):
                if tuple(words[start : start + len(needle)]) == needle:
                    return True
        return False

    def in_bytes(self, data: bytes) -> bool:
        """Whether one stands in the bytes, however they are encoded (see ``texts_in``)."""
        if len(data) > MOST_BYTES:
            return any(raw in data for raw in self._raw)
        return any(self.in_text(text) for text in texts_in(data))

    def in_value(self, value: Json) -> bool:
        """Whether one stands anywhere in a decoded value."""
        return any(self.in_text(text) for text in _walk(value, 0))

    def in_files(self, root: Path, *, besides: Iterable[Path] = ()) -> list[Path]:
        """Files below ``root`` in which one stands; links are not followed."""
        skipped = {path.resolve() for path in besides}
        found = []
        for path in sorted(root.rglob("*")):
            if path.is_symlink() or not path.is_file() or path.resolve() in skipped:
                continue
            if self.in_bytes(path.read_bytes()):
                found.append(path)
        return found


class _Spoken:
    """Texts that are public, indexed by how passages begin."""

    def __init__(self, texts: Iterable[Sequence[str]]) -> None:
        self._passages: set[tuple[str, ...]] = set()
        self._texts: defaultdict[tuple[str, ...], list[tuple[Sequence[str], int]]] = defaultdict(list)
        for words in {tuple(words) for words in texts}:
            for start in range(len(words) - FEWEST_WORDS + 1):
                self._texts[tuple(words[start : start + FEWEST_WORDS])].append((words, start))

    def says(self, needle: tuple[str, ...]) -> bool:
        places = self._texts.get(needle[:FEWEST_WORDS], ())
        return any(tuple(words[start : start + len(needle)]) == needle for words, start in places)


def _texts_of(environment: Environment, task: Task) -> Iterator[str]:
    yield task.instruction
    for message in task.example:
        yield message.content
    reference = environment.reference(task.id)
    yield reference.oracle_answer
    yield from _walk(msgspec.to_builtins((reference.oracle, reference.checks)), 0)
    traced = underlying(environment)
    for script in () if traced is None else traced.content.scripts:
        if script.task == task.id:  # what its user knows, and tells when asked
            yield from script.facts
            yield from (answer for _, answer in script.replies)


def texts_in(data: bytes, depth: int = 0) -> Iterator[str]:
    """All texts that the bytes hold: zstandard, gzip, zlib and zip are unpacked; msgpack and JSON walked."""
    unpacked = _unpacked(data) if depth < MOST_DEPTH else None
    if unpacked is not None:
        for inner in unpacked:
            yield from texts_in(inner, depth + 1)
        return
    if data[:1] in b'{["':
        try:
            yield from _walk(json.loads(data), depth)
            return
        except (ValueError, RecursionError):
            pass
    else:
        try:
            yield from _walk(msgspec.msgpack.decode(data), depth)
            return
        except (msgspec.MsgspecError, RecursionError):
            pass
    for inner in _frames_in(data) if depth < MOST_DEPTH else ():
        yield from texts_in(inner, depth + 1)
    text = data.decode("utf-8", errors="replace")
    yield text
    for line in text.splitlines():  # JSON lines, where one text is escaped
        if "\\" in line and line[:1] in '{["':
            try:
                yield from _walk(json.loads(line), depth)
            except (ValueError, RecursionError):
                continue


def _walk(value: object, depth: int) -> Iterator[str]:
    if isinstance(value, str):
        yield value
        if depth < MOST_DEPTH and value[:1] in ("{", "[") and "\\" in value:
            try:
                yield from _walk(json.loads(value), depth + 1)
            except (ValueError, RecursionError):
                return
    elif isinstance(value, bytes | bytearray):
        yield from texts_in(bytes(value), depth + 1)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _walk(key, depth)
            yield from _walk(item, depth)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _walk(item, depth)


def _frames_in(data: bytes) -> Iterator[bytes]:
    """Zstandard frames inside other bytes, such as the entries of a training journal."""
    start = data.find(_ZSTANDARD)
    while start >= 0:
        with contextlib.suppress(zstandard.ZstdError):  # the four bytes may stand there by chance
            yield zstandard.ZstdDecompressor().decompressobj().decompress(data[start:])
        start = data.find(_ZSTANDARD, start + 1)


def _unpacked(data: bytes) -> list[bytes] | None:
    """What a compressed container holds, or None if the bytes are none."""
    try:
        if data[:4] == _ZSTANDARD:
            with zstandard.ZstdDecompressor().stream_reader(io.BytesIO(data), read_across_frames=True) as reader:
                return [reader.read(MOST_BYTES)]
        if data[:2] == b"\x1f\x8b":
            return [gzip.decompress(data)]
        if data[:4] == b"PK\x03\x04":
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                return [archive.read(name) for name in archive.namelist()]
        if data[:2] in (b"\x78\x9c", b"\x78\x01", b"\x78\xda"):
            return [zlib.decompress(data)]
    except (zstandard.ZstdError, OSError, EOFError, zlib.error, zipfile.BadZipFile, RuntimeError):
        return None
    return None
