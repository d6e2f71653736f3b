"""Will a group at this task carry reward variance? The posterior probability, given the rewards seen so far.

A group whose G rewards are all equal has no advantage and teaches nothing. With a known distribution p over reward
values, P(all equal) = Σ_v p_v^G; for binary rewards that is p^G + (1−p)^G. p is unknown, and a plug-in estimate is
wrong where it matters most: after 0 successes in 8 it says "no signal, ever", although p = 0.3 is still credible.
So p gets a prior and the sum is taken in expectation over the posterior, exactly.

The prior is a Dirichlet process (T. Ferguson, Annals of Statistics 1, 1973): mass α(v) on values known in advance
and mass u spread over all others. Its posterior after counts n is again one, with masses c_v = α(v) + n_v and the
same u; let C = Σ c_v + u. With the rising factorial x^(G) = x (x+1) … (x+G−1)::

    P(all G equal) = [ Σ_v c_v^(G)  +  u · (G−1)! ] / C^(G)

where the last summand is a value never seen before that then repeats (Blackwell and MacQueen, Annals of Statistics
1, 1973). The prior is fixed before any reward is seen, so the order of rewards does not matter, and with u = 0 and
½ on each of 0 and 1 this *is* the Beta–Binomial with Jeffreys' prior.

A verifier that errs fakes signal: at a task that is never solved, with ρ0 = 0.1, more than half of all groups of eight
differ. What is wanted is whether the attempts *deserve* different rewards. A Dirichlet process splits exactly into the
share p of right work and the distribution over the rewards of the rest, so only p's posterior changes: of n attempts
with k passes, t were right, and t is not seen. Its weight is the coefficient of x^t y^(n−t) in

    ((1 − ρ1) x + ρ0 y)^k · (ρ1 x + (1 − ρ0) y)^(n − k),

and given t the posterior is Beta(a + t, b + n − t). Prior beliefs are about observed rewards (``family_prior`` learns
them there), so their mean m becomes (m − ρ0) / (1 − ρ0 − ρ1), with the same strength. With ρ0 = ρ1 = 0 all of this is
the formula above. By hand, binary prior, two passes, group of 2, ρ0 = ρ1 = ¼: t = 0, 1, 2 weigh 1/16, 6/16, 9/16; the
signal is 17/72 = 0.236, where the raw one is 15/72 = 0.208: a pass may have been luck.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from flightschool.errors import InputError
from flightschool.records import Record
from flightschool.statistics.interval import check_finite

__all__ = ["BINARY_PRIOR", "PARTIAL_PRIOR", "SignalPrior", "family_prior", "signal_posterior"]

_RESOLUTION = 1_000_000
"""Rewards closer than 1e-6 count as one value: below that, advantages are rounding noise."""

_STRENGTHS = (1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0)
"""Prior strengths, in pseudo-rollouts, that ``family_prior`` chooses from. The cap lets a task's own 32 rollouts weigh
as much as all of its family, however alike the family is."""


class SignalPrior(Record, frozen=True, kw_only=True):
    """Beliefs about a task's rewards before any of its own is seen, in pseudo-rollouts."""

    masses: dict[float, float]
    """Reward value in 0..1 → mass."""
    unseen: float = 0.5
    """Mass spread over all other values; 0 says that no other value can occur."""

    @property
    def strength(self) -> float:
        """Pseudo-rollouts in all: the prior weighs as much as this many real ones."""
        return math.fsum(self.masses.values()) + self.unseen


PARTIAL_PRIOR = SignalPrior(masses={0.0: 0.5, 1.0: 0.5}, unseen=0.5)
"""Jeffreys' ½ for each sort of reward: failure, success, and anything between."""

BINARY_PRIOR = SignalPrior(masses={0.0: 0.5, 1.0: 0.5}, unseen=0.0)
"""Jeffreys' prior of a success rate, for rewards that are 0 or 1 and nothing else."""


def signal_posterior(
    rewards: Sequence[float],
    group_size: int,
    *,
    prior: SignalPrior = PARTIAL_PRIOR,
    rho0: float = 0.0,
    rho1: float = 0.0,
) -> float:
    """Posterior probability that ``group_size`` new attempts do not all get the same reward.

    With error rates of the verifier: that they do not all *deserve* the same (see the module).

    By hand, binary prior, one failure seen, group of 2: masses 1.5 at 0 and 0.5 at 1, C = 2;
    P(equal) = (1.5·2.5 + 0.5·1.5) / (2·3) = 0.75, so the signal has probability 0.25.

    Args:
        rewards: total rewards in 0..1 of scored attempts (infra failures have none and stay out); may be empty.
        group_size: members of a training group.
        prior: ``PARTIAL_PRIOR``, ``BINARY_PRIOR`` or what ``family_prior`` learned from sister tasks.
        rho0: probability that wrong work gets the reward 1.
        rho1: probability that right work gets less.

    Raises:
        InputError: a reward outside 0..1, one that the prior calls impossible, a group of no one, or error rates that
            leave no signal.
    """
    if group_size < 1:
        raise InputError(
            f"a group of {group_size} is no group", where="group_size", expected="at least 1", mend="use 4 or more"
        )
    _check_noise(rho0, rho1)
    masses = _posterior_masses(_counts(rewards), prior)
    if rho0 > 0.0 or rho1 > 0.0:
        return _signal_of_truth(_counts(rewards), masses, prior, group_size, rho0, rho1)
    return min(1.0, max(0.0, 1.0 - _all_alike(masses, prior.unseen, group_size)))


def _check_noise(rho0: float, rho1: float) -> None:
    if not (0.0 <= rho0 < 1.0 and 0.0 <= rho1 < 1.0 and rho0 + rho1 < 1.0):
        raise InputError(
            f"error rates ρ0 = {rho0} and ρ1 = {rho1} leave no signal",
            where="signal_posterior",
            expected="rates from 0 whose sum is below 1",
            mend="mend the verifier before screening: its verdict is no better than a coin",
        )


def _signal_of_truth(
    counts: Counter[int], masses: Mapping[int, float], prior: SignalPrior, group_size: int, rho0: float, rho1: float
) -> float:
    """1 − P(all equal) of true rewards: E p^G + E (1 − p)^G · P(all equal | all wrong)."""
    num_passed, num_scored = counts[_RESOLUTION], sum(counts.values())
    a, b = _true_prior(prior, rho0, rho1)
    weights = _right_weights(num_passed, num_scored - num_passed, rho0, rho1)
    # (log weight, parameters of the Beta) for each number of right attempts
    logs = [(math.log(weight), a + t, b + num_scored - t) for t, weight in enumerate(weights) if weight > 0.0]
    scale = max(log + _log_beta(x, y) for log, x, y in logs)

    def mean(more_right: int, more_wrong: int) -> float:
        return math.fsum(math.exp(log + _log_beta(x + more_right, y + more_wrong) - scale) for log, x, y in logs)

    wrong = {value: mass for value, mass in masses.items() if value != _RESOLUTION}
    all_equal = mean(group_size, 0) + mean(0, group_size) * _all_alike(wrong, prior.unseen, group_size)
    return min(1.0, max(0.0, 1.0 - all_equal / mean(0, 0)))


def _all_alike(masses: Mapping[int, float], unseen: float, group_size: int) -> float:
    """P(all G equal) under a Dirichlet process (see the module); 1 where it has no mass."""
    total = math.fsum(masses.values()) + unseen
    terms = [_log_rising(mass, group_size) for mass in masses.values() if mass > 0]
    if unseen > 0:
        terms.append(math.log(unseen) + math.lgamma(group_size))
    return math.fsum(math.exp(term - _log_rising(total, group_size)) for term in terms) if terms else 1.0


def _true_prior(prior: SignalPrior, rho0: float, rho1: float) -> tuple[float, float]:
    """Beta of the share of right work, of the prior's strength and its mean freed of errors."""
    strength = prior.strength
    seen = math.fsum(mass for value, mass in prior.masses.items() if round(value * _RESOLUTION) == _RESOLUTION)
    mean = (seen / strength - rho0) / (1.0 - rho0 - rho1)
    least = 0.5 / (strength + 1.0)  # a prior that errors alone explain is no proof that nothing is ever right
    mean = min(1.0 - least, max(least, mean)) if not 0.0 < mean < 1.0 else mean
    return strength * mean, strength * (1.0 - mean)


def _right_weights(num_passed: int, num_failed: int, rho0: float, rho1: float) -> list[float]:
    """Weight of each number t of right attempts, t = 0 … n (see the module)."""
    weights = [1.0]
    for right, wrong in [(1.0 - rho1, rho0)] * num_passed + [(rho1, 1.0 - rho0)] * num_failed:
        weights = [
            wrong * (weights[t] if t < len(weights) else 0.0) + right * (weights[t - 1] if t else 0.0)
            for t in range(len(weights) + 1)
        ]
    return weights


def _log_beta(x: float, y: float) -> float:
    return math.lgamma(x) + math.lgamma(y) - math.lgamma(x + y)


def family_prior(siblings: Sequence[Sequence[float]], *, base: SignalPrior = PARTIAL_PRIOR) -> SignalPrior:
    """A prior for one task from the rewards of the *other* tasks of its family (empirical Bayes).

    Its shape is the family's pooled rewards, smoothed by ``base``; its strength is the one of a fixed list, at most 32
    pseudo-rollouts, under which the tasks' rewards were likeliest (marginal likelihood of the Dirichlet process: a
    family of tasks that are alike gets a strong prior, one that is mixed a weak one). Never weaker than ``base``.
    Without siblings, or with a single one (which says nothing of how alike tasks are), it is weak.

    Raises:
        InputError: as ``signal_posterior``.
    """
    tasks = [_counts(rewards) for rewards in siblings if len(rewards)]
    if not tasks:
        return base
    pooled = _posterior_masses(sum(tasks, Counter[int]()), base)
    total = math.fsum(pooled.values()) + base.unseen

    def scaled(strength: float) -> SignalPrior:
        masses = {value / _RESOLUTION: mass / total * strength for value, mass in sorted(pooled.items())}
        return SignalPrior(masses=masses, unseen=base.unseen / total * strength)

    strengths = [base.strength, *(s for s in _STRENGTHS if s > base.strength)]
    if len(tasks) == 1:
        strengths = strengths[:1]
    # Ties go to the weakest: max keeps the first.
    best = max(strengths, key=lambda strength: math.fsum(_log_marginal(task, scaled(strength)) for task in tasks))
    return scaled(best)


def _counts(rewards: Sequence[float]) -> Counter[int]:
    if len(rewards):
        check_finite(rewards, "rewards")
    for position, reward in enumerate(rewards):
        if not -1e-9 <= reward <= 1 + 1e-9:
            raise InputError(
                f"{reward!r} is no reward", where=f"rewards[{position}]", expected="0..1", mend="pass total rewards"
            )
    return Counter(round(reward * _RESOLUTION) for reward in rewards)


def _posterior_masses(counts: Counter[int], prior: SignalPrior) -> dict[int, float]:
    masses = {round(value * _RESOLUTION): mass for value, mass in prior.masses.items()}
    for value, count in counts.items():
        if prior.unseen == 0 and masses.get(value, 0.0) == 0:
            raise InputError(
                f"the reward {value / _RESOLUTION} is impossible under the prior",
                where="prior",
                expected="a prior that gives every observed reward some mass",
                mend="use PARTIAL_PRIOR for tasks with partial rewards",
            )
        masses[value] = masses.get(value, 0.0) + count
    if not math.fsum(masses.values()) + prior.unseen > 0 or prior.unseen < 0 or min(masses.values(), default=0.0) < 0:
        raise InputError(
            "a prior needs masses that are not negative and not all zero", where="prior", mend="use PARTIAL_PRIOR"
        )
    return masses


def _log_rising(x: float, count: int) -> float:
    """Logarithm of x (x+1) … (x+count−1)."""
    return math.lgamma(x + count) - math.lgamma(x)


def _log_marginal(counts: Counter[int], prior: SignalPrior) -> float:
    """Log-probability of one task's rewards, all of whose values have mass in ``prior``."""
    masses = {round(value * _RESOLUTION): mass for value, mass in prior.masses.items()}
    seen = math.fsum(_log_rising(masses[value], count) for value, count in counts.items())
    return seen - _log_rising(prior.strength, sum(counts.values()))
