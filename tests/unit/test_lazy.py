"""Packages that import their names when they are first asked for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import flightschool.audit
from flightschool.lazy import names_and_homes

SOURCE = Path(flightschool.audit.__file__).parents[1]
LAZY = sorted(
    path for path in SOURCE.rglob("__init__.py") if "on_first_use(__name__)" in path.read_text(encoding="utf-8")
)


def test_only_what_stands_under_type_checking_is_listed(tmp_path: Path) -> None:
    written = tmp_path / "package.py"
    written.write_text("from os import path\nif TYPE_CHECKING:\n    from json import dumps, loads\n    import re\n")
    assert names_and_homes(written) == {"dumps": "json", "loads": "json"}


@pytest.mark.parametrize("path", LAZY, ids=lambda path: str(path.parent.relative_to(SOURCE)))
def test_every_public_name_has_a_home_and_no_module_stands_in_its_way(path: Path) -> None:
    homes = names_and_homes(path)
    package = __import__(".".join(("flightschool", *path.parent.relative_to(SOURCE).parts)), fromlist=["__all__"])
    assert set(package.__all__) == set(homes)
    beside = {one.stem for one in path.parent.glob("*.py")} | {
        one.name for one in path.parent.iterdir() if one.is_dir()
    }
    assert not beside & set(homes)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"'flightschool\.audit' has no attribute 'nothing'"):
        _ = flightschool.audit.nothing  # type: ignore[attr-defined]


def test_reading_a_terminal_task_imports_neither_the_auditor_nor_traces() -> None:
    program = (
        "import sys, flightschool.rollouts.terminal; print(*(n for n in sys.modules if n.startswith('flightschool.')))"
    )
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert not [name for name in loaded if name.startswith(("flightschool.traces.", "flightschool.audit.terminal."))]
