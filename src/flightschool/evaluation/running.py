"""Measuring a policy on a frozen suite.

Each (task, repeat) has a seed made of the suite and the evaluation's own seed, so that two policies meet the same
latencies and the same faults item by item: the comparison is paired. Infra failures are retried under new numbers, as
often as the rules said beforehand; what remains without a grade is *missing* and is shown, since a denominator that
shrinks silently flatters whoever crashes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import NotRequired, Protocol, Required, TypedDict, Unpack

from flightschool.digest import derive_seed
from flightschool.errors import GateError, InputError
from flightschool.evaluation.kinship import Kin
from flightschool.evaluation.limiting import LimitedPolicy
from flightschool.evaluation.records import EvaluationItem, EvaluationRun
from flightschool.evaluation.rules import MAX_RETRIES, Prices, RunRules, cost_usd, token_use
from flightschool.evaluation.suites import require_unchanged
from flightschool.perturbation import FaultProfile
from flightschool.protocols import Environment, Harness, RewardComposition
from flightschool.records import Attempt, Outcome, StratumShare, Suite, Task
from flightschool.rollouts import EpisodeRunner, Policy

__all__ = ["MAX_RETRIES", "AttemptRunner", "How", "Progress", "evaluate", "evaluate_async", "item_of"]

CLEAN = "clean"

Progress = Callable[[int, int], None]
"""Called with (items done, items in all)."""


class AttemptRunner(Protocol):
    """Makes attempts: the episode runner for tools, one with sandboxes for task folders."""

    async def attempt(
        self,
        task: Task,
        policy: Policy,
        *,
        group: str,
        index: int,
        seed: int,
        number: int = 0,
        weather_profile: FaultProfile | None = None,
    ) -> Attempt:
        """One attempt from a fresh state. Failures come back as attempts, never as exceptions."""
        ...


class How(TypedDict):
    """How a policy is measured: the keyword arguments of ``evaluate``."""

    composition: Required[RewardComposition]
    """Grades; only success and violations are taken from it."""
    run: Required[str]
    """Id of the evaluation."""
    weather_profile: NotRequired[FaultProfile | None]
    """Faults; None for a clean run."""
    repeats: NotRequired[int]
    """Attempts at each task; 1 by default."""
    seed: NotRequired[int]
    """Seed of the evaluation; equal seeds pair two evaluations."""
    concurrency: NotRequired[int]
    """Attempts at a time; 64 by default."""
    progress: NotRequired[Progress | None]
    """Told after each item."""
    on_attempt: NotRequired[Callable[[Attempt], None] | None]
    """Receives every attempt, infra failures included."""
    keep_blob: NotRequired[Callable[[bytes], str] | None]
    """Keeps end states."""
    harness: NotRequired[Harness | None]
    """Drives the model; the built-in one by default."""
    open_runner: NotRequired[Callable[[str], AbstractAsyncContextManager[AttemptRunner]] | None]
    """Opens what makes the attempts of a run of this id; by default the episode runner. What it keeps and how it drives
    a model is its own affair: ``keep_blob``, ``harness`` and ``enforce`` are the episode runner's."""
    kin: NotRequired[Kin | None]
    """What of the suite is kin to the policy's training (see ``kinship``); None when nobody looked."""
    log_head: NotRequired[str]
    """Digest of the audit log's last entry."""
    kept: NotRequired[Mapping[tuple[str, int], Attempt] | None]
    """(task, repeat) → attempt of this evaluation from before it was killed. Those that fit (task, seed, policy,
    weather) and have a grade are taken as they are, all others are made again."""
    rules: NotRequired[RunRules]
    """Limits and retries, as registered with the suite."""
    prices: NotRequired[Prices | None]
    """Of the policy's tokens; None: cost is not known."""
    budget_usd: NotRequired[float | None]
    """Of the whole evaluation."""
    only: NotRequired[Sequence[str] | None]
    """Tasks that are attempted now; None: all of the suite."""
    enforce: NotRequired[bool]
    """Whether denied calls are refused; without it they run, and what a policy would do is seen."""


def evaluate(suite: Suite, environment: Environment, policy: Policy, **how: Unpack[How]) -> EvaluationRun:
    """Measure, in an event loop of its own (see ``evaluate_async``)."""
    found: list[EvaluationRun] = []

    async def measure() -> None:
        # Handed on by the list: ``asyncio.run`` of Python 3.11 writes out what its coroutine returned (when it
        # asks for the signal's handler, to which the task is bound): 1.4 kB an item, and seconds for many of them.
        found.append(await evaluate_async(suite, environment, policy, **how))

    asyncio.run(measure())
    return found[0]


async def evaluate_async(suite: Suite, environment: Environment, policy: Policy, **how: Unpack[How]) -> EvaluationRun:
    """Measure a policy on every task of a suite.

    Args:
        suite: as loaded or opened.
        environment: must still be what was frozen.
        policy: what is measured.
        how: see ``How``.

    Raises:
        InputError: no repeats or no concurrency; a limit or budget of cost without prices.
        GateError: the environment is no longer what was frozen, or the budget is spent.
    """
    return await _Evaluation(suite, environment, policy, how).run()


class _Evaluation:
    """One evaluation under way: so many workers take items in turn until none is left."""

    def __init__(self, suite: Suite, environment: Environment, policy: Policy, how: How) -> None:
        self.how = how
        self.rules = how.get("rules", RunRules())
        self.prices = how.get("prices")
        self.repeats, self.concurrency = how.get("repeats", 1), how.get("concurrency", 64)
        self.budget_usd = how.get("budget_usd")
        _check(self.repeats, self.concurrency, self.rules, self.prices, self.budget_usd)
        require_unchanged(suite, environment)
        self.suite, self.environment = suite, environment
        limited = self.rules.limits.any
        self.policy: Policy = LimitedPolicy(policy, self.rules.limits, self.prices) if limited else policy
        weather = how.get("weather_profile")
        self.weather = None if weather is None or weather.is_clean else weather
        self.seed, self.suite_digest = how.get("seed", 0), suite.digest
        self.shares = {family: share for share in suite.strata for family in share.families}
        only = how.get("only")
        chosen = suite.task_digests if only is None else [task for task in suite.task_digests if task in set(only)]
        self.tasks = [environment.task(task_id) for task_id in chosen]
        self.items: dict[int, EvaluationItem] = {}
        self.spent_usd = 0.0

    @property
    def noise(self) -> str:
        return CLEAN if self.weather is None else self.weather.label

    def _open_runner(self) -> AbstractAsyncContextManager[AttemptRunner]:
        opens = self.how.get("open_runner")
        if opens is not None:
            return opens(self.how["run"])
        runner = EpisodeRunner(
            self.environment,
            self.how["composition"],
            run=self.how["run"],
            harness=self.how.get("harness"),
            keep_blob=self.how.get("keep_blob"),
            enforce=self.how.get("enforce", True),
        )
        return nullcontext(runner)

    async def run(self) -> EvaluationRun:
        async with self._open_runner() as runner:
            return await self._run(runner)

    async def _run(self, runner: AttemptRunner) -> EvaluationRun:
        num_jobs = len(self.tasks) * self.repeats
        waiting = iter(range(num_jobs))
        progress = self.how.get("progress")

        async def work() -> None:
            for number in waiting:
                self.items[number] = await self._measure(number, runner)
                if progress is not None:
                    progress(len(self.items), num_jobs)
                self._refuse_overspending(num_jobs)

        try:
            async with asyncio.TaskGroup() as workers:
                for _ in range(min(self.concurrency, num_jobs)):  # not one coroutine an item: there may be many
                    workers.create_task(work())
        except ExceptionGroup as group:  # one worker's error is the evaluation's
            raise group.exceptions[0] from None
        return self._finished(num_jobs)

    async def _measure(self, number: int, runner: AttemptRunner) -> EvaluationItem:
        """The item of this number: task by task, repeats innermost."""
        task, repeat = self.tasks[number // self.repeats], number % self.repeats
        seed = derive_seed("evaluation", self.suite_digest, self.seed, task.id, repeat)
        kept = (self.how.get("kept") or {}).get((task.id, repeat))
        if kept is not None and self._fits(kept, task, seed):
            attempt = kept
        else:
            attempt = await self._until_graded(runner, task, repeat, seed)
        kin = self.how.get("kin")
        suspected = kin.suspected.get(task.id, "") if kin is not None else ""
        item = item_of(task, self.shares[task.family], attempt, suspected=suspected, prices=self.prices)
        self.spent_usd += item.cost_usd or 0.0
        return item

    def _fits(self, attempt: Attempt, task: Task, seed: int) -> bool:
        """Whether a kept attempt is the one that would be made now."""
        now = (task.digest, seed, self.policy.name, self.noise)
        same = (attempt.task_digest, attempt.seed, attempt.policy, attempt.noise) == now
        return same and attempt.outcome is not Outcome.INFRA_FAILURE

    async def _until_graded(self, runner: AttemptRunner, task: Task, repeat: int, seed: int) -> Attempt:
        """Attempt; again, with the same seed under a new number, while infrastructure fails. Returns the last."""
        on_attempt = self.how.get("on_attempt")
        number = 0
        while True:
            attempt = await runner.attempt(
                task,
                self.policy,
                group=f"{self.how['run']}:{task.id}",
                index=repeat,
                number=number,
                seed=seed,
                weather_profile=self.weather,
            )
            if on_attempt is not None:
                on_attempt(attempt)
            if attempt.outcome is not Outcome.INFRA_FAILURE or number == self.rules.max_retries:
                return attempt
            number += 1

    def _refuse_overspending(self, num_jobs: int) -> None:
        if self.budget_usd is not None and self.spent_usd > self.budget_usd and len(self.items) < num_jobs:
            raise GateError(
                f"the budget of ${self.budget_usd:g} is spent after {len(self.items)} of {num_jobs} items",
                where=f"evaluation {self.how['run']}",
                expected=f"about ${self.spent_usd / len(self.items) * num_jobs:.2f} for all of them",
                mend="run it again with a larger budget: it goes on with what was kept",
            )

    def _finished(self, num_jobs: int) -> EvaluationRun:
        kin = self.how.get("kin")
        return EvaluationRun(
            id=self.how["run"],
            suite=self.suite.name,
            suite_digest=self.suite_digest,
            environment=self.environment.name,
            environment_digest=self.environment.digest,
            policy=self.policy.name,
            noise=self.noise,
            noise_digest="" if self.weather is None else self.weather.digest,
            composition_digest=self.how["composition"].digest,
            repeats=self.repeats,
            seed=self.seed,
            holdout=self.suite.holdout,
            weights={share.name: share.weight for share in self.suite.strata},
            items=tuple(self.items[number] for number in range(num_jobs)),
            lineage=kin.statement if kin is not None else "",
            log_head=self.how.get("log_head", ""),
            rules=self.rules,
            prices=self.prices,
            enforced=self.how.get("enforce", True),
        )


def item_of(
    task: Task, share: StratumShare, attempt: Attempt, *, suspected: str = "", prices: Prices | None = None
) -> EvaluationItem:
    """What an evaluation keeps of an attempt."""
    denied = sum(e.result.permission is not None and not e.result.permission.allowed for e in attempt.events)
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
        wall_ms=1e3 * attempt.timings.wall_s,
        num_tokens=attempt.num_completion_tokens,
        num_calls=len(attempt.events),
        num_denied=denied,
        num_retries=attempt.number,
        cost_usd=None if prices is None else cost_usd(token_use(attempt), prices),
        attempt=attempt.id,
        attempt_digest=attempt.digest,
        suspected=suspected,
    )


def _check(repeats: int, concurrency: int, rules: RunRules, prices: Prices | None, budget_usd: float | None) -> None:
    if repeats < 1 or concurrency < 1:
        raise InputError(
            f"{repeats} repeats, {concurrency} at a time", where="evaluate", expected="1 or more", mend="correct them"
        )
    if prices is None and (budget_usd is not None or rules.limits.max_cost_usd is not None):
        raise InputError(
            "a cost is limited, and what tokens cost is not known",
            where="evaluate",
            expected="prices of a million tokens, in and out",
            mend="state the prices (0 where the machine is one's own)",
        )
