"""Failures that the tests catch and drop: what cannot be read, or is not there, then counts as passing."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from flightschool.audit.terminal.records import FlawFinding
from flightschool.audit.terminal.static.case import Case
from flightschool.audit.terminal.static.comparisons import agent_origins
from flightschool.audit.terminal.static.live_path import LivePython
from flightschool.audit.terminal.static.python_code import call_name

__all__ = ["detect"]

_BROAD: Final = frozenset(["", "Exception", "BaseException", "AssertionError"])
_MEND: Final = "let the failure fail the test"
_GOOD_NAMES: Final = ("pass", "ok", "success", "score", "reward", "correct", "valid", "result")


def detect(case: Case) -> Iterator[FlawFinding]:
    """In every Python file of the live path."""
    for live in case.live.python:
        for handler in live.code.nodes(ast.ExceptHandler):
            yield from _handler(case, live, handler)
        for node in live.code.nodes(ast.With):
            names = [call_name(item.context_expr) for item in node.items]
            if any(name.endswith("suppress") for name in names) and _asserts(node.body):
                yield case.finding(
                    "swallowed-failure", "an assertion stands under suppress()", live.code.where(node), 0.8, _MEND
                )
        yield from _early_returns(case, live)
        yield from _python_verdicts(case, live)
        yield from _exit_status(case, live)


def _asserts(body: list[ast.stmt]) -> bool:
    return any(
        isinstance(node, ast.Assert)
        or (isinstance(node, ast.Call) and call_name(node.func).rpartition(".")[2].startswith("assert"))
        for statement in body
        for node in ast.walk(statement)
    )


def _handler(case: Case, live: LivePython, handler: ast.ExceptHandler) -> Iterator[FlawFinding]:
    outcome = _outcome(live, handler.body)
    parent = live.code.parents.get(handler)
    if not outcome or not isinstance(parent, ast.Try):
        return
    kinds = _kinds(handler)
    where = live.code.where(handler)
    if _asserts(parent.body) and kinds & _BROAD and outcome in ("drop", "good"):
        yield case.finding("swallowed-failure", "a failing assertion is caught and dropped", where, 0.85, _MEND)
    elif _touches_agent(case, live, parent.body) or (
        live.code.scopes.get(handler) and _takes_agent(case, live, parent)
    ):
        if outcome == "good":
            yield case.finding(
                "unparsable-passes", "what raises an error while it is read counts as correct", where, 0.8, _MEND
            )
        elif outcome == "skip":
            yield case.finding(
                "early-exit",
                "the test is skipped when the result cannot be read, which does not fail",
                where,
                0.7,
                _MEND,
            )
        elif kinds & (_BROAD | {"ValueError", "json.JSONDecodeError", "KeyError", "TypeError"}):
            yield case.finding("unparsable-passes", "parts that cannot be read are passed over", where, 0.5, _MEND)


def _kinds(handler: ast.ExceptHandler) -> set[str]:
    if handler.type is None:
        return {""}
    nodes = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return {call_name(node) for node in nodes}


def _outcome(live: LivePython, body: list[ast.stmt]) -> str:
    """What a handler does: ``drop``, ``good`` (says correct), ``skip``; empty: it fails, or that cannot be told."""
    outcomes = {_outcome_of(live, statement) for statement in body}
    if "fail" in outcomes:
        return ""
    return next((word for word in ("skip", "good") if word in outcomes), "drop")


def _outcome_of(live: LivePython, statement: ast.stmt) -> str:
    value = getattr(statement, "value", None)
    constant = live.code.value(value) if isinstance(value, ast.Constant) else None
    if isinstance(statement, ast.Pass | ast.Continue):
        return "drop"
    if isinstance(statement, ast.Return):
        return "good" if constant is True or (isinstance(constant, int | float) and constant > 0) else "fail"
    if isinstance(statement, ast.Assign):
        name = call_name(statement.targets[0]).rpartition(".")[2].lower()
        passes = constant not in (None, 0, 0.0, False, "", "0") and any(word in name for word in _GOOD_NAMES)
        return "good" if passes else "fail"
    if isinstance(statement, ast.Expr) and isinstance(value, ast.Call):
        called = call_name(value.func)
        told = called in ("print", "logging.warning", "logger.warning", "warnings.warn", "log")
        return "skip" if called.endswith(("skip", "skipTest")) else "drop" if told else "fail"
    return "drop" if isinstance(statement, ast.Expr) and isinstance(value, ast.Constant) else "fail"


def _touches_agent(case: Case, live: LivePython, body: list[ast.stmt]) -> bool:
    for statement in body:
        for node in ast.walk(statement):
            if isinstance(node, ast.Call) and agent_origins(live, node, case.of_agent):
                return True
    return False


def _takes_agent(case: Case, live: LivePython, node: ast.Try) -> bool:
    names = [inner for statement in node.body for inner in ast.walk(statement) if isinstance(inner, ast.Name)]
    return any(agent_origins(live, name, case.of_agent) for name in names)


def _early_returns(case: Case, live: LivePython) -> Iterator[FlawFinding]:
    """``if not path.exists(): return`` (or skip) in a test."""
    for node in live.code.nodes(ast.If):
        scope = live.code.scopes.get(node)
        if scope is None or not scope.name.startswith("test") or not live.by_pytest or len(node.body) > 2:
            continue
        last = node.body[-1]
        skips = (
            isinstance(last, ast.Expr)
            and isinstance(last.value, ast.Call)
            and call_name(last.value.func).endswith("skip")
        )
        returns = isinstance(last, ast.Return) and last.value is None
        if (skips or returns) and agent_origins(live, node.test, case.of_agent) and not _asserts(node.body):
            yield case.finding(
                "early-exit" if skips else "swallowed-failure",
                f"the test {'is skipped' if skips else 'returns'} when the result is not as wished, so it cannot fail",
                live.code.where(node),
                0.75,
                _MEND,
            )


def _python_verdicts(case: Case, live: LivePython) -> Iterator[FlawFinding]:
    """A passing reward written by Python under no condition."""
    code = live.code
    for name, calls in code.calls.items():
        if not name.endswith(("write", "write_text")):
            continue
        for call in calls:
            value = code.value(call.args[0]) if call.args and isinstance(call.args[0], ast.Constant) else None
            text = str(value).strip() if value is not None else ""
            if text not in ("1", "1.0"):
                continue
            receiver = call.func.value if isinstance(call.func, ast.Attribute) else call
            bound = code.bound(receiver.id, code.scopes.get(call)) if isinstance(receiver, ast.Name) else [receiver]
            target = live.flow.writes_to(call) or next(
                (path for b in bound if isinstance(b, ast.Call) and (path := live.flow.writes_to(b))), ""
            )
            guarded = any(isinstance(above, ast.If | ast.Try | ast.IfExp | ast.For) for above in code.above(call))
            stops = any(
                isinstance(node, ast.Assert | ast.Raise)
                or (isinstance(node, ast.Call) and call_name(node.func).endswith("exit"))
                for node in ast.walk(code.scopes.get(call) or code.tree)
            )
            if target.startswith("/logs/verifier/") and not guarded and not stops:
                yield case.finding(
                    "swallowed-failure",
                    "a passing reward is written whatever happens",
                    code.where(call),
                    0.85,
                    "write it only when all checks passed",
                )


def _exit_status(case: Case, live: LivePython) -> Iterator[FlawFinding]:
    """``session.exitstatus = 0`` in a hook of the tests' own."""
    for node in live.code.nodes(ast.Assign):
        target = node.targets[0]
        named = isinstance(target, ast.Attribute) and target.attr in ("exitstatus", "outcome")
        if named and live.code.value(node.value) in (0, "passed", "skipped"):
            what = f"a hook sets {call_name(target)} to passing"
            yield case.finding("swallowed-failure", what, live.code.where(node), 0.8, _MEND)
