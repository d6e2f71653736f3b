"""A package imports only what stands before it in the table of ``docs/design``; imports inside functions count too."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "flightschool"

ANY, NONE, ORDER = "any", "none", "order"

LAYERS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (ANY, ("digest", "errors", "records", "protocols", "config", "lazy", "compiling")),
    (NONE, ("store", "statistics", "lineage")),
    (NONE, ("governance", "sandbox", "models")),
    (NONE, ("tools", "tasks")),
    (ORDER, ("traces", "verification", "perturbation", "environments")),
    (ORDER, ("engines", "rollouts", "serving")),
    (NONE, ("audit", "screening", "training", "evaluation")),
    (NONE, ("distributed", "reports")),
    (ORDER, ("stations", "pipeline")),
    (ORDER, ("dashboard", "bench", "cli", "__main__")),
)
"""Layer by layer, lowest first: what members of one layer may import of each other, and the members.

``any``: one another; ``none``: nothing; ``order``: those that stand before them.
"""

EXEMPT = frozenset({"testing"})
"""Ships fakes for users' tests: imports what it needs, is imported by no one."""

PLACES = {name: (level, index) for level, (_, names) in enumerate(LAYERS) for index, name in enumerate(names)}


def modules() -> list[Path]:
    return sorted(path for path in SOURCE.rglob("*.py") if "__pycache__" not in path.parts)


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> Iterator[tuple[int, str]]:
    """(line, room of ours) of every import, wherever it stands."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            if node.module == "flightschool":
                names = [f"flightschool.{alias.name}" for alias in node.names]
            else:
                names = [node.module or ""]
        else:
            continue
        for name in names:
            parts = name.split(".")
            if parts[0] == "flightschool" and len(parts) > 1 and parts[1] != "__version__":
                yield node.lineno, parts[1]


def allowed(importer: str, imported: str) -> bool:
    if importer == imported:
        return True
    if importer not in PLACES or imported not in PLACES:
        return False
    (level, index), (other_level, other_index) = PLACES[importer], PLACES[imported]
    if level != other_level:
        return other_level < level
    rule = LAYERS[level][0]
    return rule == ANY or (rule == ORDER and other_index < index)


def test_every_room_has_a_place() -> None:
    rooms = {room_of(path) for path in modules()} - {"__init__"} - EXEMPT
    assert rooms <= set(PLACES), f"give these a place in LAYERS: {sorted(rooms - set(PLACES))}"


def test_imports_point_downwards() -> None:
    wrong = [
        f"{path.relative_to(SOURCE)}:{line}: {room_of(path)} imports {room}"
        for path in modules()
        if room_of(path) not in EXEMPT | {"__init__"}
        for line, room in imported_rooms(path)
        if not allowed(room_of(path), room)
    ]
    assert not wrong, "\n".join(wrong)


def test_root_package_imports_nothing() -> None:
    assert not list(imported_rooms(SOURCE / "__init__.py"))


@pytest.mark.parametrize(
    ("importer", "imported", "expected"),
    [
        ("records", "digest", True),
        ("audit", "training", False),
        ("evaluation", "screening", False),
        ("environments", "traces", True),
        ("traces", "environments", False),
        ("rollouts", "engines", True),
        ("engines", "rollouts", False),
        ("store", "statistics", False),
        ("cli", "bench", True),
        ("tools", "cli", False),
        ("cli", "testing", False),
    ],
)
def test_the_rule_itself(importer: str, imported: str, expected: bool) -> None:
    assert allowed(importer, imported) is expected
