"""The tail stays readable: the ten largest files and functions are printed, and no one passes the ceilings."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "flightschool"
MOST_FILE_LINES = 500
MOST_FUNCTION_LINES = 80

LARGER_FUNCTIONS: dict[str, str] = {}
"""``path::function`` → why it may be longer."""
LARGER_FILES: dict[str, str] = {}
"""Path → why it may be longer."""


def _files() -> list[Path]:
    return sorted(path for path in SOURCE.rglob("*.py") if "__pycache__" not in path.parts)


def file_sizes() -> dict[str, int]:
    return {str(path.relative_to(SOURCE)): len(path.read_text(encoding="utf-8").splitlines()) for path in _files()}


def function_sizes() -> dict[str, int]:
    sizes: dict[str, int] = {}
    for path in _files():
        for name, node in _functions(ast.parse(path.read_text(encoding="utf-8")), ""):
            sizes[f"{path.relative_to(SOURCE)}::{name}"] = _lines(node) - _docstring_lines(node)
    return sizes


def _lines(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _docstring_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Saying what the arguments mean makes no function harder to read."""
    return _lines(node.body[0]) if ast.get_docstring(node) else 0


def _functions(tree: ast.AST, prefix: str) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for node in ast.iter_child_nodes(tree):
        name = f"{prefix}{getattr(node, 'name', '')}"
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield name, node
            yield from _functions(node, f"{name}.")
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{name}.")
        else:
            yield from _functions(node, prefix)


def _print_largest(what: str, sizes: dict[str, int]) -> None:
    sys.stdout.write(f"largest {what}:\n")
    for name, size in sorted(sizes.items(), key=lambda item: -item[1])[:10]:
        sys.stdout.write(f"  {size:5d}  {name}\n")


def test_files_stay_below_the_ceiling() -> None:
    sizes = file_sizes()
    _print_largest("files", sizes)
    wrong = {name: size for name, size in sizes.items() if size > MOST_FILE_LINES and name not in LARGER_FILES}
    assert not wrong, f"longer than {MOST_FILE_LINES} lines: {wrong}"


def test_functions_stay_below_the_ceiling() -> None:
    sizes = function_sizes()
    _print_largest("functions", sizes)
    wrong = {n: size for n, size in sizes.items() if size > MOST_FUNCTION_LINES and n not in LARGER_FUNCTIONS}
    assert not wrong, f"longer than {MOST_FUNCTION_LINES} lines: {wrong}"


def test_exceptions_are_still_needed() -> None:
    files, functions = file_sizes(), function_sizes()
    idle = [name for name in LARGER_FILES if files.get(name, 0) <= MOST_FILE_LINES]
    idle += [name for name in LARGER_FUNCTIONS if functions.get(name, 0) <= MOST_FUNCTION_LINES]
    assert not idle, f"take these off the list: {idle}"
