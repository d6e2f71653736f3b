"""The sample queue and its accounts: who is running, who waits, and whether the trainer may step. Pure, no torch.

Staleness of a gradient = trainer version just before the step that applies it − version of its oldest token. A step
from ``v`` to ``v + 1`` is *held* while some running or waiting group could then be applied with more than ``S``: its
earliest step would be the next one, from ``v + 1``, so

    step allowed  ⇔  v + 1 − oldest(g) ≤ S  for every running, waiting or expected group g,

where ``oldest`` of a running group is the version it was admitted under (its tokens can only be newer). After a crash,
groups that were half made are *expected*: there may be no room to admit them at once, and their attempts grow old all
the same. While a step is
held, finished groups go on being accumulated into it: nothing is discarded, so neither long nor short episodes are
favoured, and nothing older than ``S`` trains. The price is that steps can be larger than ``groups_per_step``. The rule
itself is ``staleness.HoldRule``, the object that ``bench staleness`` simulates; here are the accounts that it decides
on.

The run ends as it went. Near the end no more groups are admitted than the steps to come have room for, and the last
step is held until all that was admitted is finished and accumulated: to cancel what runs would cancel the long groups.

Everything finite: at most ``max_inflight_groups`` run or wait. A group that waits counts as one that runs, since both
become older with every step: a generator that is ahead of its trainer pauses instead of making its samples stale.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from flightschool.records import EpisodeGroup
from flightschool.training.algorithms.distill import TeacherScores
from flightschool.training.journal import oldest_step
from flightschool.training.settings import TrainingSettings
from flightschool.training.staleness import Accounts, HoldRule

__all__ = ["SampleQueue", "Waiting"]


@dataclass(frozen=True, order=True)
class Waiting:
    """A finished group that waits for the trainer; sorts oldest first, then in the order of admission."""

    oldest: int
    ordinal: int
    group: EpisodeGroup = field(compare=False)
    scores: TeacherScores | None = field(default=None, compare=False)
    """What a teacher says of its tokens; None where none is asked."""


class SampleQueue:
    """Accounts of one run. Owned by the orchestrator, used on its event loop only."""

    def __init__(self, settings: TrainingSettings, version: int) -> None:
        self._settings = settings
        self._rule = HoldRule(
            max_staleness=settings.max_staleness,
            max_inflight=settings.max_inflight_groups,
            reserve=-(-3 * settings.groups_per_step // 4),
            drains=settings.drain_before_step,
        )
        self.version = version
        """The trainer's version."""
        self.running: dict[int, int] = {}
        """Ordinal of each running group → version it was admitted under."""
        self.expected: dict[int, int] = {}
        """Ordinal of each group that will go on with attempts it has → version of the oldest token of them."""
        self.num_owed = 0
        """Groups that an earlier start of the run admitted and did not finish, and that are not begun again yet."""
        self.waiting: list[Waiting] = []
        self.num_gradient = 0
        """Groups accumulated for the coming step."""
        self.num_flat = 0
        """Groups without a gradient consumed since the last step."""
        self.num_flat_members = 0
        """Scored members of those that were compared and found equal."""
        self.consuming = False
        """Whether the trainer is at work on a group or a step."""

    # ------------------------------------------------------------------ admission

    def num_to_admit(self) -> int:
        """How many groups may be admitted now."""
        if self._settings.mode == "sync":
            idle = not (self.running or self.waiting or self.consuming)
            return max(0, self._num_missing(), self.num_owed if self._is_last() else 0) if idle else 0
        return min(self._rule.num_to_admit(self._accounts()), self._room())

    def _room(self) -> int:
        """Groups that the steps to come have room for; what was admitted once always has."""
        later = (self._settings.num_steps - self.version - 1) * self._settings.groups_per_step
        return max(max(0, self._num_missing()) + later - len(self.running) - len(self.waiting), self.num_owed)

    def _is_last(self) -> bool:
        return self.version + 1 >= self._settings.num_steps

    def expect(self, ordinal: int, version: int) -> None:
        """A group that has attempts of this ``version`` will be admitted: until then no step may make them too old."""
        self.expected[ordinal] = version

    def admit(self, ordinal: int, version: int) -> None:
        """A group starts under the engine's ``version``."""
        self.expected.pop(ordinal, None)
        self.running[ordinal] = version

    def offer(self, ordinal: int, group: EpisodeGroup, scores: TeacherScores | None = None) -> None:
        """A group is finished, and scored where a teacher is asked."""
        self.running.pop(ordinal, None)
        self.waiting.append(Waiting(oldest_step(group), ordinal, group, scores))

    # ------------------------------------------------------------------ consumption

    def take(self) -> Waiting | None:
        """The next group to consume: the oldest; in ``sync`` mode only once the whole round is finished."""
        if not self.waiting or (self._settings.mode == "sync" and self.running):
            return None
        first = min(self.waiting)
        self.waiting.remove(first)
        return first

    def step_due(self) -> bool:
        """Whether the trainer should step: enough groups are accumulated and no other grows too old or is lost."""
        if self.num_gradient == 0 or self._num_missing() > 0:
            return False
        if self._is_last() and (self.running or self.waiting or self.num_owed):
            return False
        if self._settings.mode == "sync":
            return not (self.running or self.waiting)
        return not self.is_held()

    def is_held(self) -> bool:
        """Whether stepping now would push a running or waiting group over the bound."""
        return not self._rule.may_step(self._accounts())

    def _accounts(self) -> Accounts:
        return Accounts(
            version=self.version,
            running=tuple(self.running.values()),
            waiting=tuple(item.oldest for item in self.waiting),
            expected=tuple(self.expected.values()),
        )

    def stepped(self, version: int) -> None:
        """A step was made, or skipped with the version unchanged."""
        self.version = version
        self.num_gradient = self.num_flat = self.num_flat_members = 0

    def _num_missing(self) -> int:
        counted = self.num_gradient + (self.num_flat if self._settings.count_zero_advantage else 0)
        if self._settings.count_zero_advantage and self.num_gradient == 0:
            counted = min(counted, self._settings.groups_per_step - 1)  # a step needs a gradient
        return self._settings.groups_per_step - counted
