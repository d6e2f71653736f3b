"""Examination: findings and verdicts of audits, screening, suites, measurements, reviews and the audit log."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

import msgspec

from flightschool.digest import digest as content_digest
from flightschool.records.base import Json, Record
from flightschool.records.tasks import Message


class Severity(StrEnum):
    """Weight of a finding."""

    INFO = "info"
    WARNING = "warning"
    BARRING = "barring"  # the task may not train


class Finding(Record, frozen=True, kw_only=True):
    """Something that an audit found, with the evidence that proves it."""

    probe: str
    severity: Severity
    what: str
    evidence: str = ""
    actions: tuple[Message, ...] = ()
    """Assistant messages that show it again, played alone at the task; empty where nothing has to be played."""
    confidence: float = 1.0
    """0..1: 1 for what was executed, 0 for a probe that could not finish and shows nothing."""
    mend: str = ""
    """What the author of the environment should change."""


class AuditVerdict(StrEnum):
    """One verdict a task, in order of precedence."""

    BROKEN_ORACLE = "broken-oracle"
    LEAKING = "leaking"
    EXPLOITABLE = "exploitable"
    REFUSES_CORRECT_WORK = "refuses-correct-work"
    FLAKY = "flaky"
    UNAUDITED = "unaudited"
    SOUND = "sound"


class TaskAudit(Record, frozen=True, kw_only=True):
    """Result of auditing one task; the training gate asks for it by the task's and the verifier's digest."""

    environment: str
    task: str
    task_digest: str
    verifier_digest: str
    verdict: AuditVerdict
    findings: tuple[Finding, ...] = ()
    num_repeats: int = 0
    """Plays of the reference solution, each in a fresh world."""
    flake_bound: float = 1.0
    """Exact upper bound (95 %) of the share of plays that end in another state or verdict."""
    equivalent_mutants: tuple[str, ...] = ()
    """Changes of the reference's calls that turned out to be the same work; their passing says nothing."""


class ScreeningDecision(Record, frozen=True, kw_only=True):
    """What screening learned about one task of the pool."""

    task: str
    task_digest: str
    policy: str
    num_rollouts: int
    num_scored: int
    mean_reward: float
    signal_probability: float
    """Posterior probability that a group of the training size carries reward variance, freed of the verifier's errors
    where these are known from reviews."""
    admitted: bool
    reason: str


class StratumShare(Record, frozen=True, kw_only=True):
    """One stratum of a suite."""

    name: str
    weight: float
    """Share of real traffic; the shares of a suite sum to 1."""
    num_tasks: int
    families: tuple[str, ...]
    trained: bool
    """Whether the coming training was declared to train this stratum."""


class Suite(Record, frozen=True, kw_only=True):
    """A frozen evaluation suite. There is no way from a suite to a training pool."""

    name: str
    environment: str
    environment_digest: str
    task_digests: dict[str, str]
    """Task id → digest, in the order of evaluation."""
    strata: tuple[StratumShare, ...]
    holdout: bool = False
    seed: int = 0
    frozen_at: str = ""
    """Time of the freeze, ISO 8601 UTC. Left out of the digest."""

    @property
    def digest(self) -> str:
        """Digest of the suite's content."""
        return content_digest(msgspec.structs.replace(self, frozen_at=""))


class Measurement(Record, frozen=True, kw_only=True):
    """A number that was *measured* on a suite. It is no reward, and nothing turns one into the other."""

    name: str
    value: float
    low: float
    high: float
    num_items: int
    unit: str = ""
    method: str = ""


class ReviewLabel(Record, frozen=True, kw_only=True):
    """A person's judgement of one attempt that was drawn for review. Labels are added, never replaced."""

    sheet: str
    """Name of the review sheet on which the attempt stands."""
    attempt: str
    reviewer: str
    label: Literal["right", "wrong", "hack"]
    """``hack``: wrong work that was made to look right."""
    reason: str
    passed: bool
    """What the verifier had said."""
    stratum: str
    inclusion: float
    """Probability with which the attempt was drawn, in (0, 1]."""
    number: int
    """0 for the first label that this reviewer gave this attempt; the highest one holds."""
    at: str
    """ISO 8601 UTC."""
    entry: str
    """Digest of the log entry that records it."""


class LogEntry(Record, frozen=True, kw_only=True):
    """One line of the audit log, chained to the one before it."""

    index: int
    at: str
    actor: str
    action: str
    subject: str
    detail: dict[str, Json]
    previous: str
    digest: str
