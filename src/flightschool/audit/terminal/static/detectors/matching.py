"""Matches that more than the right answer meets: parts of texts, prefixes, supersets."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from flightschool.audit.terminal.records import FlawFinding
from flightschool.audit.terminal.static.case import Case
from flightschool.audit.terminal.static.comparisons import Comparison, agent_origins
from flightschool.audit.terminal.static.python_code import PythonCode, call_name
from flightschool.audit.terminal.static.shell_runs import Run

__all__ = ["detect"]

_MEND: Final = "compare the whole result, or require that nothing else is in it"
_STRUCTURED: Final = frozenset(["json.load", "json.loads", "yaml.safe_load", "tomllib.load", "tomllib.loads", "dict"])
_STRICT: Final = frozenset(["==", "close", "set", "fullmatch"])


def detect(case: Case) -> Iterator[FlawFinding]:
    """In Python and in shell."""
    strict = {origin for c in case.comparisons if c.operator in _STRICT for origin in c.origins if not _is_length(c)}
    for comparison in case.comparisons:
        if comparison.origins & strict:
            continue
        what = _loose(comparison)
        if what:
            yield case.finding("superset-answer", what, comparison.where, 0.6, _MEND)
    yield from _any_in(case, strict)
    yield from _shell(case)


def _is_length(comparison: Comparison) -> bool:
    """Whether it compares a size or an exit status: that does not fix the content."""
    agent = comparison.agent
    return isinstance(agent, ast.Attribute) and agent.attr in ("returncode", "status_code", "st_size")


def _loose(comparison: Comparison) -> str:
    """Why more than the right answer meets a comparison; empty: it does not."""
    operator, left, right = comparison.operator, comparison.left, comparison.right
    only_left = bool(comparison.left_origins) and not comparison.right_origins
    only_right = bool(comparison.right_origins) and not comparison.left_origins
    sets = operator == "subset" or (operator == "<=" and (_is_set(left) or _is_set(right)))
    what = ""
    if operator == "in" and only_right:
        displayed = isinstance(right, ast.List | ast.Tuple | ast.Set)
        if not displayed and not _is_structured(comparison.live.code, right):
            what = "a part of the result is enough: anything may stand around it"
    elif operator in ("startswith", "endswith") and only_left:
        what = f"{operator}() is enough: anything may stand {'behind' if operator == 'startswith' else 'before'} it"
    elif operator == "search" and comparison.right_origins:
        what = "a pattern found anywhere in the result is enough"
    elif (sets and only_right) or (operator == "superset" and only_left):
        what = "a superset of what is expected is enough"
    return what


def _is_set(node: ast.expr) -> bool:
    return isinstance(node, ast.Set) or (isinstance(node, ast.Call) and call_name(node.func) in ("set", "frozenset"))


def _is_structured(code: PythonCode, node: ast.expr, depth: int = 0) -> bool:
    """Whether an expression is a parsed table, whose ``in`` asks for a key."""
    if depth > 5:
        return False
    if isinstance(node, ast.Call):
        name = code.full_name(node)
        if name in _STRUCTURED or name.endswith((".keys", ".columns", "namelist", "getnames")):
            return True
        local = code.functions.get(call_name(node.func))
        return local is not None and any(_is_structured(code, value, depth + 1) for value in code.returns(local))
    if isinstance(node, ast.Name):
        scope = code.scopes.get(node)
        bound = code.bound(node.id, scope)
        fixture = code.functions.get(node.id)
        if fixture is not None and not bound:
            bound = code.returns(fixture)
        return any(_is_structured(code, value, depth + 1) for value in bound)
    if isinstance(node, ast.Attribute):
        return node.attr in ("columns", "fieldnames")
    return isinstance(node, ast.Subscript) and _is_structured(code, node.value, depth + 1)


def _any_in(case: Case, strict: set[tuple[str, str]]) -> Iterator[FlawFinding]:
    """``any(word in result for word in words)``."""
    for live in case.live.python:
        for call in live.code.calls.get("any", []):
            if not call.args or not isinstance(call.args[0], ast.GeneratorExp):
                continue
            generator = call.args[0]
            found = agent_origins(live, generator.elt, case.of_agent)
            asserted = any(isinstance(above, ast.Assert) for above in live.code.above(call))
            asks_in = isinstance(generator.elt, ast.Compare) and isinstance(generator.elt.ops[0], ast.In)
            if asserted and asks_in and found and not found & strict:
                yield case.finding(
                    "superset-answer",
                    "one of several words anywhere in the result is enough",
                    live.code.where(call),
                    0.6,
                    _MEND,
                )


def _shell(case: Case) -> Iterator[FlawFinding]:
    decisive = case.decisive()
    exact = [
        run
        for run in decisive
        if run.program in ("cmp", "diff") or (run.program in ("[", "[[", "test") and _equal(run))
    ]
    if exact:
        return
    for run in decisive:
        if run.program in ("grep", "egrep", "fgrep"):
            flags = "".join(word for word in run.argv[1:] if word.startswith("-"))
            words = [word for word in run.argv[1:] if not word.startswith("-")]
            anchored = bool(words) and words[0].startswith("^") and words[0].endswith("$")
            files = [path for word in words[1:] if case.of_agent(path := run.path(word))]
            if files and "x" not in flags and "v" not in flags and not anchored and "c" not in flags:
                yield case.finding(
                    "superset-answer",
                    f"a line of {files[0]} that holds {words[0][:60]!r} is enough",
                    run.where,
                    0.6,
                    _MEND,
                )
        elif run.program == "[[" and any("*" in word for word in run.words[2:]) and run.sources:
            yield case.finding("superset-answer", "a pattern with * is enough", run.where, 0.5, _MEND)


def _equal(run: Run) -> bool:
    return (
        any(word in ("=", "==", "-eq") for word in run.words)
        and not any("*" in word for word in run.words)
        and bool(run.sources)
    )
