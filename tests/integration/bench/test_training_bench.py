"""``bench training`` for real, with the small model that ships: what it prints, and what it says when it cannot."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flightschool.bench.training import Plan, bench_training
from flightschool.bench.training.peer import peer_python
from flightschool.cli import main
from flightschool.engines.catalogue import tiny_folder
from flightschool.errors import InfrastructureError

pytestmark = [pytest.mark.integration, pytest.mark.long]

PROMISED = [
    "trl_ratio_tokens",
    "trl_ratio_tokens_async",
    "trl_ratio_multi",
    "trl_ratio_multi_async",
    "multi_share_of_bound",
    "trl_ratio_wall",
    "trl_ratio_wall_async",
    "generation_share_of_limit",
    "training_share_of_peak",
    "async_share_of_bound",
    "async_over_two_threads",
    "equal_final_reward",
    "trainer_idle",
    "waste",
    "length_bias",
    "expired_token_share",
    "batch_inflation",
    "staleness_bound",
    "max_trained_staleness",
    "ess",
    "num_kills",
    "lineage_faults",
    "attempts_lost",
    "killed_groups_trained",
]


def test_the_verb_prints_every_promised_key_and_says_what_it_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "bench",
        "training",
        "--quick",
        "--no-peer",
        "--parts",
        "kernels,tokens,multi",
        "--model",
        "tiny",
        "--json",
    ]
    code = main(words)
    said = json.loads(capsys.readouterr().out)
    assert set(PROMISED) <= set(said)
    assert said["schema"] == 1
    measured = ("generation_share_of_limit", "training_share_of_peak", "multi_share_of_bound")
    assert all(said[key] > 0.0 for key in measured)  # how much of a limit, a busy machine cannot say
    assert {key for key in PROMISED if said[key] is None} == set(said["reasons"]) == set(PROMISED) - set(measured)
    assert "--no-peer" in said["reasons"]["trl_ratio_tokens"]
    assert "--parts" in said["reasons"]["ess"]
    assert {target["name"] for target in said["targets"]} == set(measured)
    assert code == (0 if said["met"] else 1)
    for kind, num_rows in (("tokens", 8), ("multi", 16)):
        (side,) = said[kind]["ours"]
        assert [step["num_rows"] for step in side["steps"]] == [num_rows] * 4
        assert all(step["trained_tokens"] == step["sampled_tokens"] > 8 for step in side["steps"])
    assert said["multi"]["ours"][0]["steps"][0]["prefill_tokens"] > said["multi"]["prompt_tokens"]


def test_overlapping_keeps_the_bound_and_drops_nothing() -> None:
    found = bench_training(parts=("overlap",), peer=False, model=tiny_folder(), plan=Plan(overlap_steps=4))
    assert found.staleness_bound is not None
    assert found.max_trained_staleness is not None
    assert 0 <= found.max_trained_staleness <= found.staleness_bound
    assert (found.waste, found.expired_token_share) == (0.0, 0.0)
    assert found.ess is not None
    assert 0.5 < found.ess <= 1.0 + 1e-6
    assert found.equal_final_reward is None
    assert "fewer than 100 groups" in found.reasons["equal_final_reward"]
    assert found.overlap is not None
    assert 1.0 <= found.overlap.bound <= 2.0
    assert {target.name for target in found.targets} == {
        "async_share_of_bound",
        "expired_token_share",
        "max_trained_staleness",
    }


def test_killed_runs_lose_and_double_nothing() -> None:
    found = bench_training(parts=("kills",), peer=False, plan=Plan(num_kills=3))  # no model is fetched for it
    assert found.kills is not None
    assert found.kills.faults == ()
    assert (found.num_kills, found.lineage_faults, found.attempts_lost) == (3, 0, 0)
    assert found.killed_groups_trained is not None
    assert found.killed_groups_trained > 0
    assert found.kills.num_groups_consumed >= 24 * 2 * found.kills.num_runs
    assert found.met


def test_a_peer_that_cannot_be_installed_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    said: list[str] = []
    with pytest.raises(InfrastructureError, match="cannot be installed") as caught:
        peer_python(said.append, tmp_path)
    assert "--no-peer" in caught.value.mend
    assert "trl==" in said[0]
    assert not (tmp_path / "trl" / "installed").exists()
