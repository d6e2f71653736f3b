"""The posterior probability of reward variance in a group."""

import random
from fractions import Fraction
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flightschool.errors import InputError
from flightschool.statistics import BINARY_PRIOR, PARTIAL_PRIOR, SignalPrior, family_prior, signal_posterior

REWARDS = st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), max_size=20)
BINARY = st.lists(st.sampled_from([0.0, 1.0]), max_size=20)
SIZES = st.integers(1, 16)
QUICK = settings(max_examples=50, deadline=None)


def test_by_hand() -> None:
    # Masses 1.5 and 0.5: (1.5·2.5 + 0.5·1.5) / (2·3) = 0.75 equal.
    assert signal_posterior([0.0], 2, prior=BINARY_PRIOR) == pytest.approx(0.25)
    # Nothing seen, group of 2: 2 · (½·1½) / (1·2) = 0.75 equal.
    assert signal_posterior([], 2, prior=BINARY_PRIOR) == pytest.approx(0.25)
    # Partial prior, one failure: masses 1.5, 0.5 and ½ unseen of 2.5;
    # equal: (1.5·2.5 + 0.5·1.5 + 0.5·1) / (2.5·3.5) = 5 / 8.75.
    assert signal_posterior([0.0], 2) == pytest.approx(1 - 5 / 8.75)


def rising(x: Fraction, count: int) -> Fraction:
    product = Fraction(1)
    for j in range(count):
        product *= x + j
    return product


@QUICK
@given(st.integers(0, 12), st.integers(0, 12), SIZES)
def test_binary_is_the_beta_binomial_exactly(wins: int, losses: int, size: int) -> None:
    """Probabilities of 0 and of G successes under Beta–Binomial(½ + wins, ½ + losses), in rational numbers."""
    a, b = Fraction(1, 2) + wins, Fraction(1, 2) + losses
    equal = (rising(a, size) + rising(b, size)) / rising(a + b, size)
    rewards = [1.0] * wins + [0.0] * losses
    assert signal_posterior(rewards, size, prior=BINARY_PRIOR) == pytest.approx(float(1 - equal), abs=1e-12)


def test_agrees_with_drawing_from_the_posterior() -> None:
    rng = np.random.default_rng(1)
    # Counts 5, 2, 1 on 0, 1 and 0.4 under the partial prior; the unseen ½ in many small atoms.
    masses = np.array([5.5, 2.5, 1.0, *[0.5 / 50] * 50])
    equal = (rng.dirichlet(masses, 5_000) ** 4).sum(axis=1).mean()
    assert signal_posterior([0.0] * 5 + [1.0] * 2 + [0.4], 4) == pytest.approx(1 - equal, abs=0.01)


@QUICK
@given(REWARDS, SIZES, st.randoms(use_true_random=False))
def test_laws(rewards: list[float], size: int, rng: random.Random) -> None:
    signal = signal_posterior(rewards, size)
    assert 0 <= signal <= 1
    shuffled = rewards[:]
    rng.shuffle(shuffled)
    assert signal_posterior(shuffled, size) == signal
    assert signal_posterior(rewards, size + 1) >= signal - 1e-12  # a larger group is never less likely to be mixed
    assert signal_posterior([1 - reward for reward in rewards], size) == pytest.approx(signal)
    assert signal_posterior(rewards, 1) == pytest.approx(0, abs=1e-12)


@QUICK
@given(st.integers(1, 40), st.sampled_from([0.0, 1.0]), st.integers(2, 16))
def test_more_of_the_same_leaves_less_hope_but_some(count: int, value: float, size: int) -> None:
    for prior in (PARTIAL_PRIOR, BINARY_PRIOR):
        now, later = (signal_posterior([value] * n, size, prior=prior) for n in (count, count + 1))
        assert 0 < later < now


def test_known_points_of_the_screening_table() -> None:
    # No success in 8 does not prove a task untrainable; in 256 it nearly does; half and half is nearly sure to mix.
    assert 0.2 < signal_posterior([0.0] * 8, 8, prior=BINARY_PRIOR) < 0.35
    assert signal_posterior([0.0] * 256, 8, prior=BINARY_PRIOR) < 0.02
    assert signal_posterior([0.0, 1.0] * 64, 8, prior=BINARY_PRIOR) == pytest.approx(1 - 2 / 2**8, abs=2e-3)
    rate = 0.1
    rewards = [1.0] * 1000 + [0.0] * 9000
    assert signal_posterior(rewards, 8) == pytest.approx(1 - rate**8 - (1 - rate) ** 8, abs=1e-3)


def test_partial_rewards_are_variance_too() -> None:
    assert signal_posterior([0.2, 0.4, 0.6, 0.8], 4) > signal_posterior([0.2] * 4, 4)
    # Closer than 1e-6 is one value.
    assert signal_posterior([0.5, 0.5 + 1e-9], 4) == signal_posterior([0.5, 0.5], 4)
    # Ten thousand different values: a repeat is unlikely, a group of equals next to impossible.
    assert signal_posterior([i / 10_000 for i in range(10_000)], 4) > 0.999


@QUICK
@given(st.lists(BINARY, max_size=5), BINARY)
def test_a_family_prior_is_a_prior(siblings: list[list[float]], rewards: list[float]) -> None:
    prior = family_prior(siblings)
    assert prior.unseen > 0
    assert PARTIAL_PRIOR.strength - 1e-9 <= prior.strength <= 32 + 1e-9
    assert 0 <= signal_posterior(rewards, 8, prior=prior) <= 1


def test_sister_tasks_lend_evidence_as_far_as_they_are_alike() -> None:
    hopeless = family_prior([[0.0] * 8] * 10)
    hopeful = family_prior([[0.0, 1.0, 0.0, 1.0, 1.0, 0.0, 0.0, 1.0]] * 10)
    own = [0.0] * 3
    alone = signal_posterior(own, 8)
    assert signal_posterior(own, 8, prior=hopeless) < alone < signal_posterior(own, 8, prior=hopeful)
    assert hopeful.strength == 32
    # Half the sisters always fail, half always succeed: the family says little about the next one.
    torn = family_prior([[0.0] * 8] * 5 + [[1.0] * 8] * 5)
    assert torn.strength < 4
    # The task's own evidence wins in the end.
    assert signal_posterior([0.0] * 400, 8, prior=hopeful) < 0.35
    assert family_prior([]) == family_prior([[]]) == PARTIAL_PRIOR
    assert family_prior([[1.0] * 50]).strength == pytest.approx(PARTIAL_PRIOR.strength)


def test_group_variance_matches_the_closed_form_of_a_known_rate() -> None:
    wins, total, size = 37, 100, 4
    exact = sum(
        comb(size, k) * rising(Fraction(1, 2) + wins, k) * rising(Fraction(1, 2) + total - wins, size - k)
        for k in range(1, size)
    ) / rising(Fraction(1) + total, size)
    rewards = [1.0] * wins + [0.0] * (total - wins)
    assert signal_posterior(rewards, size, prior=BINARY_PRIOR) == pytest.approx(float(exact))


def test_bad_input_is_told() -> None:
    with pytest.raises(InputError, match="no group"):
        signal_posterior([0.0], 0)
    for bad in (1.5, -0.1, float("nan")):
        with pytest.raises(InputError) as caught:
            signal_posterior([0.0, bad], 8)
        assert caught.value.where == "rewards[1]"
    with pytest.raises(InputError, match="impossible"):
        signal_posterior([0.5], 8, prior=BINARY_PRIOR)
    with pytest.raises(InputError, match="masses"):
        signal_posterior([], 8, prior=SignalPrior(masses={}, unseen=0.0))
    with pytest.raises(InputError, match="masses"):
        signal_posterior([], 8, prior=SignalPrior(masses={0.0: -1.0, 1.0: 3.0}))


class TestWithAVerifierThatErrs:
    def test_by_hand(self) -> None:
        found = signal_posterior([1.0, 1.0], 2, prior=BINARY_PRIOR, rho0=0.25, rho1=0.25)
        assert found == pytest.approx(17 / 72)
        assert signal_posterior([1.0, 1.0], 2, prior=BINARY_PRIOR) == pytest.approx(15 / 72)

    @given(st.lists(st.sampled_from([0.0, 0.25, 1.0]), max_size=10), st.integers(2, 10))
    def test_no_errors_no_difference(self, rewards: list[float], size: int) -> None:
        found = signal_posterior(rewards, size, rho0=1e-15, rho1=1e-15)
        assert found == pytest.approx(signal_posterior(rewards, size), abs=1e-9)

    @given(
        st.lists(st.sampled_from([0.0, 0.5, 1.0]), max_size=12),
        st.integers(2, 8),
        st.floats(0.0, 0.49),
        st.floats(0.0, 0.49),
        st.randoms(use_true_random=False),
    )
    def test_laws(self, rewards: list[float], size: int, rho0: float, rho1: float, rng: random.Random) -> None:
        found = signal_posterior(rewards, size, rho0=rho0, rho1=rho1)
        assert 0.0 <= found <= 1.0
        rng.shuffle(rewards)
        assert signal_posterior(rewards, size, rho0=rho0, rho1=rho1) == pytest.approx(found, abs=1e-9)
        assert signal_posterior(rewards, size + 1, rho0=rho0, rho1=rho1) >= found - 1e-9

    def test_mixed_rewards_that_errors_explain_are_no_signal(self) -> None:
        """An impossible task, under a grader that passes a tenth of wrong work."""
        seen = [0.0] * 18 + [1.0] * 2
        assert signal_posterior(seen, 8) > 0.5
        assert signal_posterior(seen, 8, rho0=0.1) < 0.4
        clear = [0.0] * 10 + [1.0] * 10
        assert signal_posterior(clear, 8, rho0=0.1, rho1=0.1) > 0.9

    def test_a_coin_is_refused(self) -> None:
        with pytest.raises(InputError, match="leave no signal"):
            signal_posterior([1.0], 4, rho0=0.5, rho1=0.5)
