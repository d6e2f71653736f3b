"""Langfuse: exported traces with their observations, or rows of observations as the API gives them.

Read are one trace ``{…, observations: […]}``, a list or JSON lines of such, ``{trace, observations}``, pages
``{data: […], meta}``, and bare observations; rows of one trace may be scattered. Each observation becomes a span under
the names of the GenAI conventions. Scores are labels; the first named like a verdict is the outcome.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flightschool.records import Json
from flightschool.traces.clock import instant_ms
from flightschool.traces.formats.dialects import parsed_text
from flightschool.traces.formats.otlp import grouped_episodes
from flightschool.traces.formats.scores import outcome_of
from flightschool.traces.formats.span import Span
from flightschool.traces.loading import broken, place
from flightschool.traces.records import RecordedEpisode
from flightschool.traces.streaming import json_objects

__all__ = ["LangfuseImporter"]

_OPERATIONS = {"GENERATION": "chat", "TOOL": "execute_tool", "AGENT": "invoke_agent"}


class LangfuseImporter:
    """Importer of Langfuse exports."""

    format = "langfuse"

    def sniff(self, head: bytes, path: Path) -> bool:
        """Whether the beginning of the file has the keys of traces and observations."""
        del path
        keys = (b'"observations"', b'"parentObservationId"', b'"traceId"')
        return sum(key in head for key in keys) >= 2 or (b'"observations"' in head and b'"sessionId"' in head)

    def read(self, path: Path) -> Iterator[RecordedEpisode]:
        """Episodes of the file, one a trace. Raises ``TraceError`` naming file and line."""
        return grouped_episodes(_spans(path), path)


def _spans(path: Path) -> Iterator[Span]:
    for line, raw in json_objects(path):
        where = place(path, line)
        rows: list[Any] = raw["data"] if isinstance(raw.get("data"), list) else [raw]
        for row in rows:
            if not isinstance(row, dict):
                raise broken("a row is no object", where, "a trace or an observation", "mend the row")
            yield from _of_row(row, where)


def _of_row(row: dict[str, Any], where: str) -> Iterator[Span]:
    observations = row.get("observations")
    if observations is None:
        yield _observation(row, where)
        return
    trace = row["trace"] if isinstance(row.get("trace"), dict) else row
    if not isinstance(observations, list) or not isinstance(trace.get("id"), str):
        raise broken("a trace has no id or no list of observations", where, "{id, observations}", "re-export it")
    yield _root(trace, observations, where)
    for observation in observations:
        if not isinstance(observation, dict):
            raise broken("an observation is no object", where, "{id, type, …}", "re-export the trace")
        yield _observation({"traceId": trace["id"], **observation}, where, below=f"trace-{trace['id']}")


def _root(trace: dict[str, Any], observations: list[Any], where: str) -> Span:
    """The trace itself: it carries what is known of the task and the outcome."""
    scores = trace.get("scores")
    attributes: dict[str, Json] = outcome_of(_scores(scores if isinstance(scores, list) else []))
    for key in ("userId", "release", "version", "tags", "environment"):
        if trace.get(key):
            attributes[f"metadata.{key}"] = trace[key]
    metadata = parsed_text(trace.get("metadata"))
    if isinstance(metadata, dict):
        attributes |= {f"metadata.{key}": value for key, value in metadata.items()}
    starts = [instant_ms(o.get("startTime")) for o in observations if isinstance(o, dict)]
    first = min([at for at in (*starts, instant_ms(trace.get("timestamp"))) if at is not None], default=0.0)
    return Span(
        trace=trace["id"],
        id=f"trace-{trace['id']}",
        parent="",
        name=str(trace.get("name") or ""),
        start_ns=round(first * 1000) * 1000,
        end_ns=round(first * 1000) * 1000,
        attributes=attributes,
        events=(),
        failed=False,
        dropped=False,
        where=where,
    )


def _scores(scores: list[Any]) -> dict[str, Json]:
    """Name → value; a later score of one name wins. Categorical ones keep their word."""
    found: dict[str, Json] = {}
    for score in scores:
        if isinstance(score, dict) and isinstance(score.get("name"), str):
            word = score.get("stringValue")
            value = score.get("value") if word is None else word
            found[score["name"]] = bool(value) if score.get("dataType") == "BOOLEAN" and word is None else value
    return found


def _observation(raw: dict[str, Any], where: str, below: str = "") -> Span:
    trace, own = raw.get("traceId"), raw.get("id")
    if not isinstance(trace, str) or not trace or not isinstance(own, str) or not own:
        raise broken("an observation has no id or traceId", where, "{id, traceId, type, …}", "re-export it")
    where = f"{where} (observation {own})"
    start, end = (_nanoseconds(raw.get(key), where) for key in ("startTime", "endTime"))
    kind = str(raw.get("type") or "SPAN").upper()
    attributes: dict[str, Json] = {}
    if kind in _OPERATIONS:
        attributes["gen_ai.operation.name"] = _OPERATIONS[kind]
    if kind == "GENERATION":
        attributes |= _generation(raw)
    elif kind == "TOOL":
        attributes |= _tool(raw)
    if isinstance(raw.get("sessionId"), str) and not below:
        attributes["metadata.session"] = raw["sessionId"]
    failed = str(raw.get("level") or "").upper() == "ERROR"
    return Span(
        trace=trace,
        id=own,
        parent=str(raw.get("parentObservationId") or below),
        name=str(raw.get("name") or ""),
        start_ns=start,
        end_ns=end or start,
        attributes=attributes,
        events=(),
        failed=failed,
        dropped=False,
        where=where,
    )


def _generation(raw: dict[str, Any]) -> dict[str, Json]:
    usage = raw.get("usageDetails") or raw.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    costs = raw.get("costDetails")
    total = costs.get("total") if isinstance(costs, dict) else raw.get("calculatedTotalCost")
    given = parsed_text(raw.get("input"))
    tools = given.get("tools") if isinstance(given, dict) else None
    table: dict[str, Json] = {
        "gen_ai.response.model": raw.get("model") or raw.get("providedModelName"),
        "gen_ai.input.messages": _messages(given, "user"),
        "gen_ai.output.messages": _messages(parsed_text(raw.get("output")), "assistant"),
        "gen_ai.tool.definitions": tools,
        "gen_ai.usage.input_tokens": usage.get("input", usage.get("promptTokens")),
        "gen_ai.usage.output_tokens": usage.get("output", usage.get("completionTokens")),
        "gen_ai.usage.cache_read.input_tokens": usage.get("input_cached_tokens", usage.get("cache_read_input_tokens")),
        "gen_ai.usage.cost": total,
    }
    return {key: value for key, value in table.items() if value is not None}


def _messages(value: Json, role: str) -> Json:
    """Messages of an input or output: a list, an object with messages or choices, one message, or words."""
    if isinstance(value, dict):
        if isinstance(value.get("messages"), list):
            return value["messages"]
        if isinstance(value.get("choices"), list):
            return [choice.get("message") for choice in value["choices"][:1] if isinstance(choice, dict)]
        return [{"role": role, **value}]
    if isinstance(value, str):
        return [{"role": role, "content": value}] if value else None
    return value


def _tool(raw: dict[str, Any]) -> dict[str, Json]:
    metadata = parsed_text(raw.get("metadata"))
    metadata = metadata if isinstance(metadata, dict) else {}
    given = parsed_text(raw.get("input"))
    call_id = metadata.get("tool_call_id")
    if (
        isinstance(given, dict)
        and isinstance(given.get("args"), dict)
        and given.keys() <= {"name", "args", "id", "type"}
    ):
        call_id, given = given.get("id", call_id), given["args"]  # a whole call in the manner of LangChain
    output = raw.get("output")
    if output is None and raw.get("statusMessage"):
        output = raw["statusMessage"]
    parsed = parsed_text(output)
    if isinstance(parsed, dict) and isinstance(parsed.get("tool_call_id"), str):
        call_id, output = parsed["tool_call_id"], parsed.get("content")
    table = {
        "gen_ai.tool.name": raw.get("name"),
        "gen_ai.tool.call.id": call_id,
        "gen_ai.tool.call.arguments": given,
        "gen_ai.tool.call.result": output,
    }
    return {key: value for key, value in table.items() if value is not None}


def _nanoseconds(value: Json, where: str) -> int:
    if value is None:
        return 0
    found = instant_ms(value)
    if found is None:
        raise broken(f"{str(value)[:40]!r} is no time", where, "ISO 8601", "re-export the observation")
    return round(found * 1000) * 1000
