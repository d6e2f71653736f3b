"""One reward of one verdict.

``total = gate · ((1 − γ − β) · outcome + γ · process + β · u(L) · [outcome = 1])`` with

- ``outcome``: share (by weight) of functional checks that passed, at most ``partial_cap`` unless all passed;
- ``process``: share (by weight) of process checks that passed; a task without any has its process share follow the
  outcome, so that a declared check is never needed to reach the full reward;
- ``u(L) = clip((L_hi − L) / (L_hi − L_lo), 0, 1)`` of the virtual critical path, only for correct episodes: speed of a
  wrong one is worth nothing;
- ``gate``: 0 as soon as one constraint is violated. Safety gates; added as a penalty it would have a price.

The worst correct episode earns ``1 − γ − β``, the best wrong one ``(1 − γ − β) · partial_cap + γ``; settings that let
the second reach the first are refused, hence every correct, unviolated reward is above every other one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from pydantic import Field, model_validator

from flightschool.config import Settings
from flightschool.digest import digest
from flightschool.errors import InfrastructureError, InputError
from flightschool.records import Check, CheckKind, Reward, Verdict

__all__ = ["OutcomeReward", "RewardSettings"]

_MAX_SHAPING = 0.3


class RewardSettings(Settings):
    """Weights of the reward's terms."""

    partial_cap: float = Field(default=0.5, ge=0.0, lt=1.0)
    """Most that an outcome can be when not every functional check passed."""
    process_share: float = Field(default=0.1, ge=0.0, le=_MAX_SHAPING)
    """γ: share of process checks in the total."""
    latency_share: float = Field(default=0.1, ge=0.0, le=_MAX_SHAPING)
    """β: share of the latency term in the total of correct episodes."""
    latency_low_ms: float = Field(default=1_000.0, ge=0.0, allow_inf_nan=False)
    """Virtual milliseconds up to which the latency term is 1."""
    latency_high_ms: float = Field(default=30_000.0, gt=0.0, allow_inf_nan=False)
    """Virtual milliseconds from which the latency term is 0."""

    @model_validator(mode="after")
    def _ordered(self) -> RewardSettings:
        gamma, beta = self.process_share, self.latency_share
        if gamma + beta > _MAX_SHAPING + 1e-12:
            raise ValueError(f"process_share + latency_share of at most {_MAX_SHAPING}, got {gamma + beta:g}")
        if self.latency_high_ms <= self.latency_low_ms:
            raise ValueError("latency_high_ms above latency_low_ms")
        base = 1.0 - gamma - beta
        if base * self.partial_cap + gamma >= base:
            raise ValueError(
                f"every wrong episode below every correct one: with partial_cap {self.partial_cap:g} and process_share"
                f" {gamma:g} the best wrong one earns {base * self.partial_cap + gamma:g}, the worst correct {base:g}"
            )
        return self


class OutcomeReward:
    """Composes rewards (``protocols.RewardComposition``). Stateless and safe to share."""

    def __init__(self, settings: RewardSettings | None = None) -> None:
        self._settings = RewardSettings() if settings is None else settings
        self._digest = digest({"reward": "outcome/1", **self._settings.model_dump()})

    @property
    def settings(self) -> RewardSettings:
        """The weights."""
        return self._settings

    @property
    def digest(self) -> str:
        """Digest of the formula's version and its weights."""
        return self._digest

    def compose(self, verdict: Verdict, virtual_ms: float) -> Reward:
        """Terms and total.

        Args:
            verdict: the judged checks.
            virtual_ms: critical path of the episode on the virtual clock.

        Raises:
            InputError: the task has no functional check, so nothing could be said of its outcome.
            InfrastructureError: a weight or the time is NaN, negative or infinite.
        """
        _refuse_malformed(verdict, virtual_ms)
        functional = _of_kind(verdict, CheckKind.FUNCTIONAL)
        if not functional:
            raise InputError(
                "a task without functional checks has no outcome",
                where=f"verifier {verdict.verifier_digest}",
                expected="at least one functional check; none at all must not pass by default",
                mend="declare what the end state of the task has to be",
            )
        chosen = self._settings
        solved = all(check.passed for check in functional)
        outcome = 1.0 if solved else min(_share(functional), chosen.partial_cap)
        process_checks = _of_kind(verdict, CheckKind.PROCESS)
        process = _share(process_checks) if process_checks else outcome
        latency = self._speed(virtual_ms) if solved else 0.0
        gate = 0.0 if verdict.violations else 1.0
        gamma, beta = chosen.process_share, chosen.latency_share
        total = gate * ((1.0 - gamma - beta) * outcome + gamma * process + beta * latency)
        return Reward(
            outcome=outcome,
            process=process,
            latency=latency,
            gate=gate,
            total=min(total, 1.0),
            composition_digest=self._digest,
        )

    def _speed(self, virtual_ms: float) -> float:
        low, high = self._settings.latency_low_ms, self._settings.latency_high_ms
        return min(max((high - virtual_ms) / (high - low), 0.0), 1.0)


def _of_kind(verdict: Verdict, kind: CheckKind) -> Sequence[Check]:
    return [check for check in verdict.checks if check.kind is kind]


def _share(checks: Sequence[Check]) -> float:
    """Weight of the passed checks over the weight of all."""
    return math.fsum(c.weight for c in checks if c.passed) / math.fsum(c.weight for c in checks)


def _refuse_malformed(verdict: Verdict, virtual_ms: float) -> None:
    wrong = [check.id for check in verdict.checks if not 0.0 < check.weight < math.inf or check.passed not in (0, 1)]
    if wrong or not 0.0 <= virtual_ms < math.inf:
        what = f"check {wrong[0]!r} has no usable weight" if wrong else f"virtual time of {virtual_ms} ms"
        raise InfrastructureError(
            f"the verdict cannot be made a reward: {what}",
            where=f"verifier {verdict.verifier_digest}",
            expected="finite positive weights and a finite time of 0 or more",
            mend="the grader is broken: judge the stored evidence again",
        )
