"""Judging: the evidence that a verifier may look at, its verdict, and the reward made of that."""

from __future__ import annotations

import msgspec

from flightschool.records.base import Record
from flightschool.records.checks import CheckKind
from flightschool.records.tools import ToolEvent


class Vote(Record, frozen=True, kw_only=True):
    """One voice in a check that several decide: a member of a panel, or one asking of a judge."""

    voter: str
    passed: bool
    evidence: str = ""


class Check(Record, frozen=True, kw_only=True, omit_defaults=True):
    """One check as judged."""

    id: str
    kind: CheckKind
    weight: float
    passed: bool
    evidence: str
    author: str
    votes: tuple[Vote, ...] = ()
    """Who said what, where more than one was asked; left out of the bytes where there are none."""

    @property
    def disagreement(self) -> bool:
        """Whether its voters differ."""
        return len({vote.passed for vote in self.votes}) > 1


class MemberVerdict(Record, frozen=True, kw_only=True):
    """What one verifier of several said."""

    name: str
    verdict: Verdict
    veto: bool = False
    """Whether its no alone decides."""


class Verdict(Record, frozen=True, kw_only=True, omit_defaults=True):
    """All checks of one attempt."""

    checks: tuple[Check, ...]
    verifier_digest: str
    members: tuple[MemberVerdict, ...] = ()
    """Whole verdicts of a panel's members; left out of the bytes where there are none."""

    @property
    def disagreement(self) -> bool:
        """Whether independent voters differ on any check: such attempts go to review."""
        return any(check.disagreement for check in self.checks)

    @property
    def violations(self) -> tuple[str, ...]:
        """Ids of the constraint checks that failed."""
        return tuple(c.id for c in self.checks if c.kind is CheckKind.CONSTRAINT and not c.passed)


class Evidence(Record, frozen=True, kw_only=True):
    """All that a verifier may look at: an immutable snapshot, made after the policy was cut off."""

    initial_state: bytes
    end_state: bytes
    events: tuple[ToolEvent, ...] = ()
    answer: str = ""


class Reward(Record, frozen=True, kw_only=True):
    """Terms of one attempt. ``total`` = ``gate`` · (all other terms as the composition weighs them)."""

    outcome: float
    """0..1; 1 only if every functional check passed."""
    process: float
    """0..1 before weighing."""
    latency: float
    """0..1 before weighing; 0 unless the outcome is 1."""
    gate: float
    """1, or 0 when a constraint was violated."""
    total: float
    composition_digest: str = ""
    thinking: float | msgspec.UnsetType = msgspec.UNSET
    """0..1 before weighing: how well a correct attempt kept its budget of sampled tokens, 0 unless the outcome is 1.
    Unset, and not in the bytes, where the composition has no budget."""

    @property
    def success(self) -> bool:
        """Everything functional done and nothing violated."""
        return self.outcome >= 1.0 and self.gate >= 1.0
