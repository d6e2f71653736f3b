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
from flightschool.traces.clock import instant_ms
from flightschool.traces.formats.openai_chat import chat_tool
from flightschool.traces.formats.own import turn_extras
from flightschool.traces.hints import metadata_table
from flightschool.traces.records import RecordedCall, RecordedEpisode, RecordedTurn, Usage

__all__ = ["export_otlp", "otlp_losses"]

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
        self.timed = _timed(episode)
        self.now = self.origin = origin if not self.timed else _origin(episode, origin)
        self.trace = _hex(f"trace {origin} {episode.id}", 32)
        self.spans: list[dict[str, Json]] = []

    def build(self) -> list[dict[str, Json]]:
        root = self._agent(self.episode, "")
        root["endTimeUnixNano"] = str(max(self.now, *(int(str(s["endTimeUnixNano"])) for s in self.spans)))
        return self.spans

    def _agent(self, episode: RecordedEpisode, parent: str) -> dict[str, Json]:
        """The spans of one conversation below ``parent``; those of sub-agents below the calls that started them."""
        calls = {call.id: call for call in episode.calls}
        turns = {turn.turn: turn for turn in episode.turns}
        last = max((i for i, m in enumerate(episode.messages) if m.role == "assistant"), default=-1)
        ends_well = last == len(episode.messages) - 1 and last >= 0
        attributes = self._root(episode, with_content=not ends_well)
        root = self._span("invoke_agent", parent, self.now, self.now, attributes)
        root_id = str(root["spanId"])
        if not parent:
            root["events"] = _evaluations(episode)
        spoken = 0
        for index, message in enumerate(episode.messages):
            if message.role != "assistant":
                continue
            content = _content(episode) if index == last and ends_well else {}
            self._chat(message, root_id, turns.get(spoken), content)
            spoken += 1
            for asked in message.tool_calls:
                self._tool(episode, calls[asked.id], root_id)
        if not episode.messages:
            for call in episode.calls:
                self._tool(episode, call, root_id)
        for child in episode.children:
            if child.parent_call not in calls:
                self._agent(child, root_id)
        return root

    def _root(self, episode: RecordedEpisode, *, with_content: bool) -> dict[str, Json]:
        attributes: dict[str, Json] = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.conversation.id": self.episode.id,
        }
        if episode is self.episode:
            attributes["flightschool.episode"] = canonical_json(metadata_table(episode)).decode()
            if not self.timed:
                attributes["flightschool.synthetic_time"] = True
        turns = [{"turn": turn.turn, **turn_extras(turn)} for turn in episode.turns]
        if turns:
            attributes["flightschool.turns"] = canonical_json(turns).decode()
        return attributes | (_content(episode) if with_content and episode.messages else {})

    def _chat(self, message: Message, root: str, turn: RecordedTurn | None, content: dict[str, Json]) -> None:
        reason = "tool_calls" if message.tool_calls else "stop"
        attributes: dict[str, Json] = {"gen_ai.operation.name": "chat", "gen_ai.response.finish_reasons": [reason]}
        start, end = self.now, self.now + _STEP_NS
        if turn is not None:
            usage = turn.usage or Usage()
            known = {
                "gen_ai.response.model": turn.model or None,
                "gen_ai.usage.input_tokens": usage.input_tokens,
                "gen_ai.usage.output_tokens": usage.output_tokens,
                "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens,
                "gen_ai.usage.cost": usage.cost_usd,
            }
            attributes |= {key: value for key, value in known.items() if value is not None}
            if self.timed and turn.start_ms is not None and turn.end_ms is not None:
                start, end = self._instant(turn.start_ms), self._instant(turn.end_ms)
        self._span("chat", root, start, end, attributes | content)
        self.now = max(self.now, end)

    def _instant(self, offset_ms: float) -> int:
        return max(0, self.origin + round(offset_ms * 1e6))

    def _tool(self, episode: RecordedEpisode, call: RecordedCall, root: str) -> None:
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
            start, end = self._instant(call.start_ms), self._instant(call.end_ms)
        span = self._span(f"execute_tool {call.name}", root, start, end, attributes)
        if call.is_error:
            span["status"] = {"code": 2}
        for child in episode.children:
            if child.parent_call == call.id:
                self._agent(child, str(span["spanId"]))
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


def _content(episode: RecordedEpisode) -> dict[str, Json]:
    messages = list(episode.messages)
    attributes: dict[str, Json] = {}
    if messages[0].role == "system":
        instructions = [{"type": "text", "content": messages.pop(0).content}]
        attributes["gen_ai.system_instructions"] = canonical_json(instructions).decode()
    made = [messages.pop()] if messages and messages[-1].role == "assistant" else []
    attributes["gen_ai.input.messages"] = canonical_json([_message(m) for m in messages]).decode()
    if made:
        attributes["gen_ai.output.messages"] = canonical_json([_message(m) for m in made]).decode()
    if episode.tools:
        stated = episode.stated_effects
        tools = [chat_tool(spec, spec.name in stated) for spec in episode.tools]
        attributes["gen_ai.tool.definitions"] = canonical_json(tools).decode()
    return attributes


def _message(message: Message) -> dict[str, Json]:
    if message.role == "tool":
        part = {"type": "tool_call_response", "id": message.tool_call_id, "response": message.content}
        return {"role": "tool", "parts": [part]}
    parts: list[dict[str, Json]] = [{"type": "text", "content": message.content}] if message.content else []
    parts += [{"type": "tool_call", "id": c.id, "name": c.name, "arguments": c.arguments} for c in message.tool_calls]
    return {"role": message.role, "parts": parts}


def _origin(episode: RecordedEpisode, otherwise: int) -> int:
    started = instant_ms(episode.started_at)
    return otherwise if started is None else round(started * 1000) * 1000


def _timed(episode: RecordedEpisode) -> bool:
    """Whether every call has its times, so that the spans can have them as well."""
    return bool(episode.calls) and all(c.start_ms is not None and c.end_ms is not None for c in episode.calls)


def _evaluations(episode: RecordedEpisode) -> list[dict[str, Json]]:
    """Reward, outcome and labels as evaluation events of the conventions."""
    events = []
    verdict = None if episode.success is None else "pass" if episode.success else "fail"
    if episode.reward is not None or verdict is not None:
        value = float(episode.success or 0) if episode.reward is None else float(episode.reward)
        events.append(_evaluation("reward", value, verdict))
    for name, label in sorted(episode.labels.items()):
        if isinstance(label, bool | int | float):
            events.append(_evaluation(name, float(label), None))
        elif isinstance(label, str):
            events.append(_evaluation(name, None, label))
    return events


def _evaluation(name: str, value: float | None, label: str | None) -> dict[str, Json]:
    attributes: dict[str, Json] = {"gen_ai.evaluation.name": name}
    if value is not None:
        attributes["gen_ai.evaluation.score.value"] = value
    if label is not None:
        attributes["gen_ai.evaluation.score.label"] = label
    return {"name": "gen_ai.evaluation.result", "attributes": _attributes(attributes)}


def otlp_losses(episode: RecordedEpisode) -> list[str]:
    """Kinds of what the spans do not hold."""
    lost = []
    asked = {call.id for message in episode.messages for call in message.tool_calls}
    if episode.messages and any(call.id not in asked for call in episode.calls):
        lost.append("calls without a conversation")
    some = any(call.start_ms is not None or call.end_ms is not None for call in episode.calls)
    if some and not _timed(episode):
        lost.append("times of calls where others have none")
    if any(c.metadata or c.labels or c.tools or c.success is not None or c.children for c in episode.children):
        lost.append("outcome, tools and metadata of sub-agents")
    return lost


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
