"""The section on evaluation of a model card: numbers with intervals, and what they may not be taken for."""

from __future__ import annotations

from collections.abc import Sequence

from flightschool.evaluation.design import SuiteDesign
from flightschool.evaluation.records import EvaluationRun, Summary
from flightschool.evaluation.summary import latency
from flightschool.evaluation.targets import TargetRow
from flightschool.records import Measurement

__all__ = ["model_card"]

_ESCAPED = str.maketrans({char: f"\\{char}" for char in "\\`*_{}[]<>|#"})
_SHOWN = {
    "success/weighted": "success, weighted by traffic",
    "success/clean": "success on tasks without kin in training",
    "success/suspected": "success on tasks with kin in training",
    "violations/weighted": "attempts with a violation",
    "denied/weighted": "attempts with a call that no permission allows",
    "cost_usd/weighted": "US dollars an attempt",
}


def model_card(
    run: EvaluationRun,
    summary: Summary,
    *,
    design: SuiteDesign | None = None,
    targets: Sequence[TargetRow] = (),
) -> str:
    """Markdown, with text of other people's making escaped."""
    parts = [
        "## Evaluation",
        "",
        f"Suite `{_code(run.suite)}`, digest `{run.suite_digest}`, frozen before training; weather {_text(run.noise)}; "
        f"{len({item.task for item in run.items})} tasks, {run.repeats} attempt(s) each; evaluation `{_code(run.id)}`, "
        f"digest `{run.digest}`. Intervals hold 95 % and rest on families of tasks.",
        "",
        "| | value | 95 % interval | tasks |",
        "|---|---|---|---|",
        *(_row(_SHOWN[m.name], m) for m in summary.measurements if m.name in _SHOWN),
        *(_row(f"success on {_text(m.name.partition(':')[2])}", m) for m in summary.measurements if _stratum(m.name)),
        *(_row(f"{name} latency, ms", m) for name, m in latency(run).items()),
        "",
    ]
    if targets:
        parts += [f"- target {row.name} {row.relation} {row.target:g}: **{row.state}**" for row in targets] + [""]
    parts += ["### What these numbers do not say", ""]
    parts += [f"- {line}" for line in _limits(run, summary, design)]
    return "\n".join(parts) + "\n"


def _limits(run: EvaluationRun, summary: Summary, design: SuiteDesign | None) -> list[str]:
    lines = [f"Lineage: {_text(run.lineage or 'nobody compared the suite with the training data')}."]
    if summary.num_missing:
        lines.append(
            f"{summary.num_missing} of {summary.num_items} attempts have no grade; success over all of them is between "
            f"{summary.low_bound:.3f} and {summary.high_bound:.3f}."
        )
    if run.regraded:
        lines.append(f"Stored attempts of `{_code(run.regraded)}` were graded again; nothing was flown anew.")
    if not run.enforced:
        lines.append("Calls that no permission allows were let through and counted.")
    lines += [_text(note) + "." for note in summary.notes]
    if design is not None:
        lines += [_text(note) + "." for note in design.notes]
        if design.follows:
            lines.append(
                f"Version {design.version} of the suite, after `{_code(design.follows)}`: scores across this border "
                "are not comparable."
            )
    return lines


def _stratum(name: str) -> bool:
    return name.startswith("success/stratum:")


def _row(label: str, m: Measurement) -> str:
    return f"| {label} | {m.value:.4g} | {m.low:.4g} to {m.high:.4g} | {m.num_items} |"


def _text(text: str) -> str:
    return " ".join(text.translate(_ESCAPED).split())


def _code(text: str) -> str:
    return text.replace("`", "'")
