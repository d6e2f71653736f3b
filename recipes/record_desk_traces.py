"""Record the traces that ship with the desk: imperfect scripted operators, driven by the built-in harness.

Run from the repository root; equal code gives equal bytes::

    python recipes/record_desk_traces.py

Both files hold the same kind of episodes, in proportion to the strata's shares of traffic; the OTLP file holds
the first sixth of them. No model wrote any of it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

import flightschool.environments.desk as desk_package
from flightschool.digest import derive_random, derive_seed
from flightschool.environments.desk import DeskEnvironment, build_environment
from flightschool.environments.desk.operators import OPERATORS
from flightschool.records import Attempt, Message, Task
from flightschool.rollouts import EpisodeRunner, MessagesPolicy, run_attempts
from flightschool.traces import RecordedEpisode, episode_from_attempt, export
from flightschool.verification import OutcomeReward, RewardSettings

NUM_EPISODES = 480
SEED = 7
FOLDER = Path(desk_package.__file__).parent / "traces"


def shifts(desk: DeskEnvironment) -> Iterator[tuple[Task, str]]:
    """Task and operator of each episode: strata by their share, families in turn, operators by how much they work."""
    rng = derive_random("desk-traces", SEED)
    roster = [name for name, (_, share) in OPERATORS.items() for _ in range(share)]
    piles = {stratum: _in_turn(desk, stratum) for stratum in desk.strata}
    strata = [name for name, share in desk.strata.items() for _ in range(round(share * NUM_EPISODES))]
    for stratum in rng.sample(strata, len(strata)):
        yield next(piles[stratum]), rng.choice(roster)


def _in_turn(desk: DeskEnvironment, stratum: str) -> Iterator[Task]:
    """Tasks of a stratum, one of each family before the second of any; then once more, in other hands."""
    tasks = [task for task in desk.tasks() if task.stratum == stratum]
    return itertools.cycle(sorted(tasks, key=lambda task: (int(task.id.rsplit("-", 1)[1]), tasks.index(task))))


def record(first: int = 0, last: int = NUM_EPISODES) -> list[RecordedEpisode]:
    """Episodes ``first`` to ``last``. Operators need no worked example, so none stands in their conversations."""
    desk = build_environment()
    runner = EpisodeRunner(desk, OutcomeReward(RewardSettings()), run="desk-traces")
    episodes = []
    for number, (task, operator) in list(enumerate(shifts(desk)))[first:last]:
        script = OPERATORS[operator][0](desk, task)
        policy = MessagesPolicy({task.id: script}, f"operator:{operator}")
        unaided = msgspec.structs.replace(task, example=())
        attempt = run_attempts(runner, [unaided], policy, seed=derive_seed(SEED, number))[0]
        shown = [tool for tool in desk.tools() if tool.name in task.tools]
        attempt = _with_last_answers(attempt)
        metadata = {"operator": operator, "initial_state": task.initial_state, "environment": desk.name}
        episodes.append(episode_from_attempt(attempt, task, shown, episode_id=f"desk-{number:03}", metadata=metadata))
    return episodes


def _with_last_answers(attempt: Attempt) -> Attempt:
    """A decline ends the episode before its answer is told to anyone; the log knows it."""
    told = {message.tool_call_id for message in attempt.messages}
    untold = [event.result for event in attempt.events if event.call.id not in told]
    answers = [Message(role="tool", content=result.content, tool_call_id=result.call_id) for result in untold]
    return msgspec.structs.replace(attempt, messages=(*attempt.messages, *answers))


def write(episodes: Sequence[RecordedEpisode], folder: Path) -> None:
    """Both files."""
    folder.mkdir(parents=True, exist_ok=True)
    export(episodes, folder / "desk_chat.jsonl", "openai-chat")
    export(episodes[: len(episodes) // 6], folder / "desk_otlp.jsonl", "otlp")


if __name__ == "__main__":
    recorded = record()
    write(recorded, FOLDER)
    print(f"{len(recorded)} episodes, {sum(bool(e.success) for e in recorded)} successful, written to {FOLDER}")
