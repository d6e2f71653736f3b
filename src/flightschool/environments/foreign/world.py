"""A world that lives elsewhere: in a server, in another interpreter.

What is known of it here is its *log*: every action with a digest of the answer, the reward and whether it ended. The
snapshot is made of the log, so judging needs nobody over there, and equal logs give equal bytes. When the connection
breaks, a fresh episode is opened and the log is played again; it goes on only if every answer is the same, since a
world that cannot be brought back to where it was is infrastructure that failed, not a policy that did.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import msgspec

from flightschool.digest import canonical_json
from flightschool.digest import digest as content_digest
from flightschool.environments.foreign.content import QUARTERS, ForeignContent
from flightschool.errors import InfrastructureError
from flightschool.protocols import WorldReply
from flightschool.records import Json, Record, Task, ToolCall

__all__ = ["OBSERVE", "ForeignSession", "ForeignWorld", "LostSessionError", "Observed"]

OBSERVE = "observe"
"""Tool that shows the first observation, in environments where it cannot be told beforehand."""
MOST_RESTORES = 2
"""Times that an episode is brought back before it is given up."""


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """What came back from over there."""

    value: Json
    """What the policy is shown."""
    reward: float | None = None
    done: bool = False
    is_error: bool = False


class LostSessionError(InfrastructureError):
    """The session over there is gone, with the episode in it; a fresh one may be opened."""


class ForeignSession(Protocol):
    """One episode over there. Single use; opened by making it."""

    def reset(self) -> Observed:
        """Begin. Raises ``InfrastructureError``; ``LostSessionError`` where a fresh session may do better."""
        ...

    def act(self, call: ToolCall) -> Observed:
        """One action. Errors as ``reset``; what the policy did wrong is an observation."""
        ...

    def close(self) -> None:
        """Let go; never raises."""
        ...


class Step(Record, frozen=True, kw_only=True):
    """One action as the log keeps it."""

    tool: str
    arguments: dict[str, Json]
    answer: str
    """Digest of what was shown."""
    reward: float | None
    done: bool
    is_error: bool


@functools.cache
def _closers() -> ThreadPoolExecutor:
    """Threads that say goodbye."""
    return ThreadPoolExecutor(8, thread_name_prefix="closing-session")


class ForeignWorld:
    """Implements ``protocols.World`` over a session elsewhere, which is opened at the first call.

    Args:
        content: the environment.
        task: what is attempted.
        connect: opens a session for the task.
        log: steps already done, by a world that this one is forked from.
    """

    waits = True

    def __init__(
        self,
        content: ForeignContent,
        task: Task,
        connect: Callable[[], ForeignSession],
        log: tuple[Step, ...] = (),
        opening: Json = None,
    ) -> None:
        self._content = content
        self._task = task
        self._connect = connect
        self._log = log
        self._opening: Json = opening
        self._session: ForeignSession | None = None
        self._num_restores = 0

    def execute(self, call: ToolCall) -> WorldReply:
        """One action over there.

        Raises:
            InfrastructureError: it is not to be reached, begins otherwise than it was imported, or could not be
                brought back after a break.
        """
        if self._log and self._log[-1].done:
            return WorldReply(value={"error": "the episode is over"}, is_error=True, served_by="boundary")
        while True:
            try:
                session = self._opened()
                if call.name == OBSERVE:
                    return WorldReply(value=self._opening, served_by=self._content.ecosystem)
                seen = session.act(call)
                break
            except LostSessionError:
                begun = self._session is not None
                self._let_go()
                self._num_restores += 1
                if self._num_restores > MOST_RESTORES or (begun and not self._content.replays):
                    raise
        self._log = (*self._log, _step(call, seen))
        return WorldReply(value=seen.value, is_error=seen.is_error, served_by=self._content.ecosystem)

    def snapshot(self) -> bytes:
        """Task, steps, reward and what follows from it, as canonical JSON; the same before anything is opened."""
        reward = self.reward
        threshold = self._content.threshold
        return canonical_json(
            {
                "task": self._task.id,
                "steps": self._log,
                "done": bool(self._log) and self._log[-1].done,
                "reward": reward,
                "solved": reward >= threshold,
                "reached": {str(part): reward >= threshold * part / 100 for part in QUARTERS},
            }
        )

    @property
    def reward(self) -> float:
        """Reward of the steps so far, by the environment's rule; 0 before the first."""
        rewards = [step.reward for step in self._log if step.reward is not None]
        if not rewards:
            return 0.0
        rule = self._content.reward_rule
        return rewards[-1] if rule == "last" else max(rewards) if rule == "max" else math.fsum(rewards)

    def fork(self) -> ForeignWorld:
        """An independent world in the present state: a session of its own, which plays the log when it is used."""
        return ForeignWorld(self._content, self._task, self._connect, self._log, self._opening)

    def close(self) -> None:
        """Let the session go, behind the caller's back: a server that hangs must hold up no other attempt."""
        session, self._session = self._session, None
        if session is not None:
            _closers().submit(session.close)

    # -------------------------------------------------------------------------------------------- sessions

    def _opened(self) -> ForeignSession:
        """The session, opened and brought to the end of the log."""
        if self._session is not None:
            return self._session
        if self._log and not self._content.replays:
            raise InfrastructureError(
                "what was done cannot be done again: these tools act on something real",
                where=f"{self._content.ecosystem} {self._content.address}, task {self._task.id}",
                expected="an episode in one piece, and weather that looks at no earlier state",
                mend="the attempt is retried from the start; leave stale reads out of the fault profile",
            )
        session = self._connect()
        try:
            first = session.reset()
        except BaseException:
            session.close()
            raise
        self._session = session
        self._compare_opening(first)
        self._opening = first.value
        for number, step in enumerate(self._log):
            call = ToolCall(id=f"again_{number}", name=step.tool, arguments=step.arguments)
            again = _step(call, session.act(call))
            if again != step:
                self._let_go()
                raise InfrastructureError(
                    f"step {number} ({step.tool}) is answered otherwise when it is played again",
                    where=f"{self._content.ecosystem} {self._content.address}, task {self._task.id}",
                    expected="equal answers to equal actions after an equal start",
                    mend="the broken connection cost this attempt; it is retried as a new one",
                )
        return session

    def _compare_opening(self, first: Observed) -> None:
        known = self._content.starts[self._task.id].opening_digest
        if known and content_digest(first.value) != known:
            self._let_go()
            raise InfrastructureError(
                "the environment begins otherwise than when it was imported",
                where=f"{self._content.ecosystem} {self._content.address}, task {self._task.id}",
                expected="the first observation that the task's instruction was made from",
                mend="its version changed, or it ignores seeds: import it again",
            )

    def _let_go(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None


def _step(call: ToolCall, seen: Observed) -> Step:
    reward = seen.reward
    if reward is not None and not math.isfinite(reward):
        raise InfrastructureError(
            f"a reward of {reward}", where=f"tool {call.name}", expected="a finite number", mend="mend the environment"
        )
    return Step(
        tool=call.name,
        arguments=call.arguments,
        answer=content_digest(seen.value),
        reward=reward,
        done=seen.done,
        is_error=seen.is_error,
    )
