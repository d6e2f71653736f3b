from __future__ import annotations

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from flightschool.audit.junk import junk_arguments, junk_calls
from flightschool.audit.mutants import is_equivalent, mutants_of
from flightschool.audit.values import ValuePool, plausible_other, values_in
from flightschool.records import (
    CallCheck,
    CheckKind,
    CheckSpec,
    Effect,
    Reference,
    ToolCall,
    ToolEvent,
    ToolResult,
    ToolSpec,
)
from flightschool.tools import validate_arguments


def spec(name: str, effect: Effect, **properties: dict[str, object]) -> ToolSpec:
    return ToolSpec(
        name=name,
        description="",
        effect=effect,
        parameters={
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        },
    )


TEXT: dict[str, object] = {"type": "string"}
SPECS = {
    s.name: s
    for s in (
        spec("get_order", Effect.READ, order=TEXT),
        spec("assign", Effect.WRITE, order=TEXT, person=TEXT, urgent={"type": "boolean"}),
        spec("send", Effect.SEND, text=TEXT),
        spec("decline", Effect.WRITE, reason=TEXT),
    )
}
READ = ToolCall(id="1", name="get_order", arguments={"order": "WO-12"})
WRITE = ToolCall(id="2", name="assign", arguments={"order": "WO-12", "person": "Mira", "urgent": True})


def event(call: ToolCall, content: str = "{}", *, is_error: bool = False) -> ToolEvent:
    result = ToolResult(call_id=call.id, content=content, is_error=is_error)
    return ToolEvent(index=0, turn=0, call=call, result=result, effect=SPECS[call.name].effect, start_ms=0, end_ms=1)


def names(*, oracle: tuple[ToolCall, ...], extra: ToolCall | None = None) -> list[str]:
    pool = ValuePool([("f", [msgspec.structs.replace(WRITE, arguments={**WRITE.arguments, "person": "Otto"})])])
    return [m.name for m in mutants_of(oracle, SPECS, seen=("WO-77", "x"), pool=pool, family="f", extra=extra)]


def test_mutants_drop_change_repeat_and_add() -> None:
    other = ToolCall(id="9", name="send", arguments={"text": "hello"})
    assert names(oracle=(READ, WRITE), extra=other) == [
        "dropped get_order",
        "dropped assign",
        "changed assign.order='WO-77'",  # from what was read
        "also assign.order='WO-77'",
        "changed assign.person='Otto'",  # from a sibling
        "also assign.person='Otto'",
        "changed assign.urgent=False",
        "repeated assign",
        "also send of a sibling",
    ]


def test_nothing_is_added_after_a_decline_since_it_would_never_run() -> None:
    decline = ToolCall(id="3", name="decline", arguments={"reason": "no permit"})
    pool = ValuePool([])
    found = {m.name: m.calls for m in mutants_of((READ, decline), SPECS, seen=(), pool=pool, family="f", extra=WRITE)}
    assert [call.name for call in found["also assign of a sibling"]] == ["get_order", "assign", "decline"]
    assert "repeated decline" not in found


def test_a_single_call_is_not_dropped_since_that_is_the_noop_probe() -> None:
    assert not any(name.startswith("dropped") for name in names(oracle=(WRITE,)))


def test_values_prefer_the_same_kind_of_id_and_leave_prose_alone() -> None:
    call = ToolCall(id="1", name="assign", arguments={"order": "WO-12", "person": "the person on duty", "urgent": True})
    pool = ValuePool([])
    seen = ("P-3", 4, "WO-9", "WO-12")
    other = plausible_other(SPECS["assign"], call, "order", seen=seen, pool=pool, family="f")
    assert other == "WO-9"
    assert plausible_other(SPECS["assign"], call, "person", seen=seen, pool=pool, family="f") is None


def test_without_neighbours_a_value_is_changed_by_one_step() -> None:
    tool = spec("t", Effect.WRITE, a=TEXT, n={"type": "integer", "maximum": 7}, e={"enum": ["lo", "hi"]})
    call = ToolCall(id="1", name="t", arguments={"a": "K-09", "n": 7, "e": "hi"})
    others = {p: plausible_other(tool, call, p, seen=(), pool=ValuePool([]), family="f") for p in call.arguments}
    assert others == {"a": "K-10", "n": 6, "e": "lo"}


def test_values_are_the_scalars_of_successful_results() -> None:
    events = [event(READ, '{"a": ["x", 1], "b": {"c": null, "d": "x"}}'), event(READ, '{"error": "e"}', is_error=True)]
    assert values_in(events) == ("x", 1)


def reference(*checks: CheckSpec, abstain: bool = False) -> Reference:
    return Reference(task_id="t", checks=checks, abstain=abstain)


def test_a_dropped_read_is_equivalent_unless_a_check_demands_it() -> None:
    oracle, mutant = ("d", [event(READ), event(WRITE)]), ("d", [event(WRITE)])
    rule = CallCheck(tool="get_order", arguments={"order": "WO-12"}, before="assign")
    assert is_equivalent(oracle, mutant, reference())
    assert is_equivalent(oracle, mutant, reference(CheckSpec(id="p", kind=CheckKind.PROCESS, rule=rule)))
    assert not is_equivalent(oracle, mutant, reference(CheckSpec(id="f", kind=CheckKind.FUNCTIONAL, rule=rule)))


def test_another_state_or_another_message_is_never_equivalent() -> None:
    send = ToolCall(id="3", name="send", arguments={"text": "hi"})
    again = msgspec.structs.replace(WRITE, arguments={**WRITE.arguments, "person": "Otto"})
    assert not is_equivalent(("d", [event(WRITE)]), ("e", [event(again)]), reference())
    assert not is_equivalent(("d", [event(WRITE)]), ("e", [event(WRITE), event(again)]), reference())
    assert not is_equivalent(("d", [event(send)]), ("d", [event(send), event(send)]), reference())
    assert is_equivalent(("d", [event(send)]), ("d", [event(send), event(send, is_error=True)]), reference())


def test_the_wording_of_a_reason_makes_no_other_work() -> None:
    decline = ToolCall(id="3", name="decline", arguments={"reason": "no permit"})
    other = msgspec.structs.replace(decline, arguments={"reason": "86"})
    oracle = ("d", [event(READ), event(decline)])
    assert is_equivalent(oracle, ("e", [event(READ), event(other)]), reference(abstain=True))


def test_declining_without_a_read_is_not_the_same_as_declining_with_one() -> None:
    decline = ToolCall(id="3", name="decline", arguments={"reason": "no"})
    oracle = ("d", [event(READ), event(decline)])
    assert not is_equivalent(oracle, ("d", [event(decline)]), reference(abstain=True))


JSON_TYPES = st.sampled_from(
    [
        {"type": "string"},
        {"type": "string", "minLength": 6},
        {"type": "string", "maxLength": 2},
        {"type": "string", "enum": ["a", "b"]},
        {"type": "integer", "minimum": 3},
        {"type": "integer", "minimum": -9, "maximum": -2},
        {"type": "number", "maximum": 0.5},
        {"type": "boolean"},
        {"type": "array", "items": {"type": "integer"}, "minItems": 2},
        {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]},
        {"type": ["string", "null"]},
        {"anyOf": [{"type": "integer"}, {"type": "string"}]},
    ]
)


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(st.sampled_from("abcdef"), JSON_TYPES, min_size=1))
def test_junk_satisfies_the_schema(properties: dict[str, dict[str, object]]) -> None:
    tool = spec("t", Effect.WRITE, **properties)
    assert validate_arguments(tool, junk_arguments(tool.parameters)) is None


def test_junk_calls_every_tool_that_changes_something_but_decline() -> None:
    assert [call.name for call in junk_calls(list(SPECS.values()))] == ["assign", "send"]
