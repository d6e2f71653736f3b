"""The core starts without torch: only the packages that compute with it may import it, and none does at import time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "src" / "flightschool"
HEAVY = ("torch", "transformers", "plotly", "scipy", "sqlalchemy")
ROOMS = sorted(
    [path.parent.name for path in ROOT.glob("*/__init__.py")]
    + [path.stem for path in ROOT.glob("*.py") if path.stem != "__init__"]
)

PROBE = """
import json, sys, time
started = time.perf_counter()
{statement}
print(json.dumps({{"heavy": [name for name in {heavy!r} if name in sys.modules], "s": time.perf_counter() - started}}))
"""


def _probe(statement: str) -> tuple[list[str], float]:
    code = PROBE.format(statement=statement, heavy=HEAVY)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    return found["heavy"], found["s"]


def test_importing_all_rooms_leaves_torch_alone() -> None:
    statement = "\n".join(f"import flightschool.{room}" for room in ROOMS)
    heavy, seconds = _probe(statement)
    sys.stdout.write(f"all rooms imported in {seconds * 1000:.0f} ms, heavy modules: {heavy}\n")
    assert "torch" not in heavy
    assert "transformers" not in heavy


@pytest.mark.parametrize("arguments", [["--help"], ["rollout", "--help"], ["rollout", "--nonsense"]])
def test_help_and_usage_errors_load_nothing_heavy(arguments: list[str]) -> None:
    heavy, seconds = _probe(f"from flightschool.cli.main import main\nmain({arguments!r})")
    sys.stdout.write(f"{arguments} answered in {seconds * 1000:.0f} ms\n")
    assert heavy == []
