"""Rules that look at many attempts: jumps, collapse, concentration, sameness; by hand and by property."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightschool.audit.trajectories import TaskFacts, change_point
from flightschool.audit.trajectories.crowds import Winners, concentration, gini
from flightschool.audit.trajectories.records import Trait
from flightschool.audit.trajectories.series import interaction_collapse, reward_jumps
from flightschool.records import (
    Attempt,
    Effect,
    EndReason,
    Outcome,
    Reward,
    Timings,
    ToolCall,
    ToolEvent,
    ToolResult,
)


def trait(
    step: int = 0, reward: float = 0.0, *, task: str = "t", calls: int = 4, family: str = "f", lineage: str = "run"
) -> Trait:
    return Trait(
        attempt=f"{task}-{step}",
        task=task,
        family=family,
        passed=reward >= 1.0,
        reward=reward,
        num_calls=calls,
        observed=True,
        lineage=lineage,
        step=step,
    )


# ------------------------------------------------------------------------------------------------ jumps


def test_change_point_by_hand() -> None:
    found = change_point([0.2] * 6 + [0.8] * 6)
    assert found is not None
    assert (found.index, found.before, found.after) == (6, 0.2, 0.8)
    assert math.isclose(found.p_value, 2 * math.exp(-6 * 36**2 / (12**3 + 12**2)))
    assert math.isclose(found.suddenness, 1.0)
    assert change_point([0.5] * 20) is None
    assert change_point([0.1, 0.9]) is None


@given(st.lists(st.integers(0, 100), min_size=6, max_size=40), st.integers(-50, 50))
def test_a_shift_of_all_values_moves_no_change_point(values: list[int], shift: int) -> None:
    one, other = change_point([float(v) for v in values]), change_point([float(v + shift) for v in values])
    assert (one is None) == (other is None)
    if one is not None and other is not None:
        assert (one.index, one.p_value) == (other.index, other.p_value)
        assert math.isclose(one.after - one.before, other.after - other.before)


def test_a_jump_is_told_and_steady_learning_is_not() -> None:
    jump = [trait(step, 0.1 if step < 10 else 0.9) for step in range(20)]
    (found,) = reward_jumps(jump)
    assert found.rule == "reward-jump"
    assert "before step 10" in found.evidence
    assert reward_jumps([trait(step, step / 20) for step in range(20)]) == []
    assert reward_jumps([trait(step, step / 12) for step in range(12)]) == []
    assert reward_jumps([trait(step, 0.9 if step < 10 else 0.1) for step in range(20)]) == []
    assert reward_jumps(jump[5:15]) == []  # too few steps to tell
    assert reward_jumps([trait(s, 0.1 if s < 10 else 0.9, lineage="") for s in range(20)]) == []


def test_noise_and_a_smooth_rise_give_few_alarms() -> None:
    rng = random.Random(3)
    alarms = 0
    for _ in range(200):
        flat = [trait(step, min(1, max(0, rng.gauss(0.4, 0.1)))) for step in range(40)]
        smooth = [trait(s, 0.8 / (1 + math.exp(-(s - 20) / 6)) + rng.gauss(0, 0.03)) for s in range(40)]
        alarms += bool(reward_jumps(flat)) + bool(reward_jumps(smooth))
    assert alarms <= 4


def test_long_runs_are_read_in_pieces() -> None:
    (found,) = reward_jumps([trait(step, 0.1 if step < 2000 else 0.9) for step in range(5000)])
    assert "before step 19" in found.evidence or "before step 20" in found.evidence


# ------------------------------------------------------------------------------------------------ collapse


def course(late_calls: int, num_tasks: int = 6) -> list[Trait]:
    early = [trait(step, 1.0, task=f"t{i}", calls=6) for step in range(3) for i in range(num_tasks)]
    late = [trait(step, 1.0, task=f"t{i}", calls=late_calls) for step in range(6, 9) for i in range(num_tasks)]
    middle = [trait(step, 0.0, task="m", calls=5) for step in range(3, 6)]
    return early + middle + late


def test_calls_that_vanish_on_the_same_tasks_are_a_collapse() -> None:
    (found,) = interaction_collapse(course(2))
    assert found.rule == "interaction-collapse"
    assert "6.0 calls early, 2.0 late on 6 tasks" in found.evidence
    assert len(found.tasks) == 6


def test_trimmed_calls_few_tasks_and_easier_tasks_are_none() -> None:
    assert interaction_collapse(course(5)) == []
    assert interaction_collapse(course(2, num_tasks=5)) == []
    easier = [trait(0, 1.0, task=f"hard{i}", calls=9) for i in range(8)]
    easier += [trait(step, 1.0, task=f"easy{i}", calls=2) for step in (1, 2) for i in range(8)]
    assert interaction_collapse(easier) == []


# ------------------------------------------------------------------------------------------------ concentration


def test_gini_by_hand() -> None:
    assert gini([0, 0, 0, 4]) == 0.75
    assert gini([3, 3, 3]) == 0.0
    assert gini([0, 0]) == 0.0
    assert math.isclose(gini([1, 3]), 0.25)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=30), st.integers(1, 9))
def test_gini_has_bounds_and_knows_no_scale(counts: list[int], factor: int) -> None:
    value = gini(counts)
    assert 0.0 <= value <= (len(counts) - 1) / len(counts) + 1e-12
    assert math.isclose(value, gini([factor * count for count in counts]), abs_tol=1e-12)


def test_passes_in_few_families() -> None:
    def pool(winning: int, per_family: int = 10) -> list[Trait]:
        return [
            trait(0, 1.0 if family < winning else 0.0, task=f"t{family}-{i}", family=f"f{family}")
            for family in range(20)
            for i in range(per_family)
        ]

    (found,) = concentration(pool(2))
    assert found.rule == "passes-in-few-families"
    assert "100% of 20 passes (of attempts 10%) in 2 of 20 families" in found.evidence
    assert concentration(pool(10)) == []
    assert concentration(pool(2, per_family=5)) == []  # ten passes say little
    busy = [trait(0, float(i % 2), task=f"b{i}", family="busy") for i in range(400)]
    rare = [trait(0, 0.0, task=f"r{i}", family=f"r{i}") for i in range(9)]
    assert concentration(busy + rare) == []  # where nearly all attempts are, nearly all passes are


# ------------------------------------------------------------------------------------------------ sameness


def won(task: str, *calls: tuple[str, dict[str, str]], key: str = "") -> Attempt:
    events = tuple(
        ToolEvent(
            index=i,
            turn=i,
            call=ToolCall(id=str(i), name=name, arguments=arguments),
            result=ToolResult(call_id=str(i), content="{}"),
            effect=Effect.WRITE,
            start_ms=0.0,
            end_ms=0.0,
        )
        for i, (name, arguments) in enumerate(calls)
    )
    return Attempt(
        id=key or f"won-{task}",
        run="r",
        group="g",
        index=0,
        number=0,
        environment="e",
        environment_digest="d",
        task=task,
        task_digest=task,
        policy="p",
        seed=0,
        spans=(),
        messages=(),
        events=events,
        outcome=Outcome.SCORED,
        reason=EndReason.FINISHED,
        cause="policy",
        verdict=None,
        reward=Reward(outcome=1.0, process=0.0, latency=0.0, gate=1.0, total=1.0),
        end_state="",
        timings=Timings(virtual_ms=0.0),
    )


def facts(task: str, *oracle: str) -> TaskFacts:
    return TaskFacts(task=task, family=task, stratum="s", num_oracle_calls=2, oracle=frozenset(oracle))


ALWAYS = (("search", {"q": "all"}), ("close", {"id": "7"}))


def test_one_sequence_for_tasks_of_different_work() -> None:
    winners = Winners({"a": facts("a", "x"), "b": facts("b", "y"), "c": facts("c", "x")})
    winners.add(won("a", *ALWAYS))
    winners.add(won("c", *ALWAYS))
    assert winners.findings() == []  # their solutions are the same
    winners.add(won("b", *ALWAYS))
    (found,) = winners.findings()
    assert (found.rule, found.tasks) == ("same-pass", ("a", "b", "c"))
    assert found.attempts == ("won-a", "won-c", "won-b")


@pytest.mark.parametrize(("tasks", "told"), [("ab", 0), ("abc", 1)])
def test_without_known_solutions_it_takes_three_tasks(tasks: str, told: int) -> None:
    winners = Winners({})
    for task in tasks:
        winners.add(won(task, *ALWAYS))
    assert len(winners.findings()) == told


def test_nearly_the_same_passes_for_far_apart_solutions() -> None:
    def long(own: str) -> tuple[tuple[str, dict[str, str]], ...]:
        return (*(("step", {f"p{i}": "v"}) for i in range(30)), ("note", {"own": own}))

    apart = Winners({"a": facts("a", "x"), "b": facts("b", "y")})
    alike = Winners({"a": facts("a", *map(str, range(20)), "x"), "b": facts("b", *map(str, range(20)), "y")})
    for winners in (apart, alike):
        winners.add(won("a", *long("one")))
        winners.add(won("b", *long("two")))
    (found,) = apart.findings()
    assert (found.rule, found.tasks) == ("near-pass", ("a", "b"))
    assert alike.findings() == []  # the tasks themselves are as near as that
