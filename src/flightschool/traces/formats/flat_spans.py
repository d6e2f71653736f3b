"""Spans one a line outside OTLP: what the SDK's console exporter prints, and rows of span tables.

``{name, context: {trace_id, span_id}, parent_id, start_time, end_time, status | status_code, attributes, events}`` with
attributes flat (``{"llm.model_name": …}``), nested, or as columns (``attributes.llm.model_name``).
"""

from __future__ import annotations

from typing import Any

from flightschool.records import Json
from flightschool.traces.clock import instant_ms
from flightschool.traces.formats.span import Span
from flightschool.traces.loading import broken

__all__ = ["flat_span", "is_flat"]


def is_flat(document: dict[str, Any]) -> bool:
    """Whether an object is one span of these shapes."""
    context = document.get("context")
    return "context.trace_id" in document or (isinstance(context, dict) and "trace_id" in context)


def flat_span(document: dict[str, Any], where: str) -> Span:
    """The span. Raises ``TraceError`` for missing ids and times that are none."""
    context = document.get("context")
    context = context if isinstance(context, dict) else {}
    trace = context.get("trace_id", document.get("context.trace_id"))
    span_id = context.get("span_id", document.get("context.span_id"))
    if not isinstance(trace, str) or not isinstance(span_id, str) or not trace or not span_id:
        raise broken("a span has no trace_id or span_id", where, "both, under context", "re-export the span")
    where = f"{where} (span {span_id})"
    start = _nanoseconds(document.get("start_time"), where)
    status = document.get("status")
    code = status.get("status_code") if isinstance(status, dict) else document.get("status_code")
    events = document.get("events")
    return Span(
        trace=trace.removeprefix("0x"),
        id=span_id.removeprefix("0x"),
        parent=str(document.get("parent_id") or "").removeprefix("0x"),
        name=str(document.get("name") or ""),
        start_ns=start,
        end_ns=_nanoseconds(document.get("end_time"), where) or start,
        attributes=_attributes(document),
        events=tuple(
            (str(event.get("name", "")), dict(event.get("attributes") or {}))
            for event in (events if isinstance(events, list) else ())
            if isinstance(event, dict)
        ),
        failed=str(code).upper() in {"ERROR", "2", "STATUS_CODE_ERROR"},
        dropped=False,
        where=where,
    )


def _nanoseconds(value: Json, where: str) -> int:
    if value is None or value == "":
        return 0
    found = instant_ms(value)
    if found is None:
        raise broken(f"{str(value)[:40]!r} is no time", where, "ISO 8601 or nanoseconds", "re-export the span")
    return round(found * 1000) * 1000  # a microsecond is what ISO 8601 texts carry


def _attributes(document: dict[str, Any]) -> dict[str, Json]:
    found: dict[str, Json] = {}
    own = document.get("attributes")
    if isinstance(own, dict):
        _flatten(own, "", found)
    for key, value in document.items():
        if key.startswith("attributes.") and value is not None:
            name = key.removeprefix("attributes.")
            if isinstance(value, dict):
                _flatten(value, f"{name}.", found)
            else:
                found[name] = value
    return found


def _flatten(table: dict[str, Json], prefix: str, found: dict[str, Json]) -> None:
    """Dotted names as they are; nested tables by joining their keys."""
    for key, value in table.items():
        found[prefix + key] = value
        if isinstance(value, dict):
            _flatten(value, f"{prefix}{key}.", found)
