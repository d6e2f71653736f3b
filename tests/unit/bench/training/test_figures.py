"""Figures of ``bench training`` computed by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from flightschool.bench.training.duel import Duel
from flightschool.bench.training.kills import Kills
from flightschool.bench.training.limits import Limits, bound_tokens_per_s
from flightschool.bench.training.measuring import DEFAULT_PARTS, PARTS, bench_training
from flightschool.bench.training.overlap import Flown, draw_together
from flightschool.bench.training.workload import Side, StepFigures
from flightschool.engines.catalogue import tiny_folder
from flightschool.errors import InfrastructureError, InputError


def step(wall_s: float, tokens: int, success: float = 0.0, **fields: Any) -> StepFigures:
    base = {"trained_tokens": tokens, "sampled_tokens": tokens, "num_rows": 4, "reward": 0.0}
    return StepFigures(wall_s=wall_s, success=success, **(base | fields))


def test_the_warm_up_counts_in_nothing() -> None:
    side = Side(steps=(step(100.0, 1), step(2.0, 30), step(3.0, 20)))
    assert side.tokens_per_s == pytest.approx(10.0)
    assert side.step_s == pytest.approx(2.5)


@pytest.mark.parametrize(("goal", "expected"), [(0.2, 0.0), (0.5, 4.0), (0.9, 10.0), (0.99, None)])
def test_success_is_reached_by_the_steps_before_the_rollouts_that_show_it(goal: float, expected: float | None) -> None:
    side = Side(steps=(step(4.0, 1, 0.2), step(6.0, 1, 0.5), step(7.0, 1, 0.9)))
    assert side.reached_s(goal) == expected


def test_the_ratio_is_the_median_over_repeats() -> None:
    def side(rate: float) -> Side:
        return Side(steps=(step(1.0, 1), step(1.0, int(rate))))

    ours, peer = [side(40), side(60), side(90)], [side(10), side(10), side(30)]
    found = Duel(kind="refund", num_rows=4, prompt_tokens=9, ours=tuple(ours), peer=tuple(peer), others=0.0)
    assert found.ratio == pytest.approx(4.0)
    assert found.step_ratio == pytest.approx(1.0)
    assert Duel(kind="refund", num_rows=4, prompt_tokens=9, ours=tuple(ours), others=0.0).ratio is None


LIMITS = Limits(
    num_threads=1,
    bandwidth_gb_s=0.4,
    peak_gflops=2.0,
    torch_gflops=1.5,
    body_s={32: 0.32, 512: 5.12},
    head_s={32: 0.64},
    torch_body_s={32: 0.64, 512: 10.24},
    torch_head_s={32: 0.96},
    num_body=80_000_000,
    num_head=20_000_000,
    num_attending=10_000,
    kv_bytes=1_000_000,
)


def test_a_decode_pass_needs_its_products_or_its_bytes() -> None:
    assert LIMITS.decode_s(32, 0) == pytest.approx(1.0)  # 400 MB at .4 GB/s, more than .96 s of products
    assert LIMITS.decode_s(32, 100) == pytest.approx(1.25)
    assert LIMITS.prefill_s(100) == pytest.approx(1.0)
    assert LIMITS.train_s(100, 50, 0) == pytest.approx(6e-9 * (100 * 8e7 + 50 * 2e7) / 2)
    assert LIMITS.train_s(0, 0, 1_000) == pytest.approx(12e-9 * 1_000 * 10_000 / 2)
    assert LIMITS.optimizer_s() == pytest.approx(7.0)


def test_a_token_costs_less_the_more_rows_are_decoded() -> None:
    limits = msgspec.structs.replace(
        LIMITS, body_s={1: 0.2, 8: 0.24, 32: 0.32, 512: 5.12}, head_s={1: 0.4, 8: 0.4, 32: 0.64}
    )
    assert limits.decode_token_s(8) == pytest.approx(0.64 / 8)
    assert limits.decode_token_s(9) == pytest.approx(0.96 / 32)  # none measured between: a bound may be too generous
    assert limits.decode_token_s(40) == pytest.approx(0.96 / 32)


def test_the_bound_computes_every_distinct_token_once() -> None:
    steps = [step(1.0, 50, prefill_tokens=50, num_rows=3, seen_pairs=700)]
    needed = 50 * 0.96 / 32 + 0.5 + LIMITS.train_s(97, 50, 700) + 7.0  # a row's last token predicts none
    assert bound_tokens_per_s(LIMITS, steps) == pytest.approx(50 / needed)


def test_a_bound_by_torch_alone_allows_less() -> None:
    steps = [step(1.0, 50, prefill_tokens=50)]
    own = LIMITS.by_torch()
    assert own.prefill_s(100) == pytest.approx(2.0)
    num_forward = 100 - steps[0].num_rows
    needed = 50 * 1.6 / 32 + 1.0 + own.train_s(num_forward, 50, 0) + 7.0
    assert own.train_s(100, 50, 9) == pytest.approx(LIMITS.train_s(100, 50, 9) * 2.0 / 1.5)
    assert bound_tokens_per_s(own, steps) == pytest.approx(50 / needed)
    assert bound_tokens_per_s(own, steps) < bound_tokens_per_s(LIMITS, steps)


def flown(wall_s: float, train_s: float, rewards: tuple[float, ...]) -> Flown:
    return Flown(
        num_groups=10,
        wall_s=wall_s,
        train_s=train_s,
        final_rewards=rewards,
        trainer_idle=0.0,
        waste=0.0,
        length_bias=0.0,
        expired_token_share=0.0,
        batch_inflation=1.0,
        staleness_bound=2,
        max_trained_staleness=1,
        ess=1.0,
    )


def test_overlapping_is_held_against_the_longer_of_two_stations() -> None:
    in_turn = flown(50.0, 20.0, (0.4, 0.6))
    found = draw_together(flown(30.0, 20.0, (0.5, 0.6)), in_turn, flown(45.0, 10.0, (0.5,)))
    assert (found.t_roll_s, found.t_train_s) == (3.0, 2.0)
    assert found.bound == pytest.approx(5 / 3)
    assert found.speedup == pytest.approx(5 / 3)
    assert found.share_of_bound == pytest.approx(1.0)
    assert found.speedup_over_two_threads == pytest.approx(1.5)
    assert found.reward_difference == pytest.approx(0.05)
    assert found.equal_reward is None  # two groups a side say nothing


@pytest.mark.parametrize(
    ("overlapping", "in_turn", "equal"),
    [
        ([0.50, 0.51] * 50, [0.52, 0.53] * 50, True),  # .02 less, ± .002
        ([0.40, 0.41] * 50, [0.52, 0.53] * 50, False),  # .12 less
        ([1.0] * 100, [0.99] * 100, True),  # better is no loss
        ([0.0, 1.0] * 50, [0.0, 1.0] * 50, False),  # no difference seen, but ± .14: a loss is not ruled out
        ([0.5] * 99, [0.5] * 120, None),
    ],
)
def test_equal_is_what_rules_a_loss_out(overlapping: list[float], in_turn: list[float], equal: bool | None) -> None:
    left, right = flown(30.0, 20.0, tuple(overlapping)), flown(50.0, 20.0, tuple(in_turn))
    assert draw_together(left, right, right).equal_reward is equal


def test_what_is_left_out_says_so() -> None:
    found = bench_training(parts=(), peer=False, model=Path("anything"))
    assert set(found.reasons.values()) == {"left out: --parts"}
    assert not found.met  # nothing was measured
    assert bench_training(parts=(), peer=False, quick=True, model=Path("x")).reasons["ess"] == "left out: --parts"


def test_a_part_that_fails_leaves_its_reason_and_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_network(*_: object) -> Path:
        raise InfrastructureError("the peer cannot be installed", mend="get a network")

    asked: list[object] = []

    def no_race(work: object, scratch: Path, python: Path | None, **_: object) -> None:
        asked.append(python)
        raise InfrastructureError("ours did not reach the goal")

    monkeypatch.setattr("flightschool.bench.training.measuring.peer_python", no_network)
    monkeypatch.setattr("flightschool.bench.training.measuring.race", no_race)
    found = bench_training(parts=("wall",), model=tiny_folder())
    assert asked == [None]
    assert found.trl_ratio_wall is None
    assert "did not reach the goal" in found.reasons["trl_ratio_wall"]
    assert found.reasons["trl_ratio_tokens"] == "left out: --parts"
    assert not found.met


def test_kills_are_made_only_where_they_are_named() -> None:
    assert "kills" in PARTS
    assert "kills" not in DEFAULT_PARTS


def test_a_fault_of_a_lineage_misses_the_target(monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(num_kills: int, *_: object, **__: object) -> Kills:
        return Kills(
            num_kills=num_kills,
            num_run_kills=3,
            num_runs=1,
            num_faults=3,
            lost=1,
            doubled=0,
            over_bound=1,
            malformed=0,
            attempts_lost=1,
            attempts_reused=2,
            num_groups_trained=40,
            num_groups_consumed=48,
        )

    monkeypatch.setattr("flightschool.bench.training.measuring.fly_with_kills", killed)
    found = bench_training(parts=("kills",), quick=True)
    assert (found.num_kills, found.lineage_faults, found.attempts_lost) == (5, 2, 1)
    assert {target.name: target.met for target in found.targets} == {"lineage_faults": False, "attempts_lost": False}
    assert not found.met


def test_an_unknown_part_is_refused() -> None:
    with pytest.raises(InputError, match="wings"):
        bench_training(parts=("wings",))
