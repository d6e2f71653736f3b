"""The tests themselves: each asserts something, skips say what would mend them, and files are short enough to read."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
MOST_FILE_LINES = 500

Function = ast.FunctionDef | ast.AsyncFunctionDef


def files() -> list[Path]:
    """Modules of tests and their helpers; not the folders that tests read."""
    return [path for path in sorted(TESTS.rglob("*.py")) if not {"__pycache__", "corpus"} & set(path.parts)]


def functions(tree: ast.AST) -> Iterator[Function]:
    return (node for node in ast.walk(tree) if isinstance(node, Function))


def calls(function: ast.AST) -> set[str]:
    return {ast.unparse(node.func) for node in ast.walk(function) if isinstance(node, ast.Call)}


def says_check(name: str) -> bool:
    """Whether a helper of another file promises by its name to assert: ``check``, ``place.check_probe``."""
    return name.rpartition(".")[2].startswith("check")


def asserts(function: ast.AST) -> bool:
    names = calls(function)
    return (
        any(isinstance(node, ast.Assert) for node in ast.walk(function))
        or bool(names & {"pytest.raises", "pytest.warns", "pytest.fail"})
        or any(name.rpartition(".")[2].startswith("assert_") for name in names)  # of torch and numpy
    )


def idle_tests(source: str) -> list[str]:
    """Tests of a module that assert nothing, neither themselves nor by a helper of the module or one that says so."""
    tree = ast.parse(source)
    own = {function.name: function for function in functions(tree)}
    imported = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(("tests", "flightschool.testing"))
        for alias in node.names
    }
    sound = {name for name, function in own.items() if asserts(function)} | {n for n in imported if says_check(n)}
    more = sound
    while more:
        more = {name for name, f in own.items() if calls(f) & sound or any(map(_method_checks, calls(f)))} - sound
        sound |= more
    return [name for name in own if name.startswith("test_") and name not in sound]


def _method_checks(call: str) -> bool:
    return "." in call and says_check(call)


def test_every_test_asserts() -> None:
    idle = [f"{path.relative_to(TESTS)}: {name}" for path in files() for name in idle_tests(path.read_text("utf-8"))]
    assert not idle, "these assert nothing:\n" + "\n".join(idle)


@pytest.mark.parametrize(
    ("body", "idle"),
    [
        ("work()", True),
        ("assert work()", False),
        ("with pytest.raises(ValueError): work()", False),
        ("agree(work())", False),
        ("place.check_probe(1)", False),
        ("preflight(1)", True),
        ("check_tags(1)", True),  # of the product, not of the tests
    ],
)
def test_the_rule_itself(body: str, idle: bool) -> None:
    source = f"from flightschool.x import check_tags\ndef agree(x):\n    assert x\ndef test_it(place):\n    {body}\n"
    assert idle_tests(source) == (["test_it"] if idle else [])


def test_skips_say_what_is_absent_and_how_to_get_it() -> None:
    """The helpers of ``needs`` ask for both."""
    bare = {"pytest.skip", "pytest.importorskip", "pytest.mark.skip", "pytest.mark.xfail"}
    wrong = [
        str(path.relative_to(TESTS))
        for path in files()
        if path.name != "needs.py" and calls(ast.parse(path.read_text("utf-8"))) & bare
    ]
    assert not wrong, f"skip by tests/needs.py: {wrong}"


def test_files_stay_below_the_ceiling() -> None:
    sizes = {str(path.relative_to(TESTS)): len(path.read_text("utf-8").splitlines()) for path in files()}
    wrong = {name: size for name, size in sizes.items() if size > MOST_FILE_LINES}
    assert not wrong, f"longer than {MOST_FILE_LINES} lines: {wrong}"
