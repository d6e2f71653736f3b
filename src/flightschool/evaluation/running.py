"""Measuring a policy on a frozen suite.

Each (task, repeat) has a seed made of the suite and the evaluation's own seed, so that two policies meet the same
latencies and the same faults item by item: the comparison is paired. Infra failures are retried under new numbers; what
remains without a grade is *missing* and is shown, since a denominator that shrinks silently flatters whoever crashes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from flightschool.digest import derive_seed
from flightschool.errors import InputError
from flightschool.evaluation.kinship import Kin
from flightschool.evaluation.records import EvaluationItem, EvaluationRun
from flightschool.evaluation.suites import require_unchanged
from flightschool.perturbation import FaultProfile
from flightschool.protocols import Environment, Harness, RewardComposition
from flightschool.records import Attempt, Outcome, StratumShare, Suite, Task
from flightschool.rollouts import EpisodeRunner, Policy

__all__ = ["MAX_RETRIES", "Progress", "evaluate", "evaluate_async"]

CLEAN = "clean"
MAX_RETRIES = 2
"""New attempts after infra failures of one item."""

Progress = Callable[[int, int], None]
"""Called with (items done, items in all)."""


def evaluate(
    suite: Suite,
    environment: Environment,
    policy: Policy,
    *,
    composition: RewardComposition,
    run: str,
    weather_profile: FaultProfile | None = None,
    repeats: int = 1,
    seed: int = 0,
    concurrency: int = 64,
    progress: Progress | None = None,
    on_attempt: Callable[[Attempt], None] | None = None,
    keep_blob: Callable[[bytes], str] | None = None,
    harness: Harness | None = None,
    kin: Kin | None = None,
    log_head: str = "",
    kept: Mapping[tuple[str, int], Attempt] | None = None,
) -> EvaluationRun:
    """Measure, in an event loop of its own (see ``evaluate_async``)."""
    return asyncio.run(
        evaluate_async(
            suite,
            environment,
            policy,
            composition=composition,
            run=run,
            weather_profile=weather_profile,
            repeats=repeats,
            seed=seed,
            concurrency=concurrency,
            progress=progress,
            on_attempt=on_attempt,
            keep_blob=keep_blob,
            harness=harness,
            kin=kin,
            log_head=log_head,
            kept=kept,
        )
    )


async def evaluate_async(
    suite: Suite,
    environment: Environment,
    policy: Policy,
    *,
    composition: RewardComposition,
    run: str,
    weather_profile: FaultProfile | None = None,
    repeats: int = 1,
    seed: int = 0,
    concurrency: int = 64,
    progress: Progress | None = None,
    on_attempt: Callable[[Attempt], None] | None = None,
    keep_blob: Callable[[bytes], str] | None = None,
    harness: Harness | None = None,
    kin: Kin | None = None,
    log_head: str = "",
    kept: Mapping[tuple[str, int], Attempt] | None = None,
) -> EvaluationRun:
    """Measure a policy on every task of a suite.

    Args:
        suite: as loaded or opened.
        environment: must still be what was frozen.
        policy: what is measured.
        composition: grades; only success and violations are taken from it.
        run: id of the evaluation.
        weather_profile: faults, or None for a clean run.
        repeats: attempts at each task.
        seed: seed of the evaluation; equal seeds pair two evaluations.
        concurrency: attempts at a time.
        progress: told after each item.
        on_attempt: receives every attempt, infra failures included.
        keep_blob: keeps end states.
        harness: drives the model; the built-in one by default.
        kin: what of the suite is kin to the policy's training (see ``kinship``); None when nobody looked.
        log_head: digest of the audit log's last entry.
        kept: (task, repeat) → attempt of this evaluation from before it was killed. Those that fit (task, seed, policy,
            weather) and have a grade are taken as they are, all others are made again.

    Raises:
        InputError: no repeats or no concurrency.
        GateError: the environment is no longer what was frozen.
    """
    if repeats < 1 or concurrency < 1:
        raise InputError(
            f"{repeats} repeats, {concurrency} at a time", where="evaluate", expected="1 or more", mend="correct them"
        )
    require_unchanged(suite, environment)
    runner = EpisodeRunner(environment, composition, run=run, harness=harness, keep_blob=keep_blob)
    shares = {family: share for share in suite.strata for family in share.families}
    tasks = [environment.task(task_id) for task_id in suite.task_digests]
    num_jobs, num_done, started = len(tasks) * repeats, 0, iter(range(len(tasks) * repeats))
    items: dict[int, EvaluationItem] = {}

    async def work() -> None:
        """Take the next item until none is left: so many coroutines as attempts run at a time, not one an item."""
        nonlocal num_done
        for number in started:
            task, repeat = tasks[number // repeats], number % repeats
            item_seed = derive_seed("evaluation", suite_digest, seed, task.id, repeat)
            before = (kept or {}).get((task.id, repeat))
            if before is not None and _fits(before, task, item_seed, policy, noise):
                attempt = before
            else:
                attempt = await _until_graded(runner, policy, task, repeat, item_seed, run, weather_profile, on_attempt)
            suspected = kin.suspected.get(task.id, "") if kin is not None else ""
            items[number] = _item(task, shares, attempt, suspected)
            num_done += 1
            if progress is not None:
                progress(num_done, num_jobs)

    suite_digest = suite.digest
    weather = None if weather_profile is None or weather_profile.is_clean else weather_profile
    noise = CLEAN if weather is None else weather.label
    try:
        async with asyncio.TaskGroup() as workers:
            for _ in range(min(concurrency, num_jobs)):
                workers.create_task(work())
    except ExceptionGroup as group:  # one worker's error is the evaluation's
        raise group.exceptions[0] from None
    return EvaluationRun(
        id=run,
        suite=suite.name,
        suite_digest=suite_digest,
        environment=environment.name,
        environment_digest=environment.digest,
        policy=policy.name,
        noise=noise,
        noise_digest="" if weather is None else weather.digest,
        composition_digest=composition.digest,
        repeats=repeats,
        seed=seed,
        holdout=suite.holdout,
        weights={share.name: share.weight for share in suite.strata},
        items=tuple(items[number] for number in range(num_jobs)),
        lineage=kin.statement if kin is not None else "",
        log_head=log_head,
    )


def _fits(attempt: Attempt, task: Task, seed: int, policy: Policy, noise: str) -> bool:
    """Whether a kept attempt is the one that would be made now."""
    same = (attempt.task_digest, attempt.seed, attempt.policy, attempt.noise) == (task.digest, seed, policy.name, noise)
    return same and attempt.outcome is not Outcome.INFRA_FAILURE


async def _until_graded(
    runner: EpisodeRunner,
    policy: Policy,
    task: Task,
    repeat: int,
    seed: int,
    run: str,
    weather_profile: FaultProfile | None,
    on_attempt: Callable[[Attempt], None] | None,
) -> Attempt:
    """Attempt an item; again, with the same seed under a new number, while infrastructure fails. Returns the last."""
    number = 0
    while True:
        attempt = await runner.attempt(
            task,
            policy,
            group=f"{run}:{task.id}",
            index=repeat,
            number=number,
            seed=seed,
            weather_profile=weather_profile,
        )
        if on_attempt is not None:
            on_attempt(attempt)
        if attempt.outcome is not Outcome.INFRA_FAILURE or number == MAX_RETRIES:
            return attempt
        number += 1


def _item(task: Task, shares: Mapping[str, StratumShare], attempt: Attempt, suspected: str) -> EvaluationItem:
    share = shares[task.family]
    return EvaluationItem(
        task=task.id,
        family=task.family,
        stratum=share.name,
        trained=share.trained,
        repeat=attempt.index,
        seed=attempt.seed,
        success=attempt.reward.success if attempt.reward is not None else None,
        outcome=attempt.outcome,
        reason=attempt.reason,
        violations=attempt.verdict.violations if attempt.verdict is not None else (),
        virtual_ms=attempt.timings.virtual_ms,
        num_tokens=attempt.num_completion_tokens,
        num_calls=len(attempt.events),
        num_retries=attempt.number,
        attempt=attempt.id,
        attempt_digest=attempt.digest,
        suspected=suspected,
    )
