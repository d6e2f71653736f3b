"""What ``eval run`` and ``eval regrade`` say: the object of ``--json``, and tables for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flightschool.cli import output

if TYPE_CHECKING:
    from flightschool.evaluation import EvaluationRun, Regraded, Summary, TargetRow
    from flightschool.lineage import KinCounts
    from flightschool.records import Measurement

__all__ = ["headline", "result", "shown", "tell_regraded", "tell_run"]


def headline(summary: Summary, name: str) -> dict[str, float] | None:
    """One measurement in the keys of the contract; None where it could not be made."""
    found = next((m for m in summary.measurements if m.name == name), None)
    return None if found is None else measured_keys(found)


def _alone(measured: EvaluationRun) -> dict[str, dict[str, float | None]]:
    """Strata of a single task: the value stands, and one task says nothing of its error."""
    marks: dict[str, dict[str, list[bool]]] = {}
    for item in measured.graded:
        marks.setdefault(item.stratum, {}).setdefault(item.task, []).append(bool(item.success))
    values = {stratum: next(iter(tasks.values())) for stratum, tasks in marks.items() if len(tasks) == 1}
    return {name: {"mean": sum(v) / len(v), "low": None, "high": None, "n": 1} for name, v in values.items()}


def measured_keys(one: Measurement) -> dict[str, float]:
    return {"mean": one.value, "low": one.low, "high": one.high, "n": one.num_items}


def result(
    measured: EvaluationRun,
    summary: Summary,
    rows: tuple[TargetRow, ...],
    policy_text: str,
    sealed_kin: KinCounts | str | None,
) -> dict[str, Any]:
    """What ``--json`` prints of a run."""
    from flightschool.evaluation import latency, repeated

    alone = _alone(measured)
    costs = [item.cost_usd for item in measured.items if item.cost_usd is not None]
    return {
        "id": measured.id,
        "result": measured.id,
        "suite": measured.suite,
        "policy": policy_text,
        "noise": measured.noise,
        "accuracy": headline(summary, "success/weighted"),
        "accuracy_corrected": headline(summary, "success_corrected/weighted"),
        "latency": {**latency(measured), "mean": headline(summary, "virtual_ms/weighted")},
        "risk": {
            "violations": headline(summary, "violations/weighted"),
            "denied": headline(summary, "denied/weighted"),
            "enforced": measured.enforced,
            "cost_usd": headline(summary, "cost_usd/weighted"),
            "total_cost_usd": sum(costs) if costs else None,
            "num_violations": sum(len(item.violations) for item in measured.items),
            "num_denied": sum(item.num_denied for item in measured.items),
        },
        "repeats": {name: measured_keys(one) for name, one in repeated(measured).items()},
        "targets": rows,
        "strata": {name: headline(summary, f"success/stratum:{name}") or alone.get(name) for name in measured.weights},
        "infra": {
            "missing": summary.num_missing,
            "retries": sum(item.num_retries for item in measured.items),
            "low_bound": summary.low_bound,
            "high_bound": summary.high_bound,
            "rule": {"max_retries": measured.rules.max_retries, "most_missing": measured.rules.most_missing},
        },
        "lineage": {
            "statement": measured.lineage,
            "num_suspected": len({item.task for item in measured.items if item.suspected}),
            "clean": headline(summary, "success/clean"),
            "suspected": headline(summary, "success/suspected"),
            "sealed": sealed_kin,
        },
        "log_head": measured.log_head,
        "summary": summary,
        "digest": measured.digest,
    }


def shown(name: str) -> bool:
    """Success in every scope, the other metrics over all traffic: --json gives the rest."""
    metric, _, scope = name.partition("/")
    return metric == "success" or scope == "weighted"


def tell_run(measured: EvaluationRun, summary: Summary, rows: tuple[TargetRow, ...], beside: Summary | None) -> None:
    from flightschool.evaluation import latency, repeated

    clear = {} if beside is None else {m.name: m for m in beside.measurements}
    lines = []
    for m in summary.measurements:
        if shown(m.name):
            line: tuple[object, ...] = (m.name, f"{m.value:.3g}", f"{m.low:.3g} to {m.high:.3g}", m.num_items)
            other = clear.get(m.name)
            pair = ("-", "-") if other is None else (f"{other.value:.3g}", f"{other.low:.3g} to {other.high:.3g}")
            lines.append((*line, *pair) if clear else line)
    width = 6 if clear else 4
    for stratum, single in _alone(measured).items():
        lines.append((f"success/stratum:{stratum}", f"{single['mean']:.3g}", "-", 1, "-", "-")[:width])
    columns = ("metric", "#value", "#95 % interval", "#n", *(("#clean", "#95 % interval") if clear else ()))
    output.table(f"{summary.policy} on {summary.suite} ({summary.noise})", columns, lines)
    for name, one in repeated(measured).items():
        output.say(f"{name}: {one.value:.3g} ({one.low:.3g} to {one.high:.3g})")
    times = {name: f"{one.value:.4g} ({one.low:.4g} to {one.high:.4g})" for name, one in latency(measured).items()}
    if times:
        output.say(f"virtual ms: p50 {times['p50']}, p95 {times['p95']}")
        output.say(f"real ms: p50 {times['wall_p50']}, p95 {times['wall_p95']}")
    for row in rows:
        found = "not measured" if row.measured is None else f"{row.measured.low:.3g} to {row.measured.high:.3g}"
        output.say(f"target {row.name} {row.relation} {row.target:g}: {row.state} ({found})")
    if summary.num_missing:
        output.say(f"best/worst bounds of success: {summary.low_bound:.3f} to {summary.high_bound:.3f}")
    for note in summary.notes:
        output.say(f"note: {note}")


def tell_regraded(found: Regraded) -> None:
    output.say(f"{found.run.id}: {len(found.run.items)} attempts judged again, {len(found.turned)} grades turned")
    for what, names in (("turned", found.turned), ("no grade", found.lost)):
        for item, how in list(names.items())[:20]:
            output.say(f"{what}: {item}: {how}")
