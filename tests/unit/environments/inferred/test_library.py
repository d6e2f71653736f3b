"""Tools of a domain that the learner was not made for are inferred, and answer calls that nobody recorded."""

from __future__ import annotations

import copy
import random

import msgspec
import pytest
from tests.unit.environments.inferred.library import TOOLS, WRITES, RefusalError, initial_state, record

from flightschool.environments.held_out import hold_out
from flightschool.environments.inferred import Base, Drift, Program, drifts, infer, run, take_effect
from flightschool.traces import RecordedEpisode


@pytest.fixture(scope="module")
def episodes() -> tuple[RecordedEpisode, ...]:
    return record(120)


@pytest.fixture(scope="module")
def programs(episodes: tuple[RecordedEpisode, ...]) -> dict[str, Program]:
    return {one.tool: one for one in infer(episodes, Base(initial_state()), WRITES)}


def shuffled(episodes: tuple[RecordedEpisode, ...]) -> tuple[RecordedEpisode, ...]:
    """The same calls, with the answers of each tool dealt out anew."""
    answers: dict[str, list[tuple[object, str, bool]]] = {}
    for episode in episodes:
        for call in episode.calls:
            answers.setdefault(call.name, []).append((call.value, call.text, call.is_error))
    draw = random.Random(7)
    for dealt in answers.values():
        draw.shuffle(dealt)
    made = []
    for episode in episodes:
        calls = []
        for call in episode.calls:
            value, text, is_error = answers[call.name].pop()
            calls.append(msgspec.structs.replace(call, value=value, text=text, is_error=is_error))
        made.append(msgspec.structs.replace(episode, calls=tuple(calls)))
    return tuple(made)


def test_every_tool_is_inferred(programs: dict[str, Program]) -> None:
    assert set(programs) == set(TOOLS)
    assert all(one.num_explained == one.num_cases for one in programs.values())


def test_calls_that_nobody_recorded_are_answered_as_the_domain_answers(programs: dict[str, Program]) -> None:
    base, wrong = Base(initial_state()), []
    for episode in record(40, seed=99):
        state, database = copy.deepcopy(initial_state()), base.open()
        call = episode.calls[0]
        try:
            wanted, failed = TOOLS[call.name](state, **call.arguments), False
        except RefusalError as refusal:
            wanted, failed = str(refusal), True
        found = run(programs[call.name], call.arguments, database)
        if found is None or (found.value, found.is_error) != (wanted, failed):
            wrong.append((call.name, call.arguments, wanted, found))
    assert len(wrong) <= 1, wrong


def test_what_does_not_exist_is_not_made_up(programs: dict[str, Program]) -> None:
    database = Base(initial_state()).open()
    assert run(programs["get_member"], {"member_id": "M99"}, database) is None
    assert run(programs["get_loan"], {"loan_id": "L77"}, database) is None


def test_a_write_that_says_nothing_is_known_by_what_a_later_read_shows(programs: dict[str, Program]) -> None:
    (change,) = programs["pay"].changes
    assert (change.table, change.field) == ("members", "credit")
    database = Base(initial_state()).open()
    before = run(programs["get_member"], {"member_id": "M4"}, database)
    take_effect(programs["pay"], {"member_id": "M4", "amount": 5}, {"ok": True}, database)
    after = run(programs["get_member"], {"member_id": "M4"}, database)
    assert before is not None
    assert after is not None
    assert (before.value["credit"], after.value["credit"]) == (12, 17)
    assert database.changes()["members"] == {"M4": {**initial_state()["members"]["M4"], "credit": 17}}


def test_a_renamed_field_is_named_as_drift(programs: dict[str, Program]) -> None:
    assert drifts(programs["get_member"]) == (Drift(tool="get_member", path="", recorded="tier", state="level"),)
    assert [one for tool, program in programs.items() if tool != "get_member" for one in drifts(program)] == []


def test_held_out_answers_are_right_and_collapse_when_results_are_shuffled(
    episodes: tuple[RecordedEpisode, ...],
) -> None:
    base = Base(initial_state())
    true = hold_out(episodes, base, WRITES, lambda _: "state", num_folds=3)
    assert true.reads.value > 0.98
    assert true.writes.value > 0.9
    false = hold_out(shuffled(episodes), base, WRITES, lambda _: "state", num_folds=2)
    assert false.reads.value < 0.3
    spoken = [false.by_tool[tool].value for tool in WRITES - {"pay"}]  # whose answer is always the same
    assert max(spoken) < 0.3


def test_inference_is_the_same_every_time(episodes: tuple[RecordedEpisode, ...], programs: dict[str, Program]) -> None:
    again = infer(episodes, Base(initial_state()), WRITES)
    assert again == tuple(programs.values())
