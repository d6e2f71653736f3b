"""How far inference carries in a domain that it was not developed on (see ``returns_centre``).

The figures stand in docs/experiments.md, whatever they are; here stands what must not get worse, and that shuffled
results teach nothing.
"""

from __future__ import annotations

import copy
import random

import msgspec
import pytest
from tests.integration.environments.returns_centre import TOOLS, WRITES, RefusalError, initial_state, record

from flightschool.environments import coverage, hold_out
from flightschool.environments.held_out import HeldOut
from flightschool.environments.inferred import Base, infer, run
from flightschool.traces import RecordedCall, RecordedEpisode

pytestmark = [pytest.mark.integration, pytest.mark.slow]
NUM_EPISODES = 240


@pytest.fixture(scope="module")
def episodes() -> tuple[RecordedEpisode, ...]:
    return record(NUM_EPISODES)


@pytest.fixture(scope="module")
def held(episodes: tuple[RecordedEpisode, ...]) -> HeldOut:
    return hold_out(episodes, Base(initial_state()), WRITES, lambda _: "state")


def test_the_recordings_are_as_they_were_frozen(episodes: tuple[RecordedEpisode, ...]) -> None:
    calls = [call for episode in episodes for call in episode.calls]
    assert (len(calls), sum(call.name in WRITES for call in calls)) == (1101, 184)
    assert sum(call.is_error for call in calls) == 116


def test_unseen_episodes_are_answered_better_than_by_replay(
    episodes: tuple[RecordedEpisode, ...], held: HeldOut
) -> None:
    replay = coverage(episodes, WRITES, lambda _: "state", "writes")
    assert held.reads.value > replay.reads.value
    assert held.writes.value > replay.writes.value


def test_what_is_answered_beyond_the_recordings_is_what_the_domain_answers(
    episodes: tuple[RecordedEpisode, ...],
) -> None:
    """Programs learned from all episodes, asked fresh first calls of another seed: how many answers are wrong."""
    base = Base(initial_state())
    programs = {one.tool: one for one in infer(episodes, base, WRITES)}
    right = wrong = 0
    for episode in record(200, seed=1):
        state = copy.deepcopy(initial_state())
        for call in episode.calls:
            if call.name in WRITES:
                break
            if call.name not in programs:
                continue
            try:
                wanted, failed = TOOLS[call.name](state, **call.arguments), False
            except RefusalError as refusal:
                wanted, failed = f"Error: {refusal}", True
            found = run(programs[call.name], call.arguments, base.open())
            if found is not None:
                good = (found.value, found.is_error) == (wanted, failed)
                right, wrong = right + good, wrong + (not good)
    assert right > 200
    assert wrong / (right + wrong) < 0.05


def test_shuffled_results_teach_nothing(episodes: tuple[RecordedEpisode, ...]) -> None:
    answers: dict[str, list[RecordedCall]] = {}
    for episode in episodes:
        for call in episode.calls:
            answers.setdefault(call.name, []).append(call)
    draw = random.Random(3)
    for dealt in answers.values():
        draw.shuffle(dealt)
    shuffled = [
        msgspec.structs.replace(episode, calls=tuple(_dealt(call, answers[call.name].pop()) for call in episode.calls))
        for episode in episodes
    ]
    held = hold_out(shuffled, Base(initial_state()), WRITES, lambda _: "state", num_folds=2)
    assert held.reads.value < 0.25
    assert held.writes.value < 0.35


def _dealt(call: RecordedCall, other: RecordedCall) -> RecordedCall:
    return msgspec.structs.replace(call, value=other.value, text=other.text, is_error=other.is_error)
