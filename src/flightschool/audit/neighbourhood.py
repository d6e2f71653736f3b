"""What surrounds a task: its siblings' solutions, the habits of its stratum, and the values all of them use.

A constant policy is not stupid, it is *habitual*: it replays what worked next door. So the constants that the audit
tries are the environment's own solutions, not random calls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from flightschool.audit.junk import junk_arguments
from flightschool.audit.listing import ListedAnswers
from flightschool.audit.mutants import DECLINE
from flightschool.audit.values import ValuePool
from flightschool.audit.view import SharedTexts, agent_view, vocabulary_of
from flightschool.digest import canonical_json, derive_random
from flightschool.protocols import Environment
from flightschool.records import Effect, Json, Reference, Task, ToolCall, ToolSpec
from flightschool.tasks import families_of, strata_of

__all__ = ["Neighbourhood", "same_calls"]

MOST_HABITS = 12
"""Strata whose habits are tried on every task, the largest first."""


def same_calls(left: Sequence[ToolCall], right: Sequence[ToolCall]) -> bool:
    """Whether two sequences ask for the same, ids of calls aside."""
    return [(c.name, c.arguments) for c in left] == [(c.name, c.arguments) for c in right]


class Neighbourhood:
    """All solutions of an environment, arranged for those who would replay them.

    Args:
        environment: the examined environment; its sealed side is read here and stays here.
        seed: which siblings are tried.
    """

    def __init__(self, environment: Environment, seed: int) -> None:
        self.tasks = tuple(environment.tasks())
        self.specs: dict[str, ToolSpec] = {spec.name: spec for spec in environment.tools()}
        self.references: dict[str, Reference] = {}
        self.unreadable: dict[str, str] = {}
        """Task → why it has no reference."""
        for task in self.tasks:
            try:
                self.references[task.id] = environment.reference(task.id)
            except Exception as error:  # noqa: BLE001  the examined code may raise anything; the task is not acquitted
                self.unreadable[task.id] = f"{type(error).__name__}: {error}"
        self.pool = ValuePool((task.family, self.oracle(task)) for task in self.tasks)
        views = ((agent_view(task, self.shown(task)), self.oracle(task)) for task in self.tasks)
        self.texts = SharedTexts(views)
        solutions = ((task, self.oracle(task)) for task in self.tasks)
        self.listed = ListedAnswers(solutions, vocabulary_of(self.specs.values()))
        self._seed = seed
        self._families = families_of(self.tasks)
        self._strata = strata_of(self.tasks)
        largest = sorted(self._strata, key=lambda stratum: -len(self._strata[stratum]))[:MOST_HABITS]
        self.habits = {stratum: self._habit(self._strata[stratum]) for stratum in largest}
        """Stratum → its most common call template."""

    def shown(self, task: Task) -> tuple[ToolSpec, ...]:
        """Tools that the task shows."""
        names = set(task.tools)
        return tuple(spec for spec in self.specs.values() if not names or spec.name in names)

    def oracle(self, task: Task) -> tuple[ToolCall, ...]:
        """The task's solution; empty when none is known."""
        reference = self.references.get(task.id)
        return reference.oracle if reference is not None else ()

    def stratum(self, task: Task) -> list[Task]:
        """Solved tasks of the task's stratum, itself among them."""
        return [other for other in self._strata[task.stratum] if other.id in self.references]

    def siblings(self, task: Task, most: int) -> list[Task]:
        """Up to ``most`` solved tasks of the same family, else of the same stratum, drawn by the seed."""
        for group in (self._families[task.family], self._strata[task.stratum]):
            others = [t for t in group if t.id != task.id and self.oracle(t)]
            if others:
                return derive_random(self._seed, "siblings", task.id).sample(others, min(most, len(others)))
        return []

    def extra_write(self, task: Task) -> ToolCall | None:
        """A write of a neighbour that this task's solution does not hold."""
        own = [(call.name, call.arguments) for call in self.oracle(task)]
        for other in (*self.siblings(task, 3), *self._strata[task.stratum][:5]):
            for call in self.oracle(other):
                spec = self.specs.get(call.name)
                changes = spec is not None and spec.effect is not Effect.READ and call.name != DECLINE
                if changes and (call.name, call.arguments) not in own:
                    return call
        return None

    def decline(self) -> ToolCall | None:
        """The most common ``decline`` of the environment, or one with junk; None when there is no such tool."""
        spec = self.specs.get(DECLINE)
        if spec is None:
            return None
        declines = [call for task in self.tasks for call in self.oracle(task) if call.name == DECLINE]
        arguments = _most_common([call.arguments for call in declines]) if declines else junk_arguments(spec.parameters)
        return ToolCall(id="decline-only", name=DECLINE, arguments=arguments)

    def _habit(self, tasks: Sequence[Task]) -> tuple[ToolCall, ...]:
        """The stratum's most common sequence of tools, each argument at its most common value in that place."""
        sequences = Counter(tuple(call.name for call in self.oracle(task)) for task in tasks if self.oracle(task))
        if not sequences:
            return ()
        names = sequences.most_common(1)[0][0]
        alike = [self.oracle(t) for t in tasks if tuple(call.name for call in self.oracle(t)) == names]
        return tuple(
            ToolCall(id=f"habit-{place}", name=name, arguments=_most_common_each([o[place].arguments for o in alike]))
            for place, name in enumerate(names)
        )


def _most_common(values: Sequence[Json]) -> Json:
    counts = Counter(canonical_json(value) for value in values)
    key = counts.most_common(1)[0][0]
    return next(value for value in values if canonical_json(value) == key)


def _most_common_each(arguments: Sequence[dict[str, Json]]) -> dict[str, Json]:
    names = dict.fromkeys(name for one in arguments for name in one)
    return {name: _most_common([one[name] for one in arguments if name in one]) for name in names}
