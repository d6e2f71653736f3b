"""The scan: reads stored attempts once, one after the other, and keeps only what its rules compare."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from flightschool.audit.trajectories.crowds import Winners, concentration
from flightschool.audit.trajectories.records import Hit, TaskFacts, Trait, TrajectoryFinding
from flightschool.audit.trajectories.series import interaction_collapse, reward_jumps
from flightschool.audit.trajectories.single import hits, is_observed, passed
from flightschool.records import Attempt, Severity, SpanKind

__all__ = ["scan_attempts", "suspicious_passes"]

_ORDER = {Severity.BARRING: 0, Severity.WARNING: 1, Severity.INFO: 2}
_RUN_AT_STEP = re.compile(r"run:(?P<run>[^@]+)@(?P<step>\d{1,9})")


def scan_attempts(
    attempts: Iterable[Attempt],
    *,
    facts: Mapping[str, TaskFacts] | None = None,
    canaries: Collection[str] = (),
    seed: int = 0,
) -> tuple[TrajectoryFinding, ...]:
    """What is suspicious in attempts, by each one alone and by all together; the gravest first.

    Args:
        attempts: of one run or of one environment, in any order; read once.
        facts: of the environment's tasks, by digest (``facts_of``); where there are none, rules that need the sealed
            side are silent. Looked up as attempts are read, so they may be filled in meanwhile.
        canaries: ids of tasks that no honest policy can pass.
        seed: of the shuffles that concentration is held against.
    """
    known = {} if facts is None else facts
    impossible = frozenset(canaries)
    single: dict[tuple[str, Severity, str], _Told] = {}
    traits: list[Trait] = []
    winners = Winners(known)
    for attempt in attempts:
        fact = known.get(attempt.task_digest)
        for hit in hits(attempt, fact, attempt.task in impossible):
            single.setdefault((hit.rule, hit.severity, hit.what), _Told(hit)).add(attempt)
        if passed(attempt):
            winners.add(attempt)
        if attempt.reward is not None:
            traits.append(_trait(attempt, fact))
    found = [told.finding() for told in single.values()]
    found += winners.findings() + reward_jumps(traits) + interaction_collapse(traits)
    found += concentration(traits, seed=seed)
    return tuple(sorted(found, key=lambda finding: (_ORDER[finding.severity], finding.rule, finding.attempts)))


def suspicious_passes(findings: Iterable[TrajectoryFinding], passes: Collection[str]) -> frozenset[str]:
    """Those of the passes that a warning, or worse, names."""
    named = {a for finding in findings if finding.severity is not Severity.INFO for a in finding.attempts}
    return frozenset(named & set(passes))


class _Told:
    """One hit with all attempts that show it."""

    def __init__(self, first: Hit) -> None:
        self._first = first
        self._attempts: dict[str, str] = {}

    def add(self, attempt: Attempt) -> None:
        self._attempts[attempt.id] = attempt.task

    def finding(self) -> TrajectoryFinding:
        return TrajectoryFinding(
            rule=self._first.rule,
            severity=self._first.severity,
            what=self._first.what,
            evidence=self._first.evidence,
            attempts=tuple(self._attempts),
            tasks=tuple(sorted(set(self._attempts.values()))),
        )


def _trait(attempt: Attempt, facts: TaskFacts | None) -> Trait:
    lineage, step = _place(attempt)
    total = 0.0 if attempt.reward is None else attempt.reward.total
    return Trait(
        attempt=attempt.id,
        task=attempt.task,
        family=attempt.task if facts is None else facts.family,
        passed=passed(attempt),
        reward=total if math.isfinite(total) else 0.0,
        num_calls=len(attempt.events),
        observed=is_observed(attempt),
        lineage=lineage,
        step=step,
    )


def _place(attempt: Attempt) -> tuple[str, int]:
    """(training run, step): by the policy's name, else by the weights of its tokens; scripts have none."""
    named = _RUN_AT_STEP.fullmatch(attempt.policy)
    if named is not None:
        return named["run"], int(named["step"])
    steps = _steps(attempt)
    return (attempt.run, max(steps)) if steps else ("", 0)


def _steps(attempt: Attempt) -> Sequence[int]:
    return [run.step for span in attempt.spans if span.kind is SpanKind.COMPLETION for run in span.versions]
