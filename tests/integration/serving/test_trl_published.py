"""The recipe for TRL, with the published TRL in an environment of its own: real GRPO steps on a tiny model.

Installing it takes minutes: ``pytest -m slow``. An interpreter that has it may be named in ``FLIGHTSCHOOL_TRL_PYTHON``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.slow]
ROOT = Path(__file__).parents[3]
PACKAGES = ("trl==1.16.0", "transformers>=5.2", "accelerate", "datasets", "jmespath")


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    named = os.environ.get("FLIGHTSCHOOL_TRL_PYTHON")
    if named:
        return Path(named)
    home = tmp_path_factory.mktemp("trl")
    subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
    python = home / "bin" / "python"
    inside = subprocess.run(
        [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    Path(inside, "ours.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")  # torch is there
    subprocess.run([str(python), "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
    return python


def test_grpo_steps_with_tools_rewards_and_masked_infrastructure(python: Path) -> None:
    done = subprocess.run(
        [str(python), str(ROOT / "recipes" / "train_with_trl.py"), "--steps", "3"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["steps"] == 3
    assert max(told["tool_calls"]) > 0
    rewards = told["rewards"]
    assert len(rewards) == 12
    assert any(reward is not None and reward > 0.9 for reward in rewards), "no rollout solved its task"
    assert told["num_masked"] == 4
    for step, logged in enumerate(told["rewards_seen_by_trl"]):
        scored = [reward for reward in rewards[4 * step : 4 * step + 4] if reward is not None]
        assert logged == pytest.approx(sum(scored) / len(scored), abs=1e-4), "a masked rollout was counted"
