"""Export as OTLP GenAI JSON: one trace an episode, one document a line.

The root span (``invoke_agent``) carries what the format has no place for in one attribute, ``flightschool.episode``.
Each assistant message is a ``chat`` span, each call an ``execute_tool`` span. The whole conversation stands on the
last ``chat`` span (on the root, if the conversation ends otherwise), since repeating it on each would grow with the
square of its length. Ids and times derive from the episode's content: equal episodes give equal bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence

from flightschool.digest import canonical_json
from flightschool.records import Json, Message
from flightschool.traces.hints import metadata_table
from flightschool.traces.openai_chat import chat_tool
from flightschool.traces.records import RecordedCall, RecordedEpisode

__all__ = ["export_otlp"]

_EPOCH_NS = 1_700_000_000_000_000_000
_EPISODE_NS = 3_600_000_000_000
_STEP_NS = 1_000_000


def export_otlp(episodes: Iterable[RecordedEpisode]) -> Iterator[bytes]:
    """One OTLP document a line."""
    for index, episode in enumerate(episodes):
        spans = _Spans(episode, _EPOCH_NS + index * _EPISODE_NS).build()
        resource = {"attributes": _attributes({"service.name": "flightschool"})}
        scope = {"scope": {"name": "flightschool.traces"}, "spans": spans}
        yield canonical_json({"resourceSpans": [{"resource": resource, "scopeSpans": [scope]}]}) + b"\n"


class _Spans:
    """Builds the spans of one episode on a clock that knows real times where the recording has them."""

    def __init__(self, episode: RecordedEpisode, origin: int) -> None:
        self.episode = episode
        self.origin = origin
        self.timed = bool(episode.calls) and all(c.start_ms is not None and c.end_ms is not None for c in episode.calls)
        self.now = origin
        self.trace = _hex(f"trace {origin} {episode.id}", 32)
        self.spans: list[dict[str, Json]] = []

    def build(self) -> list[dict[str, Json]]:
        calls = {call.id: call for call in self.episode.calls}
        last = max((i for i, m in enumerate(self.episode.messages) if m.role == "assistant"), default=-1)
        ends_well = last == len(self.episode.messages) - 1 and last >= 0
        root = self._span("invoke_agent", "", self.origin, self.origin, self._root(with_content=not ends_well))
        for index, message in enumerate(self.episode.messages):
            if message.role != "assistant":
                continue
            content = self._content() if index == last and ends_well else {}
            self._chat(message, str(root["spanId"]), content)
            for asked in message.tool_calls:
                self._tool(calls[asked.id], str(root["spanId"]))
        if not self.episode.messages:
            for call in self.episode.calls:
                self._tool(call, str(root["spanId"]))
        root["endTimeUnixNano"] = str(max(self.now, *(int(str(s["endTimeUnixNano"])) for s in self.spans)))
        return self.spans

    def _root(self, *, with_content: bool) -> dict[str, Json]:
        attributes: dict[str, Json] = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.conversation.id": self.episode.id,
            "flightschool.episode": canonical_json(metadata_table(self.episode)).decode(),
        }
        if not self.timed:
            attributes["flightschool.synthetic_time"] = True
        return attributes | (self._content() if with_content and self.episode.messages else {})

    def _content(self) -> dict[str, Json]:
        messages = list(self.episode.messages)
        attributes: dict[str, Json] = {}
        if messages[0].role == "system":
            instructions = [{"type": "text", "content": messages.pop(0).content}]
            attributes["gen_ai.system_instructions"] = canonical_json(instructions).decode()
        made = [messages.pop()] if messages and messages[-1].role == "assistant" else []
        attributes["gen_ai.input.messages"] = canonical_json([_message(m) for m in messages]).decode()
        if made:
            attributes["gen_ai.output.messages"] = canonical_json([_message(m) for m in made]).decode()
        if self.episode.tools:
            stated = self.episode.stated_effects
            tools = [chat_tool(spec, spec.name in stated) for spec in self.episode.tools]
            attributes["gen_ai.tool.definitions"] = canonical_json(tools).decode()
        return attributes

    def _chat(self, message: Message, root: str, content: dict[str, Json]) -> None:
        reason = "tool_calls" if message.tool_calls else "stop"
        attributes = {"gen_ai.operation.name": "chat", "gen_ai.response.finish_reasons": [reason]} | content
        self._span("chat", root, self.now, self.now + _STEP_NS, attributes)
        self.now += _STEP_NS

    def _tool(self, call: RecordedCall, root: str) -> None:
        attributes: dict[str, Json] = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": call.name,
            "gen_ai.tool.call.id": call.id,
            "gen_ai.tool.call.arguments": canonical_json(call.arguments).decode(),
            "flightschool.is_error": call.is_error,
        }
        if call.complete or call.text:
            attributes["gen_ai.tool.call.result"] = call.text
        if call.fault:
            attributes["flightschool.fault"] = call.fault
        if not call.complete:
            attributes["flightschool.complete"] = False
        start, end = self.now, self.now + _STEP_NS
        if self.timed and call.start_ms is not None and call.end_ms is not None:
            start, end = (self.origin + round(ms * 1e6) for ms in (call.start_ms, call.end_ms))
        span = self._span(f"execute_tool {call.name}", root, start, end, attributes)
        if call.is_error:
            span["status"] = {"code": 2}
        self.now = max(self.now, end)

    def _span(self, name: str, parent: str, start: int, end: int, attributes: dict[str, Json]) -> dict[str, Json]:
        span: dict[str, Json] = {
            "traceId": self.trace,
            "spanId": _hex(f"span {self.trace} {len(self.spans)}", 16),
            "name": name,
            "kind": 1,
            "startTimeUnixNano": str(start),
            "endTimeUnixNano": str(end),
            "attributes": _attributes(attributes),
        }
        if parent:
            span["parentSpanId"] = parent
        self.spans.append(span)
        return span


def _message(message: Message) -> dict[str, Json]:
    if message.role == "tool":
        part = {"type": "tool_call_response", "id": message.tool_call_id, "response": message.content}
        return {"role": "tool", "parts": [part]}
    parts: list[dict[str, Json]] = [{"type": "text", "content": message.content}] if message.content else []
    parts += [{"type": "tool_call", "id": c.id, "name": c.name, "arguments": c.arguments} for c in message.tool_calls]
    return {"role": message.role, "parts": parts}


def _attributes(values: dict[str, Json]) -> list[dict[str, Json]]:
    return [{"key": key, "value": _typed(value)} for key, value in sorted(values.items())]


def _typed(value: Json) -> dict[str, Json]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return {"arrayValue": {"values": [_typed(item) for item in value]}}
    return {"stringValue": str(value)}


def _hex(text: str, length: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:length]
