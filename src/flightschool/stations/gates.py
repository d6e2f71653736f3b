"""The three gates before training: audit the reward, freeze the suite, screen what is left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from flightschool.audit import AuditIndex, audit_environment, open_journal, require_sound, save_audits
from flightschool.errors import GateError, InputError
from flightschool.evaluation import Frozen, design_suite, save_design, save_frozen, save_texts
from flightschool.evaluation import freeze as take_freeze
from flightschool.governance import known_error
from flightschool.protocols import Environment, RewardComposition
from flightschool.records import Attempt, AuditVerdict, Outcome, Suite, Task, TaskAudit
from flightschool.rollouts import EpisodeRunner, run_attempts
from flightschool.screening import Funnel, TrainingPool, measure_funnel, require_screened, save_decisions, screen
from flightschool.stations.failing import refuse_ungraded
from flightschool.stations.harnesses import make_harness
from flightschool.stations.measuring import Pilot, num_cores
from flightschool.stations.settings import JobSettings, SuiteTable, WaiverTable
from flightschool.stations.telling import Tell
from flightschool.stations.watching import Canaries
from flightschool.store import SqlStore

__all__ = ["Admission", "Candidates", "admit", "audit", "candidates", "freeze", "frozen_suites"]


def audit(
    store: SqlStore,
    environment: Environment,
    composition: RewardComposition,
    tell: Tell,
    repeats: int = 3,
    data: Path | None = None,
) -> tuple[TaskAudit, ...]:
    """Audit every task that has no verdict yet as it is now; returns the verdicts of all.

    Args:
        repeats: plays of each reference solution; one flaky task among hundreds is found by ``flightschool audit``,
            which plays twenty.
        data: the workspace's data folder: an audit that is killed goes on from what it kept there.
    """
    tell.station("audit the reward")
    index = AuditIndex(store, environment)
    known = {task.id: found for task in environment.tasks() if (found := index.find(task)) is not None}
    fresh = [task for task in environment.tasks() if task.id not in known]
    if fresh:
        journal = None if data is None else open_journal(data, environment, composition, repeats=repeats)
        audits = audit_environment(
            environment,
            composition=composition,
            tasks=fresh,
            progress=tell.tick,
            num_workers=num_cores(),
            repeats=repeats,
            journal=journal,
        )
        save_audits(store, audits)
        if journal is not None:
            journal.forget()
        known.update((found.task, found) for found in audits)
    verdicts = tuple(known[task.id] for task in environment.tasks())
    counts = Counter(found.verdict for found in verdicts)
    tell.note(", ".join(f"{counts[verdict]} {verdict}" for verdict in AuditVerdict if counts[verdict]))
    return verdicts


def freeze(store: SqlStore, environment: Environment, table: SuiteTable, seed: int, tell: Tell) -> Frozen:
    """Freeze suite and holdout; freezing the same again changes nothing.

    Raises:
        GateError: a suite of this name is frozen and differs.
    """
    tell.station("freeze the suite")
    untrained = {name: table.max_tasks_untrained for name in environment.strata if name not in table.trained}
    frozen = take_freeze(
        environment,
        table.name,
        strata=table.strata,
        suite_fraction=table.suite_fraction,
        holdout_fraction=table.holdout_fraction,
        seed=seed,
        trained=table.trained,
        max_tasks_per_family=table.max_tasks_per_family,
        max_tasks_per_stratum=untrained,
    )
    save_frozen(store, frozen)
    save_design(store, design_suite(frozen.suite, environment))
    for part in (
        frozen.suite,
        frozen.holdout,
    ):  # listed here and not encrypted: its texts lie in the environment as well
        if part is not None:
            save_texts(store, part, environment)
    sealed = len(frozen.holdout.task_digests) if frozen.holdout else 0
    tell.note(f"{len(frozen.suite.task_digests)} tasks frozen, {sealed} sealed, {len(frozen.pool)} left to train on")
    return frozen


class Candidates(NamedTuple):
    """What could be trained on, before anything is screened."""

    num_pool: int
    """Tasks of the pool's trained strata."""
    sound: tuple[Task, ...]
    """Those whose reward was audited and found sound, or waived by name."""


def candidates(
    store: SqlStore,
    environment: Environment,
    frozen: Frozen,
    waiver: WaiverTable | None = None,
    canaries: Canaries | None = None,
) -> Candidates:
    """The sound tasks of the pool's trained strata: outside suite and holdout, audited; and those that are waived.

    Canaries are never among them: what no honest policy can pass must not be taught.

    Raises:
        GateError: nothing is sound, or a finding concerns the whole environment, and no one waives it.
        InputError: the waiver names a task that is not in the pool.
    """
    waived = waiver or WaiverTable()
    trained = {share.name for share in frozen.suite.strata if share.trained}
    watched = canaries.ids if canaries is not None else frozenset()
    tasks = [environment.task(task_id) for task_id in frozen.pool if task_id not in watched]
    tasks = [task for task in tasks if not trained or task.stratum in trained]
    outside = [task_id for task_id in waived.tasks if task_id not in {task.id for task in tasks}]
    if outside:
        raise InputError(
            f"task {outside[0]!r} is waived, and is none of the pool",
            where="waiver.tasks",
            expected="tasks of the trained strata, outside suite and holdout",
            mend="leave it out",
        )
    sound = {task.id for task in AuditIndex(store, environment).sound(tasks)}
    chosen = tuple(task for task in tasks if task.id in sound or task.id in waived.tasks)
    # with nothing sound, the refusal names what bars them
    require_sound(store, environment, chosen or tasks, actor=waived.name, reason=waived.reason)
    return Candidates(len(tasks), chosen)


class Admission(NamedTuple):
    """What came through the screening."""

    tasks: tuple[Task, ...]
    weights: dict[str, float]
    """How often each is to come, by task id: the probability that a group at it has a gradient, over the highest."""
    funnel: Funnel


def admit(
    store: SqlStore,
    environment: Environment,
    composition: RewardComposition,
    frozen: Frozen,
    found: Candidates,
    pilot: Pilot,
    settings: JobSettings,
    tell: Tell,
) -> Admission:
    """Screen the candidates with the policy that will train.

    Raises:
        GateError: nothing carries signal, and whether that is the tasks' doing or that of a broken harness or engine.
    """
    tell.station("screen the pool")
    suites = [suite for suite in (frozen.suite, frozen.holdout) if suite is not None]
    known = known_error(store, environment.digest)
    pool = TrainingPool(found.sound, suites=suites, environment=environment)
    runner = EpisodeRunner(environment, composition, run="screening", harness=make_harness(settings.harness))
    policy = pilot.policy(settings.training.first_temperature)

    failed: list[Attempt] = []

    def roll(tasks: Sequence[Task], seed: int) -> list[Attempt]:
        rolled = run_attempts(runner, tasks, policy, seed=seed, concurrency=settings.evaluation.concurrency)
        failed.extend(attempt for attempt in rolled if attempt.outcome is Outcome.INFRA_FAILURE)
        return rolled

    decisions = screen(
        pool,
        roll,
        policy=policy.name,
        group_size=settings.training.group_size,
        budget=settings.screening.budget,
        threshold=settings.screening.threshold,
        seed=settings.seed,
        noise=(0.0, 0.0) if known is None else known.noise,
        progress=tell.tick,
    )
    if known is not None:
        tell.note(f"the verifier's errors are no signal: {known.num_reviewed} attempts were reviewed ({known.sheet})")
    save_decisions(store, decisions)
    signals = {decision.task: decision.signal_probability for decision in decisions if decision.admitted}
    admitted = pool.only(signals).tasks
    funnel = measure_funnel(found.num_pool, len(found.sound), decisions)
    tell.note(
        f"{funnel.pool} tasks → {funnel.sound} sound → {funnel.admitted} with signal ({funnel.num_rollouts} rollouts)"
    )
    if not admitted:
        refuse_ungraded(failed, total=funnel.num_rollouts, where="screening")
        raise _no_signal(funnel, policy.name)
    require_screened(store, policy.name, admitted)
    most = max(signals.values())
    return Admission(admitted, {task: signal / most for task, signal in signals.items()}, funnel)


def _no_signal(funnel: Funnel, policy: str) -> GateError:
    unreached = funnel.sound - funnel.screened
    return GateError(
        f"none of {funnel.sound} sound tasks is likely to carry reward variance for {policy}"
        + (f"; {unreached} of them stand in families with too few rollouts to tell" if unreached else ""),
        where="screening",
        expected="tasks that the model neither always solves nor always fails",
        mend="add easier or harder families, raise screening.budget, or lower screening.threshold",
    )


def frozen_suites(store: SqlStore, environment: str) -> list[Suite]:
    """Everything that is or will be measured on in an environment, holdouts included."""
    found = [suite for kind in ("suite", "holdout") for _, suite in store.items(kind, Suite)]
    return [suite for suite in found if suite.environment == environment]
