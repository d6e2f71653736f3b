"""What formats share that keep one episode a line: facts (top level or ``metadata``), request and response."""

from __future__ import annotations

from typing import Any

from flightschool.traces.hints import Facts, facts_of
from flightschool.traces.loading import broken

__all__ = ["exchange", "line_facts"]

_TOP_LEVEL = ("task", "task_id", "family", "stratum", "trial", "success", "outcome", "reward", "labels")


def line_facts(raw: dict[str, Any], where: str, *keys: str) -> Facts:
    """Task and outcome of a line; ``keys`` are read from the top level as well. Raises ``TraceError``."""
    table = {} if raw.get("metadata") is None else raw["metadata"]
    if not isinstance(table, dict):
        raise broken("metadata is no object", where, "an object", "mend or remove it")
    return facts_of({key: raw[key] for key in (*_TOP_LEVEL, *keys) if key in raw} | table, where)


def exchange(raw: dict[str, Any], where: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Request and response of a line: under these names, or the line itself as both."""
    found = []
    for name in ("request", "response"):
        part = raw.get(name, raw)
        if part is None:
            part = {}
        if not isinstance(part, dict):
            raise broken(f"{name!r} is no object", where, "what was sent, or what came back", "mend or remove it")
        found.append(part)
    if "response" not in raw and "request" in raw:
        found[1] = {}
    return found[0], found[1]
