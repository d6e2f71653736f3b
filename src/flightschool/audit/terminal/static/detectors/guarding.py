"""Integrity checks that compare with a reference which the policy can write as well."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from flightschool.audit.terminal.records import FlawFinding
from flightschool.audit.terminal.static.case import Case
from flightschool.audit.terminal.static.python_code import PythonCode, call_name
from flightschool.audit.terminal.static.shell_runs import Run

__all__ = ["detect", "hashes"]

_SUMS: Final = frozenset(["sha256sum", "sha1sum", "md5sum", "sha512sum", "cksum", "shasum", "b2sum", "sum"])
_MEND: Final = "keep the reference in tests/"


def hashes(node: ast.AST) -> bool:
    """Whether an expression computes a checksum."""
    return any(
        isinstance(inner, ast.Call)
        and call_name(inner.func).endswith(("sha256", "md5", "sha1", "hexdigest", "crc32", "sha512"))
        for inner in ast.walk(node)
    )


def detect(case: Case) -> Iterator[FlawFinding]:
    """In shell and in Python."""
    for run in case.runs:
        if run.program in _SUMS and any(word in ("-c", "--check") for word in run.argv):
            fed = [run.path(word) for word in run.argv[1:] if not word.startswith("-")]
            reference = next((path for path in fed if case.of_agent(path) and case.view.may_write(path)), "")
            if reference:
                yield case.finding(
                    "decorative-guard",
                    f"checksums are compared with {reference}, which the policy can write",
                    run.where,
                    0.8,
                    _MEND,
                )
        elif run.program in ("[", "[[", "test"):
            sums = [base for base in run.basis() if base.program in _SUMS]
            read = [base for base in run.basis() if base.program in ("cat", "head", "cut", "awk") and base is not run]
            paths = [base.path(word) for base in read for word in base.argv[1:] if "/" in word and word[0] not in "-$"]
            kept = next((path for path in paths if case.of_agent(path) and case.view.may_write(path)), "")
            if sums and kept:
                yield case.finding(
                    "decorative-guard",
                    f"a checksum is compared with {kept}, which the policy can write",
                    run.where,
                    0.75,
                    _MEND,
                )
        elif run.program == "git" and {"diff", "status"} & set(run.argv[1:4]) and _is_asked(case, run):
            yield case.finding(
                "decorative-guard",
                "what changed is asked of a repository that the policy can write",
                run.where,
                0.5,
                _MEND,
            )
    for comparison in case.comparisons:
        if not (comparison.left_origins and comparison.right_origins) or comparison.operator not in ("==", "!="):
            continue
        bound = [
            expression
            for side in (comparison.left, comparison.right)
            for expression in [side, *_bound(comparison.live.code, side)]
        ]
        if any(hashes(node) for node in bound):
            yield case.finding(
                "decorative-guard",
                "a checksum is compared with a reference that the policy can write",
                comparison.where,
                0.75,
                _MEND,
            )


def _is_asked(case: Case, run: Run) -> bool:
    """Whether something hangs on a command in the agent's space."""
    return case.of_agent(run.cwd) and (run.captured or run.use in ("condition", "captured", "errexit"))


def _bound(code: PythonCode, side: ast.expr) -> list[ast.expr]:
    """What names of an expression stand for, and what helpers that it calls return."""
    names = [node for node in ast.walk(side) if isinstance(node, ast.Name)]
    found = [expression for name in names for expression in code.bound(name.id, code.scopes.get(name))]
    for node in [side, *found]:
        for call in [inner for inner in ast.walk(node) if isinstance(inner, ast.Call)]:
            local = code.functions.get(call_name(call.func))
            found = [*found, *(code.returns(local) if local is not None else [])]
    return found
