"""Session files of the Codex command line ("rollouts"): JSON lines ``{timestamp, type, payload}``, one episode a file.

``response_item`` lines are items of the Responses API; ``session_meta`` and ``turn_context`` name session and model,
``event_msg`` lines of type ``token_count`` the usage. Older files hold bare items after one line of metadata. A
session that was forked, or started by another, names its origin in ``metadata``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flightschool.digest import digest
from flightschool.records import Json
from flightschool.traces.clock import Clock
from flightschool.traces.conversation import usage_of
from flightschool.traces.formats.assembly import assemble, converse
from flightschool.traces.formats.dialects import to_chat
from flightschool.traces.hints import facts_of
from flightschool.traces.loading import broken, place, result_value
from flightschool.traces.records import RecordedEpisode
from flightschool.traces.streaming import json_objects

__all__ = ["CodexImporter"]

_KEPT = ("cwd", "originator", "cli_version", "model_provider", "forked_from_id", "parent_thread_id", "source")
_ENVELOPES = frozenset({"session_meta", "turn_context", "response_item", "event_msg", "compacted"})


class CodexImporter:
    """Importer of Codex sessions."""

    format = "codex"

    def sniff(self, head: bytes, path: Path) -> bool:
        """Whether the beginning of the file has a session's first line, in the present or the older form."""
        present = b'"payload"' in head and (b'"session_meta"' in head or b'"response_item"' in head)
        older = path.name.startswith("rollout-") and b'"instructions"' in head and b'"timestamp"' in head
        return present or older

    def read(self, path: Path) -> Iterator[RecordedEpisode]:
        """The one episode of the file. Raises ``TraceError`` naming file and line."""
        session = _Session(path)
        for number, raw in json_objects(path):
            if not session.repeats(raw, number):
                session.add(raw, place(path, number))
        yield session.episode()


class _Session:
    """Collects the lines of one session."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = Clock()
        self.name = ""
        self.instructions = ""
        self.model = ""
        self.meta: dict[str, Json] = {}
        self.usage: Json = None
        self.items: list[dict[str, Any]] = []
        self.issues: list[str] = []
        self.asked: dict[str, float] = {}
        self.seen: dict[str, int] = {}
        """Digest of an item with its time → its line."""

    def repeats(self, raw: dict[str, Any], number: int) -> bool:
        """Whether a line is an earlier one once more, time and all: it was written twice, and happened once."""
        if raw.get("type") != "response_item" or not raw.get("timestamp"):
            return False
        first = self.seen.setdefault(digest(raw), number)
        if first != number:
            self.issues.append(f"line {number} repeats line {first}")
        return first != number

    def add(self, raw: dict[str, Any], where: str) -> None:
        """One line."""
        kind, payload = raw.get("type"), raw.get("payload")
        if kind not in _ENVELOPES:
            self._older(raw)
            return
        if not isinstance(payload, dict):
            raise broken("a line has no payload", where, "{timestamp, type, payload}", "remove the line")
        at = self.clock.at(raw.get("timestamp"))
        if kind == "session_meta":
            self._session(payload)
        elif kind == "turn_context" and isinstance(payload.get("model"), str):
            self.model = payload["model"]
        elif kind == "response_item":
            self._item(payload, at)
        elif kind == "event_msg" and payload.get("type") == "token_count":
            info = payload.get("info")
            self.usage = info.get("total_token_usage", self.usage) if isinstance(info, dict) else self.usage
        elif kind == "compacted":
            self.issues.append("the context was compacted; the conversation is kept as it was before")

    def episode(self) -> RecordedEpisode:
        messages: list[dict[str, Any]] = []
        if self.instructions:
            messages.append({"role": "system", "content": self.instructions})
        messages += to_chat(self.items, self.issues.append)
        if not messages:
            raise broken("there is no conversation in the session", str(self.path), "response_item lines", "check it")
        return assemble(
            converse(messages, str(self.path), lenient=True),
            id=self.name or self.path.stem,
            source=self.path.name,
            facts=facts_of(self.meta, str(self.path)),
            issues=self.issues,
            clock=self.clock,
            usage=usage_of(self.usage),
        )

    def _session(self, payload: dict[str, Any]) -> None:
        if self.name:
            return  # a fork repeats the metadata of the session that it came from
        self.name = str(payload.get("id") or "")
        base = payload.get("base_instructions")
        text = base.get("text") if isinstance(base, dict) else base
        self.instructions = str(text or payload.get("instructions") or "")
        self.meta = {key: payload[key] for key in _KEPT if payload.get(key)}

    def _older(self, raw: dict[str, Any]) -> None:
        if "type" not in raw and "id" in raw and not self.items:
            self.clock.at(raw.get("timestamp"))
            self._session(raw)
        elif raw.get("type"):
            self._item(raw, None)

    def _item(self, item: dict[str, Any], at: float | None) -> None:
        call_id = str(item.get("call_id") or item.get("id") or "")
        kind = str(item.get("type", ""))
        times: dict[str, Json] = {}
        if kind.endswith("_output"):
            times = self._answered(item, call_id, at)
        elif kind.endswith("_call"):
            if at is not None:
                self.asked[call_id] = at
            times = {"model": self.model, "end_ms": at}
        elif kind == "reasoning" or item.get("role") == "assistant":
            times = {"model": self.model, "end_ms": at}
        self.items.append({**item, **{key: value for key, value in times.items() if value not in (None, "")}})

    def _answered(self, item: dict[str, Any], call_id: str, at: float | None) -> dict[str, Json]:
        """When the call began and ended; the tool's own word on how long it took wins over the clock of the file."""
        start = self.asked.get(call_id)
        output = item.get("output")
        inner = result_value(output) if isinstance(output, str) and output.startswith("{") else output
        told = inner.get("metadata") if isinstance(inner, dict) else None
        seconds = told.get("duration_seconds") if isinstance(told, dict) else None
        if start is not None and isinstance(seconds, int | float) and not isinstance(seconds, bool) and seconds >= 0:
            return {"start_ms": start, "end_ms": round(start + seconds * 1000, 3)}
        return {"start_ms": start, "end_ms": at if start is not None else None}
