"""Numbers: comparisons that NaN passes, tolerances within which wrong values lie."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from flightschool.audit.terminal.records import FlawFinding
from flightschool.audit.terminal.static.case import Case
from flightschool.audit.terminal.static.comparisons import Comparison, agent_origins, literals_of
from flightschool.audit.terminal.static.live_path import LivePython
from flightschool.audit.terminal.static.python_code import call_name

__all__ = ["detect"]

LOOSE: Final = 0.05
"""Share of the expected value from which a tolerance counts as loose."""
_FINITE: Final = ("isnan", "isfinite", "isinf", "notnull", "isna", "nan_to_num")


def detect(case: Case) -> Iterator[FlawFinding]:
    """In Python tests."""
    for live in case.live.python:
        careful = any(name.rpartition(".")[2] in _FINITE for name in live.code.calls)
        for comparison in (c for c in case.comparisons if c.live is live):
            bounds = not careful and comparison.operator in (">", ">=", "<", "<=")
            if bounds and _fails_when_true(live, comparison.node) and _is_number(case, live, comparison):
                yield case.finding(
                    "not-a-number",
                    "the test fails when a difference is too large, which NaN never is",
                    comparison.where,
                    0.65,
                    "ask whether the difference is within the tolerance, and refuse what is not finite",
                )
            yield from _tolerance(case, live, comparison)
        yield from _calls(case, live)


def _is_number(case: Case, live: LivePython, comparison: Comparison) -> bool:
    """Whether the policy's side is a number that may be NaN: not a length, a count or a time."""
    agent = comparison.agent
    names = {call_name(inner.func).rpartition(".")[2] for inner in ast.walk(agent) if isinstance(inner, ast.Call)}
    if names & {"len", "count", "getsize", "stat", "index", "find"} or isinstance(agent, ast.Attribute):
        return False
    return any(kind in ("file", "program", "module") for kind, _ in agent_origins(live, agent, case.of_agent))


def _fails_when_true(live: LivePython, node: ast.AST) -> bool:
    """Whether the comparison being true makes the test fail, and its being false lets it pass."""
    for above in live.code.above(node):
        if isinstance(above, ast.UnaryOp) and isinstance(above.op, ast.Not):
            return any(isinstance(outer, ast.Assert) for outer in live.code.above(above))
        if isinstance(above, ast.If):
            inside_test = node in set(ast.walk(above.test))
            return inside_test and _fails(live, above.body) and not above.orelse
        if isinstance(above, ast.stmt):
            return False
    return False


def _fails(live: LivePython, body: list[ast.stmt]) -> bool:
    for statement in body:
        if isinstance(statement, ast.Raise):
            return True
        if isinstance(statement, ast.Return):
            return live.code.value(statement.value) in (False, 0, 0.0) if statement.value is not None else False
        if isinstance(statement, ast.Assign) and live.code.value(statement.value) in (False, 0, 0.0):
            return True
        if isinstance(statement, ast.Assert):
            return isinstance(statement.test, ast.Constant) and not statement.test.value
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            name = call_name(statement.value.func)
            if name.endswith(("exit", "fail", ".append")):
                return True
    return False


def _tolerance(case: Case, live: LivePython, comparison: Comparison) -> Iterator[FlawFinding]:
    if comparison.operator not in ("<", "<="):
        return
    agent = comparison.left
    if not (isinstance(agent, ast.Call) and call_name(agent.func).rpartition(".")[2] in ("abs", "fabs") and agent.args):
        return
    tolerance = live.code.value(comparison.right)
    difference = agent.args[0]
    if isinstance(difference, ast.BinOp) and isinstance(difference.op, ast.Div):
        share = float(tolerance) if isinstance(tolerance, int | float) else 0.0
    else:
        numbers = [v for v in literals_of(live, difference) if isinstance(v, int | float) and v]
        share = (
            float(tolerance) / max(abs(v) for v in numbers) if isinstance(tolerance, int | float) and numbers else 0.0
        )
    if share >= LOOSE:
        yield _loose(case, comparison.where, share)


def _loose(case: Case, where: str, share: float) -> FlawFinding:
    return case.finding(
        "loose-tolerance",
        f"values that are {share:.0%} off are accepted",
        where,
        0.75 if share >= 0.2 else 0.5,
        "narrow the tolerance to what right methods differ by",
    )


def _calls(case: Case, live: LivePython) -> Iterator[FlawFinding]:
    relative = {"approx": "rel", "isclose": "rel_tol", "allclose": "rtol", "assert_allclose": "rtol"}
    absolute = {
        "approx": "abs",
        "isclose": "abs_tol",
        "allclose": "atol",
        "assert_allclose": "atol",
        "assertAlmostEqual": "delta",
    }
    for name, calls in live.code.calls.items():
        last = name.rpartition(".")[2]
        if last not in relative and last not in absolute:
            continue
        for call in calls:
            words = {word.arg: live.code.value(word.value) for word in call.keywords if word.arg}
            rel = words.get(relative.get(last, ""), words.get("rtol"))
            off = words.get(absolute.get(last, ""), words.get("atol"))
            numbers = [
                v for argument in call.args for v in literals_of(live, argument) if isinstance(v, int | float) and v
            ]
            share = float(rel) if isinstance(rel, int | float) else 0.0
            if isinstance(off, int | float) and numbers:
                share = max(share, float(off) / max(abs(v) for v in numbers))
            if words.get("equal_nan") is True:
                yield case.finding(
                    "not-a-number", "NaN counts as equal", live.code.where(call), 0.5, "leave out equal_nan=True"
                )
            if share >= LOOSE:
                yield _loose(case, live.code.where(call), share)
