"""The most steps that any rule could have made, given when the episodes ran: what the price of a hold is held against.

An episode is trained by one step, and none of its tokens may then be older than ``S`` versions; so at most ``S`` steps
fall between its first token and its end. With ``M(t)`` = the latest end of all episodes begun before ``t``, the times
``p_1 < p_2 < …`` of the steps of *any* rule under which nothing expires satisfy

    p_k ≥ p_{k−1} + τ,      p_k ≥ M(p_{k−S}),

τ being the trainer's time for a nominal step. Taking equality gives times that are componentwise the earliest, since
both right sides grow with earlier times: by induction no rule's k-th step comes before this k-th step. Their number is
the bound.

By hand, S = 1, τ = 1: episodes (0, 4), (0, 1), (3, 9): steps at 1, then M(1) = 4, then M(4) = 9.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence

__all__ = ["most_steps"]


def most_steps(intervals: Sequence[tuple[float, float]], max_staleness: int, step_time: float, until: float) -> int:
    """Most steps that can be made by ``until``.

    Args:
        intervals: (start, end) of each episode.
        max_staleness: S, at least 1.
        step_time: trainer's time for the groups of one nominal step, above 0.
        until: end of the schedule.

    Raises:
        ValueError: ``max_staleness`` or ``step_time`` is not positive.
    """
    if max_staleness < 1 or not step_time > 0.0:
        raise ValueError("the bound needs max_staleness ≥ 1 and step_time > 0")
    starts: list[float] = []
    latest: list[float] = []
    for start, end in sorted(intervals):
        starts.append(start)
        latest.append(max(end, latest[-1]) if latest else end)
    times: list[float] = []
    while True:
        time = (times[-1] if times else 0.0) + step_time
        if len(times) >= max_staleness:
            place = bisect.bisect_left(starts, times[-max_staleness]) - 1
            if place >= 0:
                time = max(time, latest[place])
        if time > until:
            return len(times)
        times.append(time)
