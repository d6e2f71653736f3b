"""Seeded weather: the faults of one attempt.

Whether rule ``r`` draws a hit on call ``i`` depends on (seed, r, i) and nothing else: attempts with the same seed meet
the same weather, whatever they did before, and a rule added at the end leaves the draws of the others as they were. The
caps on hits count what really happened in this attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase

import msgspec

from flightschool.digest import derive_seed
from flightschool.errors import ConfigError
from flightschool.perturbation.faults import FAULT_KINDS, FaultStrike, Run, Struck
from flightschool.perturbation.profiles import FaultProfile, FaultRule, Window
from flightschool.protocols import Strike, World
from flightschool.records import Effect, Fault, ToolCall, ToolSpec

__all__ = ["Hit", "SeededWeather"]

_EARLY_ENDS, _MID_ENDS = 2, 4


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """One fault that was drawn."""

    index: int
    """Call that it was drawn for."""
    fault: Fault
    applied: bool
    """False when it could not really happen, and the policy got the true result."""


class SeededWeather:
    """The weather of one attempt (``protocols.Weather``). Single use: it counts its hits.

    Args:
        profile: what is declared.
        seed: the same for attempts that shall meet the same weather.

    Raises:
        ConfigError: the profile names an unknown fault, or a rate that is no probability.
    """

    def __init__(self, profile: FaultProfile, seed: int) -> None:
        for rule in profile.faults:
            _check(rule, profile.name)
        self._profile = profile
        self._seed = seed
        self._log: list[Hit] = []
        self._hits = [0] * len(profile.faults)

    @property
    def profile(self) -> str:
        """What attempts record (``FaultProfile.label``)."""
        return self._profile.label

    @property
    def log(self) -> tuple[Hit, ...]:
        """All faults drawn so far, with whether each applied."""
        return tuple(self._log)

    def strike(self, call: ToolCall, spec: ToolSpec, index: int, turn: int) -> Strike | None:  # noqa: ARG002
        """The first rule that matches the call, is not used up and draws a hit; None for fair weather."""
        if sum(self._hits) >= self._profile.max_hits:
            return None
        for number, rule in enumerate(self._profile.faults):
            if self._hits[number] < rule.max_hits and _matches(rule, spec, index):
                draw = _uniform(self._seed, number, index)
                if draw < rule.rate:
                    # given a hit, draw / rate is uniform again: it sizes the fault
                    return _CountedStrike(FAULT_KINDS[rule.kind](spec, draw / rule.rate), self._counter(number, index))
        return None

    def _counter(self, number: int, index: int) -> Callable[[Fault, bool], None]:
        def count(fault: Fault, applied: bool) -> None:
            self._hits[number] += applied
            self._log.append(Hit(index=index, fault=fault, applied=applied))

        return count


class _CountedStrike:
    """A fault that reports whether it really happened."""

    def __init__(self, inner: FaultStrike, count: Callable[[Fault, bool], None]) -> None:
        self._inner = inner
        self._count = count

    @property
    def fault(self) -> Fault:
        """Ground truth of the fault."""
        return self._inner.fault

    def apply(self, run: Run, history: Sequence[World], call: ToolCall) -> Struck:
        """Apply the fault and count it if it happened."""
        result, extra_ms = self._inner.apply(run, history, call)
        self._count(self._inner.fault, result.fault is not None)
        return result, extra_ms


def window_of(index: int) -> Window:
    """Part of the episode that a call belongs to."""
    if index < _EARLY_ENDS:
        return Window.EARLY
    return Window.MID if index < _MID_ENDS else Window.LATE


def _matches(rule: FaultRule, spec: ToolSpec, index: int) -> bool:
    possible: frozenset[Effect] | tuple[Effect, ...] = rule.effects or FAULT_KINDS[rule.kind].effects
    if spec.effect not in possible or rule.window not in (Window.ANY, window_of(index)):
        return False
    return any(fnmatchcase(spec.name, pattern) for pattern in rule.tools)


def _uniform(seed: int, number: int, index: int) -> float:
    """A number in [0, 1) for one rule and one call."""
    return (derive_seed(seed, "weather", number, index) >> 10) / float(1 << 53)


def _check(rule: FaultRule, where: str) -> None:
    if rule.kind not in FAULT_KINDS:
        what, expected = f"unknown fault {rule.kind!r}", f"one of {', '.join(FAULT_KINDS)}"
    elif not 0.0 <= rule.rate <= 1.0:
        what, expected = f"rate {rule.rate:g} of {rule.kind} is no probability", "a number from 0 to 1"
    elif not set(rule.effects) <= FAULT_KINDS[rule.kind].effects:
        what, expected = f"{rule.kind} cannot hit {', '.join(rule.effects)}", "effects that the fault can hit"
    else:
        return
    raise ConfigError(what, where=f"fault profile {where}", expected=expected, mend="correct the profile")
