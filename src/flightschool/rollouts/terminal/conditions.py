"""Conditions of grading: another time zone, locale or clock, a busy machine.

A condition changes how the tests are started, and nothing of what they are: variables that the task does not set
itself, and what a shell does before it starts them. Where all of it is to happen at another time, the policy's program
is started so as well. That there is no network needs no condition: no sandbox has one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from flightschool.environments.terminal import TaskStep, TerminalTask, plan_build
from flightschool.errors import InputError
from flightschool.records import Record
from flightschool.rollouts.terminal.clock import shifted_by
from flightschool.rollouts.terminal.policies import Move, TerminalPolicy
from flightschool.rollouts.terminal.shell import ShellPolicy

__all__ = ["CONDITIONS", "GradingCondition", "condition_of"]

DAY_S: Final = 86400


class GradingCondition(Record, frozen=True, kw_only=True):
    """One condition under which work is graded."""

    name: str
    told: str
    """In words, after *under* or *when*."""
    variables: dict[str, str] = msgspec.field(default_factory=dict)
    before: str = ""
    """Shell that is run before the tests are started."""
    shift_s: int = 0
    """How far the clock is ahead."""
    whole: bool = False
    """Whether it holds for the policy's program too."""

    @property
    def is_possible(self) -> bool:
        """Whether it can be made here: a shifted clock needs a C compiler."""
        return not self.shift_s or bool(shifted_by(self.shift_s))

    def changed(self, task: TerminalTask) -> dict[str, str]:
        """Variables that the condition sets; what the task or its image sets is left as it is."""
        pinned = {*plan_build(task).env, *task.environment_env, *task.verifier_env}
        return {name: value for name, value in self.variables.items() if name not in pinned}

    def of_task(self, task: TerminalTask) -> TerminalTask:
        """The task whose tests are started so; the task itself where it rules the condition out."""
        variables = {**task.verifier_env, **self.changed(task)}
        words = self._words
        steps = tuple(msgspec.structs.replace(step, test_command=words(step.test_command)) for step in task.steps)
        return msgspec.structs.replace(task, verifier_env=variables, test_command=words(task.test_command), steps=steps)

    def of_policy(self, policy: TerminalPolicy) -> TerminalPolicy:
        """The policy whose program is started so, if the condition holds for all.

        Raises:
            InputError: a model acts, whose commands cannot be started so.
        """
        if not self.whole:
            return policy
        if isinstance(policy, ShellPolicy):
            raise InputError(
                "the commands of a model have the real clock",
                where=f"--grading-condition {self.name}",
                expected="oracle, noop or script:FILE",
                mend="roll out a program, or name a condition of the tests alone",
            )
        return _Under(policy, self._words)

    def _words(self, command: tuple[str, ...]) -> tuple[str, ...]:
        before = self.before + (shifted_by(self.shift_s) if self.shift_s else "")
        return ("/bin/sh", "-c", f'{before}\nexec "$@"', "sh", *command) if before and command else command


class _Under:
    """A policy whose program a shell starts that does something before."""

    def __init__(self, policy: TerminalPolicy, words: Callable[[tuple[str, ...]], tuple[str, ...]]) -> None:
        self.name = policy.name
        self._policy = policy
        self._words = words

    def move(self, stage: TaskStep) -> Move:
        """The policy's own."""
        move = self._policy.move(stage)
        return msgspec.structs.replace(move, command=self._words(move.command))


_TABLE: Final = (
    GradingCondition(name="time-zone-tokyo", told="the time zone Asia/Tokyo", variables={"TZ": "Asia/Tokyo"}),
    GradingCondition(
        name="time-zone-los-angeles",
        told="the time zone America/Los_Angeles",
        variables={"TZ": "America/Los_Angeles"},
    ),
    GradingCondition(name="locale-c", told="the locale C", variables={"LANG": "C", "LC_ALL": "C"}),
    GradingCondition(name="no-locale", told="no locale at all", variables={"LANG": "", "LC_ALL": "", "LANGUAGE": ""}),
    GradingCondition(name="later", told="all of it happens 400 days later", shift_s=400 * DAY_S, whole=True),
    GradingCondition(name="earlier", told="all of it happens 100 days earlier", shift_s=-100 * DAY_S, whole=True),
    GradingCondition(name="graded-later", told="it is graded 400 days later", shift_s=400 * DAY_S),
    GradingCondition(name="graded-earlier", told="it is graded 100 days earlier", shift_s=-100 * DAY_S),
    GradingCondition(
        name="busy",
        told="the machine of the tests is busy",
        before="for i in 1 2 3 4 5 6; do (while :; do :; done) >/dev/null 2>&1 </dev/null & done",
    ),
)

CONDITIONS: Final = {condition.name: condition for condition in _TABLE}
"""Every condition by its name."""


def condition_of(name: str) -> GradingCondition:
    """The condition of a name.

    Raises:
        InputError: there is none, or it cannot be made here.
    """
    condition = CONDITIONS.get(name)
    if condition is None:
        raise InputError(
            "no such condition",
            where=f"--grading-condition {name}",
            expected=", ".join(CONDITIONS),
            mend="name one of them",
        )
    if not condition.is_possible:
        raise InputError(
            "the clock cannot be shifted here",
            where=f"--grading-condition {name}",
            expected="a C compiler (cc, gcc or clang)",
            mend="install one",
        )
    return condition
