"""What a report says, as data: whoever measured fills these records, the renderer only shows them.

A report can therefore be kept in the store and rendered again, byte for byte the same.
"""

from __future__ import annotations

import msgspec

from flightschool.records import Attempt, AuditVerdict, Finding, Measurement, Record, Severity

__all__ = [
    "AuditedTask",
    "Control",
    "CurvePoint",
    "EpisodePair",
    "FunnelStage",
    "Headline",
    "Override",
    "ReportData",
    "RiskRow",
    "ScanRow",
    "StratumRow",
]


class Headline(Record, frozen=True, kw_only=True):
    """One number that the reader takes home, before and after."""

    label: str
    before: Measurement
    after: Measurement
    gain: Measurement | None = None
    """Paired difference after − before; None where pairing makes no sense."""
    higher_is_better: bool = True
    note: str = ""


class FunnelStage(Record, frozen=True, kw_only=True):
    """One narrowing of the way: traces, episodes, tasks, sound, admitted, trained."""

    name: str
    count: int
    note: str = ""


class AuditedTask(Record, frozen=True, kw_only=True):
    """A task that the audit did not find sound, or found something about."""

    task: str
    verdict: AuditVerdict
    findings: tuple[Finding, ...] = ()


class ScanRow(Record, frozen=True, kw_only=True):
    """Something suspicious in the attempts of a run."""

    rule: str
    severity: Severity
    what: str
    evidence: str
    num_attempts: int
    """0: it is about all attempts together."""
    attempt: str = ""
    """One that shows it."""


class CurvePoint(Record, frozen=True, kw_only=True):
    """Means over the groups of one optimizer step. None where the step has no such number."""

    step: int
    reward: float | None = None
    """Total, 0..1 and above where process and latency terms add to it."""
    outcome: float | None = None
    process: float | None = None
    latency: float | None = None
    success: float | None = None
    """Share of scored attempts that succeeded."""
    num_tokens: float | None = None
    """Sampled tokens an attempt."""
    staleness: float | None = None
    """Steps between sampling and training, mean over tokens."""
    entropy: float | None = None
    """Mean entropy of the sampled tokens, nats."""


class StratumRow(Record, frozen=True, kw_only=True):
    """Success on one stratum of the frozen suite, paired by task."""

    stratum: str
    weather: str
    """``clean`` or the name of the fault profile."""
    before: Measurement
    after: Measurement
    gain: Measurement
    trained: bool = False
    weight: float = 0.0
    """Share of real traffic; 0 when not known."""


class RiskRow(Record, frozen=True, kw_only=True):
    """Attempts that broke one rule."""

    rule: str
    weather: str
    before: int
    after: int
    num_attempts: int
    """Attempts on each side."""


class Control(Record, frozen=True, kw_only=True):
    """Negative control: the same training with rewards shuffled within groups, which must not help."""

    before: Measurement
    after: Measurement
    gain: Measurement
    num_steps: int
    note: str = ""


class EpisodePair(Record, frozen=True, kw_only=True):
    """The same task attempted before and after."""

    title: str
    instruction: str
    before: Attempt
    after: Attempt


class Override(Record, frozen=True, kw_only=True):
    """A rule of the house that someone overrode; every report shows it."""

    rule: str
    actor: str
    reason: str
    at: str = ""
    subject: str = ""
    """What was let through."""


class ReportData(Record, frozen=True, kw_only=True):
    """One report. Empty parts are left out of the page."""

    title: str
    run: str
    created_at: str = ""
    """ISO 8601 UTC; the renderer never looks at a clock."""
    environment: str = ""
    suite: str = ""
    model: str = ""
    summary: str = ""
    """A sentence of the author's; empty: one is made from the first headline."""
    headlines: tuple[Headline, ...] = ()
    """The first is the main result."""
    strata: tuple[StratumRow, ...] = ()
    risks: tuple[RiskRow, ...] = ()
    funnel: tuple[FunnelStage, ...] = ()
    audit_counts: dict[str, int] = msgspec.field(default_factory=dict)
    """Verdict → number of tasks."""
    audited: tuple[AuditedTask, ...] = ()
    scan: tuple[ScanRow, ...] | None = None
    """What the trajectory scan found; None: nothing was scanned."""
    curve: tuple[CurvePoint, ...] = ()
    staleness: dict[int, int] = msgspec.field(default_factory=dict)
    """Staleness in steps → trained tokens."""
    control: Control | None = None
    examples: tuple[EpisodePair, ...] = ()
    overrides: tuple[Override, ...] = ()
    digests: dict[str, str] = msgspec.field(default_factory=dict)
    machine: dict[str, str] = msgspec.field(default_factory=dict)
    commands: tuple[str, ...] = ()
    """Commands that reproduce the run, in order."""
    notes: tuple[str, ...] = ()
    """What the reader must know to read the numbers rightly."""
