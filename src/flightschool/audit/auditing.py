"""The audit of an environment: every probe on every task, one verdict each.

Order: task by task through the probes of single tasks; then, in batches, the evidence is judged once more in a
separate process (invariant 4); last the ceiling over all tasks. A probe that raises leaves its task ``unaudited``
and the audit goes on, since one broken task must not hide the others' defects.

What was found about a task is kept in a journal once its batch was judged again, so that a run that was killed goes on.
The ceiling needs all tasks and is computed at the end, from what is kept.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial

import msgspec

from flightschool.audit.examination import PLAY_S, Examination, Examiner, Play
from flightschool.audit.journal import Lines
from flightschool.audit.limits import OutOfTimeError, time_limit
from flightschool.audit.mends import mend_of
from flightschool.audit.neighbourhood import Neighbourhood
from flightschool.audit.probes import PROBES, REQUIRED, ceiling, flake, regrade
from flightschool.audit.probes.base import unfinished
from flightschool.audit.records import ProbeReport, TaskReports
from flightschool.audit.verdicts import verdict_of, verifier_digest
from flightschool.protocols import Environment, RewardComposition
from flightschool.records import AuditVerdict, Finding, JudgeCheck, Task, TaskAudit
from flightschool.verification import SeparateGrader
from flightschool.verification.verifier import rules_in

__all__ = ["Progress", "audit_environment"]

Progress = Callable[[int, int], None]
"""Called with (tasks done, tasks in all)."""

BATCH_SIZE = 64
"""Tasks whose evidence is held until it is judged again; bounds the states in memory."""
BATCH_S = 10.0
"""Seconds after which a batch that is examined here is judged again and kept, however small it is."""


def audit_environment(
    environment: Environment,
    *,
    composition: RewardComposition,
    tasks: Sequence[Task] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    separate_process: bool = True,
    num_workers: int = 1,
    repeats: int = 20,
    journal: Lines[TaskReports] | None = None,
) -> tuple[TaskAudit, ...]:
    """Audit tasks of an environment.

    Args:
        environment: the environment.
        composition: makes the rewards that training will believe.
        tasks: only these (all by default); what surrounds them is still the whole environment.
        seed: which siblings, mutants and random policies are tried.
        progress: told of each task, or of each batch of them where examiners work side by side.
        separate_process: judge again in a separate process; without it no task can be called sound.
        num_workers: examiners side by side, as forked processes; call with 1 where threads of others hold locks.
        repeats: plays of each reference solution, at least 2; after n that agree the flake rate lies below
            1 − 0.05^(1/n) with 95 % confidence.
        journal: tasks whose reports are there already are not examined again; new reports go into it.

    Returns:
        One audit a task, in the order of the tasks.
    """
    chosen = tuple(environment.tasks() if tasks is None else tasks)
    neighbourhood = Neighbourhood(environment, seed)
    desk = _Desk(environment, composition, neighbourhood, seed, separate_process, max(2, repeats))
    keys = {task.id: f"{task.digest} {verifier_digest(neighbourhood.references.get(task.id))}" for task in chosen}
    found: dict[str, TaskReports] = {}
    if journal is not None:
        found = {task.id: kept for task in chosen if (kept := journal.find(keys[task.id])) is not None}
    count = _Count(len(found), len(chosen), progress)
    for batch in _examined(desk, [task for task in chosen if task.id not in found], num_workers, count):
        for one in batch:
            found[one.task] = one
            if journal is not None:
                journal.add(keys[one.task], one)
        count.is_now(len(found))
    reports = {task.id: list(found[task.id].reports) for task in chosen}
    _ceiling([found[task.id] for task in chosen], neighbourhood, environment, reports)
    audits = (_audit(task, environment, neighbourhood, reports[task.id], desk.repeats) for task in chosen)
    return tuple(
        msgspec.structs.replace(audit, equivalent_mutants=found[audit.task].equivalent_mutants) for audit in audits
    )


class _Count:
    """Tells of each task that was examined here, and of batches that others examined."""

    def __init__(self, num_done: int, num_tasks: int, progress: Progress | None) -> None:
        self._num_tasks = num_tasks
        self._progress = progress
        self._num_done = -1
        self.is_now(num_done)

    def one_more(self) -> None:
        self.is_now(self._num_done + 1)

    def is_now(self, num_done: int) -> None:
        if num_done != self._num_done and self._progress is not None:
            self._progress(num_done, self._num_tasks)
        self._num_done = num_done


@dataclass(frozen=True)
class _Desk:
    """What every examiner needs, and what is the same for all batches."""

    environment: Environment
    composition: RewardComposition
    neighbourhood: Neighbourhood
    seed: int
    separate_process: bool
    repeats: int


_shared: list[_Desk] = []
"""The desk that forked examiners inherit: environments hold code and open databases, which do not travel by pickle."""


def _examined(
    desk: _Desk, chosen: Sequence[Task], num_workers: int, count: _Count
) -> Iterator[tuple[TaskReports, ...]]:
    """Batches in the order of the tasks, examined here or by forked examiners side by side."""
    batches = [chosen[start : start + BATCH_SIZE] for start in range(0, len(chosen), BATCH_SIZE)]
    if num_workers < 2 or len(batches) < 2 or "fork" not in multiprocessing.get_all_start_methods():
        num_done = 0
        while num_done < len(chosen):
            batch = _examine_batch(desk, chosen[num_done : num_done + BATCH_SIZE], count, BATCH_S)
            num_done += len(batch)
            yield batch
        return
    _shared.append(desk)
    try:
        context = multiprocessing.get_context("fork")
        with ProcessPoolExecutor(max_workers=min(num_workers, len(batches)), mp_context=context) as pool:
            yield from pool.map(_examine_inherited, batches)
    finally:
        _shared.pop()


def _examine_inherited(batch: Sequence[Task]) -> tuple[TaskReports, ...]:
    return _examine_batch(_shared[-1], batch)


def _examine_batch(
    desk: _Desk, batch: Sequence[Task], count: _Count | None = None, within_s: float | None = None
) -> tuple[TaskReports, ...]:
    """Examine tasks, at least one; with ``within_s`` no further one is begun after so many seconds."""
    began = time.monotonic()
    reports: dict[str, list[ProbeReport]] = {}
    habits: dict[str, dict[str, bool]] = {}
    equivalents: dict[str, tuple[str, ...]] = {}
    evidence: list[tuple[str, Play]] = []
    examiner = Examiner(desk.environment, desk.composition)
    grader = SeparateGrader(pass_env=_keys_of_judges(desk.neighbourhood, batch), more_env=regrade.ELSEWHERE)
    try:
        for task in batch:
            if reports and within_s is not None and time.monotonic() - began > within_s:
                break
            exam = _examine(task, examiner, desk, reports.setdefault(task.id, []))
            if exam is not None:
                habits[task.id] = exam.habit_passes
                equivalents[task.id] = tuple(exam.equivalent_mutants)
                evidence += _evidence(exam)
            if count is not None:
                count.one_more()
        if desk.separate_process:
            _regrade(grader, evidence, desk.neighbourhood, reports)
    finally:
        grader.close()
        examiner.close()
    return tuple(
        TaskReports(
            task=task.id,
            stratum=task.stratum,
            reports=tuple(reports[task.id]),
            habit_passes=habits.get(task.id),
            equivalent_mutants=equivalents.get(task.id, ()),
        )
        for task in batch
        if task.id in reports
    )


def _keys_of_judges(neighbourhood: Neighbourhood, batch: Sequence[Task]) -> tuple[str, ...]:
    """Environment variables without which the separate process could not ask the judges that the checks name."""
    references = (neighbourhood.references[task.id] for task in batch if task.id in neighbourhood.references)
    rules = (rule for reference in references for check in reference.checks for rule in rules_in(check.rule))
    return tuple(sorted({rule.key_env for rule in rules if isinstance(rule, JudgeCheck) and rule.key_env}))


def _examine(task: Task, examiner: Examiner, desk: _Desk, reports: list[ProbeReport]) -> Examination | None:
    """Run the probes of single tasks; None when there is nothing to examine with."""
    neighbourhood = desk.neighbourhood
    if task.id not in neighbourhood.references:
        error = neighbourhood.unreadable.get(task.id, "not a task of the environment")
        reports.append(ProbeReport(probe="reference", error=error))
        return None
    try:
        with time_limit(PLAY_S):
            world = examiner.environment.open(task)
            initial_state = world.snapshot()
            world.close()
    except (Exception, OutOfTimeError) as error:  # noqa: BLE001  a world that cannot be opened belongs to the examined, not to us
        reports.append(ProbeReport(probe="open", error=f"{type(error).__name__}: {error}"))
        return None
    exam = Examination(
        task=task,
        examiner=examiner,
        neighbourhood=neighbourhood,
        seed=desk.seed,
        initial_state=initial_state,
        repeats=desk.repeats,
    )
    reports.extend(_run(probe.name, partial(probe.run, exam)) for probe in PROBES)
    return exam


def _run(name: str, run: Callable[[], Iterable[Finding]]) -> ProbeReport:
    findings: list[Finding] = []
    try:
        findings.extend(run())
    except Exception as error:  # noqa: BLE001  the examined code may raise anything; an unfinished probe acquits no one
        return ProbeReport(probe=name, findings=tuple(findings), error=f"{type(error).__name__}: {error}")
    return ProbeReport(probe=name, findings=tuple(findings))


def _evidence(exam: Examination) -> list[tuple[str, Play]]:
    """The plays to be judged again elsewhere: the oracle and one mutant, if they could be played."""
    played = [exam.__dict__.get("oracle"), exam.__dict__.get("refused_mutant")]  # cached, so that nothing runs anew
    return [(exam.task.id, play) for play in played if isinstance(play, Play)]


def _regrade(
    grader: SeparateGrader,
    evidence: Sequence[tuple[str, Play]],
    neighbourhood: Neighbourhood,
    reports: dict[str, list[ProbeReport]],
) -> None:
    for task_id, report in regrade.judge_elsewhere(grader, evidence, neighbourhood.references).items():
        reports[task_id].append(report)


def _ceiling(
    examined: Sequence[TaskReports],
    neighbourhood: Neighbourhood,
    environment: Environment,
    reports: dict[str, list[ProbeReport]],
) -> None:
    habits = {one.task: (one.stratum, one.habit_passes) for one in examined if one.habit_passes is not None}
    found = ceiling.findings(list(habits.values()), environment.strata)
    tasks = {task.id: task for task in neighbourhood.tasks}
    passed_by = {name: [task for task, (_, passes) in habits.items() if passes.get(name)] for name in found}
    for task_id, (stratum, passes) in habits.items():
        shown = [
            ceiling.at(tasks[task_id], finding, neighbourhood.habits[stratum], passed_by[stratum], len(habits))
            for finding in ([found[stratum]] if stratum in found else [])
        ]
        report = ProbeReport(
            probe=ceiling.NAME,
            findings=tuple(shown),
            error="" if set(passes) >= set(neighbourhood.habits) else "the habits could not all be tried",
        )
        reports[task_id].append(report)


def _audit(
    task: Task, environment: Environment, neighbourhood: Neighbourhood, reports: Sequence[ProbeReport], repeats: int
) -> TaskAudit:
    findings = [msgspec.structs.replace(f, mend=mend_of(f.probe)) for report in reports for f in report.findings]
    agreed = any(report.probe == flake.NAME and not report.error and not report.findings for report in reports)
    findings += [unfinished(report.probe, report.error) for report in reports if report.error]
    reported = {report.probe for report in reports}
    findings += [unfinished(name, "the probe was not run") for name in REQUIRED if name not in reported]
    reference = neighbourhood.references.get(task.id)
    return TaskAudit(
        environment=environment.name,
        task=task.id,
        task_digest=task.digest,
        verifier_digest=verifier_digest(reference),
        verdict=verdict_of(reports, REQUIRED) if reference is not None else AuditVerdict.UNAUDITED,
        findings=tuple(findings),
        num_repeats=repeats if agreed else 0,
        flake_bound=1.0 - 0.05 ** (1.0 / repeats) if agreed else 1.0,
    )
