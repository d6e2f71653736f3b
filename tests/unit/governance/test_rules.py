"""Permissions: default deny, deny over allow, doubt against the call."""

import json
import random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flightschool.errors import ConfigError
from flightschool.governance import (
    AfterCall,
    ArgumentBelow,
    ArgumentEquals,
    ArgumentIn,
    Condition,
    Rule,
    RuleEffect,
    RuleSet,
)
from flightschool.protocols import Permissions
from flightschool.records import Effect, ToolCall, ToolEvent, ToolResult

ALLOW, DENY = RuleEffect.ALLOW, RuleEffect.DENY


def call(tool: str, **arguments: Any) -> ToolCall:
    return ToolCall(id="c", name=tool, arguments=arguments)


def event(done: ToolCall, content: Any = None, *, is_error: bool = False) -> ToolEvent:
    result = ToolResult(call_id=done.id, content=json.dumps(content), is_error=is_error)
    return ToolEvent(index=0, turn=0, call=done, result=result, effect=Effect.WRITE, start_ms=0, end_ms=1)


def rule(name: str, effect: RuleEffect, tools: str, *when: Condition, reason: str = "") -> Rule:
    return Rule(name=name, tools=tuple(tools.split()), effect=effect, when=when, reason=reason)


def decided(rules: list[Rule], asked: ToolCall, *events: ToolEvent) -> tuple[bool, str]:
    permissions: Permissions = RuleSet(rules)
    decision = permissions.decide(asked, events)
    return decision.allowed, decision.rule


def test_nothing_is_allowed_by_default() -> None:
    assert decided([], call("read_asset")) == (False, "default")
    assert decided([rule("reads", ALLOW, "read_*")], call("write_asset")) == (False, "default")
    assert RuleSet([]).decide(call("x"), ()).reason == "no rule allows x"


def test_patterns_are_globs_and_mind_case() -> None:
    reads = [rule("reads", ALLOW, "read_* list_?s")]
    assert decided(reads, call("read_asset")) == (True, "reads")
    assert decided(reads, call("list_parts"))[0] is False
    assert decided(reads, call("list_xs")) == (True, "reads")
    assert decided(reads, call("Read_asset"))[0] is False
    assert decided(reads, call("bulk_read_asset"))[0] is False


def test_deny_overrides_allow_in_any_order() -> None:
    rules = [rule("all", ALLOW, "*"), rule("never", DENY, "drop_*", reason="cannot be undone")]
    for order in (rules, rules[::-1]):
        assert decided(order, call("drop_asset")) == (False, "never")
        assert decided(order, call("read_asset")) == (True, "all")
    assert RuleSet(rules).decide(call("drop_asset"), ()).reason == "cannot be undone"


@pytest.mark.parametrize(
    ("condition", "given_value", "holds"),
    [
        (ArgumentEquals(argument="x", value="a"), "a", True),
        (ArgumentEquals(argument="x", value="a"), "A", False),
        (ArgumentEquals(argument="x", value=1), 1.0, True),
        (ArgumentEquals(argument="x", value=1), True, False),
        (ArgumentEquals(argument="x", value=[1, {"k": False}]), [1, {"k": 0}], False),
        (ArgumentEquals(argument="x", value=[1, {"k": False}]), [1, {"k": False}], True),
        (ArgumentEquals(argument="x", value=None), None, True),
        (ArgumentIn(argument="x", values=("low", "medium")), "medium", True),
        (ArgumentIn(argument="x", values=("low", "medium")), "high", False),
        (ArgumentIn(argument="x", values=()), "low", False),
        (ArgumentBelow(argument="x", limit=100), 99.9, True),
        (ArgumentBelow(argument="x", limit=100), 100, False),
    ],
)
def test_conditions_on_arguments(condition: Condition, given_value: Any, holds: bool) -> None:
    assert decided([rule("r", ALLOW, "t", condition)], call("t", x=given_value))[0] is holds
    denying = [rule("all", ALLOW, "*"), rule("r", DENY, "t", condition)]
    assert decided(denying, call("t", x=given_value))[0] is not holds


def test_a_missing_argument_never_helps_the_call() -> None:
    condition = ArgumentEquals(argument="priority", value="high")
    assert decided([rule("r", ALLOW, "t", condition)], call("t")) == (False, "default")
    assert decided([rule("all", ALLOW, "*"), rule("r", DENY, "t", condition)], call("t")) == (False, "r")
    # A condition that surely fails settles it: the deny rule does not apply.
    both = (condition, ArgumentEquals(argument="site", value="north"))
    assert decided([rule("all", ALLOW, "*"), rule("r", DENY, "t", *both)], call("t", site="south")) == (True, "all")
    # Another rule may still allow it.
    assert decided([rule("r", ALLOW, "t", condition), rule("s", ALLOW, "t")], call("t")) == (True, "s")


@pytest.mark.parametrize("value", ["cheap", None, True, float("nan"), float("-inf"), [1]])
def test_what_cannot_be_evaluated_is_denied(value: Any) -> None:
    rules = [rule("all", ALLOW, "*"), rule("limit", ALLOW, "buy", ArgumentBelow(argument="cost", limit=10))]
    assert decided(rules, call("buy", cost=value)) == (False, "error")
    assert "not a finite number" in RuleSet(rules).decide(call("buy", cost=value), ()).reason


def test_even_a_broken_history_only_denies() -> None:
    rules = [rule("after", ALLOW, "close", AfterCall(tool="approve"))]
    decision = RuleSet(rules).decide(call("close"), [None])  # type: ignore[list-item]
    assert (decision.allowed, decision.rule) == (False, "error")


APPROVED = AfterCall(
    tool="request_approval",
    same=("order",),
    matching={"amount": "up_to"},
    arguments={"kind": "spend"},
    result={"approved": True},
)
NEEDS = [rule("spend", ALLOW, "buy", APPROVED, reason="needs an approval first")]
BUY = call("buy", order="O-1", amount=40)
ASKED = call("request_approval", order="O-1", up_to=40, kind="spend", note="please")


def test_an_approval_opens_the_way() -> None:
    assert decided(NEEDS, BUY, event(ASKED, {"approved": True, "by": "lead"})) == (True, "spend")
    # It may lie anywhere in the past.
    assert decided(NEEDS, BUY, event(ASKED, {"approved": True}), event(call("read"), {}))[0] is True


@pytest.mark.parametrize(
    "past",
    [
        [],
        [event(ASKED, {"approved": False})],
        [event(ASKED, {"approved": 1})],
        [event(ASKED, "approved: true")],
        [event(ASKED, {"approved": True}, is_error=True)],
        [event(call("request_approval", order="O-2", up_to=40, kind="spend"), {"approved": True})],
        [event(call("request_approval", order="O-1", up_to=39, kind="spend"), {"approved": True})],
        [event(call("request_approval", order="O-1", up_to=40, kind="travel"), {"approved": True})],
        [event(call("request_approval", order="O-1", up_to=40), {"approved": True})],
        [event(call("request_approvals", order="O-1", up_to=40, kind="spend"), {"approved": True})],
    ],
    ids=["none", "refused", "one", "prose", "failed", "other order", "less", "other kind", "no kind", "other tool"],
)
def test_anything_less_does_not(past: list[ToolEvent]) -> None:
    decision = RuleSet(NEEDS).decide(BUY, past)
    assert (decision.allowed, decision.rule, decision.reason) == (False, "default", "needs an approval first")


def test_parts_of_several_approvals_do_not_add_up() -> None:
    halves = [
        event(call("request_approval", order="O-1", up_to=40, kind="travel"), {"approved": True}),
        event(call("request_approval", order="O-1", up_to=40, kind="spend"), {"approved": False}),
    ]
    assert decided(NEEDS, BUY, *halves)[0] is False


def test_a_call_without_the_argument_is_not_approved() -> None:
    assert decided(NEEDS, call("buy", order="O-1"), event(ASKED, {"approved": True}))[0] is False


CONDITIONS = st.one_of(
    st.builds(ArgumentEquals, argument=st.sampled_from("xy"), value=st.sampled_from([1, "a", None])),
    st.builds(ArgumentIn, argument=st.sampled_from("xy"), values=st.just((1, "a"))),
    st.builds(ArgumentBelow, argument=st.sampled_from("xy"), limit=st.just(2.0)),
    st.builds(AfterCall, tool=st.sampled_from("ab"), same=st.sampled_from([(), ("x",)])),
)
DRAFTS = st.lists(
    st.tuples(st.sampled_from([ALLOW, DENY]), st.sampled_from(["*", "a", "b", "?"]), st.lists(CONDITIONS, max_size=2)),
    max_size=5,
)
CALLS = st.builds(
    lambda tool, arguments: call(tool, **arguments),
    st.sampled_from("ab"),
    st.dictionaries(st.sampled_from("xy"), st.sampled_from([1, 1.0, 3, "a", None, True]), max_size=2),
)


def named(drafts: list[tuple[RuleEffect, str, list[Condition]]]) -> list[Rule]:
    return [rule(f"r{i}", effect, tools, *when) for i, (effect, tools, when) in enumerate(drafts)]


@settings(max_examples=50, deadline=None)
@given(DRAFTS, CALLS, st.lists(CALLS, max_size=3), st.randoms(use_true_random=False))
def test_laws(
    drafts: list[tuple[RuleEffect, str, list[Condition]]], asked: ToolCall, past: list[ToolCall], rng: random.Random
) -> None:
    rules, events = named(drafts), [event(done, {}) for done in past]
    allowed, name = decided(rules, asked, *events)
    # Without an allow rule nothing passes, and what passes names one.
    assert not allowed or next(r for r in rules if r.name == name).effect is ALLOW
    # Order decides nothing but the name.
    shuffled = rules[:]
    rng.shuffle(shuffled)
    assert decided(shuffled, asked, *events)[0] is allowed
    # One more deny rule never opens a way; one more allow rule never shuts one, unless it cannot be evaluated.
    assert not decided([*rules, rule("no", DENY, "*")], asked, *events)[0]
    assert decided([*rules, rule("yes", ALLOW, "*")], asked, *events)[0] >= allowed


def test_rules_are_data() -> None:
    rules = RuleSet(
        [*NEEDS, rule("never", DENY, "drop_*"), rule("cheap", ALLOW, "b", ArgumentBelow(argument="x", limit=5))]
    )
    wire = msgspec.json.encode(rules.rules)
    again = RuleSet(msgspec.json.decode(wire, type=tuple[Rule, ...]))
    assert again.rules == rules.rules
    assert again.digest == rules.digest
    assert RuleSet(NEEDS).digest != rules.digest


@pytest.mark.parametrize(
    "bad",
    [
        [rule("a", ALLOW, "x"), rule("a", DENY, "y")],
        [rule("default", ALLOW, "x")],
        [rule("error", ALLOW, "x")],
        [rule("", ALLOW, "x")],
        [Rule(name="a", tools=(), effect=ALLOW)],
    ],
)
def test_ambiguous_rules_are_refused(bad: list[Rule]) -> None:
    with pytest.raises(ConfigError):
        RuleSet(bad)
