"""Every option of the command line and every settings key stands in one file: a new knob is a visible change.

Write the file anew with ``FLIGHTSCHOOL_UPDATE_GOLDEN=1``.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flightschool.cli import command_tree

SOURCE = Path(__file__).parents[2] / "src"
GOLDEN = Path(__file__).parent / "options.txt"


def command_options(command: Any, path: str) -> Iterator[str]:
    for parameter in command.params:
        if parameter.param_type_name == "option":
            yield f"{path} {' '.join(sorted(parameter.opts))}"
        else:
            yield f"{path} <{parameter.name}>"
    for name, below in getattr(command, "commands", {}).items():
        yield from command_options(below, f"{path} {name}")


def settings_keys() -> Iterator[str]:
    """Fields of all classes below ``Settings``, read from the source so that nothing heavy is imported."""
    classes: dict[str, tuple[str, ast.ClassDef]] = {}
    for path in sorted((SOURCE / "flightschool").rglob("*.py")):
        module = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                classes[node.name] = (module, node)

    def is_settings(name: str) -> bool:
        if name == "Settings":
            return True
        found = classes.get(name)
        return found is not None and any(is_settings(base.id) for base in found[1].bases if isinstance(base, ast.Name))

    for name, (module, node) in classes.items():
        if name != "Settings" and is_settings(name):
            for item in node.body:
                if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                    default = f" = {ast.unparse(item.value)}" if item.value is not None else ""
                    yield f"{module}.{name}.{item.target.id}: {ast.unparse(item.annotation)}{default}"


def test_options_are_those_of_the_golden_file() -> None:
    lines = sorted({*command_options(command_tree(), "flightschool"), *settings_keys()})
    text = "\n".join(lines) + "\n"
    if os.environ.get("FLIGHTSCHOOL_UPDATE_GOLDEN"):
        GOLDEN.write_text(text, encoding="utf-8")
    known = GOLDEN.read_text(encoding="utf-8").splitlines()
    added, gone = sorted(set(lines) - set(known)), sorted(set(known) - set(lines))
    hint = f"if wanted: FLIGHTSCHOOL_UPDATE_GOLDEN=1 pytest {__file__}"
    assert not added, f"new: {added}; {hint}"
    assert not gone, f"gone: {gone}; {hint}"
