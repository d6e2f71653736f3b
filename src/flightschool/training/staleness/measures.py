"""What is measured of a schedule: age, bias, waste, expiry, price. Pure."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

from flightschool.records import Record

__all__ = ["NUM_DECILES", "GroupRecord", "Measured", "measure"]

NUM_DECILES = 10


@dataclass
class GroupRecord:
    """One group's life in a schedule."""

    admitted_version: int
    lengths: list[float]
    intervals: list[tuple[float, float]] = field(default_factory=list)
    """(start, end) of each member, in the order in which they got a slot."""
    applied_version: int | None = None
    """Version just before the step that applied it; None: never."""
    dropped: bool = False


class Measured(Record, frozen=True, kw_only=True):
    """Figures of one schedule. Shares are of generated tokens unless said otherwise."""

    throughput: float
    """Attempts trained in a unit of time (a mean episode length)."""
    length_bias: float
    """|mean length trained / mean length admitted − 1|."""
    waste: float
    """Tokens of groups that were thrown away."""
    expired_token_share: float
    """Tokens older than the bound when their gradient was applied."""
    max_staleness_excess: int
    """Largest age of a trained token − the bound; 0 if none exceeds it."""
    batch_inflation: float
    """Mean groups of a step / groups asked for."""
    inflation_bound: float
    """Batch inflation of the rule that makes the most steps on the same episodes (see ``bound``), at least 1."""
    inflation_over_bound: float
    decile_gap: float
    """Largest |share trained − 1| of tokens in a tenth of the positions of their episode, expired ones not counted."""
    trainer_idle: float
    slots_idle: float
    num_steps: int
    mean_staleness: float
    """Of trained tokens."""


def measure(
    groups: Sequence[GroupRecord],
    *,
    step_times: Sequence[float],
    step_sizes: Sequence[int],
    max_staleness: int,
    groups_per_step: int,
    num_steps_bound: int,
    duration: float,
    busy_time: float,
    num_slots: int,
) -> Measured:
    """Figures of a schedule that was run to its end.

    Args:
        step_times: when each step was made; the version after the k-th (from 0) is k + 1.
        step_sizes: groups of each step that counts for the inflation.
        busy_time: trainer's time for a group.
        num_steps_bound: most steps of any rule on these episodes.
    """
    trained = [group for group in groups if group.applied_version is not None]
    generated = sum(sum(group.lengths) for group in groups)
    num_attempts = sum(len(group.lengths) for group in groups)
    num_trained = sum(len(group.lengths) for group in trained)
    consumed = sum(sum(group.lengths) for group in trained)
    ages = _Ages(step_times, max_staleness)
    for group in trained:
        ages.add(group)
    inflation = sum(step_sizes) / max(1, len(step_sizes)) / groups_per_step
    bound = max(1.0, sum(step_sizes) / max(1, num_steps_bound) / groups_per_step)
    return Measured(
        throughput=num_trained / duration,
        length_bias=abs((consumed / num_trained) / (generated / num_attempts) - 1.0) if num_trained else 1.0,
        waste=1.0 - consumed / generated,
        expired_token_share=ages.expired / generated,
        max_staleness_excess=max(0, ages.largest - max_staleness),
        batch_inflation=inflation,
        inflation_bound=bound,
        inflation_over_bound=inflation / bound,
        decile_gap=max(abs(inside / (generated / NUM_DECILES) - 1.0) for inside in ages.inside_by_decile),
        trainer_idle=max(0.0, 1.0 - len(trained) * busy_time / duration),
        slots_idle=max(0.0, 1.0 - generated / (num_slots * duration)),
        num_steps=len(step_sizes),
        mean_staleness=ages.weighted / consumed if consumed else 0.0,
    )


class _Ages:
    """Sums over the tokens of trained groups, episode by episode: a piece between two steps has one version."""

    def __init__(self, step_times: Sequence[float], max_staleness: int) -> None:
        self._steps = step_times
        self._bound = max_staleness
        self.largest = 0
        self.expired = 0.0
        self.weighted = 0.0
        self.inside_by_decile = [0.0] * NUM_DECILES

    def add(self, group: GroupRecord) -> None:
        """Count the tokens of a trained group."""
        assert group.applied_version is not None
        for start, end in group.intervals:
            first, last = (bisect.bisect_right(self._steps, time) for time in (start, end))
            cuts = [start, *self._steps[first:last], end]
            for offset, (begin, stop) in enumerate(itertools.pairwise(cuts)):
                if stop > begin:
                    self._piece(group.applied_version - (first + offset), begin - start, stop - start, end - start)

    def _piece(self, age: int, begin: float, stop: float, length: float) -> None:
        self.largest = max(self.largest, age)
        self.weighted += age * (stop - begin)
        if age > self._bound:
            self.expired += stop - begin
            return
        for decile in range(NUM_DECILES):
            low, high = length * decile / NUM_DECILES, length * (decile + 1) / NUM_DECILES
            self.inside_by_decile[decile] += max(0.0, min(stop, high) - max(begin, low))
