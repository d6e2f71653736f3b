"""A report such as a real run gives, from made-up numbers: for tests only."""

from __future__ import annotations

import math

import pytest

from flightschool.records import (
    Attempt,
    AuditVerdict,
    Check,
    CheckKind,
    Effect,
    EndReason,
    Fault,
    Finding,
    Measurement,
    Message,
    Outcome,
    Permission,
    Reward,
    Severity,
    SpanKind,
    Timings,
    TokenSpan,
    ToolCall,
    ToolEvent,
    ToolResult,
    Verdict,
    VersionRun,
)
from flightschool.reports import (
    AuditedTask,
    Control,
    CurvePoint,
    EpisodePair,
    FunnelStage,
    Headline,
    Override,
    ReportData,
    RiskRow,
    StratumRow,
)

INSTRUCTION = (
    "Alert AL-2041 reports vibration of 11.2 mm/s on pump P-117. If the limit in the asset's record is exceeded, open "
    "a work order with priority high and reserve one bearing 6312-2Z for it; otherwise acknowledge the alert."
)


def measured(name: str, value: float, low: float, high: float, n: int = 64, unit: str = "") -> Measurement:
    return Measurement(
        name=name, value=value, low=low, high=high, num_items=n, unit=unit, method="cluster bootstrap over families"
    )


def _event(index: int, call: ToolCall, result: ToolResult, effect: Effect) -> ToolEvent:
    return ToolEvent(
        index=index,
        turn=index,
        call=call,
        result=result,
        effect=effect,
        start_ms=200.0 * index,
        end_ms=200.0 * index + 150,
    )


def _attempt(
    name: str, steps: list[tuple[ToolCall, ToolResult]], answer: str, checks: tuple[Check, ...], reward: Reward
) -> Attempt:
    messages = [
        Message(role="system", content="You are the maintenance desk."),
        Message(role="user", content=INSTRUCTION),
    ]
    for call, result in steps:
        messages.append(Message(role="assistant", tool_calls=(call,)))
        messages.append(Message(role="tool", content=result.content, tool_call_id=call.id))
    messages.append(Message(role="assistant", content=answer))
    events = tuple(_event(i, call, result, Effect.READ) for i, (call, result) in enumerate(steps))
    span = TokenSpan(
        id=1,
        parent=None,
        kind=SpanKind.COMPLETION,
        token_ids_T=tuple(range(90)),
        logprobs_T=(-0.1,) * 90,
        versions=(VersionRun(step=0, count=90),),
    )
    return Attempt(
        id=f"{name}-0",
        run=name,
        group="g",
        index=0,
        number=0,
        environment="desk",
        environment_digest="sha256:e1",
        task="condition-117",
        task_digest="sha256:t1",
        policy=name,
        seed=1,
        spans=(span,),
        messages=tuple(messages),
        events=events,
        outcome=Outcome.SCORED,
        reason=EndReason.FINISHED,
        cause="policy",
        verdict=Verdict(checks=checks, verifier_digest="sha256:v1"),
        reward=reward,
        end_state="sha256:s1",
        timings=Timings(virtual_ms=2140.0, wall_s=1.2),
        noise="noisy",
    )


def _check(name: str, kind: CheckKind, passed: bool, evidence: str) -> Check:
    return Check(id=name, kind=kind, weight=1.0, passed=passed, evidence=evidence, author="environment")


def example_pair() -> EpisodePair:
    read = ToolCall(id="c1", name="get_asset", arguments={"asset": "P-117"})
    order = ToolCall(id="c2", name="create_work_order", arguments={"asset": "P-117", "priority": "high"})
    reserve = ToolCall(
        id="c3", name="reserve_part", arguments={"part": "6312-2Z", "quantity": 1, "work_order": "WO-88"}
    )
    wrong = ToolCall(id="c1", name="create_work_order", arguments={"asset": "P-17", "priority": "low"})
    denied = ToolCall(id="c2", name="scrap_asset", arguments={"asset": "P-117"})
    timed_out = ToolResult(
        call_id="c2",
        content="error: the request timed out",
        is_error=True,
        served_by="fault",
        fault=Fault(kind="timeout_after_write", family="timeouts"),
    )
    before = _attempt(
        "smollm2-135m",
        [
            (wrong, ToolResult(call_id="c1", content='{"error": "unknown asset P-17"}', is_error=True)),
            (
                denied,
                ToolResult(
                    call_id="c2",
                    content='{"error": "not permitted"}',
                    is_error=True,
                    served_by="boundary",
                    permission=Permission(allowed=False, rule="no-scrapping"),
                ),
            ),
        ],
        "I opened the work order.",
        (
            _check("order-opened", CheckKind.FUNCTIONAL, False, "0 rows, expected 1: ('P-117', 'high')"),
            _check("part-reserved", CheckKind.FUNCTIONAL, False, "0 rows, expected 1"),
            _check("nothing-else-changed", CheckKind.CONSTRAINT, True, "no table changed"),
        ),
        Reward(outcome=0.0, process=0.1, latency=0.0, gate=1.0, total=0.01),
    )
    after = _attempt(
        "run:r1@40",
        [
            (read, ToolResult(call_id="c1", content='{"asset": "P-117", "vibration_limit_mm_s": 7.1}')),
            (order, timed_out),
            (
                ToolCall(id="c4", name="list_work_orders", arguments={"asset": "P-117", "state": "open"}),
                ToolResult(call_id="c4", content='[{"work_order": "WO-88", "priority": "high"}]'),
            ),
            (reserve, ToolResult(call_id="c3", content='{"reserved": 1, "left": 3}')),
        ],
        "Work order WO-88 is open with high priority, and one bearing is reserved.",
        (
            _check("order-opened", CheckKind.FUNCTIONAL, True, "1 row as expected: ('P-117', 'high')"),
            _check("part-reserved", CheckKind.FUNCTIONAL, True, "1 row as expected"),
            _check("nothing-else-changed", CheckKind.CONSTRAINT, True, "work_orders +1, reservations +1"),
        ),
        Reward(outcome=1.0, process=0.9, latency=0.6, gate=1.0, total=1.15),
    )
    return EpisodePair(title="Condition on an asset, under faults", instruction=INSTRUCTION, before=before, after=after)


def _strata() -> tuple[StratumRow, ...]:
    table = [
        ("clean", "lookup and act", True, 0.34, (0.08, 0.03, 0.17), (0.95, 0.87, 0.98), (0.87, 0.78, 0.94)),
        ("clean", "condition", True, 0.22, (0.05, 0.01, 0.13), (0.92, 0.83, 0.97), (0.88, 0.77, 0.95)),
        ("clean", "must abstain", False, 0.14, (0.02, 0.0, 0.08), (0.31, 0.21, 0.43), (0.30, 0.18, 0.41)),
        ("clean", "needs approval", False, 0.12, (0.0, 0.0, 0.06), (0.06, 0.02, 0.15), (0.06, 0.0, 0.12)),
        ("clean", "several assets", False, 0.18, (0.0, 0.0, 0.06), (0.0, 0.0, 0.06), (0.0, -0.03, 0.03)),
        ("noisy", "lookup and act", True, 0.34, (0.05, 0.01, 0.13), (0.78, 0.66, 0.87), (0.73, 0.61, 0.83)),
        ("noisy", "condition", True, 0.22, (0.03, 0.01, 0.11), (0.64, 0.52, 0.75), (0.61, 0.47, 0.73)),
        ("noisy", "must abstain", False, 0.14, (0.02, 0.0, 0.08), (0.22, 0.13, 0.34), (0.20, 0.09, 0.31)),
        ("noisy", "needs approval", False, 0.12, (0.0, 0.0, 0.06), (0.03, 0.01, 0.11), (0.03, -0.02, 0.08)),
        ("noisy", "several assets", False, 0.18, (0.03, 0.01, 0.11), (0.0, 0.0, 0.06), (-0.03, -0.08, 0.0)),
    ]
    return tuple(
        StratumRow(
            stratum=name,
            weather=weather,
            trained=trained,
            weight=weight,
            before=measured("success", *before),
            after=measured("success", *after),
            gain=measured("gain", *gain),
        )
        for weather, name, trained, weight, before, after, gain in table
    )


def _headlines() -> tuple[Headline, ...]:
    return (
        Headline(
            label="Success on held-out families of the trained strata",
            before=measured("success", 0.06, 0.03, 0.12, 128),
            after=measured("success", 0.94, 0.88, 0.97, 128),
            gain=measured("gain", 0.88, 0.8, 0.94, 128),
        ),
        Headline(
            label="The same, under injected faults",
            before=measured("success", 0.04, 0.02, 0.1, 128),
            after=measured("success", 0.71, 0.62, 0.79, 128),
            gain=measured("gain", 0.67, 0.57, 0.76, 128),
        ),
        Headline(
            label="Latency of solved tasks, simulated critical path",
            before=measured("latency", 3420, 3010, 3880, 128, "ms"),
            after=measured("latency", 2140, 1980, 2310, 128, "ms"),
            gain=measured("latency", -1280, -1700, -870, 128, "ms"),
            higher_is_better=False,
        ),
        Headline(
            label="Attempts that broke a safety rule",
            before=measured("violations", 0.11, 0.07, 0.18, 128),
            after=measured("violations", 0.02, 0.0, 0.06, 128),
            gain=measured("violations", -0.09, -0.15, -0.03, 128),
            higher_is_better=False,
        ),
    )


def _curve() -> tuple[CurvePoint, ...]:
    points = []
    for step in range(41):
        grown = 1 / (1 + math.exp(-(step - 16) / 4))
        ripple = 0.03 * math.sin(step * 1.7)
        points.append(
            CurvePoint(
                step=step,
                reward=min(1.0, 0.06 + 0.86 * grown + ripple),
                outcome=min(1.0, 0.1 + 0.85 * grown + ripple),
                process=0.3 + 0.5 * grown,
                latency=0.02 + 0.5 * grown,
                success=max(0.0, min(1.0, 0.04 + 0.9 * grown + ripple)),
                num_tokens=140 - 52 * grown + 6 * math.sin(step),
                staleness=0.0 if step < 2 else 1.1 + 0.4 * math.sin(step / 3),
                entropy=1.4 - 1.1 * grown,
            )
        )
    return tuple(points)


def sample_report() -> ReportData:
    return ReportData(
        title="Maintenance desk: SmolLM2-135M before and after",
        run="desk-20260114-a",
        created_at="2026-01-14T10:22:05Z",
        environment="desk",
        suite="desk-frozen",
        model="SmolLM2-135M-Instruct",
        headlines=_headlines(),
        strata=_strata(),
        risks=(
            RiskRow(rule="nothing-else-changed", weather="clean", before=9, after=1, num_attempts=320),
            RiskRow(rule="no-duplicate-order", weather="noisy", before=3, after=5, num_attempts=320),
        ),
        funnel=(
            FunnelStage(name="traces", count=600, note="OpenAI chat JSONL and OTLP, recorded by scripted operators"),
            FunnelStage(name="episodes", count=588, note="12 lines set aside: no tool call"),
            FunnelStage(name="tasks", count=280, note="5 strata, 48 families"),
            FunnelStage(name="sound", count=271, note="9 barred by the audit"),
            FunnelStage(name="admitted", count=96, note="a group of 8 carries signal with probability above 0.5"),
            FunnelStage(name="trained", count=88, note="consumed by at least one optimizer step"),
        ),
        audit_counts={"sound": 271, "exploitable": 4, "leaking": 3, "flaky": 2},
        audited=(
            AuditedTask(
                task="abstain-12",
                verdict=AuditVerdict.EXPLOITABLE,
                findings=(
                    Finding(
                        probe="constant",
                        severity=Severity.BARRING,
                        what="a policy that always declines passes",
                        evidence="decline(reason='no') scored 1.0 in 8 of 8 attempts",
                    ),
                ),
            ),
        ),
        curve=_curve(),
        staleness={0: 21000, 1: 98000, 2: 61000, 3: 8000, 4: 600},
        control=Control(
            before=measured("success", 0.06, 0.03, 0.12, 128),
            after=measured("success", 0.05, 0.02, 0.1, 128),
            gain=measured("gain", -0.01, -0.05, 0.03, 128),
            num_steps=12,
        ),
        examples=(example_pair(), example_pair()),
        overrides=(
            Override(
                rule="audit before training",
                actor="m.keller",
                reason="abstain-12 is known; trained without it",
                at="2026-01-14T09:58:00Z",
            ),
        ),
        digests={
            f"{name}": "sha256:" + f"{i:x}" * 64
            for i, name in enumerate(["environment", "suite", "reward", "model before", "model after"], 3)
        },
        machine={"cpu": "2 cores", "memory": "7.8 GB", "torch": "2.13.0", "python": "3.11.9", "accelerator": "none"},
        commands=(
            "flightschool models get smollm2-135m",
            "flightschool train train.toml --seed 3",
            "flightschool eval compare desk-frozen model:before model:after --perturb noisy",
        ),
        notes=(
            "Intervals are conditional on this one training run; another seed may give another gain.",
            "The tasks and traces of the maintenance desk are this project's own.",
        ),
    )


@pytest.fixture
def sample() -> ReportData:
    return sample_report()
