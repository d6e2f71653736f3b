"""Discrete-event simulation of generator and trainer under a rule of staleness. No torch, no clock, seeded.

The plant: ``num_slots`` episodes run at once, each at the same speed, so an episode of length ``l`` takes ``l`` units
of time and samples its tokens evenly over it. A group starts when a slot is free and none of an earlier group's members
waits for one. The trainer takes ``group_time`` for a group and steps in no time; a step bumps the version, and the
engine samples under the new version at once. What is decided is decided by a ``StalenessRule``, the same object that a
real run asks (``training/queue.py``).

Left out: batching effects on speed, weight transfer, groups without a gradient, infrastructure failures.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections import deque
from dataclasses import dataclass, field

from flightschool.errors import InputError
from flightschool.training.staleness.bound import most_steps
from flightschool.training.staleness.lengths import LengthLaw
from flightschool.training.staleness.measures import GroupRecord, Measured, measure
from flightschool.training.staleness.rules import Accounts, StalenessRule

__all__ = ["Plant", "simulate"]


@dataclass(frozen=True)
class Plant:
    """Sizes of the simulated machine; the defaults are those of the published comparison."""

    num_groups: int = 1500
    """Groups that the source holds."""
    num_slots: int = 96
    """Episodes that run at once."""
    group_size: int = 8
    groups_per_step: int = 8
    group_time: float = 0.125
    """Trainer's time for one group, in mean episode lengths."""

    def __post_init__(self) -> None:
        sizes = (self.num_groups, self.num_slots, self.group_size, self.groups_per_step)
        if min(sizes) < 1 or not 0.0 < self.group_time < math.inf:
            raise InputError(
                f"a plant of {sizes} groups, slots, members and groups a step, {self.group_time} a group",
                where="Plant",
                expected="sizes of at least 1 and a positive time",
                mend="correct the sizes",
            )

    @property
    def step_time(self) -> float:
        """Trainer's time for the groups of a nominal step."""
        return self.groups_per_step * self.group_time


@dataclass
class _State:
    now: float = 0.0
    version: int = 0
    num_free: int = 0
    queue: deque[tuple[int, float]] = field(default_factory=deque)
    """(group, length) of members that wait for a slot."""
    events: list[tuple[float, int, str, int]] = field(default_factory=list)
    running: dict[int, int] = field(default_factory=dict)
    waiting: list[int] = field(default_factory=list)
    accumulated: list[int] = field(default_factory=list)
    in_training: int | None = None
    steps: list[float] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)


class _Simulation:
    def __init__(self, rule: StalenessRule, law: LengthLaw, plant: Plant, seed: int) -> None:
        self.rule, self.law, self.plant = rule, law, plant
        self.chance = random.Random(seed)
        self.state = _State(num_free=plant.num_slots)
        self.groups: list[GroupRecord] = []
        self.left: list[int] = []
        self.number = itertools.count()

    def run(self) -> None:
        """To the end: the source is empty and nothing runs, waits or is accumulated."""
        state = self.state
        while True:
            self._admit()
            if self._work():
                continue
            if not state.events:
                self._refuse_to_be_stuck()
                return
            state.now, _, kind, group = heapq.heappop(state.events)
            if kind == "trained":
                state.in_training = None
                state.accumulated.append(group)
            else:
                self._member_ended(group)

    def _refuse_to_be_stuck(self) -> None:
        state = self.state
        if len(self.groups) < self.plant.num_groups or state.running or state.waiting or state.accumulated:
            raise InputError(
                f"nothing can happen any more after {len(self.groups)} of {self.plant.num_groups} groups",
                where=type(self.rule).__name__,
                expected="a rule that admits or steps in the end",
                mend="sizes of rule and plant do not fit: it waits for groups that it does not admit",
            )

    def _accounts(self) -> Accounts:
        state = self.state
        return Accounts(
            version=state.version,
            running=state.running.values(),
            waiting=[self.groups[group].admitted_version for group in state.waiting],
            num_admitted=len(self.groups),
        )

    # ------------------------------------------------------------------ generation

    def _admit(self) -> None:
        state = self.state
        while len(self.groups) < self.plant.num_groups and state.num_free and not state.queue:
            if self.rule.num_to_admit(self._accounts()) < 1:
                return
            draw = self.law(self.chance)
            lengths = [draw() for _ in range(self.plant.group_size)]
            group = len(self.groups)
            self.groups.append(GroupRecord(admitted_version=state.version, lengths=lengths))
            self.left.append(len(lengths))
            state.running[group] = state.version
            state.queue.extend((group, length) for length in lengths)
            self._fill_slots()

    def _fill_slots(self) -> None:
        state = self.state
        while state.queue and state.num_free:
            group, length = state.queue.popleft()
            state.num_free -= 1
            self.groups[group].intervals.append((state.now, state.now + length))
            heapq.heappush(state.events, (state.now + length, next(self.number), "ended", group))

    def _member_ended(self, group: int) -> None:
        state = self.state
        state.num_free += 1
        self._fill_slots()
        self.left[group] -= 1
        if not self.left[group]:
            del state.running[group]
            state.waiting.append(group)

    # ------------------------------------------------------------------ training

    def _work(self) -> bool:
        """Step, or take the oldest waiting group, if the trainer is free; whether anything happened."""
        state = self.state
        if state.in_training is not None:
            return False
        accounts = self._accounts()
        over = len(self.groups) == self.plant.num_groups and not state.running and not state.waiting
        enough = len(state.accumulated) >= self.plant.groups_per_step
        if state.accumulated and ((enough and self.rule.may_step(accounts)) or over):
            self._step()
            return True
        if not state.waiting:
            return False
        group = min(state.waiting, key=lambda place: (self.groups[place].admitted_version, place))
        state.waiting.remove(group)
        if self.rule.keeps(accounts, self.groups[group].admitted_version):
            state.in_training = group
            heapq.heappush(state.events, (state.now + self.plant.group_time, next(self.number), "trained", group))
        else:
            self.groups[group].dropped = True
        return True

    def _step(self) -> None:
        state = self.state
        for group in state.accumulated:
            self.groups[group].applied_version = state.version
        state.sizes.append(len(state.accumulated))
        state.accumulated.clear()
        state.steps.append(state.now)
        state.version += 1


def simulate(
    rule: StalenessRule, law: LengthLaw, *, max_staleness: int, plant: Plant | None = None, seed: int = 0
) -> Measured:
    """Run a source of groups to its end under a rule.

    Args:
        rule: decides.
        law: lengths.
        max_staleness: bound that ages are held against (the rule has its own idea of it).
        plant: sizes.
        seed: of the lengths; the n-th group has the same lengths under every rule.

    Raises:
        InputError: the rule gets stuck: it neither admits nor steps.
    """
    plant = plant or Plant()
    simulation = _Simulation(rule, law, plant, seed)
    simulation.run()
    state = simulation.state
    intervals = [interval for group in simulation.groups for interval in group.intervals]
    full = state.sizes  # what is left when the source is dry makes one smaller step, which is no rule's doing
    if full and full[-1] < plant.groups_per_step:
        full = full[:-1]
    until = state.steps[len(full) - 1] if full else state.now
    bound = most_steps(intervals, max_staleness, plant.step_time, until)
    return measure(
        simulation.groups,
        step_times=state.steps,
        step_sizes=full,
        max_staleness=max_staleness,
        groups_per_step=plant.groups_per_step,
        num_steps_bound=bound,
        duration=state.now,
        busy_time=plant.group_time,
        num_slots=plant.num_slots,
    )
