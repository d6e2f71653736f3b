"""A query on the end state returns exactly the expected rows.

The state is an SQLite image, or a JSON object whose tables are made for the query (``json_tables``).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache

from flightschool.errors import InfrastructureError
from flightschool.records import Json, SqlCheck
from flightschool.verification.closeness import by_value
from flightschool.verification.images import QueryFailedError, Row, UnknownColumnError, query, sealed
from flightschool.verification.json_tables import query_json
from flightschool.verification.kinds.base import Finding, Kind, show
from flightschool.verification.states import States

__all__ = ["SQL"]

_CLOCK = re.compile(r"'now'|\bcurrent_(?:timestamp|date|time)\b|\brandom(?:blob)?\s*\(", re.IGNORECASE)


def _judge(rule: SqlCheck, states: States) -> Finding:
    try:
        found = _ask_end(rule.query, states)
    except UnknownColumnError as error:
        return Finding(False, f"{error}: no row has such a key")
    except QueryFailedError as error:
        return _only_the_end_fails(rule, states, error)
    passed = _same_rows(found, rule.expected, ordered=_orders(rule.query))
    shown = show([list(row) for row in found])
    return Finding(passed, f"found {shown}" if passed else f"found {shown}, expected {show(rule.expected)}")


def _ask_end(text: str, states: States) -> Sequence[Row]:
    if states.are_sqlite:
        return query(states.end(), text)
    return query_json(states.evidence.end_state, states.evidence.initial_state, text)


def _ask_initial(text: str, states: States) -> Sequence[Row]:
    evidence = states.evidence
    if not states.are_sqlite:
        return query_json(evidence.initial_state, evidence.end_state, text)
    with sealed(evidence.initial_state) as connection:
        return query(connection, text)


def _only_the_end_fails(rule: SqlCheck, states: States, failure: QueryFailedError) -> Finding:
    """Not passed if the query works on the initial state; otherwise the check itself is broken."""
    try:
        _ask_initial(rule.query, states)
    except QueryFailedError as error:
        raise InfrastructureError(
            f"a check's query fails on the initial state: {error}",
            where=rule.query[:200],
            expected="a query that can be answered before the episode begins",
            mend="mend the check",
        ) from failure
    return Finding(False, f"the query fails on the end state alone: {failure}")


@lru_cache(maxsize=4096)
def _orders(text: str) -> bool:
    """Whether the query orders its result: an ORDER BY outside of literals, comments and parentheses."""
    bare = re.sub(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/", " ", text, flags=re.DOTALL)
    depth_zero: list[str] = []
    depth = 0
    for char in bare:
        depth += (char == "(") - (char == ")")
        depth_zero.append(char if depth == 0 else " ")
    return re.search(r"\border\s+by\b", "".join(depth_zero), flags=re.IGNORECASE) is not None


def _same_rows(found: Sequence[Row], expected: Sequence[Sequence[Json]], ordered: bool) -> bool:
    left = [tuple(map(_normal, row)) for row in found]
    right = [tuple(map(_normal, row)) for row in expected]
    return left == right if ordered else Counter(left) == Counter(right)


def _normal(value: Json) -> Json:
    """Fractions compare to nine significant digits: sums of floats carry noise that means nothing."""
    if isinstance(value, bool):
        return int(value)
    return by_value(value) if isinstance(value, float) and math.isfinite(value) else value


def _problem(rule: SqlCheck) -> str:
    match = _CLOCK.search(rule.query)
    if match is not None:
        return f"the query depends on {match.group()!r}, which differs from run to run"
    for row in rule.expected:
        for value in row:
            if isinstance(value, dict | list | tuple):
                return f"a query cannot return {value!r}"
    return ""


def _expected(rule: SqlCheck) -> Iterator[Json]:
    return (cell for row in rule.expected for cell in row)


SQL = Kind(_judge, _problem, _expected)
