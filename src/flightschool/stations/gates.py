"""The three gates before training: audit the reward, freeze the suite, screen what is left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from flightschool.audit import AuditIndex, audit_environment, require_sound, save_audits
from flightschool.errors import GateError
from flightschool.evaluation import Frozen, design_suite, save_design, save_frozen
from flightschool.evaluation import freeze as take_freeze
from flightschool.protocols import Environment, RewardComposition
from flightschool.records import Attempt, AuditVerdict, Suite, Task, TaskAudit
from flightschool.rollouts import EpisodeRunner, run_attempts
from flightschool.screening import Funnel, TrainingPool, measure_funnel, require_screened, save_decisions, screen
from flightschool.stations.harnesses import make_harness
from flightschool.stations.measuring import Pilot, num_cores
from flightschool.stations.settings import JobSettings, SuiteTable
from flightschool.stations.telling import Tell
from flightschool.store import SqlStore

__all__ = ["Admission", "Candidates", "admit", "audit", "candidates", "freeze", "frozen_suites"]


def audit(
    store: SqlStore, environment: Environment, composition: RewardComposition, tell: Tell
) -> tuple[TaskAudit, ...]:
    """Audit every task that has no verdict yet as it is now; returns the verdicts of all."""
    tell.station("audit the reward")
    index = AuditIndex(store, environment)
    known = {task.id: found for task in environment.tasks() if (found := index.find(task)) is not None}
    fresh = [task for task in environment.tasks() if task.id not in known]
    if fresh:
        audits = audit_environment(
            environment, composition=composition, tasks=fresh, progress=tell.tick, num_workers=num_cores()
        )
        save_audits(store, audits)
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
    sealed = len(frozen.holdout.task_digests) if frozen.holdout else 0
    tell.note(f"{len(frozen.suite.task_digests)} tasks frozen, {sealed} sealed, {len(frozen.pool)} left to train on")
    return frozen


class Candidates(NamedTuple):
    """What could be trained on, before anything is screened."""

    num_pool: int
    """Tasks of the pool's trained strata."""
    sound: tuple[Task, ...]
    """Those whose reward was audited and found sound."""


def candidates(store: SqlStore, environment: Environment, frozen: Frozen) -> Candidates:
    """The sound tasks of the pool's trained strata: outside suite and holdout, audited.

    Raises:
        GateError: nothing is sound.
    """
    trained = {share.name for share in frozen.suite.strata if share.trained}
    tasks = [environment.task(task_id) for task_id in frozen.pool]
    tasks = [task for task in tasks if not trained or task.stratum in trained]
    sound = AuditIndex(store, environment).sound(tasks)
    require_sound(store, environment, sound or tasks)  # with nothing sound, the refusal names what bars them
    return Candidates(len(tasks), tuple(sound))


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
        GateError: nothing carries signal.
    """
    tell.station("screen the pool")
    suites = [suite for suite in (frozen.suite, frozen.holdout) if suite is not None]
    pool = TrainingPool(found.sound, suites=suites, environment=environment)
    runner = EpisodeRunner(environment, composition, run="screening", harness=make_harness(settings.harness))
    policy = pilot.policy(settings.training.first_temperature)

    def roll(tasks: Sequence[Task], seed: int) -> list[Attempt]:
        return run_attempts(runner, tasks, policy, seed=seed, concurrency=settings.evaluation.concurrency)

    decisions = screen(
        pool,
        roll,
        policy=policy.name,
        group_size=settings.training.group_size,
        budget=settings.screening.budget,
        threshold=settings.screening.threshold,
        seed=settings.seed,
        progress=tell.tick,
    )
    save_decisions(store, decisions)
    signals = {decision.task: decision.signal_probability for decision in decisions if decision.admitted}
    admitted = pool.only(signals).tasks
    funnel = measure_funnel(found.num_pool, len(found.sound), decisions)
    tell.note(
        f"{funnel.pool} tasks → {funnel.sound} sound → {funnel.admitted} with signal ({funnel.num_rollouts} rollouts)"
    )
    unreached = funnel.sound - funnel.screened
    if not admitted:
        raise GateError(
            f"none of {funnel.sound} sound tasks is likely to carry reward variance for {policy.name}"
            + (f"; {unreached} of them stand in families with too few rollouts to tell" if unreached else ""),
            where="screening",
            expected="tasks that the model neither always solves nor always fails",
            mend="add easier or harder families, raise screening.budget, or lower screening.threshold",
        )
    require_screened(store, policy.name, admitted)
    most = max(signals.values())
    return Admission(admitted, {task: signal / most for task, signal in signals.items()}, funnel)


def frozen_suites(store: SqlStore, environment: str) -> list[Suite]:
    """Everything that is or will be measured on in an environment, holdouts included."""
    found = [suite for kind in ("suite", "holdout") for _, suite in store.items(kind, Suite)]
    return [suite for suite in found if suite.environment == environment]
