"""OpenTelemetry GenAI traces in OTLP JSON (one document, or one document a line).

Spans of one ``gen_ai.conversation.id`` (else of one trace) make one episode. The conversation is the longest message
list that any inference span holds, since instrumentations repeat the whole history with each call; where lists do
not extend one another (sub-agents, edited histories) the episode says so. ``execute_tool`` spans give times, errors
and, where the messages lack them, arguments and results.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from flightschool.digest import canonical_json
from flightschool.errors import TraceError
from flightschool.records import Json, ToolSpec
from flightschool.traces.conversation import Conversation, tool_specs
from flightschool.traces.effects import looks_like_error
from flightschool.traces.hints import facts_of
from flightschool.traces.loading import broken, parse_json, result_value
from flightschool.traces.otlp_content import INFERENCE, chat_messages, first_of, looks_truncated, operation
from flightschool.traces.otlp_spans import Span, read_spans
from flightschool.traces.records import RecordedCall, RecordedEpisode

__all__ = ["OtlpImporter"]


class OtlpImporter:
    """Importer of OTLP GenAI JSON."""

    format = "otlp"

    def sniff(self, head: bytes, path: Path) -> bool:
        """Whether the beginning of the file names resource spans."""
        del path
        return b'"resourceSpans"' in head or b'"resource_spans"' in head

    def read(self, path: Path) -> Iterator[RecordedEpisode]:
        """Episodes of the file in the order of their first instant. Raises ``TraceError`` naming file and line."""
        spans = read_spans(path)
        groups = _groups(spans)
        if not groups:
            raise broken(
                f"none of {len(spans)} spans is a GenAI span",
                str(path),
                "spans with gen_ai.* attributes (operation chat, execute_tool …)",
                "switch the GenAI instrumentation on, content capture included",
            )
        for key, members in groups:
            yield _episode(key, members, path)


def _groups(spans: Sequence[Span]) -> list[tuple[str, list[Span]]]:
    """GenAI spans by conversation; a trace belongs to the conversation that any of its spans names."""
    conversation: dict[str, str] = {}
    for span in spans:
        named = first_of(span.attributes, "gen_ai.conversation.id", "session.id", "gen_ai.thread.id")
        if isinstance(named, str) and named:
            conversation.setdefault(span.trace, named)
    groups: dict[str, list[Span]] = {}
    for span in spans:
        groups.setdefault(conversation.get(span.trace, span.trace), []).append(span)
    kept = [(key, sorted(members, key=_time)) for key, members in groups.items() if any(map(operation, members))]
    return sorted(kept, key=lambda item: (item[1][0].start_ns, item[0]))


def _time(span: Span) -> tuple[int, int, str]:
    return span.start_ns, span.end_ns, span.id


def _episode(key: str, spans: list[Span], path: Path) -> RecordedEpisode:
    facts = facts_of(_facts_table(spans), spans[0].where)
    issues = [*facts.issues, *_orphans(spans)]
    chosen, messages, where = _longest(spans, issues)
    conversation = Conversation(where)
    for index, message in enumerate(messages):
        conversation.add(message, index)
    tools = [span for span in spans if operation(span) == "execute_tool"]
    calls = _with_spans(conversation, tools, spans, issues)
    if not messages:
        issues.append(
            "no message content was recorded; capture it with OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
        )
    specs, stated = _definitions(chosen, where)
    return RecordedEpisode(
        id=facts.id or key,
        source=f"{path.name}:{key}",
        messages=tuple(conversation.messages),
        calls=calls,
        tools=specs,
        stated_effects=stated,
        hint=facts.hint,
        success=facts.success,
        reward=facts.reward,
        metadata=facts.rest,
        issues=tuple(dict.fromkeys((*issues, *conversation.issues))),
    )


def _orphans(spans: list[Span]) -> list[str]:
    known = {span.id for span in spans}
    orphans = sorted(span.id for span in spans if span.parent and span.parent not in known)
    issues = [f"span {span_id} is an orphan: its parent is not in the file" for span_id in orphans[:3]]
    if len(orphans) > 3:
        issues.append(f"{len(orphans) - 3} more orphan spans")
    return issues + [f"span {span.id}: attributes were dropped by the exporter" for span in spans if span.dropped]


def _longest(spans: list[Span], issues: list[str]) -> tuple[list[Span], list[dict[str, Any]], str]:
    """Inference spans, the longest conversation among them and where it stands; says where others diverge from it."""
    inference = [span for span in spans if operation(span) in INFERENCE]
    found = [(chat_messages(span, issues), span) for span in inference]
    found = [(messages, span) for messages, span in found if messages]
    if not found:
        return inference, [], spans[0].where
    best, span = max(found, key=lambda item: (len(item[0]), _time(item[1])))
    whole = [canonical_json(message) for message in best]
    for messages, other in found:
        if [canonical_json(message) for message in messages] != whole[: len(messages)]:
            issues.append(f"span {other.id} has another history (sub-agent or edited context); the longest was kept")
            break
    return inference, best, span.where


def _facts_table(spans: list[Span]) -> dict[str, Json]:
    """What the spans say about task and outcome: our own attribute, else plain ones under a known prefix."""
    table: dict[str, Json] = {}
    for span in spans:
        own = span.attributes.get("flightschool.episode")
        if isinstance(own, str):
            parsed = parse_json(own, span.where)
            return parsed if isinstance(parsed, dict) else {}
        for key, value in span.attributes.items():
            for prefix in ("flightschool.", "metadata."):
                if key.startswith(prefix) and key != "flightschool.fault":
                    table.setdefault(key.removeprefix(prefix), value)
        for name, attributes in span.events:
            if name == "gen_ai.evaluation.result" and attributes.get("gen_ai.evaluation.score.value") is not None:
                table.setdefault("reward", attributes["gen_ai.evaluation.score.value"])
    return table


def _definitions(spans: list[Span], where: str) -> tuple[tuple[ToolSpec, ...], tuple[str, ...]]:
    for span in reversed(spans):
        raw = first_of(span.attributes, "gen_ai.tool.definitions", "gen_ai.request.tools")
        raw = result_value(raw) if isinstance(raw, str) else raw
        if isinstance(raw, list):
            try:
                return tool_specs(raw, where)
            except TraceError:
                continue  # truncated definitions teach nothing; the inventory infers them from the calls
    return (), ()


# ------------------------------------------------------------------------------------------------ tool spans


def _with_spans(
    conversation: Conversation, tools: list[Span], spans: list[Span], issues: list[str]
) -> tuple[RecordedCall, ...]:
    """Calls of the conversation completed by their spans; calls that only spans know are added, in order of time."""
    origin = min(span.start_ns for span in spans)
    timed = not any(span.attributes.get("flightschool.synthetic_time") is True for span in spans)
    by_id: dict[str, list[Span]] = {}
    for span in tools:
        by_id.setdefault(str(first_of(span.attributes, "gen_ai.tool.call.id") or ""), []).append(span)
    for call_id in conversation.unanswered():
        span_list = by_id.get(call_id, [])
        text, complete = _content(span_list[0], "result") if span_list else ("", False)
        if complete and text is not None:
            conversation.add({"role": "tool", "tool_call_id": call_id, "content": text}, len(conversation.messages))
    calls: list[RecordedCall] = []
    used: set[str] = set()
    for call in conversation.calls():
        own = next((s for s in by_id.get(call.id, []) if s.id not in used), None)
        if own is None:
            calls.append(call)
            continue
        used.add(own.id)
        calls.append(_timed(call, own, origin, timed))
    extra = [span for span in tools if span.id not in used]
    if calls and extra:
        issues.append(f"{len(extra)} tool spans belong to no call of the kept conversation and were left out")
    elif extra:
        calls = [_timed(_from_span(span, index), span, origin, timed) for index, span in enumerate(extra)]
    return tuple(_checked(call, [*issues, *conversation.issues], issues) for call in calls)


def _timed(call: RecordedCall, span: Span, origin: int, timed: bool) -> RecordedCall:
    fault = span.attributes.get("flightschool.fault")
    error = span.failed or span.attributes.get("error.type") is not None
    return msgspec.structs.replace(
        call,
        start_ms=(span.start_ns - origin) / 1e6 if timed else None,
        end_ms=(span.end_ns - origin) / 1e6 if timed else None,
        is_error=error or (call.is_error and span.attributes.get("flightschool.is_error") is not False),
        complete=call.complete and span.attributes.get("flightschool.complete") is not False,
        fault=fault if isinstance(fault, str) else "",
    )


def _from_span(span: Span, index: int) -> RecordedCall:
    arguments, whole = _content(span, "arguments")
    parsed = result_value(arguments) if arguments else {}
    result, answered = _content(span, "result")
    value = result_value(result or "")
    return RecordedCall(
        turn=index,
        id=str(first_of(span.attributes, "gen_ai.tool.call.id") or span.id),
        name=str(first_of(span.attributes, "gen_ai.tool.name") or span.name.removeprefix("execute_tool").strip()),
        arguments=parsed if isinstance(parsed, dict) else {},
        text=result or "",
        value=value,
        is_error=looks_like_error(value),
        complete=whole and answered and arguments is not None and isinstance(parsed, dict),
    )


def _content(span: Span, which: str) -> tuple[str | None, bool]:
    """Arguments or result of a tool span as text; whether it is there and whole."""
    older = {"arguments": ("gen_ai.tool.arguments", "input.value"), "result": ("gen_ai.tool.result", "output.value")}
    raw = first_of(span.attributes, f"gen_ai.tool.call.{which}", *older[which])
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
