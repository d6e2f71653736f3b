"""Evidence and judging for tests of kinds."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import pytest

from flightschool.records import (
    Check,
    CheckKind,
    CheckRule,
    CheckSpec,
    Effect,
    Evidence,
    Json,
    ToolCall,
    ToolEvent,
    ToolResult,
)
from flightschool.verification import CheckVerifier, Resources

Judge = Callable[..., Check]
MakeEvent = Callable[..., ToolEvent]


def _judge(
    rule: CheckRule,
    answer: str = "",
    *,
    end: Json = None,
    start: Json = None,
    events: Sequence[ToolEvent] = (),
    resources: Resources | None = None,
) -> Check:
    """The check of a rule; states are bytes, or JSON values."""
    states = [s if isinstance(s, bytes) else json.dumps({} if s is None else s).encode() for s in (start, end)]
    evidence = Evidence(initial_state=states[0], end_state=states[1], events=tuple(events), answer=answer)
    spec = CheckSpec(id="it", kind=CheckKind.FUNCTIONAL, rule=rule, author="tester", weight=2.0)
    (check,) = CheckVerifier([spec], resources).verify(evidence).checks
    assert (check.id, check.weight, check.author) == ("it", 2.0, "tester")
    assert check.evidence.encode()  # whatever the policy wrote, the evidence can be stored
    return check


def _event(
    index: int, name: str, *, turn: int | None = None, is_error: bool = False, content: str = "{}", **arguments: Json
) -> ToolEvent:
    return ToolEvent(
        index=index,
        turn=index if turn is None else turn,
        call=ToolCall(id=str(index), name=name, arguments=arguments),
        result=ToolResult(call_id=str(index), content=content, is_error=is_error),
        effect=Effect.READ,
        start_ms=0.0,
        end_ms=1.0,
    )


@pytest.fixture
def judge() -> Judge:
    return _judge


@pytest.fixture
def event() -> MakeEvent:
    return _event
