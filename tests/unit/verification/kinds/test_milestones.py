"""Milestones in a partial order, minefields, and the potentials that follow from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightschool.errors import InputError
from flightschool.records import (
    Check,
    CheckRule,
    JsonCheck,
    Milestone,
    MilestoneCheck,
    Minefield,
    MinefieldCheck,
    ToolEvent,
)
from flightschool.verification import milestone_potentials, shaping, sums_to_go

Judge = Callable[..., Check]
MakeEvent = Callable[..., ToolEvent]

LOOK = Milestone(id="look", tool="get", arguments={"id": "A"})
ASK = Milestone(id="ask", tool="ask")
ACT = Milestone(id="act", tool="set", after=("look", "ask"))
DONE = Milestone(id="done", state=JsonCheck(pointer="/done", expected=True))
ALL = MilestoneCheck(milestones=(ACT, LOOK, ASK, DONE))


def run(event: MakeEvent, *calls: tuple[str, int]) -> list[ToolEvent]:
    return [event(i, name, turn=turn, id="A") for i, (name, turn) in enumerate(calls)]


@pytest.mark.parametrize(
    ("calls", "passed"),
    [
        ((("get", 0), ("ask", 1), ("set", 2)), True),
        ((("ask", 0), ("get", 0), ("set", 1)), True),  # the two come in any order, or together
        ((("get", 0), ("set", 1), ("ask", 2)), False),
        ((("get", 0), ("ask", 1), ("set", 1)), False),  # in the same turn: it could not know the answer
        ((("set", 0), ("get", 1), ("ask", 1), ("set", 2)), True),
        ((("get", 0), ("ask", 1)), False),
        ((), False),
    ],
)
def test_the_order(judge: Judge, event: MakeEvent, calls: Sequence[tuple[str, int]], passed: bool) -> None:
    check = judge(ALL, events=run(event, *calls), end={"done": True})
    assert check.passed is passed, check.evidence


def test_states_targets_times_and_results(judge: Judge, event: MakeEvent) -> None:
    events = run(event, ("get", 0), ("ask", 1), ("set", 2))
    assert not judge(ALL, events=events, end={"done": False}).passed
    only = MilestoneCheck(milestones=ALL.milestones, targets=("look",))
    assert judge(only, events=events[:1]).passed
    twice = MilestoneCheck(milestones=(Milestone(id="m", tool="get", times=2),))
    assert not judge(twice, events=events).passed
    assert judge(twice, events=[*events, event(3, "get")]).passed
    failed = [event(0, "get", is_error=True, id="A")]
    assert not judge(only, events=failed).passed
    told = MilestoneCheck(milestones=(Milestone(id="m", tool="get", result={"status": "ok"}),))
    assert judge(told, events=[event(0, "get", content='{"status": "ok", "x": 1}')]).passed
    assert not judge(told, events=[event(0, "get", content="no json")]).passed


@pytest.mark.parametrize(
    ("mine", "calls", "passed"),
    [
        (Minefield(id="m", tool="drop"), (("get", 0),), True),
        (Minefield(id="m", tool="drop"), (("drop", 0),), False),
        (Minefield(id="m", tool="set", unless_after="ask"), (("ask", 0), ("set", 1)), True),
        (Minefield(id="m", tool="set", unless_after="ask"), (("ask", 0), ("set", 0)), False),
        (Minefield(id="m", tool="set", unless_after="ask"), (("set", 0), ("ask", 1), ("set", 2)), False),
        (Minefield(id="m", tool="set", arguments={"id": "B"}), (("set", 0),), True),
    ],
)
def test_minefields(
    judge: Judge, event: MakeEvent, mine: Minefield, calls: Sequence[tuple[str, int]], passed: bool
) -> None:
    rule = MinefieldCheck(mines=(mine,), milestones=(ASK,))
    assert judge(rule, events=run(event, *calls)).passed is passed


def test_mines_that_count_attempts_and_states(judge: Judge, event: MakeEvent) -> None:
    denied = [event(0, "drop", is_error=True)]
    assert judge(MinefieldCheck(mines=(Minefield(id="m", tool="drop"),)), events=denied).passed
    assert not judge(MinefieldCheck(mines=(Minefield(id="m", tool="drop", attempts=True),)), events=denied).passed
    state = MinefieldCheck(mines=(Minefield(id="m", state=JsonCheck(pointer="/hurt", expected=True)),))
    assert judge(state, end={"hurt": False}).passed
    assert not judge(state, end={"hurt": True}).passed


@pytest.mark.parametrize(
    "rule",
    [
        MilestoneCheck(milestones=()),
        MilestoneCheck(milestones=(LOOK, LOOK)),
        MilestoneCheck(milestones=(LOOK,), targets=("other",)),
        MilestoneCheck(milestones=(ACT,)),
        MilestoneCheck(milestones=(Milestone(id="m"),)),
        MilestoneCheck(milestones=(Milestone(id="m", tool="t", state=JsonCheck(expected=1)),)),
        MilestoneCheck(milestones=(Milestone(id="m", tool="t", times=0),)),
        MilestoneCheck(milestones=(DONE, Milestone(id="m", tool="t", after=("done",)))),
        MilestoneCheck(
            milestones=(Milestone(id="a", tool="t", after=("b",)), Milestone(id="b", tool="t", after=("a",)))
        ),
        MilestoneCheck(milestones=(Milestone(id="m", state=JsonCheck(pointer="x", expected=1)),)),
        MinefieldCheck(mines=()),
        MinefieldCheck(mines=(Minefield(id="m", tool="t", unless_after="ask"),)),
        MinefieldCheck(mines=(Minefield(id="", tool="t"),)),
    ],
)
def test_what_could_not_be_judged_is_refused(judge: Judge, rule: CheckRule) -> None:
    with pytest.raises(InputError, match="not usable"):
        judge(rule)


def test_potentials_and_shaping_by_hand(event: MakeEvent) -> None:
    potentials = milestone_potentials((LOOK, ASK), run(event, ("get", 0), ("ask", 2)), 3)
    assert potentials == (0.0, 0.5, 0.5, 1.0)
    assert shaping(potentials) == (0.5, 0.0, -0.5)
    assert sums_to_go(shaping(potentials)) == (0.0, -0.5, -0.5)


@given(st.lists(st.floats(-10, 10), min_size=2, max_size=12), st.floats(0.1, 1.0))
def test_shaping_adds_the_same_to_every_path_from_a_start(potentials: list[float], discount: float) -> None:
    """Ng, Harada and Russell: the discounted sum is −Φ(s_0) whatever happens between; to go, it is −Φ(s_t)."""
    to_go = sums_to_go(shaping(potentials, discount), discount)
    assert to_go == pytest.approx([-value for value in potentials[:-1]], abs=1e-9)


@pytest.mark.parametrize(("potentials", "discount"), [((0.0,), 1.0), ((0.0, float("nan")), 1.0), ((0.0, 1.0), 0.0)])
def test_shaping_of_nothing_is_refused(potentials: Sequence[float], discount: float) -> None:
    with pytest.raises(InputError):
        shaping(potentials, discount)
