"""Demonstrations: recorded episodes of tasks, played again in fresh worlds, kept where the verifier accepts them.

A recording says what an operator did, and perhaps that it was a success; neither is believed. Each episode is recited
in clear weather against the environment as it is now and judged like any attempt. What failed, what took a slip to
succeed (a call that was answered by an error) and what the model could not have said is left out, and counted.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence

from flightschool.digest import derive_seed
from flightschool.protocols import Tokenizer
from flightschool.records import Attempt, Message, Record, Task
from flightschool.rollouts.recital import RecitalPolicy
from flightschool.rollouts.runner import EpisodeRunner

__all__ = ["Demonstrations", "demonstrate"]

GROUP = "demonstrations"


class Demonstrations(Record, frozen=True, kw_only=True):
    """What the recordings gave."""

    attempts: tuple[Attempt, ...]
    """Accepted ones, in the order of the recordings."""
    num_recorded: int
    """Recordings of the tasks that were asked for."""
    left_out: dict[str, int]
    """Reason → recordings that were not accepted."""


def demonstrate(
    runner: EpisodeRunner,
    tasks: Iterable[Task],
    recordings: Sequence[tuple[str, Sequence[Message]]],
    tokenizer: Tokenizer,
    *,
    max_context: int,
    seed: int,
) -> Demonstrations:
    """Play recordings of ``tasks`` again and keep those that succeed without a slip.

    Args:
        runner: of the environment, with the reward that judges.
        tasks: what may be imitated; recordings of other tasks are not looked at.
        recordings: (task id, assistant messages) of each recorded episode.
        tokenizer: of the model that shall imitate.
        max_context: longest episode in tokens.
        seed: of the latencies.
    """
    known = {task.id: task for task in tasks}
    relevant = [(known[task_id], turns) for task_id, turns in recordings if task_id in known]
    accepted: list[Attempt] = []
    left_out: Counter[str] = Counter()

    async def play() -> None:
        for number, (task, turns) in enumerate(relevant):
            policy = RecitalPolicy({task.id: turns}, tokenizer, max_context)
            drawn = derive_seed(GROUP, seed, task.id, number)
            attempt = await runner.attempt(task, policy, group=GROUP, index=number, seed=drawn)
            problem = _problem(attempt)
            if problem:
                left_out[problem] += 1
            else:
                accepted.append(attempt)

    asyncio.run(play())
    return Demonstrations(attempts=tuple(accepted), num_recorded=len(relevant), left_out=dict(left_out))


def _problem(attempt: Attempt) -> str:
    """Why an attempt is not worth imitating; empty if it is."""
    if attempt.reward is None:
        return f"could not be judged ({attempt.reason})"
    if not attempt.reward.success:
        return f"failed ({attempt.reason})" if attempt.reason != "finished" else "failed"
    if any(event.result.is_error for event in attempt.events):
        return "succeeded after an error"
    return ""
