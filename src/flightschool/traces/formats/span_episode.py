"""One episode from the spans of one conversation.

Instrumentations repeat the whole history with each inference, so a conversation is the longest history that any
inference span holds. Histories that do not extend one another are conversations of their own: the one nearest to the
root of the span tree is the episode, the others are its children (sub-agents, or branches of an edited history).
``execute_tool`` spans give times, errors and, where the messages lack them, arguments and results.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from flightschool.digest import canonical_json
from flightschool.errors import TraceError
from flightschool.records import Json, ToolSpec
from flightschool.traces.clock import Clock
from flightschool.traces.conversation import Conversation, content_text, tool_specs
from flightschool.traces.effects import looks_like_error
from flightschool.traces.formats.assembly import assemble, converse
from flightschool.traces.formats.otlp_content import AGENT, INFERENCE, chat_messages, operation, span_usage
from flightschool.traces.formats.semconv import attribute
from flightschool.traces.formats.span import Span
from flightschool.traces.formats.truncation import looks_truncated
from flightschool.traces.hints import facts_of
from flightschool.traces.loading import parse_json, result_value
from flightschool.traces.records import RecordedCall, RecordedEpisode, RecordedTurn

__all__ = ["span_episode"]

_MOST_CHILDREN = 200
_SPAN_KEYS = frozenset(
    {"flightschool.fault", "flightschool.is_error", "flightschool.complete", "flightschool.synthetic_time",
     "flightschool.turns"}
)  # fmt: skip
"""Attributes of ours that speak of one span, not of the episode."""


class _History(msgspec.Struct, kw_only=True):
    """What one inference span holds."""

    span: Span
    given: list[dict[str, Any]]
    made: list[dict[str, Any]]
    agent: str
    """Id of the agent span around it; empty at the root."""
    depth: int
    """Agent spans around it."""
    keys: list[bytes]
    """Each message in a form that is equal for equal messages."""

    @property
    def messages(self) -> list[dict[str, Any]]:
        return self.given + self.made


def span_episode(key: str, spans: list[Span], path: Path) -> RecordedEpisode:
    """The episode. Raises ``TraceError`` for contents that cannot be a conversation."""
    issues: list[str] = []
    spans = sorted(_distinct(spans, issues), key=_time)
    tree = _Tree(spans, issues)
    facts = facts_of(_facts_table(spans), spans[0].where)
    threads = _threads([_history(span, tree, issues) for span in spans if operation(span) in INFERENCE])
    tools = [span for span in spans if operation(span) == "execute_tool"]
    main, rest = (threads[0], threads[1:]) if threads else ([], [])
    edited = next((thread for thread in rest if not thread[-1].depth), None)
    if edited is not None:
        issues.append(f"span {edited[-1].span.id} has another history (edited context?); kept as a child")
    own = [span for span in tools if not rest or tree.agent(span)[0] in {h.agent for h in main}]
    origin = spans[0].start_ns
    timed = not any(span.attributes.get("flightschool.synthetic_time") is True for span in spans)
    conversation = converse(main[-1].messages if main else [], main[-1].span.where if main else spans[0].where)
    own_turns = _own_turns(spans, "")
    if own_turns is not None:
        conversation.turns = own_turns
    elif timed and not _is_own(spans):
        _note_turns(conversation, main, origin)
    calls = _Calls(conversation, own, origin, timed, issues).build()
    if not main:
        issues.append(
            "no message content was recorded; capture it with OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
        )
    children = [
        _child(f"{key}/{n}", thread, tools, tree, origin, path) for n, thread in enumerate(rest[:_MOST_CHILDREN], 1)
    ]
    clock = Clock(origin / 1e6) if timed and origin and not _is_own(spans) else None
    return assemble(
        conversation,
        id=key,
        source=f"{path.name}:{key}",
        facts=facts,
        tools=_definitions([history.span for history in main] or spans, spans[0].where),
        calls=calls,
        issues=issues,
        clock=clock,
        children=tuple(children),
    )


def _child(
    child_id: str, thread: list[_History], tools: list[Span], tree: _Tree, origin: int, path: Path
) -> RecordedEpisode:
    issues: list[str] = []
    last = thread[-1]
    conversation = converse(last.messages, last.span.where, lenient=True)
    _note_turns(conversation, thread, origin)
    own = [span for span in tools if last.agent and tree.agent(span)[0] == last.agent]
    calls = _Calls(conversation, own, origin, True, issues).build()
    return assemble(
        conversation,
        id=child_id,
        source=f"{path.name}:{child_id}",
        calls=calls,
        issues=issues,
        relation="sub-agent" if last.depth else "branch",
        parent_call=tree.calling(last.span),
    )


def _time(span: Span) -> tuple[int, int, str]:
    return span.start_ns, span.end_ns, span.id


def _distinct(spans: list[Span], issues: list[str]) -> list[Span]:
    """Spans by their ids; one that was exported twice counts once."""
    found: dict[tuple[str, str], Span] = {}
    for span in spans:
        if (span.trace, span.id) in found:
            issues.append(f"span {span.id} is in the file twice")
        found[span.trace, span.id] = span
    return list(found.values())


class _Tree:
    """Who stands above a span. Names orphans, cycles and dropped attributes in ``issues``."""

    def __init__(self, spans: list[Span], issues: list[str]) -> None:
        self._by_id = {span.id: span for span in spans}
        orphans = sorted(span.id for span in spans if span.parent and span.parent not in self._by_id)
        issues += [f"span {span_id} is an orphan: its parent is not in the file" for span_id in orphans[:3]]
        if len(orphans) > 3:
            issues.append(f"{len(orphans) - 3} more orphan spans")
        issues += [f"span {span.id}: attributes were dropped by the exporter" for span in spans if span.dropped]
        cycles = [span.id for span in spans if self._above(span)[1]]
        if cycles:
            issues.append(f"span {cycles[0]} is its own ancestor")

    def _above(self, span: Span) -> tuple[list[Span], bool]:
        chain: list[Span] = []
        seen = {span.id}
        while span.parent in self._by_id:
            span = self._by_id[span.parent]
            if span.id in seen:
                return chain, True
            seen.add(span.id)
            chain.append(span)
        return chain, False

    def agent(self, span: Span) -> tuple[str, int]:
        """Id of the nearest agent span that holds or is the span, and how many there are up to the root."""
        above = [span, *self._above(span)[0]]
        agents = [one.id for one in above if operation(one) in AGENT]
        return (agents[0], len(agents)) if agents else ("", 0)

    def calling(self, span: Span) -> str:
        """Id of the tool call that a span runs under; empty if none."""
        for one in self._above(span)[0]:
            if operation(one) == "execute_tool":
                return str(attribute(one.attributes, "gen_ai.tool.call.id") or one.id)
        return ""


# ------------------------------------------------------------------------------------------------ histories


def _history(span: Span, tree: _Tree, issues: list[str]) -> _History:
    given, made = chat_messages(span, issues)
    agent, depth = tree.agent(span)
    keys = [_same(message) for message in given + made]
    return _History(span=span, given=given, made=made, agent=agent, depth=depth, keys=keys)


def _same(message: dict[str, Any]) -> bytes:
    """A message without what one instrumentation repeats and another does not: thoughts, finish reasons, usage."""
    calls = [_same_call(call) for call in message.get("tool_calls") or () if isinstance(call, dict)]
    text, _ = content_text(message.get("content"))
    return canonical_json([message.get("role"), text, message.get("tool_call_id"), calls])


def _same_call(call: dict[str, Any]) -> list[Json]:
    function = call.get("function", call)
    if not isinstance(function, dict):
        return [call.get("id")]
    arguments = function.get("arguments")
    arguments = result_value(arguments) if isinstance(arguments, str) else arguments
    return [call.get("id"), function.get("name"), arguments or {}]


def _threads(histories: list[_History]) -> list[list[_History]]:
    """Histories that extend one another, each thread from the shortest to the longest; the main thread first."""
    threads: list[list[_History]] = []
    for history in sorted((h for h in histories if h.keys), key=lambda h: (-len(h.keys), _time(h.span))):
        for thread in threads:
            if thread[0].keys[: len(history.keys)] == history.keys and _goes_with(thread, history):
                thread.append(history)
                break
        else:
            threads.append([history])
    # The agent span that repeats its whole conversation lies one agent deeper than its parent's, hence the minimum.
    threads.sort(key=lambda t: (min(h.depth for h in t), -len(t[0].keys), _time(t[0].span)))
    return [list(reversed(thread)) for thread in threads]


def _goes_with(thread: list[_History], history: _History) -> bool:
    """Two agents may begin alike; a bare question is no proof of kinship unless the agent is the same."""
    return history.agent == thread[0].agent or len(history.keys) > 1 or len(thread[0].keys) == 1


def _note_turns(conversation: Conversation, thread: list[_History], origin: int) -> None:
    """Model, times and usage of each inference, on the assistant message that it made."""
    known = {turn.turn: turn for turn in conversation.turns}
    for history in thread:
        if not history.made or operation(history.span) in AGENT:
            continue
        number = sum(message.get("role") == "assistant" for message in history.given)
        attributes = history.span.attributes
        model = attribute(attributes, "gen_ai.response.model") or attribute(attributes, "gen_ai.request.model")
        known[number] = msgspec.structs.replace(
            known.get(number, RecordedTurn(turn=number)),
            model=model if isinstance(model, str) else "",
            start_ms=(history.span.start_ns - origin) / 1e6,
            end_ms=(history.span.end_ns - origin) / 1e6,
            usage=span_usage(history.span),
        )
    conversation.turns = [known[number] for number in sorted(known)]


def _is_own(spans: list[Span]) -> bool:
    """Whether the spans are an export of ours, which says everything that it knows of turns."""
    return any("flightschool.episode" in span.attributes for span in spans)


def _own_turns(spans: list[Span], parent: str) -> list[RecordedTurn] | None:
    """Turns as our own export kept them on the agent span below ``parent``."""
    for span in spans:
        raw = span.attributes.get("flightschool.turns")
        if span.parent == parent and isinstance(raw, str):
            given = result_value(raw)
            if isinstance(given, list):
                conversation = Conversation(span.where)
                for turn in given:
                    conversation.note_turn(int(turn.get("turn", 0)), turn)
                return conversation.turns
    return None


def _facts_table(spans: list[Span]) -> dict[str, Json]:
    """What the spans say about task and outcome: our own attribute, else plain ones under a known prefix."""
    table: dict[str, Json] = {}
    labels: dict[str, Json] = {}
    for span in spans:
        own = span.attributes.get("flightschool.episode")
        if isinstance(own, str) and not span.parent:
            parsed = parse_json(own, span.where)
            return parsed if isinstance(parsed, dict) else {}
        for key, value in span.attributes.items():
            for prefix in ("flightschool.", "metadata."):
                if key.startswith(prefix) and key not in _SPAN_KEYS:
                    table.setdefault(key.removeprefix(prefix), value)
        for name, attributes in span.events:
            score = attribute(attributes, "gen_ai.evaluation.score.value")
            if name == "gen_ai.evaluation.result" and score is not None:
                table.setdefault("reward", score)
                labels[str(attributes.get("gen_ai.evaluation.name") or "score")] = score
    return table | ({"labels": labels} if labels else {})


def _definitions(spans: list[Span], where: str) -> tuple[tuple[ToolSpec, ...], tuple[str, ...]]:
    for span in reversed(spans):
        raw = attribute(span.attributes, "gen_ai.tool.definitions")
        raw = result_value(raw) if isinstance(raw, str) else raw
        if isinstance(raw, list):
            try:
                return tool_specs(raw, where)
            except TraceError:
                continue  # truncated definitions teach nothing; the inventory infers them from the calls
    return (), ()


# ------------------------------------------------------------------------------------------------ tool spans


class _Calls:
    """Calls of a conversation completed by their spans; calls that only spans know are added, in order of time."""

    def __init__(
        self, conversation: Conversation, tools: list[Span], origin: int, timed: bool, issues: list[str]
    ) -> None:
        self.conversation = conversation
        self.tools = tools
        self.origin = origin
        self.timed = timed
        self.issues = issues
        self.taken: dict[str, Span] = {}

    def build(self) -> tuple[RecordedCall, ...]:
        self._answer()
        calls: list[RecordedCall] = []
        for call in self.conversation.calls():
            own = self._span_of(call)
            calls.append(call if own is None else self._timed(call, own))
        extra = [span for span in self.tools if span.id not in {own.id for own in self.taken.values()}]
        if calls and extra:
            self.issues.append(f"{len(extra)} tool spans belong to no call of the kept conversation and were left out")
        elif extra:
            calls = [self._timed(_from_span(span, index), span) for index, span in enumerate(extra)]
        known = [*self.issues, *self.conversation.issues]
        return tuple(_checked(call, known, self.issues) for call in calls)

    def _answer(self) -> None:
        """Give calls that the messages leave open the result of their span."""
        for call in self.conversation.open_calls():
            span = self._span_of(call)
            text, complete = _content(span, "result") if span is not None else ("", False)
            if complete and text is not None:
                message = {"role": "tool", "tool_call_id": call.id, "content": text}
                self.conversation.add(message, len(self.conversation.messages))

    def _span_of(self, call: RecordedCall) -> Span | None:
        """The span of a call: by its id; else the next without an id that is of its tool and has its arguments."""
        if call.id not in self.taken:
            used = {span.id for span in self.taken.values()}
            free = [span for span in self.tools if span.id not in used]
            named = (span for span in free if attribute(span.attributes, "gen_ai.tool.call.id") == call.id)
            own = next(named, None) or next((span for span in free if _could_be(span, call)), None)
            if own is not None:
                self.taken[call.id] = own
        return self.taken.get(call.id)

    def _timed(self, call: RecordedCall, span: Span) -> RecordedCall:
        fault = span.attributes.get("flightschool.fault")
        error = span.failed or span.attributes.get("error.type") is not None
        return msgspec.structs.replace(
            call,
            start_ms=(span.start_ns - self.origin) / 1e6 if self.timed else None,
            end_ms=(span.end_ns - self.origin) / 1e6 if self.timed else None,
            is_error=error or (call.is_error and span.attributes.get("flightschool.is_error") is not False),
            complete=call.complete and span.attributes.get("flightschool.complete") is not False,
            fault=fault if isinstance(fault, str) else "",
        )


def _could_be(span: Span, call: RecordedCall) -> bool:
    if attribute(span.attributes, "gen_ai.tool.call.id") is not None:
        return False
    arguments, _ = _content(span, "arguments")
    same = arguments is None or bool(result_value(arguments) == call.arguments)
    return same and bool(attribute(span.attributes, "gen_ai.tool.name") == call.name)


def _from_span(span: Span, index: int) -> RecordedCall:
    arguments, whole = _content(span, "arguments")
    parsed = result_value(arguments) if arguments else {}
    result, answered = _content(span, "result")
    value = result_value(result or "")
    return RecordedCall(
        turn=index,
        id=str(attribute(span.attributes, "gen_ai.tool.call.id") or span.id),
        name=str(attribute(span.attributes, "gen_ai.tool.name") or span.name.removeprefix("execute_tool").strip()),
        arguments=parsed if isinstance(parsed, dict) else {},
        text=result or "",
        value=value,
        is_error=looks_like_error(value),
        complete=whole and answered and arguments is not None and isinstance(parsed, dict),
    )


def _content(span: Span, which: str) -> tuple[str | None, bool]:
    """Arguments or result of a tool span as text; whether it is there and whole."""
    raw = attribute(span.attributes, f"gen_ai.tool.call.{which}")
    if raw is None:
        return None, False
    text = raw if isinstance(raw, str) else canonical_json(raw).decode()
    return text, not looks_truncated(text)


def _checked(call: RecordedCall, known: list[str], issues: list[str]) -> RecordedCall:
    """The call, marked and named in ``issues`` if its content is not whole (unless ``known`` issues name it)."""
    problem = ""
    if not call.complete:
        problem = f"call {call.id} is recorded without its whole content"
    elif looks_truncated(call.text):
        problem = f"the result of call {call.id} is truncated"
    if problem and not any(f"call {call.id} " in f"{issue} " for issue in known):
        issues.append(problem)
    return msgspec.structs.replace(call, complete=False) if problem else call
