"""What all group algorithms share: the score that is normalised, the terms that are not, and who counts.

A member's *score* is ``gate · (outcome + κ · process_weight · process) + ν · p``, with p ≤ 0 what the algorithm itself
takes off (DAPO for length; else 0). The algorithm turns the scores of a group into advantages. Latency and thinking are
added afterwards,

    term_i = λ · w · (x_i − mean of x over correct members)        for correct members, 0 for all others,

so they are bounded by their weights and can never be blown up: were they part of the score, a group in which everyone
is correct would have only their variance, and division by the standard deviation would turn milliseconds into unit
advantages.

**Every correct member's advantage is above every other member's.** Shares see to that, of the group and not of the
settings, since settings know neither its outcomes nor its standard deviation. With *gap* the distance between the worst
correct and the best other member,

    ν = min(1, ½ · gap of gated outcomes / most that p could close of it),
    κ = min(1, ½ · gap that is left / most that process terms could close of it),
    λ = min(1, ½ · gap of normalised scores / most that latency and thinking take from a correct member).

All are 1 for the settings as shipped (outcomes of wrong work at most ½, process_weight 0.1). An outcome just below 1
is set at least ``LEAST_GAP`` below, so that a gap survives floating point. Where scores differ by no more than
``FLAT`` the group carries no gradient at all.

Members count in the baseline unless infrastructure failed (reward ``None``): failures of the policy stay in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import msgspec

from flightschool.records import Attempt, Credit, EpisodeGroup, GroupState, Record, Reward

__all__ = [
    "FLAT",
    "LEAST_GAP",
    "GroupCredits",
    "TermWeights",
    "credit_group",
    "keeping_order",
    "latency_terms",
    "score",
    "term_shares",
]

FLAT = 1e-9
"""Scores closer than this are equal: what is left of exact arithmetic by sums in another order is no signal."""
LEAST_GAP = 1e-6
"""Least distance between a correct outcome and any other, once scored."""

Normalise = Callable[[Sequence[float]], list[float]]
Penalty = Callable[[Attempt], float]


class TermWeights(Record, frozen=True, kw_only=True):
    """Weights of the terms beside the outcome."""

    process: float = 0.1
    latency: float = 0.0
    thinking: float = 0.0


class GroupCredits(Record, frozen=True, kw_only=True):
    """What the algorithm makes of one group."""

    state: GroupState
    credits: tuple[Credit, ...] = ()
    """One for each member of the baseline, in the group's order; empty unless the group carries a gradient."""


def score(reward: Reward, weights: TermWeights) -> float:
    """The part of a reward that is compared and normalised within the group, as long as κ is 1."""
    return reward.gate * (reward.outcome + weights.process * reward.process)


def latency_terms(rewards: Sequence[Reward], weight: float) -> list[float]:
    """The bounded latency term of each member before λ (see above)."""
    return _among_correct(rewards, [reward.latency for reward in rewards], weight)


def credit_group(
    group: EpisodeGroup, normalise: Normalise, weights: TermWeights, penalty: Penalty | None = None
) -> GroupCredits:
    """Credits of a group, or the state that says why it has none.

    Args:
        normalise: scores → advantages, order-preserving; only called when scores differ.
        penalty: p of a member, in units of the outcome; None: nothing is taken off.
    """
    members = [(member, member.reward) for member in group.members if member.reward is not None]
    if len(members) < 2:
        return GroupCredits(state=GroupState.TOO_FEW)
    rewards = [reward for _, reward in members]
    penalties = [0.0 if penalty is None else penalty(member) for member, _ in members]
    outcomes, process = _score_parts(rewards, penalties, weights)
    scores = [a + b for a, b in zip(outcomes, process, strict=True)]
    flat = max(scores) - min(scores) <= FLAT
    base = [0.0] * len(scores) if flat else normalise(scores)
    latency, thinking = _terms_after(rewards, base, weights)
    totals = [math.fsum(parts) for parts in zip(base, latency, thinking, strict=True)]
    if all(abs(total) <= FLAT for total in totals):
        return GroupCredits(state=GroupState.ZERO_ADVANTAGE)
    from_outcome = _share_of_outcome(scores, outcomes, base)
    return GroupCredits(
        state=GroupState.COMPLETE,
        credits=tuple(
            Credit(
                attempt=member.id,
                advantage=total,
                terms={"outcome": a, "process": b - a, "latency": c, "thinking": d},
            )
            for (member, _), total, a, b, c, d in zip(
                members, totals, from_outcome, base, latency, thinking, strict=True
            )
        ),
    )


def term_shares(groups: Sequence[GroupCredits]) -> Mapping[str, float]:
    """Each term's share of the variance of advantages within groups; the shares sum to 1.

    share_k = Σ cov_g(term_k, advantage) / Σ var_g(advantage), sums over groups: since the advantage is the sum of its
    terms, its variance is the sum of their covariances with it (Shorrocks, Econometrica 50, 1982). A share is
    negative where a term works against the others. Empty where nothing varies.

    By hand: terms a = (1, −1), b = (−½, ½) give advantages (½, −½); cov(a) = 1, cov(b) = −½, var = ½: shares 2 and −1.
    """
    covariances: dict[str, list[float]] = {}
    variances: list[float] = []
    for group in groups:
        size = len(group.credits)
        if size < 2:
            continue
        mean = math.fsum(credit.advantage for credit in group.credits) / size
        centred = [credit.advantage - mean for credit in group.credits]
        variances.append(math.fsum(value**2 for value in centred))
        for name in group.credits[0].terms:
            products = (c.terms[name] * d for c, d in zip(group.credits, centred, strict=True))
            covariances.setdefault(name, []).append(math.fsum(products))
    whole = math.fsum(variances)
    if whole <= FLAT**2:
        return {}
    return {name: math.fsum(values) / whole for name, values in covariances.items()}


# ------------------------------------------------------------------------------------------------ the score


def _score_parts(
    rewards: Sequence[Reward], penalties: Sequence[float], weights: TermWeights
) -> tuple[list[float], list[float]]:
    """Gated outcomes less ν · penalties, and process terms scaled by κ."""
    outcomes = [reward.gate * reward.outcome for reward in rewards]
    process = [reward.gate * weights.process * reward.process for reward in rewards]
    good = [i for i, reward in enumerate(rewards) if reward.success]
    other = [i for i, reward in enumerate(rewards) if not reward.success]
    if not good or not other:
        return [a + p for a, p in zip(outcomes, penalties, strict=True)], process
    least = min(outcomes[i] for i in good)
    most = max(outcomes[i] for i in other)
    if least - most < LEAST_GAP:
        shrink = (least - LEAST_GAP) / most
        for i in other:
            outcomes[i] *= shrink
        most *= shrink
    nu = keeping_order(least - most, max(penalties[i] for i in other) - min(penalties[i] for i in good))
    outcomes = [a + nu * p for a, p in zip(outcomes, penalties, strict=True)]
    left = min(outcomes[i] for i in good) - max(outcomes[i] for i in other)
    kappa = keeping_order(left, max(process[i] for i in other) - min(process[i] for i in good))
    return outcomes, [kappa * value for value in process]


def keeping_order(gap: float, closing: float) -> float:
    """Share of terms that closes at most half of a gap which all of them would close by ``closing``.

    Between 0 and 1; 0 where there is no gap to close and the terms would widen what is wrong.
    """
    room = max(0.0, 0.5 * gap)
    return 1.0 if closing <= room else room / closing


def _share_of_outcome(scores: Sequence[float], outcomes: Sequence[float], base: Sequence[float]) -> list[float]:
    """The part of normalised scores that stems from outcomes: normalising is shift and scale, so its slope is known."""
    top, bottom = max(range(len(scores)), key=scores.__getitem__), min(range(len(scores)), key=scores.__getitem__)
    distance = scores[top] - scores[bottom]
    slope = (base[top] - base[bottom]) / distance if distance > FLAT else 0.0
    mean = math.fsum(outcomes) / len(outcomes)
    return [slope * (value - mean) for value in outcomes]


# ------------------------------------------------------------------------------------------------ terms after it


def _terms_after(
    rewards: Sequence[Reward], base: Sequence[float], weights: TermWeights
) -> tuple[list[float], list[float]]:
    """Latency and thinking, scaled by λ."""
    latency = latency_terms(rewards, weights.latency)
    thrift = [0.0 if isinstance(r.thinking, msgspec.UnsetType) else r.thinking for r in rewards]
    thinking = _among_correct(rewards, thrift, weights.thinking)
    good = [i for i, reward in enumerate(rewards) if reward.success]
    other = [i for i, reward in enumerate(rewards) if not reward.success]
    if not good or not other:
        return latency, thinking
    gap = min(base[i] for i in good) - max(base[i] for i in other)
    closing = -min(latency[i] + thinking[i] for i in good)
    share = keeping_order(gap, closing)
    return [share * value for value in latency], [share * value for value in thinking]


def _among_correct(rewards: Sequence[Reward], values: Sequence[float], weight: float) -> list[float]:
    correct = [value for value, reward in zip(values, rewards, strict=True) if reward.success]
    if len(correct) < 2 or max(correct) - min(correct) <= FLAT:
        return [0.0] * len(rewards)
    mean = math.fsum(correct) / len(correct)
    return [
        max(-weight, min(weight, weight * (value - mean))) if reward.success else 0.0
        for value, reward in zip(values, rewards, strict=True)
    ]
