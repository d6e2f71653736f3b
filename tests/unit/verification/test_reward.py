"""The reward: its formula by hand, and the law that every correct, unviolated episode beats every other."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from flightschool.config import parse_settings
from flightschool.digest import digest
from flightschool.errors import ConfigError, InfrastructureError, InputError
from flightschool.records import Check, CheckKind, Verdict
from flightschool.verification import OutcomeReward, RewardSettings

F, C, P = CheckKind.FUNCTIONAL, CheckKind.CONSTRAINT, CheckKind.PROCESS


def verdict(*checks: tuple[CheckKind, bool, float]) -> Verdict:
    return Verdict(
        checks=tuple(
            Check(id=f"c{i}", kind=kind, weight=weight, passed=passed, evidence="", author="test")
            for i, (kind, passed, weight) in enumerate(checks)
        ),
        verifier_digest="sha256:v",
    )


CHOSEN = RewardSettings(process_share=0.1, latency_share=0.2, latency_low_ms=1000.0, latency_high_ms=3000.0)


def test_a_correct_episode_by_hand() -> None:
    reward = OutcomeReward(CHOSEN).compose(verdict((F, True, 1.0), (P, True, 3.0), (P, False, 1.0)), 1500.0)
    assert (reward.outcome, reward.process, reward.latency, reward.gate) == (1.0, 0.75, 0.75, 1.0)
    assert reward.total == pytest.approx(0.7 * 1.0 + 0.1 * 0.75 + 0.2 * 0.75)
    assert reward.success


def test_a_partly_done_episode_by_hand() -> None:
    reward = OutcomeReward(CHOSEN).compose(verdict((F, True, 1.0), (F, False, 3.0), (P, True, 1.0)), 0.0)
    assert (reward.outcome, reward.process, reward.latency) == (0.25, 1.0, 0.0)
    assert reward.total == pytest.approx(0.7 * 0.25 + 0.1)
    assert not reward.success


def test_a_partial_outcome_is_capped() -> None:
    reward = OutcomeReward(CHOSEN).compose(verdict((F, True, 9.0), (F, False, 1.0), (P, False, 1.0)), 0.0)
    assert reward.outcome == 0.5


def test_a_violation_gates_everything_and_the_terms_are_still_recorded() -> None:
    reward = OutcomeReward(CHOSEN).compose(verdict((F, True, 1.0), (C, False, 1.0), (C, True, 1.0)), 0.0)
    assert (reward.gate, reward.total, reward.outcome, reward.latency) == (0.0, 0.0, 1.0, 1.0)
    assert not reward.success


def test_without_process_checks_their_share_follows_the_outcome() -> None:
    compose = OutcomeReward(CHOSEN).compose
    assert compose(verdict((F, True, 1.0)), 0.0).total == pytest.approx(1.0)
    assert compose(verdict((F, False, 1.0)), 0.0).total == 0.0


@pytest.mark.parametrize(("ms", "speed"), [(0.0, 1.0), (1000.0, 1.0), (2000.0, 0.5), (3000.0, 0.0), (9e9, 0.0)])
def test_speed_falls_from_low_to_high(ms: float, speed: float) -> None:
    assert OutcomeReward(CHOSEN).compose(verdict((F, True, 1.0)), ms).latency == speed


def test_no_functional_check_is_no_task() -> None:
    for checks in ((), ((C, True, 1.0),), ((P, True, 1.0),)):
        with pytest.raises(InputError, match="without functional checks"):
            OutcomeReward().compose(verdict(*checks), 0.0)


@pytest.mark.parametrize("weight", [math.nan, math.inf, 0.0, -1.0])
def test_weights_that_are_none_are_refused(weight: float) -> None:
    with pytest.raises(InfrastructureError, match="no usable weight"):
        OutcomeReward().compose(verdict((F, True, weight)), 0.0)


@pytest.mark.parametrize("ms", [math.nan, math.inf, -1.0])
def test_times_that_are_none_are_refused(ms: float) -> None:
    with pytest.raises(InfrastructureError, match="virtual time"):
        OutcomeReward().compose(verdict((F, True, 1.0)), ms)


@pytest.mark.parametrize(
    "table",
    [
        {"process_share": 0.2, "latency_share": 0.2},
        {"process_share": -0.1},
        {"partial_cap": 1.0},
        {"partial_cap": 0.9, "process_share": 0.3, "latency_share": 0.0},
        {"latency_low_ms": 5.0, "latency_high_ms": 5.0},
        {"latency_high_ms": math.inf},
        {"latency_share": math.nan},
        {"proces_share": 0.1},
    ],
)
def test_settings_under_which_wrong_could_pay_are_refused(table: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        parse_settings(dict(table), RewardSettings, where="reward")


def test_the_digest_follows_the_weights() -> None:
    assert OutcomeReward().digest == OutcomeReward(RewardSettings()).digest
    assert OutcomeReward().digest != OutcomeReward(CHOSEN).digest
    assert (
        OutcomeReward(CHOSEN).compose(verdict((F, True, 1.0)), 0.0).composition_digest == OutcomeReward(CHOSEN).digest
    )


weights = st.floats(0.01, 100.0)
parts = st.lists(st.tuples(st.just(F) | st.just(P), st.booleans(), weights), min_size=1, max_size=6)
shares = st.floats(0.0, 0.3)


@given(
    right=parts,
    wrong=parts,
    violated=st.booleans(),
    times=st.tuples(st.floats(0.0, 60_000.0), st.floats(0.0, 60_000.0)),
    gamma=shares,
    beta=shares,
    cap=st.floats(0.0, 0.99),
)
@settings(max_examples=50, deadline=None)
def test_every_correct_unviolated_reward_is_above_every_other(
    right: list[tuple[CheckKind, bool, float]],
    wrong: list[tuple[CheckKind, bool, float]],
    violated: bool,
    times: tuple[float, float],
    gamma: float,
    beta: float,
    cap: float,
) -> None:
    try:
        composition = OutcomeReward(RewardSettings(partial_cap=cap, process_share=gamma, latency_share=beta))
    except ValidationError:
        return
    correct = verdict(*((kind, passed or kind is F, weight) for kind, passed, weight in right), (F, True, 1.0))
    other = verdict(*wrong, (C, False, 1.0), (F, True, 1.0)) if violated else verdict(*wrong, (F, False, 1.0))
    good = composition.compose(correct, times[0])
    bad = composition.compose(other, times[1])
    assert 0.0 <= bad.total < good.total <= 1.0
    assert good.success
    assert not bad.success


def test_the_budget_of_tokens_by_hand() -> None:
    thrifty = RewardSettings(process_share=0.0, latency_share=0.0, thinking_share=0.2, thinking_budget=100)
    compose = OutcomeReward(thrifty).compose
    for tokens, term in ((0, 1.0), (100, 1.0), (150, 0.5), (200, 0.0), (10**9, 0.0)):
        reward = compose(verdict((F, True, 1.0)), 0.0, tokens)
        assert reward.thinking == pytest.approx(term)
        assert reward.total == pytest.approx(0.8 + 0.2 * term)
    wrong = compose(verdict((F, False, 1.0)), 0.0, 10)
    assert (wrong.thinking, wrong.total) == (0.0, 0.0)
    for uncounted in (None, -1):
        with pytest.raises(InputError, match="budget"):
            compose(verdict((F, True, 1.0)), 0.0, uncounted)


def test_without_a_budget_nothing_of_it_is_kept() -> None:
    reward = OutcomeReward(CHOSEN).compose(verdict((F, True, 1.0)), 0.0, 5)
    assert "thinking" not in msgspec.to_builtins(reward)
    assert OutcomeReward(RewardSettings(thinking_budget=5)).digest != OutcomeReward().digest


def test_the_default_reward_has_the_digest_it_always_had() -> None:
    assert OutcomeReward().digest == digest(
        {
            "reward": "outcome/1",
            "partial_cap": 0.5,
            "process_share": 0.1,
            "latency_share": 0.1,
            "latency_low_ms": 1000.0,
            "latency_high_ms": 30000.0,
        }
    )


@pytest.mark.parametrize(
    "table", [{"thinking_share": 0.1}, {"thinking_share": 0.2, "thinking_budget": 5}, {"thinking_budget": -1}]
)
def test_budgets_that_could_not_be_kept_are_refused(table: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        parse_settings(dict(table), RewardSettings, where="reward")
