"""Right work that is refused: exact numbers and texts, order, white space, files beside the result."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator
from typing import Final

from flightschool.audit.terminal.records import FlawFinding
from flightschool.audit.terminal.static.case import Case
from flightschool.audit.terminal.static.comparisons import Comparison
from flightschool.audit.terminal.static.expected import shell_literals
from flightschool.audit.terminal.static.python_code import PythonCode, call_name

__all__ = ["detect"]

_ORDER_WORDS: Final = (
    "order", "sort", "ascending", "descending", "alphabet", "first", "rank", "sequence", "chronolog", "lexicograph",
    "top ",
)  # fmt: skip
_EXACT_WORDS: Final = ("newline", "exactly", "byte", "whitespace", "verbatim", "character for character", "no trailing")
_FORMAT_WORDS: Final = ("decimal", "digits", "round", "format", "precision", "places", "exactly")
_FORMATTED: Final = re.compile(r"[-+$€£]?\d{1,15}(?:,\d{3}){0,6}\.\d{1,20}\s?%?$")
_ORDERLESS: Final = frozenset(
    ["sorted", "set", "frozenset", "Counter", "collections.Counter", "len", "sum", "max", "min", "dict"]
)


def detect(case: Case) -> Iterator[FlawFinding]:
    """In Python and in shell."""
    spoken = case.instruction.lower()
    for comparison in case.comparisons:
        if comparison.operator == "==":
            yield from _numbers(case, comparison, spoken)
            yield from _texts(case, comparison, spoken)
            yield from _order(case, comparison, spoken)
            yield from _listing(case, comparison)
    yield from _shell(case, spoken)


def _calls(node: ast.AST) -> set[str]:
    return {call_name(inner.func) for inner in ast.walk(node) if isinstance(inner, ast.Call)}


def _deep_calls(code: PythonCode, node: ast.expr) -> set[str]:
    """Calls in an expression and in what its names stand for, with those of local helpers."""
    found = _calls(node)
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name):
            for value in code.bound(inner.id, code.scopes.get(inner)):
                found |= _calls(value)
            fixture = code.functions.get(inner.id)
            found |= {c for value in (code.returns(fixture) if fixture else []) for c in _calls(value)}
    for name in list(found):
        local = code.functions.get(name)
        for value in code.returns(local) if local is not None else []:
            found |= _calls(value)
    return found


def _numbers(case: Case, comparison: Comparison, spoken: str) -> Iterator[FlawFinding]:
    if any("approx" in name or name.endswith("Decimal") for name in _calls(comparison.other)):
        return
    floats = [v for v in comparison.literals if isinstance(v, float) and v != int(v)] if _finite(comparison) else []
    calls = _deep_calls(comparison.live.code, comparison.agent)
    if floats and "round" not in calls and "len" not in calls:
        yield case.finding(
            "float-equality",
            f"a number must equal {floats[0]} to the last bit",
            comparison.where,
            0.65,
            "compare with a tolerance",
        )
    texts = [v for v in comparison.literals if isinstance(v, str) and _FORMATTED.match(v.strip())]
    converts = any(name.endswith(("float", "Decimal", "int")) for name in calls)
    if texts and not converts and not any(word in spoken for word in _FORMAT_WORDS) and texts[0].strip() not in spoken:
        yield case.finding(
            "over-strict-text",
            f"a number must be written as {texts[0].strip()!r}",
            comparison.where,
            0.6,
            "read it as a number and compare with a tolerance",
        )


def _finite(comparison: Comparison) -> bool:
    return all(math.isfinite(v) for v in comparison.literals if isinstance(v, float))


def _texts(case: Case, comparison: Comparison, spoken: str) -> Iterator[FlawFinding]:
    other = comparison.other
    text = comparison.live.code.text_value(other)
    if not text or any(word in spoken for word in _EXACT_WORDS):
        return
    if text.lstrip()[:1] in ("{", "[") and text.rstrip()[-1:] in ("}", "]") and len(text) > 6:
        yield case.finding(
            "over-strict-text", "JSON is compared as text", comparison.where, 0.7, "parse it and compare values"
        )
        return
    calls = _deep_calls(comparison.live.code, comparison.agent)
    trims = any(
        name.rpartition(".")[2] in ("strip", "rstrip", "split", "splitlines", "loads", "load", "readlines")
        for name in calls
    )
    reads = any(name.rpartition(".")[2] in ("read", "read_text", "read_bytes") for name in calls)
    whole = not isinstance(comparison.agent, ast.Subscript)
    if reads and whole and not trims:
        yield case.finding(
            "strict-whitespace",
            "the whole file must equal a text, line ending included",
            comparison.where,
            0.55,
            "strip both sides, or say so in the instruction",
        )


def _order(case: Case, comparison: Comparison, spoken: str) -> Iterator[FlawFinding]:
    other = comparison.other
    code = comparison.live.code
    if isinstance(other, ast.Name):
        bound = code.bound(other.id, code.scopes.get(other))
        other = next((value for value in bound if isinstance(value, ast.List)), other)
    if not isinstance(other, ast.List) or len(other.elts) < 2 or any(word in spoken for word in _ORDER_WORDS):
        return
    if len({ast.dump(element) for element in other.elts}) < 2:
        return
    calls = {name.rpartition(".")[2] for name in _deep_calls(code, comparison.agent)}
    if calls & _ORDERLESS or not any(kind == "file" for kind, _ in comparison.origins):
        return
    yield case.finding(
        "order-sensitive",
        "a list must stand in one order, of which the instruction says nothing",
        comparison.where,
        0.5,
        "compare without order, or ask for one",
    )


def _listing(case: Case, comparison: Comparison) -> Iterator[FlawFinding]:
    if any(kind == "list" for kind, _ in comparison.origins):
        yield case.finding(
            "extra-files-refused",
            "the names in a folder must be exactly those expected",
            comparison.where,
            0.65,
            "ask only for the files that are wanted",
        )


def _shell(case: Case, spoken: str) -> Iterator[FlawFinding]:
    for run in case.decisive():
        if run.program in ("[", "[[", "test") and any(word in ("=", "==") for word in run.words):
            text = next((word for word in shell_literals(run) if _FORMATTED.match(word)), "")
            if text and run.sources and not any(word in spoken for word in _FORMAT_WORDS) and text not in spoken:
                yield case.finding(
                    "over-strict-text",
                    f"a number must be written as {text!r}",
                    run.where,
                    0.5,
                    "compare as numbers, with a tolerance (awk)",
                )
        elif run.program in ("diff", "cmp") and not any(word in spoken for word in _EXACT_WORDS):
            flags = "".join(word for word in run.argv[1:] if word.startswith("-"))
            agent = [
                path for word in run.argv[1:] if case.of_agent(path := run.path(word)) and path not in case.view.files
            ]
            if agent and not any(flag in flags for flag in "bwBZ") and "strip" not in flags and not run.captured:
                yield case.finding(
                    "strict-whitespace",
                    f"{agent[0]} must equal the reference to the last byte",
                    run.where,
                    0.4,
                    "compare without white space at line ends (diff -Z)",
                )
        elif run.program == "wc" and any(base.program in ("ls", "find") for base in run.sources):
            listed = [p for base in run.sources for word in base.argv[1:] if case.of_agent(p := base.path(word))]
            if listed and run.captured:
                yield case.finding(
                    "extra-files-refused",
                    f"the number of files in {listed[0]} must be exact",
                    run.where,
                    0.5,
                    "ask only for the files that are wanted",
                )
