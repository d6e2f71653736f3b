"""Potential-based shaping over the turns of an episode: progress that pays on the way and cannot be farmed.

    F_t = γ · Φ(s_{t+1}) − Φ(s_t),     Φ(terminal) = 0

Source: Ng, Harada and Russell, "Policy invariance under reward transformations", ICML 1999. Any other shape of a
process reward can be farmed by walking in a circle; this one sums to nothing along it. In an episode that ends, the
potential of the end must be 0 (Grzes, "Reward shaping in episodic reinforcement learning", AAMAS 2017): then Σ γ^t
F_t = −Φ(s_0), the same for every member of a group that starts alike, so the order of whole episodes cannot change;
what changes is which turn is credited.

By hand, γ = 1, two milestones, one reached in turn 0, the other in turn 2 of 3: Φ = 0, 1/2, 1/2, (1 → 0 at the end),
hence F = 1/2, 0, −1/2, and the sums to go are 0, −1/2, −1/2 = −Φ(s_t).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from flightschool.errors import InputError
from flightschool.records import Milestone, ToolEvent
from flightschool.verification.kinds.milestones import reached_turns

__all__ = ["milestone_potentials", "shaping", "sums_to_go"]


def milestone_potentials(
    milestones: Sequence[Milestone], events: Sequence[ToolEvent], num_turns: int
) -> tuple[float, ...]:
    """Φ before each turn and after the last: share of milestones (those by calls) reached so far.

    Args:
        milestones: in their partial order.
        events: of one attempt.
        num_turns: T, its assistant turns.

    Returns:
        T + 1 numbers in 0..1; the first is 0.
    """
    by_call = [milestone for milestone in milestones if milestone.state is None]
    turns = reached_turns(milestones, events)
    size = max(len(by_call), 1)
    return tuple(sum(turn < before for turn in turns.values()) / size for before in range(num_turns + 1))


def shaping(potentials: Sequence[float], discount: float = 1.0) -> tuple[float, ...]:
    """F of each turn; the potential after the last counts as 0.

    Args:
        potentials: Φ(s_0) … Φ(s_T).
        discount: γ, that of the return which the policy maximises.

    Raises:
        InputError: no turns, a potential that is not finite, or a discount outside (0, 1].
    """
    if len(potentials) < 2 or not all(map(math.isfinite, potentials)) or not 0.0 < discount <= 1.0:
        raise InputError(
            f"{len(potentials)} potentials with discount {discount}",
            where="shaping",
            expected="finite potentials before and after at least one turn, and a discount in (0, 1]",
            mend="give one potential before each turn and one after the last",
        )
    after = [*potentials[1:-1], 0.0]
    return tuple(discount * next_ - now for now, next_ in zip(potentials[:-1], after, strict=True))


def sums_to_go(values: Sequence[float], discount: float = 1.0) -> tuple[float, ...]:
    """Σ_{k ≥ t} γ^{k−t} · value_k of each turn: what the turn and all after it earn."""
    sums: list[float] = []
    total = 0.0
    for value in reversed(values):
        total = value + discount * total
        sums.append(total)
    return tuple(reversed(sums))
