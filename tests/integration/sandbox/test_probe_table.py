"""The table of probes in the design notes names tests that are there, and every probe is in it."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
TABLE = HERE.parents[2] / "docs" / "design" / "sandbox.md"


def test_the_table_and_the_tests_agree() -> None:
    text = TABLE.read_text().partition("## Probes")[2]
    named = set(re.findall(r"`(test_\w+)`", text))
    there = {
        name
        for path in HERE.glob("test_escape_*.py")
        for name in re.findall(r"^(?:async )?def (test_\w+)\(", path.read_text(), re.MULTILINE)
    }
    assert named == there
