"""The last station: what was measured becomes one report, one JSON file, and the figures of the job."""

from __future__ import annotations

import platform
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from flightschool.evaluation import Comparison, EvaluationRun, Frozen, Summary, compare, summarise
from flightschool.governance import AuditLog, overrides
from flightschool.protocols import Environment
from flightschool.records import Attempt, AuditVerdict, Measurement, Record, TaskAudit
from flightschool.reports import (
    AuditedTask,
    Control,
    CurvePoint,
    EpisodePair,
    FunnelStage,
    Headline,
    Override,
    ReportData,
    RiskRow,
    StratumRow,
    write_report,
)
from flightschool.screening import Funnel
from flightschool.stations.collecting import Collected
from flightschool.stations.measuring import num_cores
from flightschool.stations.settings import JobSettings
from flightschool.store import Workspace
from flightschool.training import StepProgress, TrainResult
from flightschool.training.folders import RunFolder, write_durably

__all__ = ["Flown", "JobResult", "Measured", "write_up"]

REPORT_KIND = "report"
NUM_EXAMPLES = 4


class Measured(Record, frozen=True, kw_only=True):
    """The suite flown before and after, under one weather and one way of sampling."""

    label: str
    """``clean``, ``perturbed`` or ``greedy``."""
    before: EvaluationRun
    after: EvaluationRun


class JobResult(Record, frozen=True, kw_only=True):
    """``quickstart.json``: where everything lies, and the figures."""

    schema: int = 1
    run: str
    suite: str
    suite_digest: str
    environment: str
    model_before: str
    model_after: str
    report: str
    seed: int
    trained_strata: tuple[str, ...]
    num_suite_tasks_trained_strata: int
    success_before: float
    success_after: float
    gain_low: float
    gain_high: float
    perturbed_before: float
    perturbed_after: float
    greedy_before: float | None
    greedy_after: float | None
    violations_before: float
    violations_after: float
    control_gain_low: float | None = None
    control_gain_high: float | None = None
    num_steps: int
    max_staleness: int
    share_reproduced: float
    wall_s: float
    """Wall time of the whole job."""


class Flown(Record, frozen=True, kw_only=True):
    """Everything the report is written from."""

    collected: Collected
    audits: tuple[TaskAudit, ...]
    frozen: Frozen
    funnel: Funnel
    trained: TrainResult
    before: dict[str, EvaluationRun]
    """Way of measuring → the suite before training; ``clean``, ``perturbed``, ``greedy``."""
    after: dict[str, EvaluationRun]
    """The same after it."""
    control: EvaluationRun | None = None
    """The suite flown by the negative control, clean."""

    @property
    def measured(self) -> tuple[Measured, ...]:
        """Before and after in pairs."""
        return tuple(Measured(label=label, before=run, after=self.after[label]) for label, run in self.before.items())


def write_up(
    space: Workspace,
    environment: Environment,
    settings: JobSettings,
    flown: Flown,
    *,
    model_before: str,
    out: Path,
    commands: Sequence[str],
    started: float,
) -> JobResult:
    """Write the report and the JSON file beside it; returns what the file holds. ``started``: monotonic clock."""
    comparisons = {pair.label: compare(pair.before, pair.after, seed=settings.seed) for pair in flown.measured}
    data = _report(space, environment, settings, flown, comparisons, commands)
    space.store.put(REPORT_KIND, flown.trained.run, data)
    write_report(data, out)
    result = _result(settings, environment, flown, comparisons, model_before, out, time.monotonic() - started)
    write_durably(out.parent / "quickstart.json", msgspec.json.format(msgspec.json.encode(result), indent=2))
    return result


# ------------------------------------------------------------------------------------------------ figures

TRAINED = "trained"


def _result(
    settings: JobSettings,
    environment: Environment,
    flown: Flown,
    comparisons: Mapping[str, Comparison],
    model_before: str,
    out: Path,
    wall_s: float,
) -> JobResult:
    clean, rough, greedy = comparisons["clean"], comparisons["perturbed"], comparisons.get("greedy")
    gain = clean.difference(f"success/{TRAINED}")
    rough_gain = rough.difference(f"success/{TRAINED}")
    risk = clean.difference("violations/weighted")
    greedy_gain = greedy.difference(f"success/{TRAINED}") if greedy else None
    control = compare(flown.measured[0].before, flown.control, seed=settings.seed) if flown.control else None
    control_gain = control.difference(f"success/{TRAINED}") if control else None
    strata = [share for share in flown.frozen.suite.strata if share.trained]
    return JobResult(
        run=flown.trained.run,
        suite=flown.frozen.suite.name,
        suite_digest=flown.frozen.suite.digest,
        environment=environment.name,
        model_before=model_before,
        model_after=flown.trained.model,
        report=str(out),
        seed=settings.seed,
        trained_strata=tuple(share.name for share in strata),
        num_suite_tasks_trained_strata=sum(share.num_tasks for share in strata),
        success_before=gain.before,
        success_after=gain.after,
        gain_low=gain.low,
        gain_high=gain.high,
        perturbed_before=rough_gain.before,
        perturbed_after=rough_gain.after,
        greedy_before=greedy_gain.before if greedy_gain else None,
        greedy_after=greedy_gain.after if greedy_gain else None,
        violations_before=risk.before,
        violations_after=risk.after,
        control_gain_low=control_gain.low if control_gain else None,
        control_gain_high=control_gain.high if control_gain else None,
        num_steps=flown.trained.manifest.step,
        max_staleness=flown.trained.max_staleness,
        share_reproduced=flown.collected.share_reproduced,
        wall_s=wall_s,
    )


# ------------------------------------------------------------------------------------------------ report


def _report(
    space: Workspace,
    environment: Environment,
    settings: JobSettings,
    flown: Flown,
    comparisons: Mapping[str, Comparison],
    commands: Sequence[str],
) -> ReportData:
    rows = _steps(RunFolder(space.run_dir(flown.trained.run)).metrics)
    counts = Counter(str(found.verdict) for found in flown.audits)
    return ReportData(
        title="From recorded traces to a measured agent",
        run=flown.trained.run,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        environment=environment.name,
        suite=flown.frozen.suite.name,
        model=settings.model.name,
        headlines=_headlines(flown, comparisons),
        strata=_strata(flown, comparisons),
        risks=_risks(flown),
        funnel=_funnel(environment, flown),
        audit_counts=dict(counts),
        audited=tuple(
            AuditedTask(task=found.task, verdict=found.verdict, findings=found.findings)
            for found in flown.audits
            if found.verdict is not AuditVerdict.SOUND or found.findings
        ),
        curve=tuple(_point(row) for row in rows if not row.skipped),
        staleness=_staleness(rows),
        control=_control(settings, flown),
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
        notes=_notes(settings, flown),
    )


def _headlines(flown: Flown, comparisons: Mapping[str, Comparison]) -> tuple[Headline, ...]:
    clean, rough = flown.measured[0], flown.measured[1]
    lines = [
        _headline("Success, trained strata", f"success/{TRAINED}", clean, comparisons[clean.label]),
        _headline("Success under faults, trained strata", f"success/{TRAINED}", rough, comparisons[rough.label]),
        _headline("Success, all traffic", "success/weighted", clean, comparisons[clean.label]),
        _headline("Violations, all traffic", "violations/weighted", clean, comparisons[clean.label], higher=False),
        _headline(
            "Latency, virtual critical path", "virtual_ms/weighted", clean, comparisons[clean.label], higher=False
        ),
        _headline("Tokens an episode", "tokens/weighted", clean, comparisons[clean.label], higher=False),
        _headline("Tool calls an episode", "calls/weighted", clean, comparisons[clean.label], higher=False),
    ]
    for pair in flown.measured[2:]:
        note = "always the likeliest token, instead of sampling as in training"
        lines.insert(
            2,
            _headline(
                "Success, greedy decoding, trained strata",
                f"success/{TRAINED}",
                pair,
                comparisons[pair.label],
                note=note,
            ),
        )
    return tuple(lines)


def _headline(
    label: str, name: str, pair: Measured, comparison: Comparison, *, higher: bool = True, note: str = ""
) -> Headline:
    before, after = _summaries(pair)
    return Headline(
        label=label,
        before=before.measurement(name),
        after=after.measurement(name),
        gain=_gain(comparison, name),
        higher_is_better=higher,
        note=note,
    )


def _summaries(pair: Measured) -> tuple[Summary, Summary]:
    return summarise(pair.before), summarise(pair.after)


def _gain(comparison: Comparison, name: str) -> Measurement:
    found = comparison.difference(name)
    return Measurement(
        name=f"gain of {name}",
        value=found.diff,
        low=found.low,
        high=found.high,
        num_items=found.num_pairs,
        method="paired bootstrap, resampled by family",
    )


def _strata(flown: Flown, comparisons: Mapping[str, Comparison]) -> tuple[StratumRow, ...]:
    rows = []
    for pair in flown.measured[:2]:
        before, after = _summaries(pair)
        for share in flown.frozen.suite.strata:
            name = f"success/stratum:{share.name}"
            rows.append(
                StratumRow(
                    stratum=share.name,
                    weather=pair.label,
                    before=before.measurement(name),
                    after=after.measurement(name),
                    gain=_gain(comparisons[pair.label], name),
                    trained=share.trained,
                    weight=share.weight,
                )
            )
    return tuple(rows)


def _risks(flown: Flown) -> tuple[RiskRow, ...]:
    rows = []
    for pair in flown.measured[:2]:
        before = Counter(rule for item in pair.before.graded for rule in item.violations)
        after = Counter(rule for item in pair.after.graded for rule in item.violations)
        rows += [
            RiskRow(
                rule=rule,
                weather=pair.label,
                before=before[rule],
                after=after[rule],
                num_attempts=len(pair.after.graded),
            )
            for rule in sorted(before.keys() | after.keys())
        ]
    return tuple(rows)


def _funnel(environment: Environment, flown: Flown) -> tuple[FunnelStage, ...]:
    sound = sum(found.verdict is AuditVerdict.SOUND for found in flown.audits)
    collected, funnel = flown.collected, flown.funnel
    return (
        FunnelStage(
            name="episodes recorded",
            count=collected.num_episodes,
            note=f"{collected.share_reproduced:.1%} of their {collected.num_calls} calls reproduced",
        ),
        FunnelStage(name="tasks", count=len(environment.tasks())),
        FunnelStage(name="sound reward", count=sound, note="audited"),
        FunnelStage(
            name="pool of the trained strata", count=funnel.sound, note="after suite and holdout were set apart"
        ),
        FunnelStage(name="carry signal", count=funnel.admitted, note=f"screened with {funnel.num_rollouts} rollouts"),
    )


def _steps(path: Path) -> list[StepProgress]:
    lines = path.read_bytes().splitlines() if path.is_file() else []
    newest: dict[int, StepProgress] = {}
    for line in lines:
        row = msgspec.json.decode(line, type=StepProgress)
        newest[row.step] = row  # a resumed run makes some steps anew: the last incarnation's count
    return [newest[step] for step in sorted(newest)]


def _point(row: StepProgress) -> CurvePoint:
    return CurvePoint(
        step=row.step,
        reward=row.reward_total,
        outcome=row.reward_outcome,
        process=row.reward_process,
        latency=row.reward_latency,
        success=row.success,
        num_tokens=row.completion_tokens,
        staleness=row.staleness_mean,
        entropy=row.stats.entropy,
    )


def _staleness(rows: Sequence[StepProgress]) -> dict[int, int]:
    ages: Counter[int] = Counter()
    for row in rows:
        ages.update(row.staleness_histogram)
    return dict(sorted(ages.items()))


def _control(settings: JobSettings, flown: Flown) -> Control | None:
    if flown.control is None:
        return None
    pair = Measured(label="control", before=flown.measured[0].before, after=flown.control)
    comparison = compare(pair.before, pair.after, seed=settings.seed)
    before, after = _summaries(pair)
    name = f"success/{TRAINED}"
    return Control(
        before=before.measurement(name),
        after=after.measurement(name),
        gain=_gain(comparison, name),
        num_steps=settings.evaluation.negative_control_steps,
        note="rewards shuffled within each group",
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


def _overrides(space: Workspace) -> tuple[Override, ...]:
    found = overrides(AuditLog(space.store))
    return tuple(Override(rule=row.gate, actor=row.name, reason=row.reason, at=row.at) for row in found)


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


def _notes(settings: JobSettings, flown: Flown) -> tuple[str, ...]:
    return (
        _how_measured(settings, flown),
        f"{len(flown.trained.manifest.consumed)} groups of {settings.training.group_size} attempts were consumed, "
        f"{flown.trained.num_zero_advantage} of them without a gradient; training stopped: {flown.trained.stopped}.",
        "The worked domain and its traces are the project's own.",
    )
