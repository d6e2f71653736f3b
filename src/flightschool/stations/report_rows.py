"""From what was flown to the rows that the report shows. No decisions, no files but the run's metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from flightschool.evaluation import Comparison, Summary, compare, summarise
from flightschool.protocols import Environment
from flightschool.records import AuditVerdict, Measurement
from flightschool.reports import Control, CurvePoint, FunnelStage, Headline, RiskRow, StratumRow
from flightschool.stations.flown import TRAINED, Flown, Measured
from flightschool.stations.settings import JobSettings
from flightschool.training import StepProgress
from flightschool.training.progress import read_metrics

__all__ = [
    "control_row",
    "curve_point",
    "funnel_stages",
    "headlines",
    "read_steps",
    "risk_rows",
    "staleness_ages",
    "strata_rows",
]


def headlines(flown: Flown, comparisons: Mapping[str, Comparison], seed: int) -> tuple[Headline, ...]:
    """The figures at the top: success, risk, latency and effort, before and after.

    Args:
        comparisons: before against after, by way of measuring.
        seed: of the bootstrap.
    """
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
    if flown.at_start is not None:
        pair = Measured(label="reinforcement", before=flown.at_start, after=flown.after["clean"])
        comparison = compare(pair.before, pair.after, seed=seed)
        note = "against the model that had imitated the recordings, with which reinforcement began"
        lines.insert(1, _headline("of it by reinforcement", f"success/{TRAINED}", pair, comparison, note=note))
    for pair in flown.measured[2:]:
        note = "always the likeliest token, instead of sampling as in training"
        lines.insert(
            -4,
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


def strata_rows(flown: Flown, comparisons: Mapping[str, Comparison]) -> tuple[StratumRow, ...]:
    """Success of every stratum, trained or not, in clear and in rough weather."""
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


def risk_rows(flown: Flown) -> tuple[RiskRow, ...]:
    """Violations by rule."""
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


def funnel_stages(environment: Environment, flown: Flown) -> tuple[FunnelStage, ...]:
    """How many tasks were left at each gate."""
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


def read_steps(path: Path) -> list[StepProgress]:
    """The optimizer steps that a run made, in order; empty when it made none."""
    newest = {row.step: row for row in read_metrics(path) if not row.skipped}  # those made anew count as made last
    return [newest[step] for step in sorted(newest)]


def curve_point(row: StepProgress) -> CurvePoint:
    """A step as the report draws it."""
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


def staleness_ages(rows: Sequence[StepProgress]) -> dict[int, int]:
    """Tokens by age, over all steps."""
    ages: Counter[int] = Counter()
    for row in rows:
        ages.update(row.staleness_histogram)
    return dict(sorted(ages.items()))


def control_row(settings: JobSettings, flown: Flown) -> Control | None:
    """The negative control, if one was flown."""
    if flown.control is None:
        return None
    pair = Measured(label="control", before=flown.reinforced_from, after=flown.control)
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
