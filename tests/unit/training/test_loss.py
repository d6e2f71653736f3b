from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flightschool.training.algorithms import LossShape
from flightschool.training.loss import LossSums, policy_loss, score_tokens

LIMITS = LossShape(ratio_low=1.0 - 0.2, ratio_high=1.0 + 0.28)


def one(theta: float, old: float, behaviour: float, advantage: float) -> tuple[float, float, LossSums]:
    """Loss and its slope in log π_θ, of probabilities."""
    logprob = torch.tensor([math.log(theta)], dtype=torch.float64, requires_grad=True)
    old_M = torch.tensor([math.log(old)], dtype=torch.float64)
    behaviour_M = torch.tensor([math.log(behaviour)], dtype=torch.float64)
    loss, sums = policy_loss(logprob, old_M, behaviour_M, torch.tensor([advantage], dtype=torch.float64), LIMITS)
    (slope,) = torch.autograd.grad(loss, logprob)
    return float(loss.detach()), float(slope), sums


def test_on_policy_the_slope_is_minus_the_advantage() -> None:
    loss, slope, sums = one(0.5, 0.5, 0.5, 2.0)
    assert (loss, slope) == pytest.approx((-2.0, -2.0))
    assert sums.ess == pytest.approx(1.0)
    assert (sums.k1, sums.k3) == pytest.approx((0.0, 0.0))


def test_importance_weight_corrects_and_is_truncated() -> None:
    assert one(0.3, 0.3, 0.2, 1.0)[1] == pytest.approx(-1.5)
    assert one(0.9, 0.9, 0.1, 1.0)[1] == pytest.approx(-2.0)  # 9 is cut to 2
    assert one(0.9, 0.9, 0.1, 1.0)[2].num_truncated == 1


def test_clip_is_unequal_and_only_stops_what_runs_away() -> None:
    assert one(0.5 * 1.27, 0.5, 0.5, 1.0)[1] == pytest.approx(-1.27)
    loss, slope, sums = one(0.5 * 1.4, 0.5, 0.5, 1.0)
    assert (loss, slope, sums.num_clipped) == pytest.approx((-1.28, 0.0, 1.0))
    assert one(0.5 * 0.7, 0.5, 0.5, -1.0)[:2] == pytest.approx((0.8, 0.0))
    assert one(0.5 * 0.7, 0.5, 0.5, 1.0)[1] == pytest.approx(-0.7)  # moving back is never clipped


def test_mismatch_by_hand() -> None:
    _, _, sums = one(0.25, 0.25, 0.5, 1.0)
    assert sums.k1 == pytest.approx(math.log(2))
    assert sums.k3 == pytest.approx(0.5 - 1 + math.log(2))
    assert sums.max_abs_mismatch == pytest.approx(math.log(2))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(-3, 3), min_size=1, max_size=10))
def test_ess_and_k3_stay_in_their_ranges(differences: list[float]) -> None:
    difference = torch.tensor(differences, dtype=torch.float64)
    zeros = torch.zeros_like(difference)
    _, sums = policy_loss(zeros, zeros, -difference, zeros, LIMITS)
    assert 1 / len(differences) - 1e-9 <= sums.ess <= 1 + 1e-9
    assert sums.k3 >= -1e-9


def test_sums_of_parts_are_the_sums_of_the_whole() -> None:
    rows = torch.randn(4, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    _, whole = policy_loss(rows[0], rows[1], rows[2], rows[3], LIMITS)
    total = LossSums()
    for part in (slice(0, 4), slice(4, 9)):
        total.add(policy_loss(rows[0, part], rows[1, part], rows[2, part], rows[3, part], LIMITS)[1])
    assert vars(total) == pytest.approx(vars(whole))


def test_scored_tokens_agree_with_torch() -> None:
    generator = torch.Generator().manual_seed(1)
    logits, temperatures = torch.randn(5, 11, generator=generator), torch.tensor([1.0, 0.5, 2.0, 1.0, 0.7])
    tokens = torch.tensor([0, 3, 10, 5, 5])
    scored = score_tokens(logits.clone(), tokens, temperatures)
    expected = (logits / temperatures.unsqueeze(1)).log_softmax(1)
    torch.testing.assert_close(scored.logprobs_M, expected[torch.arange(5), tokens])
    assert scored.entropy == pytest.approx(-float((expected.exp() * expected).sum()), rel=1e-5)
    torch.testing.assert_close(scored.probabilities_MV, expected.exp())
