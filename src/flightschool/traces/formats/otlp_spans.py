"""OTLP JSON: from ``resourceSpans`` to plain spans with plain attributes.

Follows the JSON encoding of OTLP: ids as hexadecimal text, 64-bit integers as decimal text, attributes as a list of
keys with typed values. Unknown fields are ignored, as the encoding demands; known ones of a wrong kind are errors.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flightschool.records import Json
from flightschool.traces.formats.flat_spans import flat_span, is_flat
from flightschool.traces.formats.span import Span, revived
from flightschool.traces.loading import broken, place
from flightschool.traces.streaming import json_objects

__all__ = ["Span", "read_spans", "revived"]


def read_spans(path: Path) -> Iterator[Span]:
    """The spans of a file in its order, one document at a time. Raises ``TraceError`` naming file and line."""
    for line, document in json_objects(path):
        where = place(path, line)
        groups = document.get("resourceSpans", document.get("resource_spans"))
        if groups is None and (document.keys() & {"resourceLogs", "resourceMetrics"}):
            continue  # another signal in the same folder or file
        if groups is None and is_flat(document):
            yield flat_span(document, where)
            continue
        if not isinstance(groups, list):
            raise broken("a line holds no spans", where, "an object with 'resourceSpans'", "export traces as OTLP JSON")
        for scope in _children(groups, ("scopeSpans", "scope_spans", "instrumentationLibrarySpans"), where):
            for raw in _children([scope], ("spans",), where):
                yield _span(raw, where)


def _children(parents: list[Any], keys: tuple[str, ...], where: str) -> Iterator[dict[str, Any]]:
    for parent in parents:
        if not isinstance(parent, dict):
            raise broken("an entry is no object", where, f"an object with {keys[0]!r}", "mend the line")
        found: Any = next((parent[key] for key in keys if key in parent), [])
        if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
            raise broken(f"{keys[0]!r} is no list of objects", where, "a list of objects", "mend the line")
        yield from found


def _span(raw: dict[str, Any], where: str) -> Span:
    trace, span_id = raw.get("traceId"), raw.get("spanId")
    if not isinstance(trace, str) or not trace or not isinstance(span_id, str) or not span_id:
        raise broken("a span has no traceId or spanId", where, "both, as hexadecimal text", "re-export the span")
    where = f"{where} (span {span_id})"
    start = _nanoseconds(raw.get("startTimeUnixNano"), where)
    status = raw.get("status")
    code = status.get("code") if isinstance(status, dict) else None
    raw_events = list(_children([raw], ("events",), where))
    events = [(str(event.get("name", "")), _attributes(event.get("attributes"), where)) for event in raw_events]
    return Span(
        trace=trace,
        id=span_id,
        parent=str(raw.get("parentSpanId") or ""),
        name=str(raw.get("name") or ""),
        start_ns=start,
        end_ns=_nanoseconds(raw.get("endTimeUnixNano"), where) or start,
        attributes=_attributes(raw.get("attributes"), where),
        events=tuple(events),
        failed=code in (2, "STATUS_CODE_ERROR"),
        dropped=bool(raw.get("droppedAttributesCount")),
        where=where,
    )


def _nanoseconds(value: Json, where: str) -> int:
    if value is None or value == "":
        return 0
    try:
        number = int(value)
    except (TypeError, ValueError):
        number = -1
    if number < 0 or isinstance(value, bool | float):
        raise broken(f"{value!r} is no time", where, "nanoseconds as decimal text", "re-export the span")
    return number


def _attributes(raw: Json, where: str) -> dict[str, Json]:
    if raw is None:
        return {}
    if not isinstance(raw, list):
        raise broken("attributes are no list", where, "[{key, value}]", "export OTLP JSON, not a flattened form")
    found: dict[str, Json] = {}
    for item in raw:
        if not isinstance(item, dict) or not isinstance(item.get("key"), str):
            raise broken("an attribute has no key", where, "{key, value: {stringValue: …}}", "re-export the span")
        found[item["key"]] = _value(item.get("value"), where)
    return found


def _value(raw: Json, where: str) -> Json:
    """A typed value as plain JSON."""
    if raw is None or raw == {}:
        return None
    if not isinstance(raw, dict) or len(raw) != 1:
        raise broken(
            f"{str(raw)[:60]!r} is no typed value", where, "{stringValue: …} or the like", "re-export the span"
        )
    ((kind, value),) = raw.items()
    try:
        if kind == "intValue":
            return int(value)
        if kind == "doubleValue":
            return _finite(value)
        if kind == "arrayValue":
            return [_value(item, where) for item in (value or {}).get("values") or ()]
        if kind == "kvlistValue":
            return {item["key"]: _value(item.get("value"), where) for item in (value or {}).get("values") or ()}
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise broken(f"a {kind} cannot be read", where, "a value of that type", "re-export the span") from error
    expected = {"stringValue": str, "boolValue": bool, "bytesValue": str}.get(kind)
    if expected is None or not isinstance(value, expected):
        raise broken(f"a {kind} cannot be read", where, "a typed value of OTLP", "re-export the span")
    return value


def _finite(value: Json) -> Json:
    number = float(value)
    return number if number - number == 0 else str(value)  # the encoding writes NaN and infinities as text
