"""Self-tests of asynchrony on whole runs: shuffled version tags and a doubled lag end the run with what was wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration
HERE = Path(__file__).parent


def run(run_dir: Path, fault: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(HERE / "fake_run.py"), str(run_dir), "60", "async", "0.003", fault]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.parametrize(("fault", "words"), [("shuffle", "follows one of version"), ("lag", "follows one of version")])
def test_a_lying_generation_is_noticed(tmp_path: Path, fault: str, words: str) -> None:
    done = run(tmp_path / "run", fault)
    assert done.returncode == 1
    assert "TokenContractError" in done.stderr
    assert words in done.stderr
    assert "span" in done.stderr


def test_an_honest_one_ends_well_and_publishes_its_figures(tmp_path: Path) -> None:
    done = run(tmp_path / "run", "")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert rows
    assert {row["expired_token_share"] for row in rows} == {0.0}
    assert {row["waste"] for row in rows} == {0.0}
    assert all(0.0 <= row["generation_idle"] <= 1.0 for row in rows)
    assert rows[-1]["length_bias"] < 0.5
    assert max(row["staleness_max"] for row in rows) == 1  # asynchronous in fact, and within the bound
    assert any(sum(row["term_shares"].values()) == pytest.approx(1.0) for row in rows)
