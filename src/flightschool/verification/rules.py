"""What each kind of check means: one small judge a rule, each returning whether it passed and the evidence found.

A check that cannot be evaluated on the *initial* state either is broken: that is the environment's fault and raises.
A check that fails to evaluate on the end state alone was broken by what the policy left there, and counts as not
passed; otherwise writing data that no query can digest would be a way out of the denominator.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache

from flightschool.errors import InfrastructureError
from flightschool.records import AnswerCheck, CallCheck, CheckRule, DiffCheck, Evidence, Json, SqlCheck, ToolEvent
from flightschool.tools import json_equal
from flightschool.verification.images import (
    OverBudgetError,
    QueryFailedError,
    Row,
    broken_state,
    is_sqlite,
    query,
    sealed,
)
from flightschool.verification.states import States

__all__ = ["FAULTS_THAT_TOOK_EFFECT", "Finding", "judge", "took_effect"]

FAULTS_THAT_TOOK_EFFECT = frozenset({"timeout_after_write"})
"""Faults whose result reads as an error although the call changed the world."""

Finding = tuple[bool, str]
"""Whether the check passed, and what was found."""


def judge(rule: CheckRule, states: States) -> Finding:
    """Judge one rule.

    Raises:
        InfrastructureError: it cannot be judged, and the policy could not have caused that.
    """
    if isinstance(rule, SqlCheck):
        return _sql(rule, states)
    if isinstance(rule, DiffCheck):
        return _diff(rule, states)
    if isinstance(rule, CallCheck):
        return _calls(rule, states.evidence.events)
    return _answer(rule, states.evidence.answer)


# ------------------------------------------------------------------------------------------------ queries


def _sql(rule: SqlCheck, states: States) -> Finding:
    if not is_sqlite(states.evidence.end_state):
        raise broken_state("a query needs an SQLite state, and this state is none", where=rule.query[:200])
    try:
        found = query(states.end(), rule.query)
    except QueryFailedError as error:
        return _only_the_end_fails(rule, states.evidence, error)
    passed = _same_rows(found, rule.expected, ordered=_orders(rule.query))
    shown = _show([list(row) for row in found])
    return passed, f"found {shown}" if passed else f"found {shown}, expected {_show(rule.expected)}"


def _only_the_end_fails(rule: SqlCheck, evidence: Evidence, failure: QueryFailedError) -> Finding:
    """Not passed if the query works on the initial state; otherwise the check itself is broken."""
    with sealed(evidence.initial_state) as connection:
        try:
            query(connection, rule.query)
        except QueryFailedError as error:
            raise InfrastructureError(
                f"a check's query fails on the initial state: {error}",
                where=rule.query[:200],
                expected="a query that can be answered before the episode begins",
                mend="mend the check",
            ) from failure
    return False, f"the query fails on the end state alone: {failure}"


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
    """Numbers compare by value to nine significant digits: sums of floats carry noise that means nothing."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, float):
        rounded = float(f"{value:.9g}")
        return int(rounded) if rounded.is_integer() else rounded
    return value


# ------------------------------------------------------------------------------------------------ differences


def _diff(rule: DiffCheck, states: States) -> Finding:
    try:
        changes = states.changes()
    except OverBudgetError as error:
        return False, f"too much changed to compare: {error}"
    except QueryFailedError as error:
        raise broken_state(f"two states cannot be compared: {error}") from error
    unknown = rule.allowed.keys() - changes.keys()
    if unknown and states.are_sqlite:
        raise broken_state(f"a check allows changes of a table that does not exist: {min(unknown)!r}")
    beyond = {name: c for name, c in changes.items() if c.total > rule.allowed.get(name, 0)}
    shown = beyond or {name: c for name, c in changes.items() if c.total}
    text = "; ".join(f"{name}: {c}, allowed {rule.allowed.get(name, 0)}" for name, c in sorted(shown.items()))
    return not beyond, text or "nothing changed"


# ------------------------------------------------------------------------------------------------ calls


def took_effect(event: ToolEvent) -> bool:
    """Whether a call succeeded in the world, whatever the policy was told."""
    fault = event.result.fault
    return not event.result.is_error or (fault is not None and fault.kind in FAULTS_THAT_TOOK_EFFECT)


def _calls(rule: CallCheck, events: Sequence[ToolEvent]) -> Finding:
    done = [event for event in events if took_effect(event)]
    if rule.before is not None:
        cut = next((i for i, event in enumerate(done) if event.call.name == rule.before), len(done))
        done = done[:cut]
    found = [e for e in done if e.call.name == rule.tool and contains(e.call.arguments, rule.arguments)]
    passed = len(found) >= rule.least and (rule.most is None or len(found) <= rule.most)
    wanted = f"at least {rule.least}" if rule.most is None else f"{rule.least} to {rule.most}"
    which = f"{rule.tool}({_show(rule.arguments)})" + (f" before {rule.before}" if rule.before else "")
    where = f" at call {', '.join(str(e.index) for e in found[:8])}" if found else ""
    return passed, f"{len(found)} successful {which}{where}; expected {wanted}"


def contains(arguments: Json, part: Json) -> bool:
    """Whether every key of ``part`` is in ``arguments`` with an equal value, nested objects likewise."""
    if isinstance(part, Mapping) and isinstance(arguments, Mapping):
        return all(key in arguments and contains(arguments[key], value) for key, value in part.items())
    return json_equal(arguments, part)


# ------------------------------------------------------------------------------------------------ answers


def _answer(rule: AnswerCheck, answer: str) -> Finding:
    missing = [text for text in rule.contains if not _says(answer, text)]
    shown = _show(answer)
    return not missing, f"answer {shown}" + (f" lacks {_show(missing)}" if missing else "")


def _says(answer: str, text: str) -> bool:
    """Case-folded containment; a number is not found inside a longer number (15 is not said by 150 or 2.15)."""
    wanted = " ".join(text.casefold().split())
    head = r"(?<!\d)(?<!\d[.,])" if wanted[:1].isdigit() else ""
    tail = r"(?!\d)(?![.,]\d)" if wanted[-1:].isdigit() else ""
    return re.search(head + re.escape(wanted) + tail, " ".join(answer.casefold().split())) is not None


def _show(value: Json) -> str:
    text = json.dumps(value, ensure_ascii=False, default=repr)
    text = text.encode("utf-8", "backslashreplace").decode()  # a lone surrogate could not be stored
    return text if len(text) <= 300 else text[:297] + "…"
