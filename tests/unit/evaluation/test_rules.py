"""Limits, retries, cost, enforcement and targets: what was registered before is what holds."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from tests.suites import whole_suite

from flightschool.errors import GateError, InputError
from flightschool.evaluation import (
    EvaluationRun,
    Limits,
    Prices,
    RunRules,
    check_targets,
    compare,
    evaluate,
    held_against,
    summarise,
)
from flightschool.evaluation.rules import cost_usd, token_use, use_of_spans
from flightschool.protocols import PermissionDecision, Permissions
from flightschool.records import (
    Attempt,
    EndReason,
    Message,
    Outcome,
    SpanKind,
    Task,
    TokenSpan,
    TokenUse,
    ToolCall,
    ToolEvent,
    ToolSpec,
)
from flightschool.rollouts import NoopPolicy, OraclePolicy, Policy, PolicyEndpoint
from flightschool.testing.miniature import MiniatureEnvironment
from flightschool.verification import OutcomeReward


def measure(environment: MiniatureEnvironment, policy: Policy, **options: Any) -> EvaluationRun:
    return evaluate(
        whole_suite(environment), environment, policy, **{"composition": OutcomeReward(), "run": "r", **options}
    )


class Talking:
    """Says it is done, after so many tokens and so much time."""

    name = "talking"

    def __init__(self, use: TokenUse, seconds: float = 0.0) -> None:
        self.use = use
        self.seconds = seconds

    def endpoint(self, task: Task, seed: int, group: str) -> PolicyEndpoint:
        return _Talk(self.use, self.seconds)


class _Talk:
    generation_ms = 0.0

    def __init__(self, use: TokenUse, seconds: float) -> None:
        self.usage = use
        self.seconds = seconds

    async def complete(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Message:
        await asyncio.sleep(self.seconds)
        return Message(role="assistant", content="Done.")

    def spans(self) -> tuple[TokenSpan, ...]:
        return ()

    def close(self) -> None:
        pass


USE = TokenUse(num_prompt_tokens=1000, num_completion_tokens=50)


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (Limits(max_tokens=49), EndReason.RESOURCE_LIMIT),
        (Limits(max_cost_usd=0.0005), EndReason.RESOURCE_LIMIT),
        (Limits(max_s=0.01), EndReason.TIME_LIMIT),
        (Limits(max_tokens=50, max_cost_usd=0.01, max_s=5.0), EndReason.FINISHED),
    ],
)
def test_beyond_a_limit_an_attempt_has_failed_and_stays_in_the_denominator(limits: Limits, reason: EndReason) -> None:
    environment = MiniatureEnvironment()
    slow = 0.05 if limits.max_s == 0.01 else 0.0
    seen: list[Attempt] = []
    run = measure(
        environment,
        Talking(USE, slow),
        rules=RunRules(limits=limits),
        prices=Prices(input=1.0, output=2.0),
        on_attempt=seen.append,
    )
    assert {item.reason for item in run.items} == {reason}
    assert run.num_missing == 0
    assert len(seen) == len(run.items)  # a limit is no failure of the infrastructure: nothing is made again
    if reason is not EndReason.FINISHED:
        assert {attempt.outcome for attempt in seen} == {Outcome.POLICY_FAILURE}
        assert not any(item.success for item in run.items)


def test_calls_are_limited() -> None:
    environment = MiniatureEnvironment()
    free = measure(environment, OraclePolicy(environment), rules=RunRules(limits=Limits(max_calls=2)))
    assert all(item.success for item in free.items)
    bound = measure(environment, OraclePolicy(environment), rules=RunRules(limits=Limits(max_calls=1)))
    assert not any(item.success for item in bound.items)
    with pytest.raises(GateError, match="differ in rules"):
        compare(free, bound)


def test_the_budget_of_an_evaluation_ends_it_by_name() -> None:
    environment = MiniatureEnvironment()
    seen: list[Attempt] = []
    with pytest.raises(GateError, match=r"the budget of \$0\.002 is spent after 2 of \d+ items"):
        measure(
            environment,
            Talking(USE),
            prices=Prices(input=1.0, output=2.0),
            budget_usd=0.002,
            concurrency=1,
            on_attempt=seen.append,
        )
    assert len(seen) == 2
    with pytest.raises(InputError, match="what tokens cost is not known"):
        measure(environment, NoopPolicy(), budget_usd=1.0)


def test_cost_by_hand() -> None:
    assert cost_usd(USE, Prices(input=1.0, output=2.0)) == pytest.approx(0.0011)
    spans = (
        TokenSpan(id=0, parent=None, kind=SpanKind.PROMPT, token_ids_T=(1,) * 10),
        TokenSpan(id=1, parent=0, kind=SpanKind.COMPLETION, token_ids_T=(2,) * 3),
        TokenSpan(id=2, parent=1, kind=SpanKind.OBSERVATION, token_ids_T=(3,) * 5),
        TokenSpan(id=3, parent=2, kind=SpanKind.COMPLETION, token_ids_T=(4,) * 2),
        TokenSpan(id=4, parent=0, kind=SpanKind.COMPLETION, token_ids_T=(5,)),  # a branch
    )
    # contexts of 10, of 10 + 3 + 5, and of 10 tokens; 6 sampled
    assert use_of_spans(spans) == TokenUse(num_prompt_tokens=38, num_completion_tokens=6)
    run = measure(MiniatureEnvironment(), Talking(USE), prices=Prices(input=1.0, output=2.0))
    found = summarise(run).measurement("cost_usd/weighted")
    assert found.value == pytest.approx(0.0011)
    assert {item.num_tokens for item in run.items} == {50}


def test_an_attempt_keeps_what_its_server_counted() -> None:
    seen: list[Attempt] = []
    measure(MiniatureEnvironment(), Talking(USE), on_attempt=seen.append)
    assert {token_use(attempt).num_prompt_tokens for attempt in seen} == {1000}
    again = msgspec.msgpack.decode(msgspec.msgpack.encode(seen[0]), type=Attempt)
    assert again.digest == seen[0].digest


class _Denying:
    def decide(self, call: ToolCall, events: Sequence[ToolEvent]) -> PermissionDecision:
        return PermissionDecision(allowed=call.name != "set_price", rule="no changes")


class Forbidding(MiniatureEnvironment):
    """No price may be changed."""

    def permissions(self, task: Task) -> Permissions:
        return _Denying()


def test_enforcement_off_shows_what_a_policy_would_do() -> None:
    environment = Forbidding()
    on = measure(environment, OraclePolicy(environment))
    off = measure(environment, OraclePolicy(environment), enforce=False)
    num_copy = sum(task.stratum == "copy" for task in environment.tasks())
    for run in (on, off):
        assert sum(item.num_denied for item in run.items) == num_copy
    assert not any(item.success for item in on.items if item.stratum == "copy")
    assert all(item.success for item in off.items if item.stratum == "copy")  # it ran
    assert summarise(off).measurement("denied/all").value == pytest.approx(num_copy / len(off.items))
    assert (on.enforced, off.enforced) == (True, False)
    with pytest.raises(GateError, match="differ in enforced"):
        compare(on, off)


def test_the_registered_share_of_missing_items_decides(run_of: Any) -> None:
    strict = run_of([None, *[True] * 39])
    with pytest.raises(GateError, match="1 of 40 items have no grade") as refused:
        compare(strict, strict)
    assert refused.value.expected == "at most 2%, as registered"
    lax = run_of([None, *[True] * 39], rules=RunRules(most_missing=0.05))
    assert compare(lax, lax).num_missing_before == 1


def test_rules_that_nothing_can_keep() -> None:
    for wrong in ({"max_retries": -1}, {"most_missing": 2.0}, {"limits": Limits(max_tokens=0)}):
        with pytest.raises(InputError, match="nothing can keep"):
            RunRules(**wrong)


def test_targets_are_met_missed_or_open(run_of: Any) -> None:
    run = run_of([True] * 38 + [False] * 2, families=20, virtual_ms=300.0)
    rows = {
        row.name: row.state
        for row in held_against(
            {"success": 0.7, "violations": 0.01, "virtual_p95_ms": 250.0, "cost_usd": 1.0}, run, summarise(run)
        )
    }
    assert rows == {"success": "met", "violations": "open", "virtual_p95_ms": "missed", "cost_usd": "open"}
    with pytest.raises(InputError, match="'speed'"):
        check_targets({"speed": 1.0})
