"""Grading stored attempts again: nothing is flown anew, only judged anew.

For a truth that was corrected in a new version of the suite, a judge that was exchanged, or a doubt about the grader.
The end state is taken from the store, or made again by executing the recorded calls in a fresh world; either way its
digest must be the recorded one. Judging happens in a separate process. An attempt that cannot be judged again has no
grade: it is missing, not failed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TypeAlias

import msgspec

from flightschool.errors import FlightschoolError, GateError, InfrastructureError, NotFoundError
from flightschool.evaluation.records import EvaluationItem, EvaluationRun
from flightschool.evaluation.running import Progress
from flightschool.evaluation.suites import require_unchanged
from flightschool.perturbation import FaultProfile
from flightschool.protocols import Environment, RewardComposition, Store
from flightschool.records import Attempt, CheckSpec, EndReason, Evidence, JudgeCheck, Outcome, Record, Suite, Verdict
from flightschool.rollouts import answer_of, reenact
from flightschool.verification import SeparateGrader, rules_in

__all__ = ["Judge", "Regraded", "regrade_run"]

Judge: TypeAlias = Callable[[Attempt], Verdict]
"""Judges a stored attempt anew. Raises ``InfrastructureError`` when it cannot."""
TIMEOUT_S = 120.0
"""Of one item, beside what its commands and judges may take: a busy machine is no reason to lose a grade."""


class Regraded(Record, frozen=True, kw_only=True):
    """A run graded again."""

    run: EvaluationRun
    turned: dict[str, str]
    """Item (task and repeat) → how its grade turned: ``failed → succeeded`` …"""
    lost: dict[str, str]
    """Item → why it could not be graded again."""


def regrade_run(
    store: Store,
    run: EvaluationRun,
    suite: Suite,
    environment: Environment,
    *,
    composition: RewardComposition,
    run_id: str,
    weather_profile: FaultProfile | None = None,
    progress: Progress | None = None,
    open_judge: Callable[[], AbstractContextManager[Judge]] | None = None,
) -> Regraded:
    """Judge the stored attempts of a run by a suite as it is frozen now.

    Args:
        store: holds the attempts, and end states where they were kept.
        run: what was measured; on this suite, or on another version with the same tasks.
        suite: whose truths and verifiers judge.
        environment: in which the suite was frozen.
        composition: makes grades of verdicts.
        run_id: id of the new evaluation.
        weather_profile: the run's faults, to make end states again.
        progress: told after each item.
        open_judge: what judges instead of checks in a separate process: the tests of task folders, in sandboxes.

    Raises:
        GateError: the environment is not what was frozen, the suite holds none of the run's tasks as they were, or an
            attempt is not what was measured.
    """
    require_unchanged(suite, environment)
    found = _Found()
    opens = open_judge or (lambda: _checks_judge(store, run, suite, environment, weather_profile))
    with opens() as judge:
        for done, item in enumerate(run.items, start=1):
            attempt = _attempt_of(store, item, suite)
            if attempt is not None:
                found.add(item, *_graded(item, attempt, judge, composition))
            if progress is not None:
                progress(done, len(run.items))
    if not found.items:
        raise GateError(
            "the run attempted none of this suite's tasks as they stand there",
            where=f"evaluation {run.id}, suite {suite.name}",
            expected="attempts at tasks with the same prompt",
            mend="measure anew: a changed prompt is another task",
        )
    again = _again(run, suite, environment, composition, run_id, found.items)
    return Regraded(run=again, turned=found.turned, lost=found.lost)


# ------------------------------------------------------------------------------------------------ parts


@contextmanager
def _checks_judge(
    store: Store, run: EvaluationRun, suite: Suite, environment: Environment, profile: FaultProfile | None
) -> Iterator[Judge]:
    """The tasks' checks on stored or re-enacted end states, in a process of their own."""
    specs = {task: environment.reference(task).checks for task in suite.task_digests}
    with SeparateGrader(timeout_s=TIMEOUT_S, pass_env=_keys(specs.values())) as grader:

        def judge(attempt: Attempt) -> Verdict:
            evidence = _evidence(store, attempt, environment, profile, run.enforced)
            return grader.judge(specs[attempt.task], evidence)

        yield judge


class _Found:
    """Grades as they come in."""

    def __init__(self) -> None:
        self.items: list[EvaluationItem] = []
        self.turned: dict[str, str] = {}
        self.lost: dict[str, str] = {}

    def add(self, item: EvaluationItem, fresh: EvaluationItem, why: str) -> None:
        self.items.append(fresh)
        label = f"{item.task}#{item.repeat}"
        if why:
            self.lost[label] = why
        elif fresh.success != item.success:
            self.turned[label] = f"{_word(item.success)} → {_word(fresh.success)}"


def _again(
    run: EvaluationRun,
    suite: Suite,
    environment: Environment,
    composition: RewardComposition,
    run_id: str,
    items: Sequence[EvaluationItem],
) -> EvaluationRun:
    """The run as this suite judges it; the attempts keep the seeds that they were made with."""
    return msgspec.structs.replace(
        run,
        id=run_id,
        suite=suite.name,
        suite_digest=suite.digest,
        environment=environment.name,
        environment_digest=environment.digest,
        composition_digest=composition.digest,
        holdout=suite.holdout,
        weights={share.name: share.weight for share in suite.strata},
        items=tuple(items),
        regraded=run.id,
        seeds_of="" if suite.digest == run.suite_digest else run.seeds_of or run.suite_digest,
    )


def _attempt_of(store: Store, item: EvaluationItem, suite: Suite) -> Attempt | None:
    """The stored attempt, which must be the one that was measured; None where the suite has no such task."""
    if item.task not in suite.task_digests:
        return None
    attempt = store.get("attempt", item.attempt, Attempt)
    if attempt.digest != item.attempt_digest:
        raise GateError(
            f"attempt {item.attempt} is not what was measured: its record was changed",
            where=f"attempt {item.attempt}",
            expected=f"digest {item.attempt_digest}",
            mend="restore the workspace from a copy, and find out who wrote to the database",
        )
    return attempt if attempt.task_digest == suite.task_digests[item.task] else None


def _graded(
    item: EvaluationItem, attempt: Attempt, judge: Judge, composition: RewardComposition
) -> tuple[EvaluationItem, str]:
    """The item with its new grade, and why there is none."""
    if attempt.outcome is Outcome.INFRA_FAILURE and attempt.reason is not EndReason.GRADER_ERROR:
        return item, ""
    try:
        verdict = judge(attempt)
    except InfrastructureError as error:
        missing = msgspec.structs.replace(
            item, success=None, outcome=Outcome.INFRA_FAILURE, reason=EndReason.GRADER_ERROR, violations=()
        )
        return missing, str(error)
    reward = composition.compose(verdict, attempt.timings.virtual_ms, attempt.num_completion_tokens)
    fresh = msgspec.structs.replace(item, success=reward.success, violations=verdict.violations)
    if item.outcome is Outcome.INFRA_FAILURE:  # the grader alone had failed
        fresh = msgspec.structs.replace(fresh, outcome=Outcome.SCORED, reason=EndReason.FINISHED)
    return fresh, ""


def _evidence(
    store: Store, attempt: Attempt, environment: Environment, profile: FaultProfile | None, enforced: bool
) -> Evidence:
    """What the grader may see. Raises ``InfrastructureError`` when the end state cannot be had."""
    try:
        end_state = store.get_blob(attempt.end_state)
    except NotFoundError:
        return reenact(attempt, environment, weather_profile=profile, enforce=enforced)
    except FlightschoolError as error:
        raise InfrastructureError(error.what, where=error.where, expected=error.expected, mend=error.mend) from error
    world = environment.open(environment.task(attempt.task))
    try:
        initial = world.snapshot()
    finally:
        world.close()
    return Evidence(initial_state=initial, end_state=end_state, events=attempt.events, answer=answer_of(attempt))


def _keys(checks: Iterable[Sequence[CheckSpec]]) -> tuple[str, ...]:
    """Environment variables that hold the keys of judges."""
    rules = [rule for specs in checks for spec in specs for rule in rules_in(spec.rule)]
    names = {rule.key_env for rule in rules if isinstance(rule, JudgeCheck) and rule.key_env}
    return tuple(sorted(name for name in names if name in os.environ))


def _word(success: bool | None) -> str:
    return "no grade" if success is None else "succeeded" if success else "failed"
