"""Inspect evaluation logs: ``.eval`` archives and ``.json`` files, one episode a sample and epoch.

Messages are the sample's; ``tool`` and ``model`` events add times, errors and usage. All scores are labels; one named
like a verdict, else the first that can be read as a grade, is the outcome. Archives are read member by member.
"""

from __future__ import annotations

import io
import json
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

import msgspec
import zstandard

from flightschool.records import Json
from flightschool.traces.clock import Clock
from flightschool.traces.conversation import content_text, tool_specs, usage_of
from flightschool.traces.formats.assembly import assemble, converse
from flightschool.traces.formats.dialects import to_chat
from flightschool.traces.formats.scores import VERDICTS, graded
from flightschool.traces.hints import facts_of
from flightschool.traces.loading import broken, head_of, place, table_at
from flightschool.traces.records import RecordedEpisode
from flightschool.traces.streaming import JsonStream

__all__ = ["InspectImporter", "inspect_samples"]

_ATTACHMENT = "attachment://"
_ZSTANDARD = 93
"""Compression type of zip members that the standard library of our oldest Python cannot read."""
_LOCAL_HEADER = 30
_DAMAGED = (
    OSError,
    zipfile.BadZipFile,
    zlib.error,
    zstandard.ZstdError,
    struct.error,
    EOFError,
    RuntimeError,
    ValueError,
)
"""What reading an archive with changed bytes raises; a run-time error is that of an unknown or encrypted member."""


_VERSION = "(version)"
"""Where the version of the whole log stands beside what it says of the evaluation."""
_KNOWN = (None, 1, 2)
"""Versions that are read; none is what fragments of a log say."""


class InspectImporter:
    """Importer of Inspect logs."""

    format = "inspect"

    def sniff(self, head: bytes, path: Path) -> bool:
        """Whether this is an archive with samples, or begins with the keys of a log."""
        if head.startswith(b"PK\x03\x04"):
            return path.suffix == ".eval"
        return b'"eval"' in head and b'"task"' in head and b'"status"' in head and b'"model"' in head

    def read(self, path: Path) -> Iterator[RecordedEpisode]:
        """Episodes of the log. Raises ``TraceError`` naming file, and member or line."""
        archive = head_of(path, 4) == b"PK\x03\x04"
        yield from _from_archive(path) if archive else _from_json(path)


def _from_json(path: Path) -> Iterator[RecordedEpisode]:
    header: dict[str, Any] = {}
    found = False
    with JsonStream(path) as stream:
        for key in stream.members():
            if key == "samples" and stream.peek() == "[":
                for index, (line, sample) in enumerate(stream.elements()):
                    found = True
                    yield _sample(sample, header, place(path, line, f"sample {index}"), f"{path.name}:sample {index}")
            else:
                _, value = stream.value()
                if key == "eval" and isinstance(value, dict):
                    header |= value
                elif key == "version":
                    header[_VERSION] = value
    if not found:
        raise _no_samples(path)


def _from_archive(path: Path) -> Iterator[RecordedEpisode]:
    try:
        with zipfile.ZipFile(path) as archive:
            names = {info.filename: info for info in archive.infolist()}  # of an updated member the last counts
            header = _header(path, names)
            samples = [i for name, i in names.items() if name.startswith("samples/") and name.endswith(".json")]
            for info in samples:
                value = _member(path, info)
                yield _sample(value, header, f"{path} ({info.filename})", f"{path.name}:{info.filename}")
            if not samples:
                raise _no_samples(path)
    except _DAMAGED as error:
        raise broken(f"the archive cannot be read: {error}", str(path), "a .eval file", "copy it once more") from error


def inspect_samples(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The log's specification (its key ``eval``) and all samples as they stand there, attachments in their places.

    Raises:
        TraceError: the file is no log, or damaged.
    """
    if head_of(path, 4) != b"PK\x03\x04":
        try:
            log = json.loads(path.read_text(encoding="utf-8"))
            header, raw = log["eval"], log["samples"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise broken(f"no log: {error}", str(path), "a .eval archive or a .json log", "check the path") from error
    else:
        try:
            with zipfile.ZipFile(path) as archive:
                names = {info.filename: info for info in archive.infolist()}
            header = _header(path, names)
            chosen = [i for name, i in names.items() if name.startswith("samples/") and name.endswith(".json")]
            raw = [_member(path, info) for info in chosen]
        except _DAMAGED as error:
            raise broken(
                f"the archive cannot be read: {error}", str(path), "a .eval file", "copy it once more"
            ) from error
    samples = [_resolved(one, table_at(one, "attachments")) for one in raw if isinstance(one, dict)]
    if not samples or not isinstance(header, dict):
        raise _no_samples(path)
    return header, samples


def _no_samples(path: Path) -> Exception:
    return broken(
        "the log holds no samples", str(path), "at least one sample", "log samples (they may be switched off)"
    )


def _header(path: Path, names: dict[str, zipfile.ZipInfo]) -> dict[str, Any]:
    for name in ("header.json", "_journal/start.json"):
        if name in names:
            value = _member(path, names[name])
            found = value.get("eval") if isinstance(value, dict) else None
            return {**found, _VERSION: value.get("version")} if isinstance(found, dict) else {}
    return {}


def _member(path: Path, info: zipfile.ZipInfo) -> Json:
    with JsonStream(Path(f"{path}:{info.filename}"), _opened(path, info)) as stream:
        _, value = stream.value()
        stream.finish()
        return value


def _opened(path: Path, info: zipfile.ZipInfo) -> IO[bytes]:
    """The bytes of a member; zstandard, which newer logs use, is unpacked here."""
    if info.compress_type != _ZSTANDARD:
        with zipfile.ZipFile(path) as archive:
            try:
                return archive.open(info)
            except (NotImplementedError, RuntimeError) as error:
                raise broken(
                    f"a member cannot be read: {error}", f"{path}:{info.filename}", "an unlocked archive", "convert it"
                ) from error
    file = path.open("rb")
    file.seek(info.header_offset)
    local = file.read(_LOCAL_HEADER)
    file.seek(int.from_bytes(local[26:28], "little") + int.from_bytes(local[28:30], "little"), io.SEEK_CUR)
    return _Unpacked(zstandard.ZstdDecompressor().stream_reader(cast("IO[bytes]", _Part(file, info.compress_size))))


class _Part(io.RawIOBase):
    """The next bytes of a file, and no more of it."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file = file
        self._left = size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._file.read(min(self._left, len(buffer)))
        self._left -= len(data)
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._file.close()
        super().close()


class _Unpacked(io.BytesIO):
    """Unpacked bytes; what is damaged is an error of reading."""

    def __init__(self, reader: Any) -> None:
        super().__init__()
        self._reader = reader

    def read(self, size: int | None = -1, /) -> bytes:
        try:
            return bytes(self._reader.read(size))
        except zstandard.ZstdError as error:
            raise OSError(f"damaged member: {error}") from error

    def close(self) -> None:
        self._reader.close()
        super().close()


# ------------------------------------------------------------------------------------------------ one sample


def _sample(raw: Json, header: dict[str, Any], where: str, source: str) -> RecordedEpisode:
    if not isinstance(raw, dict) or not isinstance(raw.get("messages"), list):
        raise broken("a sample has no messages", where, "{id, epoch, messages, …}", "write the log with samples")
    raw = _resolved(raw, table_at(raw, "attachments"))
    events = [event for event in raw.get("events") or () if isinstance(event, dict)]
    own = raw["metadata"].get("flightschool") if isinstance(raw.get("metadata"), dict) else None
    issues: list[str] = []
    if header.get(_VERSION) not in _KNOWN:
        issues.append(f"version {header[_VERSION]!r} of the log is unknown; read as {_KNOWN[-1]}")
    clock = Clock()
    clock.at(raw.get("started_at") or next((event.get("timestamp") for event in events), None))
    notes = _event_notes(events, clock)
    messages = []
    for message in raw["messages"]:
        for chat in to_chat([_plain_calls(message)], issues.append):
            extra = notes.get(str(chat.get("tool_call_id") if chat.get("role") == "tool" else chat.get("id")), {})
            messages.append(chat | _error_of(message) | extra)
    if isinstance(own, dict):
        return _own(raw, own, messages, where, source, issues)
    ended = raw.get("error") or raw.get("limit")
    if ended:
        issues.append(f"the sample ended in {'an error' if raw.get('error') else 'a limit'}")
    return assemble(
        converse(messages, where, lenient=True),
        id=f"{header.get('task') or 'sample'}-{raw.get('id')}-epoch-{raw.get('epoch', 1)}",
        source=source,
        facts=facts_of(_facts(raw, header), where),
        tools=tool_specs(_tools(events), where),
        issues=issues,
        clock=clock,
    )


def _own(
    raw: dict[str, Any], own: dict[str, Any], messages: list[dict[str, Any]], where: str, source: str, issues: list[str]
) -> RecordedEpisode:
    """A sample of our own export, which keeps what the format has no place for."""
    calls = table_at(own, "_calls")
    turns: list[Any] = own["_turns"] if isinstance(own.get("_turns"), list) else []
    spoken = 0
    for message in messages:
        if message["role"] == "tool":
            message |= calls.get(str(message.get("tool_call_id")), {})
        if message["role"] == "assistant":
            message.pop("model", None)
            message |= next((turn for turn in turns if turn.get("turn") == spoken), {})
            spoken += 1
    table = {key: value for key, value in own.items() if key not in ("_calls", "_turns", "_tools")}
    facts = facts_of(table, where)
    tools = tool_specs(own.get("_tools"), where)
    return assemble(
        converse(messages, where), id=str(raw.get("id")), source=source, facts=facts, tools=tools, issues=issues
    )


def _resolved(value: Json, attachments: dict[str, Json], depth: int = 0) -> Json:
    """The value with attachments in the place of their references."""
    if isinstance(value, str):
        return attachments.get(value.removeprefix(_ATTACHMENT), value) if value.startswith(_ATTACHMENT) else value
    if not attachments or depth > 60:
        return value
    if isinstance(value, list):
        return [_resolved(item, attachments, depth + 1) for item in value]
    if isinstance(value, dict):
        return {key: v if key == "attachments" else _resolved(v, attachments, depth + 1) for key, v in value.items()}
    return value


def _plain_calls(message: Json) -> Json:
    """Calls name their tool ``function`` and hold arguments beside it."""
    if not isinstance(message, dict) or not isinstance(message.get("tool_calls"), list):
        return message
    calls = [
        {"id": call.get("id"), "function": {"name": call.get("function"), "arguments": call.get("arguments")}}
        if isinstance(call, dict) and isinstance(call.get("function"), str)
        else call
        for call in message["tool_calls"]
    ]
    return {**message, "tool_calls": calls}


def _error_of(message: Json) -> dict[str, Json]:
    """Of a failed call the model is shown the message of the error, where the content is empty."""
    error = message.get("error") if isinstance(message, dict) and message.get("role") == "tool" else None
    if not isinstance(error, dict):
        return {"is_error": False} if isinstance(message, dict) and message.get("role") == "tool" else {}
    text, _ = content_text(message.get("content"))
    return {"is_error": True, "content": text or str(error.get("message") or "")}


def _event_notes(events: list[dict[str, Any]], clock: Clock) -> dict[str, dict[str, Json]]:
    """What events add to messages: by the id of a call for tools, by the id of the message for the model."""
    notes: dict[str, dict[str, Json]] = {}
    for event in events:
        if event.get("event") not in ("tool", "model"):
            continue
        end = event.get("completed")
        times: dict[str, Json] = {}
        if end is not None:
            times = {"start_ms": clock.at(event.get("timestamp")), "end_ms": clock.at(end)}
        if event["event"] == "tool":
            notes[str(event.get("id"))] = times
            continue
        output = table_at(event, "output")
        choices = output.get("choices")
        first = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
        message = table_at(first, "message")
        if message.get("id"):
            usage = table_at(output, "usage")
            renamed = {"cache_read_input_tokens": usage.get("input_tokens_cache_read"),
                       "cache_creation_input_tokens": usage.get("input_tokens_cache_write")}  # fmt: skip
            counted = usage_of({**usage, **{key: value for key, value in renamed.items() if value is not None}})
            built = None if counted is None else msgspec.to_builtins(counted)
            notes[str(message["id"])] = times | {"model": output.get("model"), "usage": built}
    return notes


def _facts(raw: dict[str, Any], header: dict[str, Any]) -> dict[str, Json]:
    metadata = table_at(raw, "metadata")
    scores = table_at(raw, "scores")
    labels = {name: score.get("value") for name, score in scores.items() if isinstance(score, dict)}
    named = [labels[name] for name in VERDICTS if name in labels]
    grade = next((g for value in (*named, *labels.values()) if (g := graded(value)) is not None), None)
    target = raw.get("target")
    table: dict[str, Json] = {**metadata, "task": str(raw.get("id"))}
    table |= {"target": target} if target else {}
    if isinstance(header.get("task"), str):
        table.setdefault("stratum", header["task"])
    if isinstance(raw.get("input"), str):
        table.setdefault("instruction", raw["input"])
    epoch = raw.get("epoch")
    table["trial"] = max(epoch - 1, 0) if isinstance(epoch, int) and not isinstance(epoch, bool) else 0
    table.pop("id", None)
    return table | ({"labels": labels} if labels else {}) | ({} if grade is None else {"reward": grade})


def _tools(events: list[dict[str, Any]]) -> Json:
    """Definitions that the last call of the model was given."""
    given = [event["tools"] for event in events if event.get("event") == "model" and event.get("tools")]
    return given[-1] if given and isinstance(given[-1], list) else None
