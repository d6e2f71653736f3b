"""Mutants of the oracle: small wrong changes of right work, each of which the checks must refuse.

The operators are those of mutation testing (DeMillo, Lipton, Sayward 1978) taken to call sequences: drop a call,
change one argument of a write, do a write twice, do one write more. A mutant that leaves the same end state, the same
demanded calls and the same irreversible effects is *equivalent*: it is the same work, and its passing proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from flightschool.audit.values import ValuePool, is_prose, plausible_other
from flightschool.digest import canonical_json
from flightschool.records import CallCheck, CheckKind, Effect, Json, Reference, ToolCall, ToolEvent, ToolSpec

__all__ = ["DECLINE", "Mutant", "is_equivalent", "mutants_of"]

DECLINE = "decline"
"""Name of the tool that ends an attempt by abstaining (see ``rollouts.harness``)."""

IRREVERSIBLE = frozenset({Effect.SEND, Effect.DESTROY})
CHANGING = IRREVERSIBLE | {Effect.WRITE}


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """A wrong variant of the oracle's calls."""

    name: str
    calls: tuple[ToolCall, ...]


def mutants_of(
    oracle: Sequence[ToolCall],
    specs: Mapping[str, ToolSpec],
    *,
    seen: Sequence[Json],
    pool: ValuePool,
    family: str,
    extra: ToolCall | None,
) -> Iterator[Mutant]:
    """All mutants, the same in the same order for the same arguments.

    Args:
        oracle: right calls.
        specs: tools by name.
        seen: scalars that the oracle's reads returned.
        pool: arguments of the environment's oracles.
        family: the task's family.
        extra: a write that the task does not ask for, usually a sibling's; None when there is none.
    """
    calls = tuple(oracle)
    yield from _dropped(calls)
    for index, call in enumerate(calls):
        spec = specs.get(call.name)
        if spec is None or spec.effect is Effect.READ:
            continue
        for changed in _perturbed(call, spec, seen=seen, pool=pool, family=family):
            parameter, other = changed
            wrong = _with_argument(call, parameter, other)
            label = f"{call.name}.{parameter}={other!r}"
            yield Mutant(name=f"changed {label}", calls=(*calls[:index], wrong, *calls[index + 1 :]))
            if call.name != DECLINE and isinstance(other, str):
                yield Mutant(name=f"also {label}", calls=_inserted(calls, wrong))
        declared_harmless = spec.idempotent and spec.effect in IRREVERSIBLE  # a write's state shows it instead
        if call.name != DECLINE and not declared_harmless:
            again = _renamed(call, "again")
            yield Mutant(name=f"repeated {call.name}", calls=(*calls[: index + 1], again, *calls[index + 1 :]))
    if extra is not None:
        yield Mutant(name=f"also {extra.name} of a sibling", calls=_inserted(calls, _renamed(extra, "extra")))


def is_equivalent(
    oracle: tuple[str, Sequence[ToolEvent]], other: tuple[str, Sequence[ToolEvent]], reference: Reference
) -> bool:
    """Whether a play provably did the oracle's work: (end-state digest, events) of both sides.

    It did when every call that functional and constraint checks demand was made as often (process checks shape, they
    demand nothing), and when either its effects are the oracle's (same end state, same irreversible acts) or its writes
    are, in order and free text aside. Abstaining needs a read of its own accord (it is an act with grounds), so that
    declining without any is never equivalent.
    """
    reads = [e for e in _successful(other[1]) if e.effect is Effect.READ and e.call.name != DECLINE]
    if reference.abstain and not reads:
        return False
    demanding = [check for check in reference.checks if check.kind is not CheckKind.PROCESS]
    rules = [check.rule for check in demanding if isinstance(check.rule, CallCheck)]
    if any(_demanded(rule, oracle[1]) != _demanded(rule, other[1]) for rule in rules):
        return False
    same_effects = oracle[0] == other[0] and _acts(oracle[1], IRREVERSIBLE) == _acts(other[1], IRREVERSIBLE)
    return same_effects or _acts(oracle[1], CHANGING) == _acts(other[1], CHANGING)


def _dropped(calls: tuple[ToolCall, ...]) -> Iterator[Mutant]:
    if len(calls) < 2:  # nothing left is the no-op probe
        return
    for index, call in enumerate(calls):
        yield Mutant(name=f"dropped {call.name}", calls=(*calls[:index], *calls[index + 1 :]))


def _perturbed(
    call: ToolCall, spec: ToolSpec, *, seen: Sequence[Json], pool: ValuePool, family: str
) -> Iterator[tuple[str, Json]]:
    for parameter in call.arguments:
        other = plausible_other(spec, call, parameter, seen=seen, pool=pool, family=family)
        if other is not None:
            yield parameter, other


def _with_argument(call: ToolCall, parameter: str, value: Json) -> ToolCall:
    return msgspec.structs.replace(call, id=f"{call.id}-wrong", arguments={**call.arguments, parameter: value})


def _renamed(call: ToolCall, suffix: str) -> ToolCall:
    return msgspec.structs.replace(call, id=f"{call.id}-{suffix}")


def _inserted(calls: tuple[ToolCall, ...], extra: ToolCall) -> tuple[ToolCall, ...]:
    """Appended, but before a final ``decline``, after which nothing runs."""
    if calls and calls[-1].name == DECLINE:
        return (*calls[:-1], extra, calls[-1])
    return (*calls, extra)


def _successful(events: Sequence[ToolEvent]) -> list[ToolEvent]:
    return [event for event in events if not event.result.is_error]


def _demanded(rule: CallCheck, events: Sequence[ToolEvent]) -> int:
    """How many of the calls that a check demands were made."""
    count = 0
    for event in _successful(events):
        if rule.before is not None and event.call.name == rule.before:
            break
        arguments = event.call.arguments
        matches = all(name in arguments and arguments[name] == value for name, value in rule.arguments.items())
        count += event.call.name == rule.tool and matches
    return min(count, rule.least)


def _acts(events: Sequence[ToolEvent], effects: frozenset[Effect]) -> list[tuple[str, bytes]]:
    """Successful calls of these effects in order; free text, and the reason of a decline, count as equal."""
    return [
        (event.call.name, canonical_json(_firm(event.call)))
        for event in _successful(events)
        if event.effect in effects or (event.call.name == DECLINE and Effect.WRITE in effects)
    ]


def _firm(call: ToolCall) -> dict[str, Json]:
    if call.name == DECLINE:
        return {}
    return {name: value for name, value in call.arguments.items() if not is_prose(value)}
