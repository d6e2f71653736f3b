"""Import and export of trace files: the formats by name, and sniffing.

An import is whole or nothing: everything is read and checked before the first record is handed on.
"""

from __future__ import annotations

import difflib
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from flightschool.errors import InputError, TraceError
from flightschool.protocols import TraceImporter
from flightschool.traces.loading import broken, head_of, read_text
from flightschool.traces.openai_chat import OpenAIChatImporter, export_chat
from flightschool.traces.otlp import OtlpImporter
from flightschool.traces.otlp_export import export_otlp
from flightschool.traces.records import RecordedEpisode, TraceSet
from flightschool.traces.tau_bench import TauBenchImporter

__all__ = ["EXPORT_FORMATS", "IMPORT_FORMATS", "export", "import_traces"]

_IMPORTERS: tuple[TraceImporter, ...] = (OtlpImporter(), TauBenchImporter(), OpenAIChatImporter())
_EXPORTERS: dict[str, Callable[[Iterable[RecordedEpisode]], Iterator[bytes]]] = {
    "openai-chat": export_chat,
    "otlp": export_otlp,
}
IMPORT_FORMATS = tuple(importer.format for importer in _IMPORTERS)
"""Names of the formats that can be read."""
EXPORT_FORMATS = tuple(_EXPORTERS)
"""Names of the formats that can be written."""


def import_traces(path: Path, format: str = "auto") -> TraceSet:  # noqa: A002  the word that users type
    """Read one trace file, or all ``.json`` and ``.jsonl`` files of a folder in the order of their names.

    Args:
        path: file or folder.
        format: one of ``IMPORT_FORMATS``, or ``auto`` to decide by content, file by file.

    Raises:
        TraceError: a missing or broken file, naming file, line, what was expected and the mend.
        InputError: an unknown format.
    """
    _check_format(format, ("auto", *IMPORT_FORMATS))
    episodes: list[RecordedEpisode] = []
    used: list[str] = []
    for file in _files(path):
        importer = _importer(file, format)
        used.append(importer.format)
        for episode in importer.read(file):
            if not isinstance(episode, RecordedEpisode):  # an importer of someone else's
                raise broken("an importer gave no RecordedEpisode", str(file), "RecordedEpisode", "mend the importer")
            episodes.append(episode)
    if not episodes:
        raise broken("there are no episodes", str(path), "at least one episode", "check that the recording ran")
    return TraceSet(format="+".join(dict.fromkeys(used)), episodes=_distinct(episodes))


def export(episodes: Sequence[RecordedEpisode], path: Path, format: str) -> None:  # noqa: A002
    """Write episodes to a file, whole or not at all. Equal episodes give equal bytes.

    Raises:
        InputError: an unknown format, or a path that cannot be written.
    """
    _check_format(format, EXPORT_FORMATS)
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=path.name, suffix=".part", delete=False) as file:
            part = Path(file.name)
            try:
                file.writelines(_EXPORTERS[format](episodes))
                file.flush()
                part.chmod(0o644)
                part.replace(path)
            except BaseException:
                part.unlink(missing_ok=True)
                raise
    except OSError as error:
        raise InputError(
            "traces cannot be written",
            where=str(path),
            expected="a folder that exists and is writable",
            mend=str(error),
        ) from error


def _check_format(name: str, known: Sequence[str]) -> None:
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        raise InputError(
            f"unknown trace format {name!r}",
            where="format",
            expected=f"one of {', '.join(known)}",
            mend=f"did you mean {near[0]!r}?" if near else "name one of these",
        )


def _files(path: Path) -> list[Path]:
    if not path.exists():
        raise broken("trace file not found", str(path), "a file or folder", "check the path")
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise broken("this is no regular file", str(path), "a file or folder", "write the traces to a file first")
    files = sorted(file for file in path.iterdir() if file.suffix in {".json", ".jsonl"} and file.is_file())
    if not files:
        raise broken("the folder holds no traces", str(path), ".json or .jsonl files", "check the path")
    return files


def _importer(path: Path, name: str) -> TraceImporter:
    if name != "auto":
        return next(importer for importer in _IMPORTERS if importer.format == name)
    head = head_of(path)
    for importer in _IMPORTERS:
        if importer.sniff(head, path):
            return importer
    read_text(path)  # an empty, packed or binary file has a better error than the one below
    raise TraceError(
        "the format cannot be told",
        where=str(path),
        expected=f"one of {', '.join(IMPORT_FORMATS)}",
        mend="name it with --format",
    )


def _distinct(episodes: list[RecordedEpisode]) -> tuple[RecordedEpisode, ...]:
    """Episodes with ids that tell them apart: the second of an id becomes ``id#2`` and says so."""
    count: dict[str, int] = {}
    distinct: list[RecordedEpisode] = []
    for episode in episodes:
        number = count[episode.id] = count.get(episode.id, 0) + 1
        if number > 1:
            issue = f"the episode id {episode.id!r} was used {number} times"
            episode = msgspec.structs.replace(episode, id=f"{episode.id}#{number}", issues=(*episode.issues, issue))
        distinct.append(episode)
    return tuple(distinct)
