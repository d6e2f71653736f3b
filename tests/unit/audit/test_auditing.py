"""The auditor is examined here: each environment is broken in exactly one place, and that place must be named."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from flightschool.audit import (
    REQUIRED,
    audit_environment,
    auditing,
    environment_wide,
    examination,
    view_environment,
)
from flightschool.protocols import World, WorldReply
from flightschool.records import (
    AnswerCheck,
    Attempt,
    AuditVerdict,
    CallCheck,
    CheckKind,
    CheckRule,
    CheckSpec,
    DiffCheck,
    Finding,
    Message,
    Reference,
    SetAnswerCheck,
    Severity,
    SqlCheck,
    Task,
    TaskAudit,
    ToolCall,
)
from flightschool.rollouts import EpisodeRunner, MessagesPolicy, ScriptPolicy, run_attempts
from flightschool.testing.miniature import MiniatureEnvironment, MiniatureWorld
from flightschool.verification import OutcomeReward

PriceList = Any  # the class lives in conftest, which importlib mode does not let tests import

TASK = "copy-gear-pump"


def audit(environment: Any, *task_ids: str, separate_process: bool = False) -> dict[str, TaskAudit]:
    tasks = [environment.task(task_id) for task_id in task_ids] or None
    audits = audit_environment(environment, composition=OutcomeReward(), tasks=tasks, separate_process=separate_process)
    return {one.task: one for one in audits}


def barring(one: TaskAudit) -> set[str]:
    return {finding.probe for finding in one.findings if finding.severity is Severity.BARRING}


def functional(query: str, *rows: tuple[object, ...]) -> CheckSpec:
    return CheckSpec(id="price", kind=CheckKind.FUNCTIONAL, rule=SqlCheck(query=query, expected=rows))


def test_a_sound_environment_is_acquitted_whole(price_list: PriceList) -> None:
    audits = audit(price_list, separate_process=True)
    assert len(audits) == 25
    assert {one.verdict for one in audits.values()} == {AuditVerdict.SOUND}
    assert environment_wide(audits.values()) == ()


def test_the_miniature_environment_is_sound_with_its_read_first_process_check() -> None:
    assert {one.verdict for one in audit(MiniatureEnvironment(), separate_process=True).values()} == {
        AuditVerdict.SOUND
    }


def test_mutants_that_did_the_oracles_work_are_listed_apart() -> None:
    audits = audit(MiniatureEnvironment())
    listed = {name for one in audits.values() for name in one.equivalent_mutants}
    assert "dropped get_price" in listed, "a read that only a process check wants"


def test_equal_seeds_give_equal_audits(price_list: PriceList) -> None:
    assert audit(price_list, TASK, "locked-cog") == audit(price_list, TASK, "locked-cog")


def test_a_broken_oracle_is_named_before_anything_else(price_list: PriceList) -> None:
    price_list.recheck(TASK, functional("select price from prices where item = 'gear'", (1,)))
    one = audit(price_list, TASK)[TASK]
    assert one.verdict is AuditVerdict.BROKEN_ORACLE
    assert "expected [[1]]" in next(f.evidence for f in one.findings if f.probe == "oracle")


def test_an_answer_in_the_guidance_is_a_leak(price_list: PriceList) -> None:
    price_list.change(TASK, guidance="Use the tools. By the way, the pump costs 905.")
    one = audit(price_list, TASK)[TASK]
    assert one.verdict is AuditVerdict.LEAKING
    assert [(f.what, f.evidence) for f in one.findings if f.severity is Severity.BARRING] == [
        ("'905', needed by set_price.price, stands in the agent's view", "place: guidance")
    ]


def test_an_answer_key_in_a_tool_description_leaks_on_every_task_that_it_answers(price_list: PriceList) -> None:
    key = "price of an item (bolt 311, gear 174, pump 905, seal 588)"
    price_list.specs = (msgspec.structs.replace(price_list.specs[0], description=key), *price_list.specs[1:])
    audits = audit(price_list)
    leaking = {task for task, one in audits.items() if one.verdict is AuditVerdict.LEAKING}
    assert leaking == {t for t in audits if t.startswith("copy") and not t.endswith("-cog")}
    assert [finding.probe for finding in environment_wide(audits.values())] == ["leak"]


def test_an_answer_that_a_shared_example_shows_by_chance_is_told_but_bars_nothing(price_list: PriceList) -> None:
    call = ToolCall(id="x", name="set_price", arguments={"item": "nut", "price": 905})
    example = (Message(role="user", content="Give nut its price."), Message(role="assistant", tool_calls=(call,)))
    for task in price_list.tasks():
        price_list.change(task.id, example=example)
    one = audit(price_list, TASK, separate_process=True)[TASK]
    assert one.verdict is AuditVerdict.SOUND
    assert [f.severity for f in one.findings if f.probe == "leak"] == [Severity.WARNING]


def test_doing_nothing_must_not_pass(price_list: PriceList) -> None:
    price_list.recheck(TASK, functional("select count(*) from prices", (5,)))
    one = audit(price_list, TASK)[TASK]
    assert one.verdict is AuditVerdict.EXPLOITABLE
    assert {"noop", "random", "junk"} <= barring(one)


def test_a_loose_check_lets_mutants_and_a_siblings_solution_survive(price_list: PriceList) -> None:
    price_list.recheck(TASK, functional("select price <> 174 from prices where item = 'gear'", (1,)))
    one = audit(price_list, TASK)[TASK]
    assert one.verdict is AuditVerdict.EXPLOITABLE
    assert "mutants" in barring(one)
    assert "noop" not in barring(one)


def test_a_missing_constraint_on_side_effects_lets_an_extra_write_survive(price_list: PriceList) -> None:
    price_list.recheck(TASK, functional("select price from prices where item = 'gear'", (905,)))
    one = audit(price_list, TASK)[TASK]
    assert one.verdict is AuditVerdict.EXPLOITABLE
    assert any(f.probe == "mutants" and "also set_price" in f.what for f in one.findings)


def test_abstaining_without_a_read_must_not_pass(price_list: PriceList) -> None:
    declined = CheckSpec(id="declined", kind=CheckKind.FUNCTIONAL, rule=CallCheck(tool="decline"))
    price_list.recheck("locked-cog", declined)
    one = audit(price_list, "locked-cog")["locked-cog"]
    assert one.verdict is AuditVerdict.EXPLOITABLE
    assert "decline-only" in barring(one)


def test_a_check_that_forbids_reading_twice_refuses_correct_work(price_list: PriceList) -> None:
    checks = price_list.references[TASK].checks
    once = CheckSpec(id="once", kind=CheckKind.CONSTRAINT, rule=CallCheck(tool="get_price", least=0, most=1))
    price_list.recheck(TASK, *checks, once)
    one = audit(price_list, TASK)[TASK]
    assert one.verdict is AuditVerdict.REFUSES_CORRECT_WORK
    assert barring(one) == {"equivalents"}


class _Drifting(MiniatureWorld):
    """Leaves a mark that differs from world to world."""

    marks: Iterator[int] = itertools.count(1000)

    def snapshot(self) -> bytes:
        self._db.execute("create table if not exists marks (n)")
        self._db.execute("insert into marks values (?)", (next(self.marks),))
        self._db.commit()
        return super().snapshot()


def test_a_world_that_ends_differently_each_time_is_flaky(price_list: PriceList) -> None:
    def drifting(task: Task) -> World:
        return _Drifting(price_list.image)

    price_list.open = drifting
    price_list.recheck(TASK, *price_list.references[TASK].checks[:1])
    assert audit(price_list, TASK)[TASK].verdict is AuditVerdict.FLAKY


def test_a_verifier_that_changes_its_mind_is_flaky(price_list: PriceList) -> None:
    right: Reference = price_list.references[TASK]
    strict = functional("select price from prices where item = 'gear'", (1,))
    wrong = msgspec.structs.replace(right, checks=(strict, *right.checks[1:]))
    asked = itertools.count()

    def reference(task_id: str) -> Reference:
        others: dict[str, Reference] = price_list.references
        if task_id != TASK:
            return others[task_id]
        return wrong if next(asked) == 0 else right

    price_list.reference = reference
    one = audit(price_list, TASK, separate_process=True)[TASK]
    assert one.verdict is AuditVerdict.FLAKY
    assert {"flake", "regrade"} <= barring(one)


@pytest.mark.parametrize(
    "how",
    ["no oracle", "no reference", "reference raises", "world does not open", "grader cannot judge", "unusable checks"],
)
def test_what_cannot_be_examined_is_unaudited_never_sound(price_list: PriceList, how: str) -> None:
    if how == "no oracle":
        price_list.references[TASK] = msgspec.structs.replace(price_list.references[TASK], oracle=())
    elif how == "no reference":
        del price_list.references[TASK]
    elif how == "reference raises":
        price_list.references[TASK] = None
        price_list.reference = lambda task_id: price_list.references[task_id].oracle and price_list.references[task_id]
    elif how == "unusable checks":
        price_list.recheck(TASK, *price_list.references[TASK].checks * 2)  # ids stand twice
    elif how == "world does not open":

        def broken(task: Task) -> World:
            raise RuntimeError("no disk")

        price_list.open = broken
    else:
        price_list.recheck(TASK, functional("select price from no_such_table", (1,)))
    one = audit(price_list, TASK)[TASK]
    assert one.verdict is AuditVerdict.UNAUDITED
    unfinished = [f for f in one.findings if f.what == "probe unfinished"]
    assert unfinished
    assert all(f.mend and f.confidence == 0.0 for f in unfinished), "it shows nothing, and says what to do"


def test_one_broken_task_does_not_keep_the_others_from_being_examined(price_list: PriceList) -> None:
    del price_list.references[TASK]
    audits = audit(price_list, TASK, "copy-gear-seal", separate_process=True)
    assert [one.verdict for one in audits.values()] == [AuditVerdict.UNAUDITED, AuditVerdict.SOUND]


def test_without_a_separate_process_nothing_is_sound(price_list: PriceList) -> None:
    one = audit(price_list, TASK)[TASK]
    assert one.verdict is AuditVerdict.UNAUDITED
    assert ("regrade", "the probe was not run") in [(f.probe, f.evidence) for f in one.findings]


def test_a_habit_worth_more_than_its_stratum_suspects_the_whole_environment(
    price_list: PriceList, tmp_path: Path
) -> None:
    """Where 'copy' tasks are solved by declining, so does the habit of 'locked', whose share of traffic is tiny."""
    price_list.strata = {"copy": 0.99, "locked": 0.01}
    for task in price_list.tasks():
        if task.stratum == "copy":
            lax = CheckSpec(id="any", kind=CheckKind.FUNCTIONAL, rule=CallCheck(tool="decline"))
            unchanged = CheckSpec(id="same", kind=CheckKind.CONSTRAINT, rule=DiffCheck(allowed={"prices": 1}))
            either = (ToolCall(id="1", name="decline", arguments={"reason": "no"}),)
            price_list.references[task.id] = Reference(task_id=task.id, checks=(lax, unchanged), oracle=either)
    audits = audit(price_list, TASK, "copy-seal-bolt", "locked-cog", "locked-seal")
    wide = environment_wide(audits.values())
    assert any("habit of stratum 'locked'" in finding.what for finding in wide)
    (told,) = [f for f in audits["locked-cog"].findings if f.probe == "environment.ceiling"]
    assert "full reward at 2 of 4 tasks (copy-gear-pump, copy-seal-bolt), not at this one" in told.evidence
    script = tmp_path / "evidence.json"
    script.write_text(told.evidence.partition("a script for the first: ")[2])
    runner = EpisodeRunner(price_list, OutcomeReward(), run="again")
    (again,) = run_attempts(runner, [price_list.task(TASK)], ScriptPolicy(script), seed=0)
    assert again.reward is not None
    assert again.reward.success, "what was played can be played again"
    assert "environment.ceiling" in REQUIRED


def test_progress_counts_tasks(price_list: PriceList) -> None:
    seen: list[tuple[int, int]] = []
    tasks = price_list.tasks()[:3]
    audit_environment(price_list, composition=OutcomeReward(), tasks=tasks, progress=lambda n, of: seen.append((n, of)))
    assert seen[-1] == (3, 3)


@pytest.mark.long
def test_examiners_side_by_side_find_the_same(price_list: PriceList, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auditing, "BATCH_SIZE", 4)
    alone = audit_environment(price_list, composition=OutcomeReward())
    together = audit_environment(price_list, composition=OutcomeReward(), num_workers=2)
    assert together == alone


# ------------------------------------------------------------------------------------------------ replayed alone


def play_alone(environment: Any, task_id: str, found: Finding) -> Attempt:
    """Only the finding's actions, in a process of thought that knows nothing of the audit."""
    policy = MessagesPolicy({task_id: found.actions}, "evidence")
    (attempt,) = run_attempts(
        EpisodeRunner(environment, OutcomeReward(), run="again"), [environment.task(task_id)], policy, seed=5
    )
    return attempt


def test_every_exploit_replays_from_its_actions_alone_and_proposes_a_mend(price_list: PriceList) -> None:
    price_list.recheck(TASK, functional("select count(*) from prices", (5,)))
    one = audit(price_list, TASK)[TASK]
    exploits = [f for f in one.findings if f.severity is Severity.BARRING and f.probe not in ("flake", "leak")]
    assert {"noop", "random", "junk", "stop", "mutants"} <= {f.probe for f in exploits}
    for found in exploits:
        attempt = play_alone(price_list, TASK, found)
        assert attempt.reward is not None, found
        assert attempt.reward.success, found
        assert found.mend
        assert found.confidence == 1.0


def test_refused_correct_work_replays_too(price_list: PriceList) -> None:
    checks = price_list.references[TASK].checks
    once = CheckSpec(id="once", kind=CheckKind.CONSTRAINT, rule=CallCheck(tool="get_price", least=0, most=1))
    price_list.recheck(TASK, *checks, once)
    (found, *_) = [f for f in audit(price_list, TASK)[TASK].findings if f.probe == "equivalents"]
    attempt = play_alone(price_list, TASK, found)
    assert attempt.reward is not None
    assert not attempt.reward.success
    assert found.evidence


def test_repeats_exclude_a_flake_rate_with_a_stated_bound(price_list: PriceList) -> None:
    tasks = [price_list.task(TASK)]
    one, *_ = audit_environment(price_list, composition=OutcomeReward(), tasks=tasks, separate_process=False)
    assert one.num_repeats == 20
    assert one.flake_bound == pytest.approx(1 - 0.05 ** (1 / 20))
    one, *_ = audit_environment(price_list, composition=OutcomeReward(), tasks=tasks, separate_process=False, repeats=5)
    assert one.num_repeats == 5
    assert one.flake_bound == pytest.approx(1 - 0.05 ** (1 / 5))


def answered(*rules: CheckRule) -> tuple[CheckSpec, ...]:
    return tuple(CheckSpec(id=f"says{n}", kind=CheckKind.FUNCTIONAL, rule=rule) for n, rule in enumerate(rules))


def test_a_list_of_all_answers_must_not_pass_without_work(price_list: PriceList) -> None:
    for task_id, reference in price_list.references.items():
        price = task_id.rpartition("-")[2]
        price_list.references[task_id] = msgspec.structs.replace(reference, oracle_answer=f"It is that of {price}.")
    price_list.recheck(TASK, *answered(AnswerCheck(contains=("that of pump",))))
    one = audit(price_list, TASK)[TASK]
    found = next(f for f in one.findings if f.probe == "answers" and f.severity is Severity.BARRING)
    assert found.what == "listing every answer of the environment passes"
    exact = SetAnswerCheck(items=("pump",), after="that of")
    price_list.recheck(TASK, *answered(exact))
    assert "answers" not in barring(audit(price_list, TASK)[TASK])


def test_junk_behind_the_right_answer_is_told_and_bars_nothing(price_list: PriceList) -> None:
    checks = price_list.references[TASK].checks
    price_list.recheck(TASK, *checks, *answered(AnswerCheck(contains=("done",))))
    one = audit(price_list, TASK)[TASK]
    (found,) = [f for f in one.findings if f.probe == "answers"]
    assert found.severity is Severity.WARNING
    assert "matches parts" in found.what


class _Fragile(MiniatureWorld):
    """Breaks, as careless code does, on what no honest policy would send."""

    def execute(self, call: ToolCall) -> WorldReply:
        for value in call.arguments.values():
            if isinstance(value, str):
                value.encode()
        return super().execute(call)


def test_output_that_breaks_the_world_must_not_leave_the_denominator(price_list: PriceList) -> None:
    price_list.open = lambda task: _Fragile(price_list.image)
    one = audit(price_list, TASK)[TASK]
    assert one.verdict in (AuditVerdict.EXPLOITABLE, AuditVerdict.UNAUDITED)


def test_what_stays_for_the_next_attempt_is_found(price_list: PriceList) -> None:
    kept: list[bytes] = [price_list.image]

    class Keeping(MiniatureWorld):
        def close(self) -> None:
            kept[0] = self.snapshot()
            super().close()

    price_list.open = lambda task: Keeping(kept[0])
    one = audit(price_list, TASK)[TASK]
    assert "carry-over" in barring(one)


def test_odd_numbers_must_not_pass_for_the_right_one(price_list: PriceList) -> None:
    """``price <> 174`` holds for minus one, too."""
    price_list.recheck(TASK, functional("select price <> 174 from prices where item = 'gear'", (1,)))
    found = [f for f in audit(price_list, TASK)[TASK].findings if f.probe == "numbers"]
    assert found
    assert any("-1" in f.what for f in found)
    for one in found:
        (written,) = [c.arguments["price"] for m in one.actions for c in m.tool_calls if c.name == "set_price"]
        assert f"= {written!r} in place" in one.what, "what is claimed is what was played"


def test_a_number_that_never_reached_a_tool_is_no_finding(price_list: PriceList) -> None:
    """Reading is enough here. That passes without any write, which the mutants tell; no odd number took part."""
    loose = CheckSpec(id="any", kind=CheckKind.FUNCTIONAL, rule=CallCheck(tool="get_price"))
    price_list.recheck(TASK, loose)
    one = audit(price_list, TASK)[TASK]
    numbers = [f for f in one.findings if f.probe == "numbers"]
    assert {f.what.partition(" = ")[2].partition(" in place")[0] for f in numbers} == {"-1", "1000000000"}
    assert not any("unusable" in str(f.actions) for f in numbers)
    assert "mutants" in barring(one)


KEY = "By the way: the seal costs 58, gear 17, pump 90 and bolt 31. Work in 5 turns, with 2 calls at most."
SMALL = {"bolt": 31, "gear": 17, "pump": 90, "seal": 58}


@pytest.mark.parametrize(
    "guidance",
    [KEY, "gear,17\npump,90\n", '{"gear": 17, "pump": 90}', "| gear | 17 |\n| pump | 90 |", "90 for pump, 17 for gear"],
)
def test_an_answer_key_of_small_numbers_is_a_leak(guidance: str, make_price_list: Any) -> None:
    environment = make_price_list(SMALL)
    for task in environment.tasks():
        environment.change(task.id, guidance=guidance)
    one = audit(environment, TASK)[TASK]
    assert one.verdict is AuditVerdict.LEAKING
    assert any("90 stands beside 'pump'" in f.what for f in one.findings if f.probe == "leak")
    viewed = {one.task: one for one in view_environment(environment)}[TASK]
    assert [f.severity for f in viewed.findings if "beside 'pump'" in f.what] == [Severity.WARNING]


@pytest.mark.parametrize(
    "guidance",
    [
        "Work in 17 turns. The pump, the gear and the seal: 90 calls at most.",
        "The price of a pump is 90.",  # one fact is no list of answers
        "17 31 58 90",
    ],
)
def test_small_numbers_alone_are_no_leak(guidance: str, make_price_list: Any) -> None:
    environment = make_price_list(SMALL)
    for task in environment.tasks():
        environment.change(task.id, guidance=guidance)
    assert not [f for f in audit(environment, TASK)[TASK].findings if f.probe == "leak"]


def test_reading_alone_finds_leaks_and_acquits_no_one(price_list: PriceList) -> None:
    price_list.recheck(TASK, functional("select owner from prices where item = 'gear'", ("AB-905",)))
    price_list.change(TASK, guidance="Use the tools. By the way, it is AB-905.")
    audits = {one.task: one for one in view_environment(price_list)}
    assert audits[TASK].verdict is AuditVerdict.LEAKING
    assert audits[TASK].findings[0].mend
    assert {one.verdict for task, one in audits.items() if task != TASK} == {AuditVerdict.UNAUDITED}


def test_an_environment_without_any_solution_is_attacked_all_the_same(price_list: PriceList) -> None:
    """An imported environment may have no reference solutions: what passes for nothing is an exploit nonetheless."""
    for task_id, reference in price_list.references.items():
        price_list.references[task_id] = msgspec.structs.replace(reference, oracle=())
    price_list.recheck(TASK, functional("select count(*) from prices", (5,)))
    audits = audit(price_list, separate_process=True)
    assert audits[TASK].verdict is AuditVerdict.EXPLOITABLE
    assert {"noop", "stop", "junk", "random"} <= barring(audits[TASK])
    assert audits["copy-gear-seal"].verdict is AuditVerdict.UNAUDITED


def test_a_tool_that_hangs_costs_its_own_task_alone(price_list: PriceList, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examination, "PLAY_S", 0.2)

    class Hanging(MiniatureWorld):
        def execute(self, call: ToolCall) -> WorldReply:
            while call.arguments.get("price") == 905:
                pass
            return super().execute(call)

    usual = price_list.open
    price_list.open = lambda task: Hanging(price_list.image) if task.id == TASK else usual(task)
    audits = audit(price_list, TASK, "copy-gear-seal", separate_process=True)
    assert [one.verdict for one in audits.values()] == [AuditVerdict.UNAUDITED, AuditVerdict.SOUND]
    assert any("did not end within 0.2 s" in f.evidence for f in audits[TASK].findings)


def test_a_verdict_that_depends_on_the_time_zone_is_flaky(price_list: PriceList) -> None:
    """The separate grader stands fourteen hours ahead: what it computes of local time differs there."""
    local = "select strftime('%H', 0, 'unixepoch', 'localtime') = strftime('%H', 0, 'unixepoch') from prices limit 1"
    checks = price_list.references[TASK].checks
    price_list.recheck(
        TASK, *checks, CheckSpec(id="hour", kind=CheckKind.FUNCTIONAL, rule=SqlCheck(query=local, expected=((1,),)))
    )
    one = audit(price_list, TASK, separate_process=True)[TASK]
    assert "regrade" in barring(one)
