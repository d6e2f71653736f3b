"""One reward of one verdict.

``total = gate · ((1 − γ − β − δ) · outcome + γ · process + (β · u(L) + δ · v(n)) · [outcome = 1])`` with

- ``outcome``: share (by weight) of functional checks that passed, at most ``partial_cap`` unless all passed;
- ``process``: share (by weight) of process checks that passed; a task without any has its process share follow the
  outcome, so that a declared check is never needed to reach the full reward;
- ``u(L) = clip((L_hi − L) / (L_hi − L_lo), 0, 1)`` of the virtual critical path, only for correct episodes: speed of a
  wrong one is worth nothing;
- ``v(n) = clip(2 − n / budget, 0, 1)`` of the sampled tokens, only for correct episodes: 1 within the budget of
  tokens for thinking and acting, 0 from twice the budget on; without a budget there is no such term;
- ``gate``: 0 as soon as one constraint is violated. Safety gates; added as a penalty it would have a price.

The worst correct episode earns ``b = 1 − γ − β − δ``, the best wrong one ``b · partial_cap + γ``; settings that let
the second reach the first are refused, hence every correct, unviolated reward is above every other one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
from pydantic import Field, model_validator

from flightschool.config import Settings
from flightschool.digest import digest
from flightschool.errors import InfrastructureError, InputError
from flightschool.records import Check, CheckKind, Reward, Verdict

__all__ = ["OutcomeReward", "RewardSettings"]

_MAX_SHAPING = 0.3
_LATER = ("thinking_share", "thinking_budget")


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

    thinking_share: float = Field(default=0.0, ge=0.0, le=_MAX_SHAPING)
    """δ: share of the token budget in the total of correct episodes."""
    thinking_budget: int = Field(default=0, ge=0)
    """Sampled tokens up to which the thinking term is 1; it is 0 from twice as many. 0: no budget."""

    @model_validator(mode="after")
    def _ordered(self) -> RewardSettings:
        gamma, beta, delta = self.process_share, self.latency_share, self.thinking_share
        if gamma + beta + delta > _MAX_SHAPING + 1e-12:
            found = f"got {gamma + beta + delta:g}"
            raise ValueError(f"process_share + latency_share + thinking_share of at most {_MAX_SHAPING}, {found}")
        if delta > 0.0 and not self.thinking_budget:
            raise ValueError("a thinking_budget of at least 1 where thinking_share is above 0")
        if self.latency_high_ms <= self.latency_low_ms:
            raise ValueError("latency_high_ms above latency_low_ms")
        base = 1.0 - gamma - beta - delta
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
        described = self._settings.model_dump()
        for name in _LATER:  # settings from before these existed keep their digest
            if described[name] == RewardSettings.model_fields[name].default:
                del described[name]
        self._digest = digest({"reward": "outcome/1", **described})

    @property
    def settings(self) -> RewardSettings:
        """The weights."""
        return self._settings

    @property
    def digest(self) -> str:
        """Digest of the formula's version and its weights."""
        return self._digest

    def compose(self, verdict: Verdict, virtual_ms: float, num_tokens: int | None = None) -> Reward:
        """Terms and total.

        Args:
            verdict: the judged checks.
            virtual_ms: critical path of the episode on the virtual clock.
            num_tokens: tokens that the policy sampled; None: unknown.

        Raises:
            InputError: the task has no functional check, so nothing could be said of its outcome; or the settings pay
                for a budget of tokens and nobody counted them.
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
        thinking = self._thrift(num_tokens) if solved else 0.0
        gate = 0.0 if verdict.violations else 1.0
        gamma, beta, delta = chosen.process_share, chosen.latency_share, chosen.thinking_share
        base = 1.0 - gamma - beta - delta
        total = gate * (base * outcome + gamma * process + beta * latency + delta * thinking)
        return Reward(
            outcome=outcome,
            process=process,
            latency=latency,
            gate=gate,
            total=min(total, 1.0),
            composition_digest=self._digest,
            thinking=thinking if chosen.thinking_budget else msgspec.UNSET,
        )

    def _thrift(self, num_tokens: int | None) -> float:
        budget = self._settings.thinking_budget
        if not budget:
            return 0.0
        if num_tokens is None or num_tokens < 0:
            raise InputError(
                f"a budget of {budget} tokens, and {num_tokens} tokens were counted",
                where="reward.thinking_budget",
                expected="the number of sampled tokens of the attempt",
                mend="score with a runner that counts them, or set thinking_budget = 0",
            )
        return min(max(2.0 - num_tokens / budget, 0.0), 1.0)

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
