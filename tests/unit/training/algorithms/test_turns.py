from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flightschool.records import (
    Credit,
    Effect,
    EpisodeGroup,
    Fault,
    Milestone,
    MilestoneCheck,
    TokenSpan,
    ToolCall,
    ToolEvent,
    ToolResult,
)
from flightschool.training.algorithms import in_order, milestone_quality, turn_credits, turn_quality
from flightschool.training.messages import TrainGroup, TrainMember
from flightschool.training.packing import pack_group

MakeGroup = Callable[..., EpisodeGroup]
MakeSpans = Callable[..., tuple[TokenSpan, ...]]


def event(turn: int, failed: bool, fault: bool = False) -> ToolEvent:
    return ToolEvent(
        index=0,
        turn=turn,
        call=ToolCall(id="c", name="t", arguments={}),
        result=ToolResult(
            call_id="c", content="", is_error=failed, fault=Fault(kind="timeout", family="f") if fault else None
        ),
        effect=Effect.READ,
        start_ms=0.0,
        end_ms=1.0,
    )


def with_events(group: EpisodeGroup, events: Sequence[Sequence[ToolEvent]]) -> EpisodeGroup:
    members = tuple(msgspec.structs.replace(m, events=tuple(e)) for m, e in zip(group.members, events, strict=True))
    return msgspec.structs.replace(group, members=members)


def test_by_hand(make_group: MakeGroup) -> None:
    group = with_events(make_group([1.0, 0.0]), [[event(0, False), event(1, True), event(1, False)], [event(0, False)]])
    assert turn_quality(group.members[0]) == {0: 0.0, 1: -0.5}
    found = turn_credits(group, 0.3)
    assert found["g0:0"] == pytest.approx({0: 0.05, 1: -0.1})
    assert found["g0:1"] == pytest.approx({0: 0.05})


def test_turns_may_be_judged_by_anything(make_group: MakeGroup) -> None:
    found = turn_credits(make_group([1.0, 0.0]), 0.5, lambda attempt: {attempt.index: float(attempt.index)})
    assert found == {"g0:0": {0: -0.25}, "g0:1": {1: 0.25}}


def test_faults_are_not_the_policys_doing(make_group: MakeGroup) -> None:
    group = with_events(make_group([1.0, 0.0]), [[event(0, True, fault=True)], [event(0, False)]])
    assert turn_quality(group.members[0]) == {}
    assert turn_credits(group, 0.3) == {}


def test_nothing_without_weight_or_baseline(make_group: MakeGroup) -> None:
    rows = [[event(0, True)], [event(0, False)]]
    assert turn_credits(with_events(make_group([1.0, 0.0]), rows), 0.0) == {}
    assert turn_credits(with_events(make_group([1.0, None]), rows), 0.3) == {}


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(st.booleans(), max_size=4), min_size=2, max_size=4), st.floats(0.01, 1.0))
def test_terms_are_bounded_and_centred(make_group: MakeGroup, rows: list[list[bool]], weight: float) -> None:
    group = with_events(make_group([1.0] * len(rows)), [[event(t, f) for t, f in enumerate(row)] for row in rows])
    values = [value for turns in turn_credits(group, weight).values() for value in turns.values()]
    assert all(abs(value) <= weight for value in values)
    assert sum(values) == pytest.approx(0.0, abs=1e-9)


def test_a_turns_term_reaches_its_own_tokens_only(make_spans: MakeSpans) -> None:
    spans = make_spans(turns=(((4, 5), (6,)), ((7,), ())))
    member = TrainMember(attempt="a", advantage=1.0, spans=spans, turn_advantages={1: -0.25})
    [pack] = pack_group(TrainGroup(id="g", members=(member,)), newest_step=0)
    assert [(t.token_id, t.advantage) for t in pack.targets] == [(4, 1.0), (5, 1.0), (7, 0.75)]


# ------------------------------------------------------------------------------------------------ milestones

RULE = MilestoneCheck(milestones=(Milestone(id="read", tool="get"), Milestone(id="done", tool="set", after=("read",))))


def called(turn: int, tool: str) -> ToolEvent:
    return msgspec.structs.replace(event(turn, False), call=ToolCall(id="c", name=tool, arguments={}))


def test_milestones_by_hand(make_group: MakeGroup, make_spans: MakeSpans) -> None:
    three = make_spans(turns=(((4,), (6,)), ((5,), (6,)), ((7,), ())))
    two = make_spans(turns=(((4,), (6,)), ((7,), ())))
    group = with_events(make_group([1.0, 0.0]), [[called(0, "get"), called(1, "set")], [called(0, "other")]])
    members = (
        msgspec.structs.replace(group.members[0], spans=three),
        msgspec.structs.replace(group.members[1], spans=two),
    )
    quality = milestone_quality(lambda task: [(2.0, RULE)])
    assert quality(members[0]) == {0: 0.0, 1: -0.5, 2: -1.0}
    assert quality(members[1]) == {0: 0.0, 1: 0.0}
    found = turn_credits(msgspec.structs.replace(group, members=members), 0.1, quality)
    assert found["g0:0"] == pytest.approx({0: 0.03, 1: -0.02, 2: -0.07})
    assert found["g0:1"] == pytest.approx({0: 0.03, 1: 0.03})
    assert milestone_quality(lambda task: [])(members[0]) == {}


def test_two_checks_of_milestones_are_weighed(make_group: MakeGroup, make_spans: MakeSpans) -> None:
    spans = make_spans(turns=(((4,), (6,)), ((7,), ())))
    group = with_events(make_group([1.0, 0.0]), [[called(0, "get")], []])
    member = msgspec.structs.replace(group.members[0], spans=spans)
    other = MilestoneCheck(milestones=(Milestone(id="x", tool="never"),))
    assert milestone_quality(lambda task: [(3.0, RULE), (1.0, other)])(member) == pytest.approx({0: 0.0, 1: -0.375})


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.floats(-3, 3), st.lists(st.floats(-1, 1), max_size=3)), min_size=1, max_size=4),
    st.lists(st.tuples(st.floats(-3, 3), st.lists(st.floats(-1, 1), max_size=3)), min_size=1, max_size=4),
)
def test_no_token_of_a_correct_member_falls_to_one_of_another(
    good: list[tuple[float, list[float]]], other: list[tuple[float, list[float]]]
) -> None:
    """Whatever the group's turns: the order of the outcome holds token by token."""
    top = max(advantage for advantage, _ in other) + 1e-3
    rows = [(f"good{i}", top + abs(advantage), turns) for i, (advantage, turns) in enumerate(good)]
    rows += [(f"other{i}", advantage, turns) for i, (advantage, turns) in enumerate(other)]
    credits_ = [Credit(attempt=name, advantage=advantage, terms={}) for name, advantage, _ in rows]
    turns = {name: dict(enumerate(values)) for name, _, values in rows}
    scaled = in_order(turns, credits_, frozenset(name for name, _, _ in rows if name.startswith("good")))
    tokens = {name: [a, *(a + value for value in scaled[name].values())] for name, a, _ in rows}
    lowest = min(value for name, values in tokens.items() if name.startswith("good") for value in values)
    highest = max(value for name, values in tokens.items() if name.startswith("other") for value in values)
    assert lowest > highest


def test_terms_that_endanger_no_order_are_left_alone() -> None:
    credits_ = [Credit(attempt="a", advantage=1.0, terms={}), Credit(attempt="b", advantage=-1.0, terms={})]
    turns = {"a": {0: -0.2}, "b": {0: 0.3}}
    assert in_order(turns, credits_, frozenset({"a"})) == turns
    assert in_order(turns, credits_, frozenset()) is turns
