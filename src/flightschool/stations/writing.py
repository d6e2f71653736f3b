"""The last station: what was measured becomes one report, one JSON file, and the figures of the job."""

from __future__ import annotations

import platform
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from flightschool.audit.trajectories import TrajectoryFinding
from flightschool.evaluation import Comparison, compare, summarise
from flightschool.governance import AuditLog, distinct, known_error, overrides
from flightschool.protocols import Environment
from flightschool.records import Attempt, AuditVerdict
from flightschool.reports import AuditedTask, EpisodePair, Override, ReportData, ScanRow, write_report
from flightschool.stations.collecting import SHIPPED
from flightschool.stations.endings import ended_early
from flightschool.stations.flown import Flown, JobResult, Measured, job_result
from flightschool.stations.measuring import num_cores
from flightschool.stations.report_rows import (
    control_row,
    curve_point,
    funnel_stages,
    headlines,
    read_steps,
    risk_rows,
    staleness_ages,
    strata_rows,
)
from flightschool.stations.settings import JobSettings
from flightschool.stations.term_notes import term_notes
from flightschool.stations.watching import canary_note, trained_on
from flightschool.store import Workspace
from flightschool.training.folders import RunFolder, write_durably

__all__ = ["write_up"]

REPORT_KIND = "report"
NUM_EXAMPLES = 4


def write_up(
    space: Workspace,
    environment: Environment,
    settings: JobSettings,
    flown: Flown,
    *,
    job: str,
    model_before: str,
    out: Path,
    commands: Sequence[str],
    started: float,
) -> JobResult:
    """Write the report, and beside it ``JOB.json``; returns what that file holds. ``started``: monotonic clock."""
    known = known_error(space.store, environment.digest)
    error = None if known is None else (known.rho0, known.rho1)
    comparisons = {p.label: compare(p.before, p.after, seed=settings.seed, error=error) for p in flown.measured}
    data = _report(space, environment, settings, flown, comparisons, commands)
    space.store.put(REPORT_KIND, flown.trained.run, data)
    write_report(data, out)
    result = job_result(settings, environment, flown, comparisons, model_before, out, time.monotonic() - started)
    write_durably(out.parent / f"{job}.json", msgspec.json.format(msgspec.json.encode(result), indent=2))
    return result


def _report(
    space: Workspace,
    environment: Environment,
    settings: JobSettings,
    flown: Flown,
    comparisons: Mapping[str, Comparison],
    commands: Sequence[str],
) -> ReportData:
    rows = read_steps(RunFolder(space.run_dir(flown.trained.run)).metrics)
    counts = Counter(str(found.verdict) for found in flown.audits)
    return ReportData(
        title="From recorded traces to a measured agent",
        run=flown.trained.run,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        environment=environment.name,
        suite=flown.frozen.suite.name,
        model=settings.model.name,
        headlines=headlines(flown, comparisons, settings.seed),
        strata=strata_rows(flown, comparisons),
        risks=risk_rows(flown),
        funnel=funnel_stages(environment, flown),
        audit_counts=dict(counts),
        audited=tuple(
            AuditedTask(task=found.task, verdict=found.verdict, findings=found.findings)
            for found in flown.audits
            if found.verdict is not AuditVerdict.SOUND or found.findings
        ),
        scan=tuple(_scan_row(found) for found in flown.watched.findings),
        curve=tuple(curve_point(row) for row in rows if not row.skipped),
        staleness=staleness_ages(rows),
        control=control_row(settings, flown),
        examples=_examples(space, environment, flown.measured[0]),
        overrides=_overrides(space),
        digests={
            "environment": environment.digest,
            "suite": flown.frozen.suite.digest,
            "model after": flown.trained.model_digest,
            "reward": flown.measured[0].before.composition_digest,
        },
        machine=_machine(),
        commands=tuple(commands),
        notes=(
            *_notes(settings, flown),
            *_ended(settings, flown),
            *_corrected(space, environment, flown, comparisons),
            *term_notes(rows, trained_on(space, flown.trained.run)),
            *canary_note(trained_on(space, flown.trained.run), flown.watched.canaries),
        ),
    )


def _examples(space: Workspace, environment: Environment, pair: Measured) -> tuple[EpisodePair, ...]:
    """Episodes that show the difference: gained first, then still failing, then lost, trained strata before others."""
    before = {(item.task, item.repeat): item for item in pair.before.graded}
    pairs = [(before[key], item) for item in pair.after.graded if (key := (item.task, item.repeat)) in before]
    ranked = sorted(pairs, key=lambda two: (not two[1].trained, two[0].success is True, two[1].success is not True))
    failing = [two for two in pairs if two[1].trained and not two[1].success]
    chosen = [*ranked[: NUM_EXAMPLES - 1], *failing[:1]] if failing else ranked[:NUM_EXAMPLES]
    return tuple(
        EpisodePair(
            title=f"{now.stratum} · {now.task}",
            instruction=environment.task(now.task).instruction,
            before=space.store.get("attempt", was.attempt, Attempt),
            after=space.store.get("attempt", now.attempt, Attempt),
        )
        for was, now in chosen
    )


def _scan_row(found: TrajectoryFinding) -> ScanRow:
    return ScanRow(
        rule=found.rule,
        severity=found.severity,
        what=found.what,
        evidence=found.evidence,
        num_attempts=len(found.attempts),
        attempt=found.attempts[0] if found.attempts else "",
    )


def _overrides(space: Workspace) -> tuple[Override, ...]:
    found = distinct(overrides(AuditLog(space.store)))
    return tuple(
        Override(rule=row.gate, actor=row.name, reason=row.reason, at=row.at, subject=row.subject) for row in found
    )


def _machine() -> dict[str, str]:
    import torch

    return {
        "platform": platform.platform(terse=True),
        "processor": platform.processor() or platform.machine(),
        "cores": str(num_cores()),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
    }


def _how_measured(settings: JobSettings, flown: Flown) -> str:
    text = f"Measured at temperature {settings.evaluation.temperature:g}."
    if "greedy" in flown.before:
        return f"{text} Greedy decoding is shown beside it."
    return (
        f"{text} Part of a gain may be sharpening; `--greedy` (evaluation.greedy) measures greedy decoding beside it."
    )


def _imitated(flown: Flown) -> list[str]:
    if flown.imitation is None:
        return []
    num_shown, steps = len(flown.imitation.demonstrations), len(flown.imitation.surprisals)
    return [
        f"{num_shown} recorded episodes of training tasks, played again and accepted by the verifier, were imitated in "
        f"{steps} steps before reinforcement began."
    ]


def _ended(settings: JobSettings, flown: Flown) -> list[str]:
    early = ended_early(flown.trained, settings.training)
    return [] if early is None else [f"{early[0].upper()}{early[1:]}."]


def _corrected(
    space: Workspace, environment: Environment, flown: Flown, comparisons: Mapping[str, Comparison]
) -> list[str]:
    """Success freed of the verifier's errors, where people have reviewed attempts in this environment."""
    known = known_error(space.store, environment.digest)
    if known is None:
        return []
    told = []
    for pair in flown.measured:
        for when, run in (("before", pair.before), ("after", pair.after)):
            found = summarise(run, error=(known.rho0, known.rho1)).measurements
            right = next((one for one in found if one.name == "success_corrected/all"), None)
            told += [f"{pair.label} {when} {right.value:.3f} [{right.low:.3f}, {right.high:.3f}]"] if right else []
        named = (one for one in comparisons[pair.label].differences if one.name == "success_corrected/all")
        told += [f"{pair.label} difference {one.diff:+.3f} [{one.low:+.3f}, {one.high:+.3f}]" for one in named]
    return [
        f"By {known.num_reviewed} reviewed attempts (sheet {known.sheet}) the verifier passes wrong work with "
        f"ρ0 = {known.rho0.value:.3f} and refuses right work with ρ1 = {known.rho1.value:.3f}. Success on all tasks of "
        f"the suite, corrected for that: {'; '.join(told) or 'not possible'}."
    ]


def _notes(settings: JobSettings, flown: Flown) -> tuple[str, ...]:
    return (
        _how_measured(settings, flown),
        *_imitated(flown),
        f"{len(flown.trained.manifest.consumed)} groups of {settings.training.group_size} attempts were consumed, "
        f"{flown.trained.num_zero_advantage} of them without a gradient; training stopped: {flown.trained.stopped}.",
        *(
            ["The worked domain and its traces are the project's own."]
            if settings.environment.traces == SHIPPED
            else []
        ),
    )
