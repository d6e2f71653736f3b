"""Reading a package's ``__init__`` is reading its API: complete, sorted, and every name there."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"
ROOT = SOURCE / "flightschool"
BY_MODULE = {ROOT, ROOT / "testing"}
"""No API of their own: the root imports nothing, and fakes for tests are imported module by module."""
PACKAGES = sorted(
    ".".join(path.parent.relative_to(SOURCE).parts)
    for path in ROOT.rglob("__init__.py")
    if path.parent not in BY_MODULE
)


def _order(name: str) -> tuple[int, str]:
    return (0 if name.isupper() else 1 if name[0].isupper() else 2, name)


@pytest.mark.parametrize("package", PACKAGES)
def test_package_has_a_sorted_api_whose_names_exist(package: str) -> None:
    module = importlib.import_module(package)
    names = getattr(module, "__all__", None)
    assert names is not None, f"{package} has no __all__"
    assert list(names) == sorted(names, key=_order)
    missing = [name for name in names if not hasattr(module, name)]
    assert not missing


def test_every_module_says_what_it_is() -> None:
    silent = [
        str(path.relative_to(SOURCE))
        for path in sorted(ROOT.rglob("*.py"))
        if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert not silent


def test_every_folder_with_modules_is_a_package() -> None:
    folders = {path.parent for path in ROOT.rglob("*.py")}
    bare = sorted(str(folder.relative_to(SOURCE)) for folder in folders if not (folder / "__init__.py").is_file())
    assert not bare
