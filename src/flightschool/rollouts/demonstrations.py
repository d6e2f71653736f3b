"""Demonstrations: recorded episodes of tasks, played again in fresh worlds, kept where the verifier accepts them.

A recording says what an operator did, and perhaps that it was a success; neither is believed. Each episode is recited
in clear weather against the environment as it is now and judged like any attempt. What failed and what the model could
not have said is left out, and counted. Where it took a slip to succeed (a turn whose calls were answered by errors),
the slip is cut out and the rest is recited and judged anew: nobody should imitate a slip.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence

from flightschool.digest import derive_seed
from flightschool.protocols import Tokenizer
from flightschool.records import Attempt, EndReason, Message, Record, Task
from flightschool.rollouts.recital import RecitalPolicy
from flightschool.rollouts.runner import EpisodeRunner

__all__ = ["Demonstrations", "demonstrate"]

GROUP = "demonstrations"


class Demonstrations(Record, frozen=True, kw_only=True):
    """What the recordings gave."""

    attempts: tuple[Attempt, ...]
    """Accepted ones, in the order of the recordings."""
    num_mended: int
    """Accepted ones out of which slips were cut."""
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
    most: int | None = None,
) -> Demonstrations:
    """Play recordings of ``tasks`` again and keep those that succeed.

    Args:
        runner: of the environment, with the reward that judges.
        tasks: what may be imitated; recordings of other tasks are not looked at.
        recordings: (task id, assistant messages) of each recorded episode.
        tokenizer: of the model that shall imitate.
        max_context: longest episode in tokens.
        seed: of the latencies.
        most: how many are kept at most: one of each family before the second of any. None: all.
    """
    known = {task.id: task for task in tasks}
    relevant = [(known[task_id], turns) for task_id, turns in recordings if task_id in known]
    accepted: list[tuple[Task, Attempt]] = []
    left_out: Counter[str] = Counter()
    mended: set[str] = set()

    async def play(task: Task, turns: Sequence[Message], number: int) -> Attempt:
        policy = RecitalPolicy({task.id: turns}, tokenizer, max_context)
        drawn = derive_seed(GROUP, seed, task.id, number)
        return await runner.attempt(task, policy, group=GROUP, index=number, seed=drawn)

    async def play_all() -> None:
        for number, (task, turns) in enumerate(relevant):
            attempt = await play(task, turns, number)
            if slips := _slips(attempt):
                said = [message for turn, message in enumerate(turns) if turn not in slips]
                attempt = await play(task, said, number)
                mended.add(attempt.id)
            problem = _problem(attempt)
            if problem:
                left_out[problem] += 1
            else:
                accepted.append((task, attempt))

    asyncio.run(play_all())
    kept = _spread(accepted)[:most]
    if len(kept) < len(accepted):
        left_out["more than asked for"] = len(accepted) - len(kept)
    return Demonstrations(
        attempts=tuple(kept),
        num_mended=sum(attempt.id in mended for attempt in kept),
        num_recorded=len(relevant),
        left_out=dict(left_out),
    )


def _spread(accepted: Sequence[tuple[Task, Attempt]]) -> list[Attempt]:
    """One of each family before the second of any."""
    seen: Counter[str] = Counter()
    rows = []
    for task, attempt in accepted:
        rows.append((seen[task.family], attempt))
        seen[task.family] += 1
    return [attempt for _, attempt in sorted(rows, key=lambda row: row[0])]


def _slips(attempt: Attempt) -> set[int]:
    """Turns of a successful attempt whose calls were all answered by errors."""
    if attempt.reward is None or not attempt.reward.success:
        return set()
    turns: dict[int, list[bool]] = {}
    for event in attempt.events:
        turns.setdefault(event.turn, []).append(event.result.is_error)
    return {turn for turn, failed in turns.items() if all(failed)}


def _problem(attempt: Attempt) -> str:
    """Why an attempt is not worth imitating; empty if it is."""
    if attempt.reward is None:
        return f"could not be judged ({attempt.reason})"
    if not attempt.reward.success:
        return "failed" if attempt.reason is EndReason.FINISHED else f"failed ({attempt.reason})"
    if any(event.result.is_error for event in attempt.events):
        return "succeeded with errors"
    return ""
