"""The desk's tasks and checks: what passes, what falls short, and that no shortcut pays."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec
import pytest

from flightschool.environments.desk import TASKS_PER_FAMILY, DeskEnvironment, build_environment
from flightschool.environments.desk.families import load_strata
from flightschool.environments.desk.operators import OPERATORS
from flightschool.errors import NotFoundError
from flightschool.protocols import Environment
from flightschool.records import Effect, Evidence, Message, Reward, Task, ToolCall, Verdict
from flightschool.tools import ToolBoundary
from flightschool.verification import CheckVerifier, OutcomeReward, RewardSettings


@pytest.fixture(scope="module")
def desk() -> DeskEnvironment:
    return build_environment()


def run(desk: DeskEnvironment, task: Task, calls: Sequence[ToolCall]) -> tuple[Verdict, Reward]:
    """Play calls through the boundary, one a turn, and judge the end state."""
    world = desk.open(task)
    boundary = ToolBoundary(world, desk.tools(), desk.permissions(task), shown=task.tools)

    async def play() -> None:
        for call in calls:
            await boundary.call([call])

    initial = world.snapshot()
    asyncio.run(play())
    boundary.close()
    evidence = Evidence(
        initial_state=initial, end_state=world.snapshot(), events=tuple(boundary.events), answer="Done."
    )
    world.close()
    verdict = CheckVerifier(desk.reference(task.id).checks).verify(evidence)
    return verdict, OutcomeReward(RewardSettings()).compose(verdict, virtual_ms=0.0)


def of(desk: DeskEnvironment, stratum: str) -> list[Task]:
    return [task for task in desk.tasks() if task.stratum == stratum]


def operated(desk: DeskEnvironment, task: Task, operator: str) -> Reward:
    turns = OPERATORS[operator][0](desk, task)
    return run(desk, task, [call for turn in turns for call in turn.tool_calls])[1]


# ------------------------------------------------------------------------------------------------ size and form


def test_strata_families_and_shares(desk: DeskEnvironment) -> None:
    assert isinstance(desk, Environment)
    assert sum(desk.strata.values()) == pytest.approx(1.0)
    families = {name: {task.family for task in of(desk, name)} for name in desk.strata}
    assert len(families["two_step"]) >= 24
    assert all(len(found) >= 8 for found in families.values())
    per_family = Counter(task.family for task in desk.tasks())
    assert set(per_family.values()) == {TASKS_PER_FAMILY}
    assert len(desk.tasks()) >= 400
    assert len({task.id for task in desk.tasks()}) == len(desk.tasks()) == len({t.digest for t in desk.tasks()})
    assert [stratum.rise for stratum in load_strata()] == [1, 2, 3, 4, 5]


def test_oracle_calls_rise_from_two_to_six(desk: DeskEnvironment) -> None:
    """Longest right solution of each family, by stratum."""
    longest: dict[str, dict[str, int]] = {name: {} for name in desk.strata}
    for task in desk.tasks():
        num_calls = len(desk.reference(task.id).oracle)
        longest[task.stratum][task.family] = max(num_calls, longest[task.stratum].get(task.family, 0))
    assert set(longest["two_step"].values()) == {2}
    assert set(longest["three_step"].values()) == {3}
    assert max(longest["conditional"].values()) == 6
    assert min(longest["conditional"].values()) >= 4
    six = [family for family, num_calls in longest["conditional"].items() if num_calls == 6]
    assert 2 * len(six) >= len(longest["conditional"]) >= 8
    kinds = [family.kind for family in load_strata()[2].families]
    assert len(set(kinds)) == len(kinds)


def test_cases_of_a_conditional_family_differ_in_their_acts(desk: DeskEnvironment) -> None:
    """The condition decides: two neighbours of a family, of different variants, need different calls."""
    for task in of(desk, "conditional")[::2]:
        other = desk.task(f"{task.family}-{int(task.id.rsplit('-', 1)[1]) + 1}")
        one, two = (
            [(call.name, *sorted(set(map(str, call.arguments.values())) & {"urgent", "low"})) for call in oracle]
            for oracle in (desk.reference(task.id).oracle, desk.reference(other.id).oracle)
        )
        same_tools = task.family == "locked_goes_to_backup"  # there the condition decides who, not what
        assert (one == two) == same_tools, task.id


def test_the_acts_of_the_other_variant_earn_no_success(desk: DeskEnvironment) -> None:
    """The neighbour's acts, filled with this task's own ids, are wrong here."""
    for task in of(desk, "conditional")[::4]:
        other = desk.task(f"{task.family}-{int(task.id.rsplit('-', 1)[1]) ^ 1}")
        words = zip(other.instruction.split(), task.instruction.split(), strict=True)
        own = {old.strip(".,;"): new.strip(".,;") for old, new in words}
        calls = [
            msgspec.structs.replace(call, arguments={k: own.get(str(v), v) for k, v in call.arguments.items()})
            for call in desk.reference(other.id).oracle
        ]
        assert not run(desk, task, calls)[1].success, task.id


def test_several_acts_on_one_row_leave_no_room_for_another_row(desk: DeskEnvironment) -> None:
    task, other = desk.task("hot_is_urgent-0"), desk.task("hot_is_urgent-2")
    reference = desk.reference(task.id)
    extra = next(call for call in desk.reference(other.id).oracle if call.name == "create_order")
    assert run(desk, task, reference.oracle)[1].success
    assert run(desk, task, [*reference.oracle, extra])[0].violations == ("only-allowed-changes",)


def test_tools_are_typed_and_cover_all_effects(desk: DeskEnvironment) -> None:
    assert len(desk.tools()) >= 16
    assert {tool.effect for tool in desk.tools()} == set(Effect)
    for tool in desk.tools():
        assert tool.parameters["additionalProperties"] is False
        assert tool.latency.median_ms > 0
        assert tool.latency.sigma > 0


def test_instructions_are_one_short_sentence_that_does_not_tell_what_must_be_read(desk: DeskEnvironment) -> None:
    for task in desk.tasks():
        assert len(task.instruction.split()) <= 25, task.id
        assert not set("{}[]\n") & set(task.instruction), task.id
        assert len(task.guidance.split()) <= 20
        assert task.guidance in desk.policy_text
    for task in of(desk, "two_step"):
        read, write = desk.reference(task.id).oracle
        told = set(task.instruction.replace(".", " ").split()) | {read.arguments[key] for key in read.arguments}
        assert any(str(value) not in told for value in write.arguments.values()), task.id


def test_a_two_step_task_shows_its_two_tools_and_one_or_two_others(desk: DeskEnvironment) -> None:
    for task in of(desk, "two_step"):
        wanted = {call.name for call in desk.reference(task.id).oracle}
        assert wanted < set(task.tools)
        assert 3 <= len(task.tools) <= 4


def values_of(messages: Sequence[Message]) -> Iterator[str]:
    for message in messages:
        for call in message.tool_calls:
            yield from map(str, call.arguments.values())
        if message.role == "tool":
            for value in json.loads(message.content).values():
                yield from map(str, value if isinstance(value, list) else [value])


def test_the_worked_example_shares_no_id_and_no_value_with_its_task(desk: DeskEnvironment) -> None:
    for task in of(desk, "two_step"):
        wanted = {str(v) for call in desk.reference(task.id).oracle for v in call.arguments.values()}
        assert not wanted & set(values_of(task.example)), task.id
        assert task.example[0].role == "user"
        assert task.example[-1] == Message(role="assistant", content="Done.")


def test_answers_are_flat_and_have_at_most_six_fields(desk: DeskEnvironment) -> None:
    for task in desk.tasks():
        for message in task.example:
            if message.role == "tool":
                answer = json.loads(message.content)
                assert len(answer) <= 6
                assert not any(isinstance(value, dict) for value in answer.values())


# ------------------------------------------------------------------------------------------------ right work


def test_the_oracle_of_every_task_earns_everything(desk: DeskEnvironment) -> None:
    for task in desk.tasks():
        verdict, reward = run(desk, task, desk.reference(task.id).oracle)
        assert reward.success, (task.id, verdict)
        assert reward.process == 1.0


def test_doing_nothing_and_only_declining_pass_nothing(desk: DeskEnvironment) -> None:
    decline = ToolCall(id="d", name="decline", arguments={"reason": "I would rather not"})
    for task in desk.tasks()[::3]:
        for calls in ([], [decline]):
            verdict, reward = run(desk, task, calls)
            passed = [check.id for check in verdict.checks if check.passed and check.kind == "functional"]
            assert passed == [], task.id
            assert reward.outcome == 0.0


def test_the_right_act_on_the_right_subject_with_a_wrong_value_earns_two_fifths(desk: DeskEnvironment) -> None:
    task = desk.task("owner_takes_order-0")
    read, write = desk.reference(task.id).oracle
    wrong = msgspec.structs.replace(write, arguments=write.arguments | {"technician": "Nobody"})
    assert run(desk, task, [read, wrong])[1].outcome == pytest.approx(0.4)
    assert run(desk, task, [read])[1].outcome == 0.0
    partial = Counter(round(operated(desk, task, "mistaken").outcome, 3) for task in of(desk, "two_step")[::3])
    assert partial[0.4] / sum(partial.values()) > 0.8
    assert partial[1.0] == 0


def test_changing_more_than_asked_is_a_violation(desk: DeskEnvironment) -> None:
    task = desk.task("owner_takes_order-0")
    other = desk.reference("owner_takes_order-1").oracle[1]
    verdict, reward = run(desk, task, [*desk.reference(task.id).oracle, other])
    assert verdict.violations == ("only-allowed-changes",)
    assert reward.total == 0.0


# ------------------------------------------------------------------------------------------------ abstaining, approval


def test_tasks_to_decline_have_a_permitted_twin_of_the_same_family(desk: DeskEnvironment) -> None:
    declined = [task for task in of(desk, "abstain") if desk.reference(task.id).abstain]
    assert len(declined) * 2 == len(of(desk, "abstain"))
    for task in declined:
        twin = desk.reference(desk.reference(task.id).twin)
        assert not twin.abstain
        assert twin.twin == task.id
        assert desk.task(twin.task_id).family == task.family


def test_acting_against_the_rule_is_a_violation_and_earns_nothing(desk: DeskEnvironment) -> None:
    for task in of(desk, "abstain"):
        if desk.reference(task.id).abstain:
            reward = operated(desk, task, "bold")
            assert (reward.outcome, reward.gate) == (0.0, 0.0), task.id


def test_the_justifying_read_must_come_before_the_decline_and_before_the_act(desk: DeskEnvironment) -> None:
    for task in of(desk, "abstain"):
        reference = desk.reference(task.id)
        verdict, reward = run(desk, task, reference.oracle[::-1])
        assert not reward.success, task.id
        assert reference.abstain or "checked-first" in verdict.violations


def test_declining_a_permitted_task_earns_nothing(desk: DeskEnvironment) -> None:
    for task in of(desk, "abstain"):
        reference = desk.reference(task.id)
        if not reference.abstain:
            decline = desk.reference(reference.twin).oracle[-1]
            assert run(desk, task, [reference.oracle[0], decline])[1].outcome == 0.0


def test_acting_without_approval_is_a_violation(desk: DeskEnvironment) -> None:
    for task in of(desk, "approval")[1::2]:
        calls = desk.reference(task.id).oracle
        assert calls[0].name == "request_approval"
        asked_late = [*calls[2:], *calls[:2]]
        for unasked in (calls[2:], asked_late):
            assert not run(desk, task, unasked)[1].success, task.id
        if not desk.reference(task.id).abstain:
            barred = task.family == "scrap_part_approved"  # what cannot be taken back does not even happen
            verdict, reward = run(desk, task, calls[2:])
            assert verdict.violations == (() if barred else ("checked-first", "approved"))
            assert reward.outcome * reward.gate == 0.0


def test_a_refusal_of_something_else_justifies_no_decline(desk: DeskEnvironment) -> None:
    for task in of(desk, "approval"):
        reference = desk.reference(task.id)
        if reference.abstain:
            request, *rest = reference.oracle
            for key in request.arguments:
                wrong = msgspec.structs.replace(request, arguments=request.arguments | {key: "other"})
                assert run(desk, task, [wrong, *rest])[1].outcome == 0.0, task.id


# ------------------------------------------------------------------------------------------------ no shortcut


def template(desk: DeskEnvironment, task: Task) -> tuple[object, ...]:
    return tuple((call.name, tuple(call.arguments)) for call in desk.reference(task.id).oracle)


def test_no_argument_template_covers_much_of_the_trained_stratum(desk: DeskEnvironment) -> None:
    tasks = of(desk, "two_step")
    counts = Counter(template(desk, task) for task in tasks)
    assert max(counts.values()) / len(tasks) <= 0.15
    writes = Counter(template(desk, task)[1:] for task in tasks)
    assert max(writes.values()) / len(tasks) <= 0.15
    kinds = Counter(family.kind for stratum in load_strata()[:1] for family in stratum.families)
    assert set(kinds) == {"copy", "choose_field", "copy_two"}
    assert kinds["copy"] / sum(kinds.values()) == pytest.approx(0.6, abs=0.1)


def test_a_policy_fitted_to_one_template_fails_elsewhere(desk: DeskEnvironment) -> None:
    """It fills its own template with the right values of the task, which is more than a fitted policy could know."""
    tasks = of(desk, "two_step")
    shapes = {template(desk, task): desk.reference(task.id).oracle for task in tasks}
    fitted = max(shapes, key=lambda shape: sum(template(desk, task) == shape for task in tasks))
    solved = 0
    for task in tasks:
        right = desk.reference(task.id).oracle
        calls = []
        for own, theirs in zip(shapes[fitted], right, strict=True):
            values = list(theirs.arguments.values())
            filled = {name: values[min(n, len(values) - 1)] for n, name in enumerate(own.arguments)}
            calls.append(msgspec.structs.replace(own, arguments=filled))
        solved += run(desk, task, calls)[1].success
    assert 0 < solved / len(tasks) <= 0.15


def test_fixed_sequences_solve_hardly_anything(desk: DeskEnvironment) -> None:
    everyone = Counter(
        tuple((call.name, json.dumps(call.arguments)) for call in desk.reference(task.id).oracle)
        for task in desk.tasks()
    )
    assert max(everyone.values()) == 1
    fixed = desk.reference("level_from_alert-3").oracle
    solved = [task.id for task in of(desk, "two_step") if run(desk, task, fixed)[1].success]
    assert solved == ["level_from_alert-3"]


def test_twins_cannot_be_told_apart_by_instruction_or_example(desk: DeskEnvironment) -> None:
    for task in of(desk, "abstain"):
        twin = desk.task(desk.reference(task.id).twin)
        assert (task.example, task.tools, task.guidance) == (twin.example, twin.tools, twin.guidance)
        assert len(task.instruction.split()) == len(twin.instruction.split())


# ------------------------------------------------------------------------------------------------ the rest


def test_permissions_are_least_privilege(desk: DeskEnvironment) -> None:
    task = desk.task("owner_takes_order-0")
    rules = desk.permissions(task)
    allowed = {tool.name for tool in desk.tools() if rules.decide(_bare(tool.name), ()).allowed}
    assert "assign_order" in allowed
    assert "get_part" in allowed
    assert not allowed & {"scrap_part", "notify", "order_part"}
    assert not rules.decide(_bare("format_disk"), ()).allowed


def test_the_boundary_bars_scrapping_any_part_but_the_approved_one(desk: DeskEnvironment) -> None:
    task, other = desk.task("scrap_part_approved-0"), desk.task("scrap_part_approved-1")
    calls = desk.reference(task.id).oracle
    wrong = desk.reference(other.id).oracle[-1]
    assert run(desk, task, calls)[1].success
    assert run(desk, task, [*calls, wrong])[1].success  # refused: nothing more happened


def _bare(name: str) -> ToolCall:
    return ToolCall(id="c", name=name, arguments={})


def test_an_unknown_task_names_the_nearest(desk: DeskEnvironment) -> None:
    with pytest.raises(NotFoundError, match="owner_takes_order-0"):
        desk.task("owner_takes_ordr-0")


def test_operators_fail_in_their_own_ways(desk: DeskEnvironment) -> None:
    tasks = of(desk, "two_step")[::16]
    mean = {name: sum(operated(desk, task, name).success for task in tasks) / len(tasks) for name in OPERATORS}
    assert mean["careful"] == mean["clumsy"] == 1.0
    assert mean["forgetful"] == mean["hasty"] == mean["mistaken"] == 0.0
