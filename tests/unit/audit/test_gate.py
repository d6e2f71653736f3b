from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
import pytest

from flightschool.audit import (
    AuditIndex,
    audit_environment,
    folder_waiver,
    require_sound,
    require_sound_folders,
    save_audits,
    save_folder_audit,
    task_waiver,
)
from flightschool.audit.terminal import FlawFinding, FolderAudit
from flightschool.audit.verdicts import verifier_digest
from flightschool.environments import examine
from flightschool.environments.terminal import TerminalTask
from flightschool.errors import GateError, InputError
from flightschool.governance import AuditLog, overrides
from flightschool.records import AuditVerdict, CheckKind, CheckSpec, DiffCheck, Finding, Severity, TaskAudit
from flightschool.store import SqlStore
from flightschool.verification import OutcomeReward

TASKS = ("copy-gear-pump", "copy-gear-seal", "locked-cog")


@pytest.fixture
def store() -> Iterator[SqlStore]:
    opened = SqlStore("sqlite://")
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def audits(make_price_list: Any) -> tuple[TaskAudit, ...]:
    environment = make_price_list()
    tasks = [environment.task(task_id) for task_id in TASKS]
    return audit_environment(environment, composition=OutcomeReward(), tasks=tasks)


@pytest.fixture
def audited(price_list: Any, audits: tuple[TaskAudit, ...], store: SqlStore) -> Any:
    save_audits(store, audits)
    return price_list


def test_sound_tasks_pass(audited: Any, store: SqlStore) -> None:
    tasks = [audited.task(task_id) for task_id in TASKS]
    assert [audit.task for audit in require_sound(store, audited, tasks)] == list(TASKS)


def test_an_unaudited_task_is_refused_by_name(audited: Any, store: SqlStore) -> None:
    tasks = [audited.task(task_id) for task_id in (*TASKS, "copy-bolt-pump")]
    with pytest.raises(GateError, match=r"1 task\(s\) are not sound: copy-bolt-pump \(unaudited\)"):
        require_sound(store, audited, tasks)
    assert AuditIndex(store, audited).sound(tasks) == tuple(tasks[:3])


def test_a_changed_word_makes_a_task_unaudited(audited: Any, store: SqlStore) -> None:
    audited.change(TASKS[0], instruction="Give gear the price of pump, please.")
    with pytest.raises(GateError, match="copy-gear-pump"):
        require_sound(store, audited, [audited.task(TASKS[0])])


def test_a_changed_check_makes_a_task_unaudited(audited: Any, store: SqlStore) -> None:
    checks: tuple[CheckSpec, ...] = audited.references[TASKS[0]].checks
    audited.recheck(TASKS[0], checks[0])
    assert AuditIndex(store, audited).verdict(audited.task(TASKS[0])) is AuditVerdict.UNAUDITED


def test_a_finding_of_the_whole_environment_bars_sound_tasks_too(audited: Any, store: SqlStore) -> None:
    task = audited.task(TASKS[0])
    found = AuditIndex(store, audited).find(task)
    assert found is not None
    wide = Finding(probe="environment.ceiling", severity=Severity.BARRING, what="a habit scores .9")
    save_audits(store, [msgspec.structs.replace(found, findings=(wide,))])
    with pytest.raises(GateError, match=r"the whole environment is suspect: a habit scores \.9"):
        require_sound(store, audited, [task])


def test_an_override_needs_a_name_and_a_reason_and_is_written_down(audited: Any, store: SqlStore) -> None:
    task = audited.task("copy-bolt-pump")
    with pytest.raises(InputError, match="needs a reason"):
        require_sound(store, audited, [task], actor="Vera")
    with pytest.raises(InputError, match="needs a actor"):
        require_sound(store, audited, [task], reason="demonstration")
    assert require_sound(store, audited, [task], actor="Vera", reason="demonstration") == ()
    (written,) = overrides(AuditLog(store))
    assert (written.name, written.reason, written.gate) == ("Vera", "demonstration", "audit")
    assert "copy-bolt-pump (unaudited)" in written.subject


def test_a_finding_of_the_whole_environment_bars_the_tasks_that_it_spared(audited: Any, store: SqlStore) -> None:
    """The tasks at the gate are sound; what was found stands on a task that is not among them."""
    other = audited.task("copy-bolt-pump")
    wide = Finding(probe="environment.ceiling", severity=Severity.BARRING, what="a habit scores .9")
    found = AuditIndex(store, audited).find(audited.task(TASKS[0]))
    assert found is not None
    barred = msgspec.structs.replace(
        found,
        task=other.id,
        task_digest=other.digest,
        verifier_digest=verifier_digest(audited.reference(other.id)),
        verdict=AuditVerdict.EXPLOITABLE,
        findings=(wide,),
    )
    save_audits(store, [barred])
    tasks = [audited.task(task_id) for task_id in TASKS]
    with pytest.raises(GateError, match="the whole environment is suspect"):
        require_sound(store, audited, tasks)
    require_sound(store, audited, tasks, actor="Vera", reason="the habit is wanted")


def test_a_task_whose_sealed_side_is_gone_does_not_shut_the_gate_for_the_others(audited: Any, store: SqlStore) -> None:
    del audited.references["copy-bolt-pump"]
    tasks = [audited.task(task_id) for task_id in TASKS]
    assert len(require_sound(store, audited, tasks)) == len(TASKS)


def test_what_doing_nothing_passes_does_not_train(price_list: Any, store: SqlStore) -> None:
    """The tasks that ``env check`` bars are those that the audit accuses, so the gate needs no second list."""
    unchanged = CheckSpec(id="unchanged", kind=CheckKind.FUNCTIONAL, rule=DiffCheck(allowed={}))
    price_list.recheck("locked-cog", unchanged)
    price_list.recheck("locked-gear", msgspec.structs.replace(unchanged, kind=CheckKind.CONSTRAINT))  # asks for nothing
    assert examine(price_list, None).barred == ("locked-gear", "locked-cog")
    tasks = [price_list.task(f"locked-{item}") for item in ("cog", "gear", "seal")]
    audits = audit_environment(price_list, composition=OutcomeReward(), tasks=tasks)
    save_audits(store, audits)
    verdicts = [audit.verdict for audit in audits]
    assert verdicts == [AuditVerdict.EXPLOITABLE, AuditVerdict.UNAUDITED, AuditVerdict.SOUND]
    assert {finding.probe for finding in audits[0].findings} >= {"noop", "stop"}
    with pytest.raises(GateError, match=r"locked-cog \(exploitable\), locked-gear \(unaudited\)"):
        require_sound(store, price_list, tasks)
    assert AuditIndex(store, price_list).sound(tasks) == (tasks[2],)


# ------------------------------------------------------------------------------------------------ task folders


class Folder(NamedTuple):
    id: str
    digest: str


def folder(number: int, verdict: AuditVerdict, *flaws: str) -> FolderAudit:
    findings = tuple(
        FlawFinding(flaw=flaw, severity=Severity.BARRING, accuses=verdict, what=f"{flaw} works", confirmed=True)
        for flaw in flaws
    )
    return FolderAudit(
        id=f"t{number}", path=f"/pool/t{number}", digest=f"d{number}", verdict=verdict, findings=findings
    )


def test_task_folders_pass_by_the_audit_of_their_content(store: SqlStore) -> None:
    save_folder_audit(store, folder(0, AuditVerdict.SOUND))
    save_folder_audit(store, folder(1, AuditVerdict.EXPLOITABLE, "reward-forging"))
    sound, bad, changed = Folder("t0", "d0"), Folder("t1", "d1"), Folder("t0", "d0-changed")
    assert [audit.task for audit in require_sound_folders(store, "pool", [sound])] == ["t0"]
    with pytest.raises(GateError, match=r"t1 \(exploitable\)"):
        require_sound_folders(store, "pool", [sound, bad])
    with pytest.raises(GateError, match=r"t0 \(unaudited\)"):
        require_sound_folders(store, "pool", [changed])
    assert require_sound_folders(store, "pool", [bad], actor="Vera", reason="to see it")[0].verdict == "exploitable"
    (written,) = overrides(AuditLog(store))
    assert written.subject.startswith("pool: 1 task(s) are not sound: t1")


def test_a_flaw_of_half_the_pool_bars_its_sound_folders(store: SqlStore) -> None:
    pool = [Folder(f"t{i}", f"d{i}") for i in range(8)]
    for number in range(8):
        bad = number < 4
        audit = folder(number, AuditVerdict.EXPLOITABLE, "hook-plant") if bad else folder(number, AuditVerdict.SOUND)
        save_folder_audit(store, audit)
    with pytest.raises(GateError, match="4 of 8 tasks fail this probe"):
        require_sound_folders(store, "pool", pool[4:], among=pool)
    assert len(require_sound_folders(store, "pool", pool[4:])) == 4


def test_a_waiver_is_kept_by_the_content_that_it_was_said_of(store: SqlStore) -> None:
    save_folder_audit(store, folder(0, AuditVerdict.SOUND))
    save_folder_audit(store, folder(1, AuditVerdict.EXPLOITABLE, "reward-forging"))
    require_sound_folders(store, "pool", [Folder("t0", "d0"), Folder("t1", "d1")], actor="Vera", reason="known")
    kept = folder_waiver(store, "d1")
    assert kept is not None
    assert (kept.name, kept.reason, kept.gate) == ("Vera", "known", "audit")
    assert folder_waiver(store, "d0") is None, "nobody had to waive what is sound"
    assert folder_waiver(store, "d1-changed") is None
    assert folder_waiver(store, "") is None
    require_sound_folders(store, "pool", [Folder("t1", "d1")], actor="Vera", reason="known")
    again = folder_waiver(store, "d1")
    assert again is not None
    assert again.at == kept.at, "said twice is said once"
    require_sound_folders(store, "pool", [Folder("t1", "d1")], actor="Otto", reason="known too")
    last = folder_waiver(store, "d1")
    assert last is not None
    assert last.name == "Otto"


def test_a_flaw_of_the_pool_is_waived_for_all_that_pass_by_it(store: SqlStore) -> None:
    pool = [Folder(f"t{i}", f"d{i}") for i in range(8)]
    for number in range(8):
        flaws = ("hook-plant",) if number < 4 else ()
        save_folder_audit(store, folder(number, AuditVerdict.EXPLOITABLE if flaws else AuditVerdict.SOUND, *flaws))
    require_sound_folders(store, "pool", pool[4:], among=pool, actor="Vera", reason="one template")
    assert [one.id for one in pool if folder_waiver(store, one.digest)] == ["t4", "t5", "t6", "t7"]


def test_the_waiver_of_an_environments_task_holds_as_it_was_audited(audited: Any, store: SqlStore) -> None:
    task = audited.task(TASKS[0])
    found = AuditIndex(store, audited).find(task)
    assert found is not None
    save_audits(store, [msgspec.structs.replace(found, verdict=AuditVerdict.FLAKY)])
    require_sound(store, audited, [task], actor="Vera", reason="demonstration")
    kept = task_waiver(store, found)
    assert kept is not None
    assert kept.name == "Vera"
    assert task_waiver(store, msgspec.structs.replace(found, task_digest="other")) is None


def test_the_terminal_task_of_a_folder_is_one_that_the_gate_knows() -> None:
    assert {"id", "digest"} <= {*TerminalTask.__struct_fields__, *vars(TerminalTask)}
