"""What Python tests assert at all: nothing, what is always true, presence alone, or what a loop happens to meet."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from flightschool.audit.terminal.records import FlawFinding
from flightschool.audit.terminal.static.case import Case
from flightschool.audit.terminal.static.comparisons import agent_origins
from flightschool.audit.terminal.static.detectors.verdict_flow import is_check
from flightschool.audit.terminal.static.live_path import LivePython
from flightschool.audit.terminal.static.python_code import FunctionNode, PythonCode, call_name

__all__ = ["asserts_of", "detect", "test_functions"]

_PRESENCE: Final = frozenset(
    ["exists", "is_file", "is_dir", "isfile", "isdir", "getsize", "isinstance", "access", "callable", "hasattr"]
)
_MORE: Final = "compare the content with what is right"


def test_functions(code: PythonCode) -> list[FunctionNode]:
    """Functions that pytest or unittest runs as tests."""
    functions: list[FunctionNode] = [*code.nodes(ast.FunctionDef), *code.nodes(ast.AsyncFunctionDef)]
    return [node for node in functions if node.name.startswith("test")]


def asserts_of(code: PythonCode, function: FunctionNode, depth: int = 0) -> list[ast.AST]:
    """Assertions of a function and of helpers that it calls: ``assert``, ``self.assert…``, ``raise``, ``fail``."""
    found: list[ast.AST] = []
    for node in ast.walk(function):
        if isinstance(node, ast.Assert | ast.Raise):
            found.append(node)
        elif isinstance(node, ast.Call):
            name = call_name(node.func)
            last = name.rpartition(".")[2]
            if last.startswith("assert") or name in ("pytest.fail", "self.fail", "sys.exit", "pytest.raises"):
                found.append(node)
            elif depth < 3 and (helper := code.functions.get(name.removeprefix("self."))) and helper is not function:
                found += asserts_of(code, helper, depth + 1)
    return found


def detect(case: Case) -> Iterator[FlawFinding]:
    """All of them."""
    suites = [live for live in case.live.python if live.by_pytest and test_functions(live.code)]
    for live in suites:
        yield from _always_true(case, live)
        yield from _loops(case, live)
        yield from _parameters(case, live)
    functions = [(live, function) for live in suites for function in test_functions(live.code)]
    if functions:
        yield from _nothing(case, functions)
        yield from _presence(case, functions)
    elif not case.live.python:
        yield from _shell_presence(case)


def _nothing(case: Case, functions: list[tuple[LivePython, FunctionNode]]) -> Iterator[FlawFinding]:
    asserted = [asserts_of(live.code, function) for live, function in functions]
    live, first = functions[0]
    if not any(asserted):
        yield case.finding("empty-criteria", "no test asserts anything", live.code.where(first), 0.85, _MORE)
    skipped = [
        function
        for _, function in functions
        if any(
            call_name(d.func if isinstance(d, ast.Call) else d).endswith((".skip", ".xfail"))
            for d in function.decorator_list
        )
    ]
    if len(skipped) == len(functions):
        yield case.finding(
            "empty-criteria", "every test is marked to be skipped or to fail", live.code.where(first), 0.8, "run them"
        )


def _always_true(case: Case, live: LivePython) -> Iterator[FlawFinding]:
    total = len(live.code.nodes(ast.Assert))
    hollow = [node for node in live.code.nodes(ast.Assert) if _is_true(node.test)]
    for node in hollow:
        if not isinstance(node.test, ast.Constant) or len(hollow) == total:
            yield case.finding(
                "empty-criteria",
                "an assertion is always true",
                live.code.where(node),
                0.85,
                "assert the condition itself",
            )


def _is_true(node: ast.expr) -> bool:
    if isinstance(node, ast.Constant):
        return bool(node.value)
    if isinstance(node, ast.Tuple):
        return bool(node.elts)
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or):
        return any(_is_true(value) for value in node.values)
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        same = ast.dump(node.left) == ast.dump(node.comparators[0])
        if same and isinstance(node.ops[0], ast.Eq | ast.LtE | ast.GtE):
            return not any(isinstance(inner, ast.Call) for inner in ast.walk(node.left))
        length = isinstance(node.left, ast.Call) and call_name(node.left.func) == "len"
        zero = isinstance(node.comparators[0], ast.Constant) and node.comparators[0].value == 0
        return length and zero and isinstance(node.ops[0], ast.GtE)
    return False


def _loops(case: Case, live: LivePython) -> Iterator[FlawFinding]:
    """Assertions only inside a loop over what the policy wrote: an empty list passes."""
    code = live.code
    for loop in code.nodes(ast.For):
        scope = code.scopes.get(loop)
        if scope is None or not any(isinstance(node, ast.Assert) for inner in loop.body for node in ast.walk(inner)):
            continue
        if _has_content(live, loop.iter, case) and not _is_measured(live, loop, scope):
            yield case.finding(
                "empty-criteria",
                "assertions stand only in a loop over what the policy wrote: nothing in it, nothing checked",
                code.where(loop),
                0.55,
                "require the expected number of items first",
            )
    for node in code.nodes(ast.Assert):
        test = node.test
        if isinstance(test, ast.Call) and call_name(test.func) == "all" and test.args:
            inner = test.args[0]
            scope = code.scopes.get(node)
            if isinstance(inner, ast.GeneratorExp | ast.ListComp) and scope is not None:
                iterated = inner.generators[0].iter
                if _has_content(live, iterated, case) and not _is_measured(live, node, scope):
                    yield case.finding(
                        "empty-criteria",
                        "all() over what the policy wrote is true of nothing",
                        code.where(node),
                        0.55,
                        "require the expected number of items first",
                    )


def _has_content(live: LivePython, node: ast.expr, case: Case) -> bool:
    if isinstance(node, ast.List | ast.Tuple | ast.Constant | ast.Dict):
        return False
    return any(kind in ("file", "list") for kind, _ in agent_origins(live, node, case.of_agent))


def _is_measured(live: LivePython, loop: ast.AST, scope: FunctionNode) -> bool:
    """Whether the same function asserts something outside of the loop that an empty result would not meet."""
    inside = set(ast.walk(loop))
    for node in asserts_of(live.code, scope):
        if node in inside or node is loop or not isinstance(node, ast.Assert | ast.Call):
            continue
        test = node.test if isinstance(node, ast.Assert) else node
        if not _is_presence(live.code, test) or any(
            isinstance(inner, ast.Call) and call_name(inner.func) == "len" for inner in ast.walk(test)
        ):
            return True
        if isinstance(node, ast.Assert) and isinstance(test, ast.Name):
            return True
    return False


def _parameters(case: Case, live: LivePython) -> Iterator[FlawFinding]:
    for function in test_functions(live.code):
        for decorator in function.decorator_list:
            if not isinstance(decorator, ast.Call) or not call_name(decorator.func).endswith("parametrize"):
                continue
            rows = decorator.args[1] if len(decorator.args) > 1 else None
            if isinstance(rows, ast.List | ast.Tuple) and not rows.elts:
                yield case.finding(
                    "zero-collected",
                    "a test has no parameters and is skipped",
                    live.code.where(decorator),
                    0.7,
                    "give it some",
                )
            elif rows is not None and agent_origins(live, rows, case.of_agent):
                yield case.finding(
                    "zero-collected",
                    "how many tests there are depends on what the policy left",
                    live.code.where(decorator),
                    0.6,
                    "take the cases from the tests' own files",
                )


# ------------------------------------------------------------------------------------------------ presence


def _presence(case: Case, functions: list[tuple[LivePython, FunctionNode]]) -> Iterator[FlawFinding]:
    tests: list[tuple[LivePython, ast.AST]] = []
    for live, function in functions:
        tests += [(live, node) for node in asserts_of(live.code, function)]
    if not tests:
        return
    plain = [
        (isinstance(node, ast.Assert) and _is_presence(live.code, node.test)) or _is_presence_call(live.code, node)
        for live, node in tests
    ]
    if all(plain):
        live, node = tests[0]
        yield case.finding(
            "presence-only",
            "only presence, size or type of the result is asserted, never its content",
            live.code.where(node),
            0.75,
            _MORE,
        )


def _is_presence_call(code: PythonCode, node: ast.AST) -> bool:
    if not (isinstance(node, ast.Call) and node.args):
        return False
    return call_name(node.func).endswith(("assertTrue", "assertIsNotNone")) and _is_presence(code, node.args[0])


def _is_presence(code: PythonCode, test: ast.expr, depth: int = 0) -> bool:
    if isinstance(test, ast.BoolOp):
        return depth < 6 and all(_is_presence(code, value, depth + 1) for value in test.values)
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return depth < 6 and _is_presence(code, test.operand, depth + 1)
    if isinstance(test, ast.Name):
        bound = code.bound(test.id, code.scopes.get(test))
        return bool(bound) and all(not isinstance(value, ast.Compare) for value in bound)
    if isinstance(test, ast.Call):
        last = call_name(test.func).rpartition(".")[2]
        return last in _PRESENCE or last in ("strip", "read", "read_text", "get")
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        return _is_presence_comparison(code, test)
    return isinstance(test, ast.Constant)


def _is_presence_comparison(code: PythonCode, test: ast.Compare) -> bool:
    other, operator = test.comparators[0], test.ops[0]
    if isinstance(operator, ast.Is | ast.IsNot):
        return True
    if isinstance(operator, ast.In) and isinstance(test.left, ast.Constant):
        bound = [other, *(code.bound(other.id, code.scopes.get(other)) if isinstance(other, ast.Name) else [])]
        return any(
            isinstance(v, ast.Call) and call_name(v.func) in ("json.load", "json.loads", "yaml.safe_load")
            for v in bound
        )
    value = code.value(other)
    small = isinstance(value, int | float) and value <= 10 and isinstance(operator, ast.Gt | ast.GtE)
    if isinstance(operator, ast.NotEq) and value == "":
        return True
    sized = isinstance(test.left, ast.Attribute) and test.left.attr == "st_size"
    measured = isinstance(test.left, ast.Call) and call_name(test.left.func).rpartition(".")[2] in ("len", "getsize")
    return bool(small and (sized or measured))


def _shell_presence(case: Case) -> Iterator[FlawFinding]:
    decisive = case.decisive()
    tests = [run for run in decisive if run.program in ("[", "[[", "test")]
    others = [run for run in decisive if is_check(run) and run not in tests]
    asks = [run for run in tests if any(word in ("-f", "-e", "-s", "-d", "-r", "-x") for word in run.words)]
    touched = [path for run in asks for word in run.words if "/" in word and case.of_agent(path := run.path(word))]
    if tests and not others and len(asks) == len(tests) and touched:
        yield case.finding(
            "presence-only", f"only the presence of {touched[0]} is asked for", asks[0].where, 0.6, _MORE
        )
