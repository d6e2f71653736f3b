"""How Python is started on tests, and what a file of tests imports: words of commands and of import statements."""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Iterable, Iterator
from typing import Final

from flightschool.audit.terminal.static.python_code import PythonCode
from flightschool.audit.terminal.static.python_flow import Flow
from flightschool.audit.terminal.static.shell_runs import Run

__all__ = ["PYTHON", "first_line_program", "guards_of", "is_isolated", "modules_of", "names_of", "path_additions"]

PYTHON: Final = re.compile(r"python[0-9.]*$|pypy3?$")
"""Names of interpreters."""
_GUARDS: Final = ("-p", "-c", "--noconftest", "--rootdir", "--confcutdir", "-I", "-P", "--config-file")


def is_isolated(flags: Iterable[str]) -> bool:
    """Whether Python's own options keep the working directory out of ``sys.path``."""
    return any(flag[:1] == "-" and flag[:2] not in ("--", "-m") and set(flag) & {"I", "P"} for flag in flags)


def first_line_program(text: str) -> str:
    """The interpreter of a ``#!`` line; empty: there is none."""
    words = text.partition("\n")[0].removeprefix("#!").split() if text.startswith("#!") else []
    return posixpath.basename(words[-1]) if words else ""


def guards_of(run: Run, argv: tuple[str, ...]) -> tuple[str, ...]:
    """What a command gives to keep the policy's configuration and modules out, as written."""
    found = []
    for at, word in enumerate(argv):
        if word.partition("=")[0] in _GUARDS and not (word == "-c" and PYTHON.match(posixpath.basename(argv[0]))):
            takes = word in ("-p", "-c", "--rootdir", "--confcutdir", "--config-file")
            found.append(f"{word} {argv[at + 1]}" if takes and at + 1 < len(argv) else word)
    if run.env.get("PYTHONPATH") == "":
        found.append("PYTHONPATH=")
    return tuple(found)


def path_additions(code: PythonCode, flow: Flow) -> Iterator[str]:
    """Folders put on ``sys.path``."""
    for name in ("sys.path.insert", "sys.path.append", "site.addsitedir", "monkeypatch.syspath_prepend"):
        for call in code.calls.get(name, []):
            path = flow.path(call.args[-1]) if call.args else ""
            if path:
                yield path
    for name in ("os.chdir", "chdir"):
        for call in code.calls.get(name, []):
            path = flow.path(call.args[0]) if call.args else ""
            if path:
                yield path


def modules_of(code: PythonCode) -> Iterator[tuple[str, ast.AST]]:
    """Modules that a file imports, by statement or by name."""
    for node in code.nodes(ast.Import):
        for alias in node.names:
            yield alias.name, node
    for taken in code.nodes(ast.ImportFrom):
        if taken.module and not taken.level:
            yield taken.module, taken
    for name in ("importlib.import_module", "import_module", "__import__"):
        for call in code.calls.get(name, []):
            text = code.text_value(call.args[0]) if call.args else ""
            if text:
                yield text, call


def names_of(code: PythonCode, module: str, node: ast.AST) -> tuple[str, ...]:
    """Names that a file takes from a module."""
    if isinstance(node, ast.ImportFrom):
        return tuple(alias.name for alias in node.names)
    prefix = f"{module}."
    return tuple(dict.fromkeys(name.removeprefix(prefix) for name in code.calls if name.startswith(prefix)))
