"""Export of episodes: whole or not at all, equal bytes for equal episodes, and a word on what was lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO

import msgspec

from flightschool.errors import InputError
from flightschool.records import Record
from flightschool.store.files import fresh_file
from flightschool.traces.formats import (
    atif_losses,
    chat_losses,
    export_atif,
    export_chat,
    export_inspect,
    export_otlp,
    inspect_losses,
    otlp_losses,
)
from flightschool.traces.importing import check_format
from flightschool.traces.records import RecordedEpisode

__all__ = ["EXPORT_FORMATS", "ExportReport", "export"]


class ExportReport(Record, frozen=True, kw_only=True):
    """What was written, and what the format could not hold."""

    format: str
    num_episodes: int
    """Episodes given; those that the format cannot hold at all stand in ``losses``."""
    losses: dict[str, int] = msgspec.field(default_factory=dict)
    """What was lost → episodes that lost it. Empty: importing the file gives the same episodes."""


class _Exporter(msgspec.Struct, frozen=True):
    """One format that can be written."""

    write: Callable[[Iterable[RecordedEpisode], IO[bytes]], None]
    losses: Callable[[RecordedEpisode], list[str]]


def _lines(
    export_lines: Callable[[Iterable[RecordedEpisode]], Iterator[bytes]],
) -> Callable[[Iterable[RecordedEpisode], IO[bytes]], None]:
    def write(episodes: Iterable[RecordedEpisode], file: IO[bytes]) -> None:
        file.writelines(export_lines(episodes))

    return write


_EXPORTERS = {
    "openai-chat": _Exporter(_lines(export_chat), chat_losses),
    "otlp": _Exporter(_lines(export_otlp), otlp_losses),
    "atif": _Exporter(_lines(export_atif), atif_losses),
    "inspect": _Exporter(export_inspect, inspect_losses),
}
EXPORT_FORMATS = tuple(_EXPORTERS)
"""Names of the formats that can be written."""


def export(episodes: Iterable[RecordedEpisode], path: Path, format: str) -> ExportReport:  # noqa: A002
    """Write episodes to a file, whole or not at all. Equal episodes give equal bytes; one is held at a time.

    Raises:
        InputError: an unknown format, or a path that cannot be written.
    """
    check_format(format, EXPORT_FORMATS)
    exporter = _EXPORTERS[format]
    losses: Counter[str] = Counter()
    count = 0

    def counted() -> Iterator[RecordedEpisode]:
        nonlocal count
        for episode in episodes:
            count += 1
            losses.update(dict.fromkeys(exporter.losses(episode), 1))
            yield episode

    try:
        with fresh_file(path) as file:
            exporter.write(counted(), file)
    except OSError as error:
        raise InputError(
            "traces cannot be written",
            where=str(path),
            expected="a folder that exists and is writable",
            mend=str(error),
        ) from error
    return ExportReport(format=format, num_episodes=count, losses=dict(sorted(losses.items())))
