"""On-policy distillation: a teacher says of every token that the student sampled how likely it would have been to it.

    A_t = clip(log π_T(t) − log μ(t), ±c) [+ γ · A_{t+1} within the turn],      no baseline

π_T the teacher, μ the policy that sampled; c bounds what a token that the teacher rules out can do. As an algorithm of
its own rewards are measured and train nothing: a group is never flat and one scored attempt suffices, since nothing is
compared. Beside another algorithm w · A_t is added to its advantages.

**What is minimised.** At γ = 0 the reverse divergence KL(π_θ ‖ π_T) of the next token, over the states that the student
visits: E_{t ~ π_θ}[∇log π_θ(t) · (log π_T(t) − log π_θ(t))] = −∇KL(π_θ ‖ π_T), as the score has mean 0. Source:
Agarwal et al. 2024, arXiv:2306.13649 (on-policy samples, divergences of the token); Gu et al. 2024, arXiv:2306.08543
(reverse divergence by policy gradient; γ = 1 within a turn is the return that they derive); "On-Policy Distillation",
Thinking Machines Lab, 2025 (the estimate from the sampled token alone, with γ = 0).

**Why log μ is not the whole truth, and what mends it.** The recorded log μ is at hand where advantages are made, and is
what others subtract. Where weights have moved since, E_{π_θ}[∇log π_θ · (log π_T − log μ)] is the gradient of
−KL(π_θ ‖ π_T) + KL(π_θ ‖ μ): every stale step would also push away from the policy that sampled. The loss takes that
part out again: ``DISTILL_SHAPE`` holds the k1 cost of leaving μ (value log π_θ − log μ, no second model), so the two
add up to log π_T − log π_θ under the importance weight that all algorithms share.

**Correct stays above wrong.** Beside a rewarded algorithm the teacher may lower no token of a correct member, and raise
no token of another one, by more than a quarter of the gap between them; the other two directions are free. Clamping
these few tokens leaves the term of all others as it is, which scaling the group by its worst token would not.

By hand: μ = (½, ½, ¼), π_T = (¼, ½, 0), c = 5: A = (−.693, 0, −5) and the mean of log μ − log π_T is infinite; servers
write −9999 for it. With γ = ½: A = (−.693 + ½ · (−2.5), −2.5, −5) = (−1.943, −2.5, −5).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from flightschool.records import Credit, EpisodeGroup, GroupState, SpanKind
from flightschool.training.algorithms.shapes import KlTerm, LossShape
from flightschool.training.algorithms.terms import GroupCredits, TermWeights

__all__ = [
    "DISTILL_SHAPE",
    "Distilled",
    "TeacherScores",
    "TeacherSums",
    "distill",
    "order_room",
    "teacher_terms",
    "token_terms",
]

DISTILL_SHAPE = LossShape(kl=KlTerm(weight=1.0, estimator="k1", reference="sampling"))

TeacherScores: TypeAlias = Mapping[str, Mapping[int, tuple[float, ...]]]
"""Attempt → completion span → log π_T of each of its tokens, at temperature 1."""


class TeacherSums(NamedTuple):
    """Sums over sampled tokens, so that groups can be added."""

    num_tokens: int = 0
    reverse_kl: float = 0.0
    """Of log μ − log π_T: the estimate of KL(μ ‖ π_T) times the tokens."""
    num_clipped: int = 0
    """Tokens whose term met a bound: the clip, or the order of correct above wrong."""

    def plus(self, other: TeacherSums) -> TeacherSums:
        """Both together."""
        return TeacherSums(
            self.num_tokens + other.num_tokens,
            self.reverse_kl + other.reverse_kl,
            self.num_clipped + other.num_clipped,
        )


class Distilled(NamedTuple):
    """What the teacher's word makes of a group."""

    tokens: Mapping[str, Mapping[int, tuple[float, ...]]]
    """Attempt → completion span → what is added to the advantage of each token."""
    sums: TeacherSums


def distill(group: EpisodeGroup, weights: TermWeights) -> GroupCredits:
    """Every scored attempt trains, with an advantage of 0 beside the teacher's terms; none if all were lost."""
    del weights
    credits_ = tuple(Credit(attempt=member.id, advantage=0.0, terms={}) for member in group.baseline)
    return GroupCredits(state=GroupState.COMPLETE if credits_ else GroupState.TOO_FEW, credits=credits_)


def token_terms(
    teacher_T: Sequence[float], behaviour_T: Sequence[float], *, clip: float, discount: float = 0.0
) -> tuple[list[float], list[bool]]:
    """Terms of one turn's tokens before weight and order, and whether each was clipped.

    Raises:
        ValueError: not one log-probability of each kind a token.
    """
    gaps = [log_teacher - log_mu for log_teacher, log_mu in zip(teacher_T, behaviour_T, strict=True)]
    terms = [max(-clip, min(clip, gap)) for gap in gaps]
    clipped = [abs(gap) > clip for gap in gaps]
    for place in range(len(terms) - 2, -1, -1):
        terms[place] += discount * terms[place + 1]
    return terms, clipped


def order_room(credits_: Sequence[Credit], turns: Mapping[str, Mapping[int, float]], correct: frozenset[str]) -> float:
    """A quarter of the gap between the lowest token of a correct member and the highest of any other, never below 0.

    Args:
        credits_: of the group's members.
        turns: attempt → turn → term beside its advantage.
        correct: attempts whose reward is a success.

    Returns:
        ``inf`` where there is only one kind: then nothing can be overturned.
    """
    low, high = math.inf, -math.inf
    for credit in credits_:
        around = [0.0, *turns.get(credit.attempt, {}).values()]  # a turn without a term has none
        if credit.attempt in correct:
            low = min(low, credit.advantage + min(around))
        else:
            high = max(high, credit.advantage + max(around))
    return max(0.0, 0.25 * (low - high))


def teacher_terms(
    group: EpisodeGroup,
    scores: TeacherScores,
    *,
    weight: float,
    clip: float,
    discount: float = 0.0,
    correct: frozenset[str] = frozenset(),
    room: float = math.inf,
) -> Distilled:
    """What the teacher adds to each sampled token of the attempts that it scored.

    Args:
        group: whose attempts; those without a reward (infrastructure failed) get nothing.
        scores: of the teacher.
        weight: of the term; 1 as an algorithm of its own.
        clip: c.
        discount: γ.
        correct: attempts that may be lowered by ``room`` at most; all others may be raised by it at most.
        room: ``order_room``.
    """
    sums, found = TeacherSums(), {}
    for member in group.baseline:
        low, high = (-room, math.inf) if member.id in correct else (-math.inf, room)
        own: dict[int, tuple[float, ...]] = {}
        for span in member.spans:
            if span.kind is not SpanKind.COMPLETION or member.id not in scores:
                continue
            teacher_T = scores[member.id][span.id]
            terms, clipped = token_terms(teacher_T, span.logprobs_T, clip=clip, discount=discount)
            kept = [max(low, min(high, weight * term)) for term in terms]
            bounded = [was or term != weight * plain for was, term, plain in zip(clipped, kept, terms, strict=True)]
            gap = math.fsum(span.logprobs_T) - math.fsum(teacher_T)
            sums = sums.plus(TeacherSums(len(kept), gap, sum(bounded)))
            own[span.id] = tuple(kept)
        found[member.id] = own
    return Distilled(found, sums)
