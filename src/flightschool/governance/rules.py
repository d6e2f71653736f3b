"""Permissions as data: rules over tool names, arguments and what was called before. Default deny.

A call is allowed when some allow rule applies and no deny rule does. Everything doubtful is decided against the call:
no rule is a denial; a deny rule whose argument is missing applies (the tool might fill in just the value that is
denied) while such an allow rule does not; and any exception in evaluating is a denial by the rule ``error``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import TypeAlias

import msgspec

from flightschool.digest import digest as content_digest
from flightschool.errors import ConfigError
from flightschool.protocols import PermissionDecision
from flightschool.records import Json, Record, ToolCall, ToolEvent

__all__ = ["AfterCall", "ArgumentBelow", "ArgumentEquals", "ArgumentIn", "Condition", "Rule", "RuleEffect", "RuleSet"]

DEFAULT = "default"
"""Name given for a denial when no rule applied."""
ERROR = "error"
"""Name given for a denial when a rule could not be evaluated."""


class RuleEffect(StrEnum):
    """What a rule does when it applies."""

    ALLOW = "allow"
    DENY = "deny"


class ArgumentEquals(Record, frozen=True, kw_only=True, tag="equals"):
    """The argument is this JSON value (``1`` and ``1.0`` are one, ``1`` and ``true`` are not)."""

    argument: str
    value: Json


class ArgumentIn(Record, frozen=True, kw_only=True, tag="in"):
    """The argument is one of these JSON values."""

    argument: str
    values: tuple[Json, ...]


class ArgumentBelow(Record, frozen=True, kw_only=True, tag="below"):
    """The argument is a number less than ``limit``. A value that is no finite number cannot be evaluated."""

    argument: str
    limit: float


class AfterCall(Record, frozen=True, kw_only=True, tag="after"):
    """An earlier call of ``tool`` succeeded, with matching arguments and answer; an approval, say."""

    tool: str
    """Exact name."""
    same: tuple[str, ...] = ()
    """Arguments that have the same name and the same value in both calls."""
    matching: dict[str, str] = msgspec.field(default_factory=dict)
    """This call's argument → the earlier call's argument of another name with the same value."""
    arguments: dict[str, Json] = msgspec.field(default_factory=dict)
    """Arguments of the earlier call, fixed."""
    result: dict[str, Json] = msgspec.field(default_factory=dict)
    """Fields of the earlier call's answer, a JSON object, fixed: asking for an approval is not yet having it."""


Condition: TypeAlias = ArgumentEquals | ArgumentIn | ArgumentBelow | AfterCall


class Rule(Record, frozen=True, kw_only=True):
    """One rule. It applies to a call whose tool matches one of ``tools`` when every condition holds."""

    name: str
    tools: tuple[str, ...]
    """Shell-style patterns over tool names, case-sensitive: ``read_*``."""
    effect: RuleEffect
    when: tuple[Condition, ...] = ()
    reason: str = ""
    """Shown to the agent with a denial."""


class RuleSet:
    """Rules that decide calls; implements ``protocols.Permissions``. Deny overrides allow, whatever the order.

    Raises:
        ConfigError: two rules of one name, a reserved name, or a rule without tools.
    """

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules = tuple(rules)
        _check(self.rules)

    @property
    def digest(self) -> str:
        """Digest of the rules, in their order; the same before and after a trip over the wire (a limit 5 is 5.0)."""
        return content_digest(msgspec.convert(msgspec.to_builtins(self.rules), tuple[Rule, ...]))

    def decide(self, call: ToolCall, events: Sequence[ToolEvent]) -> PermissionDecision:
        """Decide one call, knowing the earlier ones. Never raises: an exception is a denial."""
        try:
            return self._decide(call, events)
        except Exception as error:  # noqa: BLE001 - arguments are the policy's: whatever they break, the answer is no
            return PermissionDecision(
                allowed=False,
                rule=ERROR,
                reason=f"the permission could not be evaluated: {type(error).__name__}: {error}",
            )

    def _decide(self, call: ToolCall, events: Sequence[ToolEvent]) -> PermissionDecision:
        matching = [rule for rule in self.rules if any(fnmatchcase(call.name, pattern) for pattern in rule.tools)]
        allowed_by: Rule | None = None
        for rule in matching:
            applies = _applies(rule, call, events)
            if rule.effect is RuleEffect.DENY and applies is not False:
                return PermissionDecision(allowed=False, rule=rule.name, reason=rule.reason)
            if rule.effect is RuleEffect.ALLOW and applies is True and allowed_by is None:
                allowed_by = rule
        if allowed_by is not None:
            return PermissionDecision(allowed=True, rule=allowed_by.name, reason=allowed_by.reason)
        # An allow rule that did not apply knows why the call is refused: "needs an approval first".
        reasons = [rule.reason for rule in matching if rule.effect is RuleEffect.ALLOW and rule.reason]
        return PermissionDecision(
            allowed=False, rule=DEFAULT, reason=reasons[0] if reasons else f"no rule allows {call.name}"
        )


def _check(rules: Sequence[Rule]) -> None:
    names: set[str] = set()
    for rule in rules:
        if not rule.name or rule.name in {DEFAULT, ERROR} or rule.name in names:
            raise ConfigError(
                f"a rule cannot be named {rule.name!r}",
                where="rules",
                expected=f"unique names other than {DEFAULT!r} and {ERROR!r}",
                mend="rename the rule",
            )
        if not rule.tools:
            raise ConfigError(
                f"the rule {rule.name!r} names no tool",
                where="rules",
                expected="patterns",
                mend="use '*' for all tools",
            )
        names.add(rule.name)


def _applies(rule: Rule, call: ToolCall, events: Sequence[ToolEvent]) -> bool | None:
    """Whether all conditions hold; None when that hangs on an argument that was not given."""
    results = [_holds(condition, call, events) for condition in rule.when]
    if any(result is False for result in results):
        return False
    return None if any(result is None for result in results) else True


def _holds(condition: Condition, call: ToolCall, events: Sequence[ToolEvent]) -> bool | None:
    match condition:
        case AfterCall():
            return _happened(condition, call, events)
        case ArgumentEquals() | ArgumentIn() | ArgumentBelow() if condition.argument not in call.arguments:
            return None
        case ArgumentEquals(argument=argument, value=value):
            return _equal(call.arguments[argument], value)
        case ArgumentIn(argument=argument, values=values):
            return any(_equal(call.arguments[argument], value) for value in values)
        case ArgumentBelow(argument=argument, limit=limit):
            return _number(call.arguments[argument]) < limit


def _happened(condition: AfterCall, call: ToolCall, events: Sequence[ToolEvent]) -> bool | None:
    pairs = {**{name: name for name in condition.same}, **condition.matching}
    if any(name not in call.arguments for name in pairs):
        return None
    expected = {earlier: call.arguments[name] for name, earlier in pairs.items()}
    return any(
        event.call.name == condition.tool
        and not event.result.is_error
        and _contains(event.call.arguments, expected)
        and _contains(event.call.arguments, condition.arguments)
        and (not condition.result or _contains(_object(event.result.content), condition.result))
        for event in events
    )


def _contains(given: dict[str, Json], expected: dict[str, Json]) -> bool:
    return all(name in given and _equal(given[name], value) for name, value in expected.items())


def _object(content: str) -> dict[str, Json]:
    """The JSON object in an answer; empty when it is something else."""
    try:
        value = msgspec.json.decode(content)
    except msgspec.DecodeError:
        return {}
    return value if isinstance(value, dict) else {}


def _equal(left: Json, right: Json) -> bool:
    """Equality of JSON values: Python's, but true is not 1, at any depth."""
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_equal(left[key], right[key]) for key in left)
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        return len(left) == len(right) and all(_equal(a, b) for a, b in zip(left, right, strict=True))
    return isinstance(left, bool) == isinstance(right, bool) and bool(left == right)


def _number(value: Json) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise TypeError(f"{value!r} is not a finite number")
    return value
