"""Import of trace files: the formats by name, and sniffing.

Reading is piece by piece and memory holds one episode (see ``read_episodes``); an import into memory or into a
workspace is whole or nothing.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from flightschool.errors import InputError, TraceError
from flightschool.protocols import TraceImporter
from flightschool.traces.formats import (
    AnthropicMessagesImporter,
    AnthropicSessionImporter,
    AtifImporter,
    CodexImporter,
    InspectImporter,
    LangfuseImporter,
    LangSmithImporter,
    OpenAIChatImporter,
    OpenInferenceImporter,
    OtlpImporter,
    ResponsesImporter,
    SweAgentImporter,
    TauBenchImporter,
)
from flightschool.traces.loading import broken, head_of, not_utf8, refuse_packed
from flightschool.traces.records import RecordedEpisode, TraceSet

__all__ = ["IMPORT_FORMATS", "EpisodeReader", "check_format", "import_traces"]

_IMPORTERS: tuple[TraceImporter, ...] = (
    # The more telling first: a file may bear the marks of several.
    InspectImporter(),
    AtifImporter(),
    OpenInferenceImporter(),
    OtlpImporter(),
    AnthropicSessionImporter(),
    CodexImporter(),
    TauBenchImporter(),
    LangSmithImporter(),
    LangfuseImporter(),
    SweAgentImporter(),
    AnthropicMessagesImporter(),
    ResponsesImporter(),
    OpenAIChatImporter(),
)
IMPORT_FORMATS = tuple(importer.format for importer in _IMPORTERS)
"""Names of the formats that can be read."""
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_SUFFIXES = frozenset({".json", ".jsonl", ".ndjson", ".traj", ".eval"})


class EpisodeReader:
    """The episodes of a file or folder, one after the other; iterate it once or more.

    Args:
        path: a file, or a folder whose ``.json``, ``.jsonl``, ``.ndjson``, ``.traj`` and ``.eval`` files are read in
            the order of their names.
        format: one of ``IMPORT_FORMATS``, or ``auto`` to decide by content, file by file.
        strict: take every issue of an episode for an error.

    Raises:
        TraceError: from iterating: a missing or broken file, naming file, line, what was expected and the mend.
        InputError: an unknown format.
    """

    def __init__(self, path: Path, format: str = "auto", *, strict: bool = False) -> None:  # noqa: A002
        check_format(format, ("auto", *IMPORT_FORMATS))
        self.path = path
        self._name = format
        self._strict = strict
        self._used: dict[str, None] = {}

    @property
    def format(self) -> str:
        """Formats met so far, joined by ``+``."""
        return "+".join(self._used)

    def __iter__(self) -> Iterator[RecordedEpisode]:
        ids: dict[str, int] = {}
        for file in _files(self.path):
            importer = _importer(file, self._name)
            self._used[importer.format] = None
            for episode in importer.read(file):
                if not isinstance(episode, RecordedEpisode):  # an importer of someone else's
                    raise broken("an importer gave no RecordedEpisode", str(file), "RecordedEpisode", "mend it")
                episode = _distinct(episode, ids)
                if self._strict and episode.issues:
                    raise broken(
                        episode.issues[0],
                        f"{file} (episode {episode.id})",
                        "a recording without issues (--strict)",
                        "mend the recording, or import it without --strict and see them all with traces show",
                    )
                yield episode
        if not ids:
            raise broken(
                "there are no episodes", str(self.path), "at least one episode", "check that the recording ran"
            )


def import_traces(path: Path, format: str = "auto", *, strict: bool = False) -> TraceSet:  # noqa: A002
    """Read a file or folder into memory; see ``EpisodeReader`` for arguments and errors, and for large files."""
    reader = EpisodeReader(path, format, strict=strict)
    episodes = tuple(reader)
    return TraceSet(format=reader.format, episodes=episodes)


def check_format(name: str, known: Sequence[str]) -> None:
    """Raise ``InputError`` with the nearest name unless ``name`` is known."""
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        raise InputError(
            f"unknown trace format {name!r}",
            where="format",
            expected=f"one of {', '.join(known)}",
            mend=f"did you mean {near[0]!r}?" if near else "name one of these",
        )


def _files(path: Path) -> Iterable[Path]:
    if not path.exists():
        raise broken("trace file not found", str(path), "a file or folder", "check the path")
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise broken("this is no regular file", str(path), "a file or folder", "write the traces to a file first")
    files = sorted(file for file in path.iterdir() if file.suffix in _SUFFIXES and file.is_file())
    if not files:
        kinds = ", ".join(sorted(_SUFFIXES))
        raise broken("the folder holds no traces", str(path), f"files named {kinds}", "check the path")
    return files


def _importer(path: Path, name: str) -> TraceImporter:
    if name != "auto":
        return next(importer for importer in _IMPORTERS if importer.format == name)
    head = head_of(path)
    for importer in _IMPORTERS:
        if importer.sniff(head, path):
            return importer
    if head.startswith(_UTF_16):
        raise not_utf8(path, 0, 1)
    refuse_packed(path)  # a packed or empty file has a better error than the one below
    if not head.strip():
        raise broken("trace file is empty", str(path), "at least one episode", "check that the recording ran")
    raise TraceError(
        "the format cannot be told",
        where=str(path),
        expected=f"one of {', '.join(IMPORT_FORMATS)}",
        mend="name it with --format",
    )


def _distinct(episode: RecordedEpisode, ids: dict[str, int]) -> RecordedEpisode:
    """The episode with an id that tells it apart: the second of an id becomes ``id#2`` and says so."""
    number = ids[episode.id] = ids.get(episode.id, 0) + 1
    if number == 1:
        return episode
    issue = f"the episode id {episode.id!r} was used {number} times"
    return msgspec.structs.replace(episode, id=f"{episode.id}#{number}", issues=(*episode.issues, issue))
