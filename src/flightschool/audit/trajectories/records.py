"""What the trajectory scan says, and what it knows of tasks and keeps of attempts while it reads them."""

from __future__ import annotations

from flightschool.records import Record, Severity

__all__ = ["Hit", "TaskFacts", "Trait", "TrajectoryFinding"]


class TrajectoryFinding(Record, frozen=True, kw_only=True):
    """Something suspicious in stored attempts. A suspicion: only people, or an executed exploit, confirm it."""

    rule: str
    severity: Severity
    """``barring``: what no honest attempt can bring about."""
    what: str
    evidence: str
    """Of the first attempt; counts and thresholds where the rule looks at many attempts together."""
    attempts: tuple[str, ...] = ()
    """All attempts that show it; empty where the finding is one on the whole set."""
    tasks: tuple[str, ...] = ()


class Hit(Record, frozen=True, kw_only=True):
    """One attempt that a rule speaks up on."""

    rule: str
    severity: Severity
    what: str
    evidence: str


class TaskFacts(Record, frozen=True, kw_only=True):
    """What the scan may know of a task beyond its attempts; it holds the sealed side, so it goes to no policy."""

    task: str
    family: str
    stratum: str
    num_oracle_calls: int | None = None
    """None: no oracle is known."""
    oracle: frozenset[str] = frozenset()
    """What the oracle's calls do (``elements``)."""
    tools: frozenset[str] = frozenset()
    """Tools that the oracle or a check names."""
    written: frozenset[str] = frozenset()
    """Names and ids that right work writes, or that checks expect, and that the instruction does not give."""
    sealed: tuple[str, ...] = ()
    """Long texts of the checks (queries, criteria, references), that nothing but the grader holds."""


class Trait(Record, frozen=True, kw_only=True):
    """What is kept of one attempt for rules that compare many: small, so that a scan of many needs little memory."""

    attempt: str
    task: str
    family: str
    passed: bool
    reward: float
    num_calls: int
    observed: bool
    """Whether the attempt tells what the policy did."""
    lineage: str
    """Training run whose steps can be compared with one another; empty: none is known."""
    step: int
    """Weights step of the youngest token."""
