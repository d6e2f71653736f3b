"""One task under examination: plays scripts against it exactly as training would, and keeps the evidence.

Plays go through the same runner, harness, boundary and verifier as every other attempt, so that what is found here
is what a policy would find.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from flightschool.audit.limits import OutOfTimeError, time_limit
from flightschool.audit.mutants import Mutant, is_equivalent, mutants_of
from flightschool.audit.neighbourhood import Neighbourhood
from flightschool.audit.values import values_in
from flightschool.digest import derive_seed, digest
from flightschool.errors import FlightschoolError, InfrastructureError
from flightschool.protocols import Environment, RewardComposition
from flightschool.records import (
    Attempt,
    EndReason,
    Evidence,
    Message,
    Outcome,
    Reference,
    Task,
    ToolCall,
    ToolSpec,
)
from flightschool.rollouts import EpisodeRunner, MessagesPolicy, Policy
from flightschool.verification import CheckVerifier

__all__ = ["PLAY_S", "Examination", "Examiner", "Play", "turns_of"]

PLAY_S = 30.0
"""Real seconds that one play may take where nothing waits for sandboxes or models; plays take milliseconds."""


@dataclass(frozen=True, kw_only=True)
class Play:
    """One attempt of the audit with all that is needed to judge it again."""

    attempt: Attempt
    evidence: Evidence

    @property
    def success(self) -> bool:
        """Whether the reward calls it a success."""
        return self.attempt.reward is not None and self.attempt.reward.success

    @property
    def actions(self) -> tuple[Message, ...]:
        """Assistant messages that do the same again, one a turn, the closing one last."""
        turns: dict[int, list[ToolCall]] = {}
        for event in self.attempt.events:
            turns.setdefault(event.turn, []).append(event.call)
        calls = [Message(role="assistant", tool_calls=tuple(turns[turn])) for turn in sorted(turns)]
        declined = self.attempt.reason is EndReason.DECLINED  # nothing is said after it
        return (*calls, *(() if declined else (Message(role="assistant", content=self.evidence.answer),)))

    @property
    def told(self) -> str:
        """What was done, in words: calls and reward."""
        calls = "; ".join(f"{e.call.name} {e.call.arguments}" for e in self.attempt.events) or "no call"
        answer = f", closing with {self.evidence.answer[:200]!r}"
        reward = self.attempt.reward
        return calls[:600] + answer + ("" if reward is None else f": reward {reward.total:.2f}")

    @property
    def passed(self) -> tuple[tuple[str, bool], ...]:
        """(check, passed) in order."""
        verdict = self.attempt.verdict
        return tuple((c.id, c.passed) for c in verdict.checks) if verdict is not None else ()

    @property
    def shortfall(self) -> str:
        """Why it is no success, for a finding."""
        if self.attempt.verdict is None:
            return self.attempt.detail
        failed = [f"{c.id}: {c.evidence}" for c in self.attempt.verdict.checks if not c.passed]
        errors = [f"{e.call.name}: {e.result.content}" for e in self.attempt.events if e.result.is_error]
        return "; ".join([*failed, *errors[:2]])[:600]


class Examiner:
    """Plays attempts for an audit in an event loop of its own; close it after use.

    Args:
        environment: the examined environment.
        composition: makes the rewards whose ``success`` the audit believes.
    """

    def __init__(self, environment: Environment, composition: RewardComposition) -> None:
        self.environment = environment
        self._states: dict[str, bytes] = {}
        self._runner = EpisodeRunner(environment, composition, run="audit", keep_blob=self._keep)
        self._loop = asyncio.new_event_loop()

    def play(self, task: Task, policy: Policy, seed: int, initial_state: bytes, limit_s: float | None = None) -> Play:
        """One attempt.

        Raises:
            InfrastructureError: the world or the grader broke, or hangs: the probe proves nothing.
        """
        playing = self._runner.attempt(task, policy, group=f"audit:{task.id}", index=0, seed=seed)
        try:
            with time_limit(limit_s):
                attempt = self._loop.run_until_complete(playing)
        except OutOfTimeError as error:
            raise hangs(task.id, limit_s) from error
        end_state = self._states.pop(attempt.end_state, b"")
        if attempt.outcome is Outcome.INFRA_FAILURE:
            raise InfrastructureError(
                f"the {attempt.cause} failed: {attempt.detail}",
                where=f"task {task.id}, policy {policy.name}",
                expected="a graded attempt",
                mend="mend the environment, then audit again",
            )
        evidence = Evidence(
            initial_state=initial_state,
            end_state=end_state,
            events=attempt.events,
            answer=final_answer(attempt.messages),
        )
        return Play(attempt=attempt, evidence=evidence)

    def close(self) -> None:
        """Let the loop go."""
        self._loop.close()

    def _keep(self, data: bytes) -> str:
        key = digest(data)
        self._states[key] = data
        return key


def hangs(task_id: str, limit_s: float | None) -> InfrastructureError:
    """What is told of a world or a check that does not end."""
    return InfrastructureError(
        f"a tool or a check did not end within {limit_s:g} s" if limit_s else "a tool or a check did not end",
        where=f"task {task_id}",
        expected="tools and checks that end",
        mend="mend the environment, then audit again",
    )


def final_answer(messages: Sequence[Message]) -> str:
    """Text of the closing assistant message; empty when the conversation ends otherwise."""
    last = messages[-1] if messages else None
    return last.content if last is not None and last.role == "assistant" and not last.tool_calls else ""


def turns_of(calls: Sequence[ToolCall], answer: str, max_turns: int) -> tuple[Message, ...]:
    """One call a turn; where the turns do not suffice, the last calls share one."""
    room = max(1, max_turns - 1)
    singles, rest = tuple(calls[: room - 1]), tuple(calls[room - 1 :])
    turns = [Message(role="assistant", tool_calls=(call,)) for call in singles]
    if rest:
        turns.append(Message(role="assistant", tool_calls=rest))
    return (*turns, Message(role="assistant", content=answer))


@dataclass(kw_only=True)
class Examination:
    """What the probes of one task share. Lives as long as the task is examined."""

    task: Task
    examiner: Examiner
    neighbourhood: Neighbourhood
    seed: int
    initial_state: bytes
    repeats: int = 3
    """Plays of the oracle in all."""
    habit_passes: dict[str, bool] = field(default_factory=dict)
    """Stratum → whether its habit passed this task; read by the ceiling."""
    hung: bool = False
    """Whether a play did not end."""
    played: dict[str, Play] = field(default_factory=dict)
    """Mutants played so far, by name."""
    equivalent_mutants: list[str] = field(default_factory=list)
    """Mutants that did the oracle's work."""

    @property
    def reference(self) -> Reference:
        """The sealed side."""
        return self.neighbourhood.references[self.task.id]

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """Tools that the task shows."""
        return self.neighbourhood.shown(self.task)

    def play(self, calls: Sequence[ToolCall], name: str, *, answer: str | None = None, seed: int | None = None) -> Play:
        """Play calls, one a turn; closing with the oracle's answer unless another is given."""
        closing = self.reference.oracle_answer if answer is None else answer
        return self.play_turns(turns_of(calls, closing, self.task.max_turns), name, seed=seed)

    def play_turns(self, turns: Sequence[Message], name: str, *, seed: int | None = None) -> Play:
        """Play assistant messages."""
        return self.play_policy(MessagesPolicy({self.task.id: turns}, name), seed=seed)

    def play_policy(self, policy: Policy, *, seed: int | None = None) -> Play:
        """Play any scripted policy. Where one play hung, no other is tried: each would take as long.

        Raises:
            InfrastructureError: see ``Examiner.play``.
        """
        if self.hung:
            raise hangs(self.task.id, PLAY_S)
        started = time.monotonic()
        try:
            limit_s = None if self.waits else PLAY_S
            return self.examiner.play(
                self.task, policy, self.seed if seed is None else seed, self.initial_state, limit_s
            )
        finally:
            self.hung = not self.waits and time.monotonic() - started >= PLAY_S

    @cached_property
    def waits(self) -> bool:
        """Whether the checks wait for sandboxes or models, which have limits of their own."""
        try:
            return CheckVerifier(self.reference.checks).waits
        except FlightschoolError:  # not usable: every play says so
            return False

    @cached_property
    def oracle(self) -> Play:
        """The oracle's attempt."""
        return self.play(self.reference.oracle, "oracle")

    @cached_property
    def reruns(self) -> tuple[Play, ...]:
        """The oracle again, under other seeds: other latencies, the same work."""
        seeds = [derive_seed("audit-rerun", self.seed, number) for number in range(self.repeats - 1)]
        return tuple(self.play(self.reference.oracle, "oracle", seed=seed) for seed in seeds)

    @property
    def is_reproducible(self) -> bool:
        """Whether the oracle always ended in the same state."""
        return all(again.attempt.end_state == self.oracle.attempt.end_state for again in self.reruns)

    @cached_property
    def mutants(self) -> tuple[Mutant, ...]:
        """Wrong variants of the oracle, duplicates left out."""
        found = mutants_of(
            self.reference.oracle,
            self.neighbourhood.specs,
            seen=values_in(self.oracle.attempt.events),
            pool=self.neighbourhood.pool,
            family=self.task.family,
            extra=self.neighbourhood.extra_write(self.task),
        )
        distinct = {str([(c.name, c.arguments) for c in mutant.calls]): mutant for mutant in found}
        return tuple(distinct.values())

    def play_mutant(self, mutant: Mutant) -> Play:
        """Play a mutant, once."""
        if mutant.name not in self.played:
            self.played[mutant.name] = self.play(mutant.calls, f"mutant: {mutant.name}")
        return self.played[mutant.name]

    @cached_property
    def refused_mutant(self) -> Play | None:
        """A mutant that is no equivalent, for probes that repeat a judgement of wrong work."""
        for mutant in self.mutants:
            play = self.play_mutant(mutant)
            if not self.is_equivalent(play):
                return play
        return None

    def is_equivalent(self, play: Play) -> bool:
        """Whether a play provably did the oracle's work; none did where no solution is known."""
        if not self.reference.oracle:
            return False
        own = (self.oracle.attempt.end_state, self.oracle.attempt.events)
        return is_equivalent(own, (play.attempt.end_state, play.attempt.events), self.reference)
