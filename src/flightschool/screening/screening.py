"""Screening: which tasks of the pool will give a training group something to compare?

A group whose rewards are all equal has no advantage and its rollouts are wasted. From a few hundred rollouts of the
model that is to be trained, each task gets a posterior probability that a group of the training size carries reward
variance; sister tasks share evidence. Run it after the audit: a flaky grader fakes signal.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from flightschool.digest import derive_seed
from flightschool.errors import GateError, InputError
from flightschool.governance import AuditLog, override
from flightschool.protocols import Store
from flightschool.records import Attempt, ScreeningDecision, Task
from flightschool.screening.allocation import LEAST_EVIDENCE, first_round, next_round
from flightschool.screening.evidence import Evidence
from flightschool.screening.pool import TrainingPool
from flightschool.screening.records import Funnel

__all__ = ["Rollouts", "measure_funnel", "require_screened", "save_decisions", "screen"]

Rollouts = Callable[[Sequence[Task], int], Sequence[Attempt]]
"""(tasks, seed) → one attempt of the screened model at each; a task that stands twice is attempted twice."""

Progress = Callable[[int, int], None]
"""Called with (rollouts spent, budget)."""

KIND = "screening"
SMALLEST_ROUND = 16
NUM_ROUNDS = 8
MOST_NAMED = 12


def screen(
    pool: TrainingPool,
    roll: Rollouts,
    *,
    policy: str,
    group_size: int,
    budget: int = 256,
    threshold: float = 0.3,
    seed: int = 0,
    noise: tuple[float, float] = (0.0, 0.0),
    progress: Progress | None = None,
) -> tuple[ScreeningDecision, ...]:
    """Decide every task of a pool.

    Args:
        pool: audited tasks; never a suite (a type error).
        roll: runs the model, for instance ``lambda tasks, seed: run_attempts(runner, tasks, policy, seed=seed)``.
        policy: name of the model, kept in the decisions.
        group_size: members of a training group.
        budget: most rollouts in all, infra failures included.
        threshold: signal probability from which a task is admitted.
        seed: which tasks are looked at first, and the seeds of the rollouts.
        noise: (ρ0, ρ1) of the verifier, from reviews (``governance.known_error``): mixed rewards that only its errors
            explain are no signal.
        progress: told after each round.

    Returns:
        One decision a task, in the pool's order. A task whose family was never reached is not admitted.

    Raises:
        TypeError: ``pool`` is no training pool.
        InputError: budget, group size or threshold out of range, or error rates that leave no signal.
    """
    if not isinstance(pool, TrainingPool):
        raise TypeError(f"screening takes a TrainingPool, not a {type(pool).__name__}: suites are never filtered")
    _check_numbers(budget, group_size, threshold)
    evidence = Evidence(pool.tasks, group_size, noise)
    spent, number = 0, 0
    while spent < budget:
        if number == 0:
            chosen = first_round(pool.tasks, budget, seed)
        else:
            size = min(budget - spent, max(SMALLEST_ROUND, budget // NUM_ROUNDS))
            chosen = next_round(pool.tasks, evidence, budget=size, threshold=threshold, enough=2 * group_size)
        if not chosen:
            break
        evidence.add(roll(chosen, derive_seed("screening", seed, number)))
        spent, number = spent + len(chosen), number + 1
        if progress is not None:
            progress(spent, budget)
    return tuple(_decide(task, evidence, policy, threshold) for task in pool)


def measure_funnel(num_pool: int, num_sound: int, decisions: Sequence[ScreeningDecision]) -> Funnel:
    """Count what passed each gate."""
    return Funnel(
        pool=num_pool,
        sound=num_sound,
        screened=sum(not decision.reason.startswith(_UNREACHED) for decision in decisions),
        admitted=sum(decision.admitted for decision in decisions),
        num_rollouts=sum(decision.num_rollouts for decision in decisions),
        num_scored=sum(decision.num_scored for decision in decisions),
    )


def save_decisions(store: Store, decisions: Sequence[ScreeningDecision]) -> None:
    """Keep decisions by model and task digest; an earlier decision of the same is replaced."""
    for decision in decisions:
        store.put(KIND, _key(decision.policy, decision.task_digest), decision)


def require_screened(
    store: Store, policy: str, tasks: Sequence[Task], *, actor: str = "", reason: str = ""
) -> tuple[ScreeningDecision, ...]:
    """Let tasks pass to training that screening with this model admitted, as they are now.

    Args:
        store: the workspace's store.
        policy: name of the model that is to be trained, as screening knew it.
        tasks: tasks that shall train.
        actor: who overrides a refusal; needs ``reason``, and is written to the audit log.
        reason: why.

    Raises:
        GateError: a task was not screened or not admitted, and no one overrides.
        InputError: an override without a name or without a reason.
    """
    keys = [(task, _key(policy, task.digest)) for task in tasks]
    found = [(task, store.get(KIND, key, ScreeningDecision) if store.has(KIND, key) else None) for task, key in keys]
    decisions = tuple(decision for _, decision in found if decision is not None)
    refused = [
        f"{task.id} ({'not screened' if decision is None else decision.reason})"
        for task, decision in found
        if decision is None or not decision.admitted
    ]
    if not refused:
        return decisions
    more = f" and {len(refused) - MOST_NAMED} more" if len(refused) > MOST_NAMED else ""
    what = f"{len(refused)} task(s) did not pass screening: {', '.join(refused[:MOST_NAMED])}{more}"
    if not (actor or reason):
        raise GateError(
            what,
            where=f"model {policy}",
            expected="tasks admitted by a screening of this model",
            mend="screen the pool with this model, train on what it admits; or override with a name and a reason",
        )
    override(AuditLog(store), "screening", f"{policy}: {what}", actor, reason)
    return decisions


_UNREACHED = "not reached"


def _decide(task: Task, evidence: Evidence, policy: str, threshold: float) -> ScreeningDecision:
    own, family = evidence.own(task.id), evidence.of_family(task.family)
    signal = evidence.signal(task.id)
    reached = len(family) >= LEAST_EVIDENCE
    if not reached:
        reason = f"{_UNREACHED}: {len(family)} scored rollouts in family {task.family}"
    else:
        basis = f"{len(own)} own and {len(family) - len(own)} sisters' rollouts"
        comparison = "≥" if signal >= threshold else "<"
        raw = evidence.signal(task.id, raw=True)
        freed = f", the verifier's errors apart (raw {raw:.2f})" if raw != signal else ""
        reason = f"signal {signal:.2f} {comparison} {threshold:.2f} from {basis}{freed}"
    seen = own or family
    return ScreeningDecision(
        task=task.id,
        task_digest=task.digest,
        policy=policy,
        num_rollouts=evidence.spent(task.id),
        num_scored=len(own),
        mean_reward=statistics.fmean(seen) if seen else 0.0,
        signal_probability=signal,
        admitted=reached and signal >= threshold,
        reason=reason,
    )


def _check_numbers(budget: int, group_size: int, threshold: float) -> None:
    if budget < 1 or group_size < 2 or not 0.0 < threshold < 1.0:
        raise InputError(
            f"budget {budget}, group size {group_size}, threshold {threshold}",
            where="screen",
            expected="a budget of 1 or more, groups of 2 or more, a threshold between 0 and 1",
            mend="correct the numbers",
        )


def _key(policy: str, task_digest: str) -> str:
    return f"{policy}/{task_digest}"
