from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flightschool.engines.sampling import sample
from flightschool.errors import InfrastructureError


@settings(max_examples=50, deadline=None)
@given(
    size=st.sampled_from([3, 255, 256, 257, 1000]),
    uniform=st.floats(0, 1, exclude_max=True),
    temperature=st.sampled_from([0.3, 1.0, 2.0]),
    seed=st.integers(0, 99),
)
def test_the_token_is_where_the_distribution_function_passes_the_uniform_number(
    size: int, uniform: float, temperature: float, seed: int
) -> None:
    logits = torch.randn(1, size, generator=torch.Generator().manual_seed(seed)) * 3
    (token,), (logprob,) = sample(logits.clone(), [temperature], [uniform])
    logprobs = (logits[0].double() / temperature).log_softmax(-1)
    assert logprob == pytest.approx(float(logprobs[token]), abs=1e-5)
    below, above = float(logprobs[:token].exp().sum()), float(logprobs[: token + 1].exp().sum())
    assert below - 1e-5 <= uniform <= above + 1e-5


@pytest.mark.parametrize("uniform", [0.0, 0.5, 1 - 2**-53])
def test_impossible_tokens_are_never_drawn(uniform: float) -> None:
    logits = torch.full((1, 700), -math.inf)
    logits[0, 300] = 1.0
    assert sample(logits, [1.0], [uniform]) == ([300], [0.0])


def test_frequencies_follow_the_probabilities() -> None:
    logits = torch.tensor([0.5, 0.2, 0.2, 0.1]).log().expand(1000, 4).clone()
    tokens, _ = sample(logits, [1.0] * 1000, [(i + 0.5) / 1000 for i in range(1000)])
    assert [tokens.count(token) for token in range(4)] == [500, 200, 200, 100]


def test_rows_have_their_own_temperature() -> None:
    logits = torch.tensor([[0.0, 1.0, 3.0]]).repeat(3, 1)
    tokens, logprobs = sample(logits.clone(), [0.0, 1.0, 2.0], [0.0, 0.999, 0.999])
    assert tokens == [2, 2, 2]
    at_one, at_two = logits[0].log_softmax(-1)[2].item(), (logits[0] / 2).log_softmax(-1)[2].item()
    assert logprobs == pytest.approx([at_one, at_one, at_two], abs=1e-6)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_logits_that_are_not_numbers_are_no_fault_of_the_policy(temperature: float, value: float) -> None:
    """Also if a single one of them is: nothing is drawn, and no index runs out of range on the way."""
    for broken in (slice(None), slice(3, 4)):
        logits = torch.zeros(2, 700)
        logits[1, broken] = value
        with pytest.raises(InfrastructureError, match="NaN or infinite"):
            sample(logits, [temperature] * 2, [0.5] * 2)
