"""Packages whose names are imported when they are first asked for.

A command that reads one task folder must not pay for all of ``traces`` and ``audit``. Such a package lists its API as
any other does, in ``from … import`` statements, but under ``if TYPE_CHECKING:``, where type checkers and readers find
them; ``on_first_use`` reads the same statements, so nothing is listed twice. It stands under the ``else:``, since a
type checker that saw a ``__getattr__`` would take any name for granted. A module must not bear the name of what the
package exports: Python puts the module in its place (a test keeps them apart).
"""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Callable
from pathlib import Path

__all__ = ["names_and_homes", "on_first_use"]


def on_first_use(package: str) -> Callable[[str], object]:
    """The ``__getattr__`` of a package (its ``__name__``): what it lists for type checkers, imported when asked for."""
    homes: dict[str, str] = {}

    def named(name: str) -> object:
        module = sys.modules[package]
        if not homes and not name.startswith("__"):
            homes.update(names_and_homes(Path(str(module.__file__))))
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found: object = getattr(importlib.import_module(homes[name]), name)
        setattr(module, name, found)
        return found

    return named


def names_and_homes(path: Path) -> dict[str, str]:
    """Each name that a module imports under ``if TYPE_CHECKING:`` at its top level, with the module it comes from."""
    return {
        alias.name: node.module
        for branch in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(branch, ast.If) and isinstance(branch.test, ast.Name) and branch.test.id == "TYPE_CHECKING"
        for node in branch.body
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }
