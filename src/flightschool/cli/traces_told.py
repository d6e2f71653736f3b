"""How ``traces`` tells people what a set holds. All text from traces goes through ``output``, which shows it inert."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from flightschool.cli import output

if TYPE_CHECKING:
    from flightschool.traces import RedactionReport, ToolUse, TraceSummary

__all__ = ["tell_redaction", "tell_summary", "tell_tool"]

_MOST_TOOLS = 40
_MOST_ROWS = 12


def tell_summary(name: str, summary: TraceSummary, *, brief: bool = False) -> None:
    """The set at a glance; not ``brief``: also intents, waste and duplicates."""
    succeeded = (
        "" if summary.success_share is None else f", {summary.success_share:.0%} of {summary.num_outcomes} succeeded"
    )
    output.say(
        f"{name}: {summary.num_episodes} episodes ({summary.format}), {summary.num_calls} calls, "
        f"{summary.error_share:.1%} of them errors{succeeded}"
    )
    _tell_tools(summary)
    if not brief:
        _tell_intents(summary)
        _tell_waste(summary)
        _tell_cost(summary)
    if summary.num_issues:
        output.say(f"{summary.num_issues} issues:", style="yellow")
        for issue, count in list(summary.issue_kinds.items())[: 5 if brief else _MOST_ROWS]:
            output.say(f"  {count} × {issue}")


def _tell_tools(summary: TraceSummary) -> None:
    timed = any(tool.latency is not None for tool in summary.tools)
    columns = ["tool", "effect", "#calls", "#errors", "#episodes", *(["#p50 ms", "#p99 ms"] if timed else [])]
    rows: list[list[object]] = []
    for tool in summary.tools[:_MOST_TOOLS]:
        row: list[object] = [tool.name, tool.effect, tool.num_calls, tool.num_errors, tool.num_episodes]
        if timed:
            latency = tool.latency
            row += ["", ""] if latency is None else [f"{latency.p50_ms:.0f}", f"{latency.p99_ms:.0f}"]
        rows.append(row)
    output.table("", columns, rows)
    if len(summary.tools) > _MOST_TOOLS:
        rest = summary.tools[_MOST_TOOLS:]
        output.say(f"and {len(rest)} more tools with {sum(tool.num_calls for tool in rest)} calls (all with --json)")


def _tell_intents(summary: TraceSummary) -> None:
    def success(share: float | None) -> str:
        return "" if share is None else f"{share:.0%}"

    if summary.strata:
        output.table(
            "Strata by their share of the traffic",
            ("stratum", "#episodes", "#share", "#success"),
            [
                (s.name, s.num_episodes, f"{s.share:.1%}", success(s.success_share))
                for s in summary.traffic[:_MOST_ROWS]
            ],
        )
    output.table(
        "Intents by the wording of the request",
        ("intent", "#episodes", "#share", "#success", "example"),
        [
            (
                cluster.label,
                cluster.num_episodes,
                f"{cluster.share:.1%}",
                success(cluster.success_share),
                cluster.example,
            )
            for cluster in summary.intents[:_MOST_ROWS]
        ],
    )
    errors = [(tool.name, what, count) for tool in summary.tools for what, count in tool.error_classes.items()]
    if errors:
        errors.sort(key=lambda row: (-row[2], row[0], row[1]))
        output.table("Errors by kind", ("tool", "error", "#calls"), errors[:_MOST_ROWS])


def _tell_waste(summary: TraceSummary) -> None:
    if summary.num_rounds:
        share = summary.joinable_rounds / summary.num_rounds
        output.say(
            f"rounds of calls: {summary.num_rounds}; {summary.joinable_rounds} ({share:.0%}) could have run beside the "
            f"one before (no argument from its answer), {summary.mergeable_rounds} of them reads with one tool"
        )
        output.say(f"reads asked again with nothing written between: {summary.num_repeated_reads}")
    if summary.fan_outs:
        output.table(
            "One call for each item of a list (N+1)",
            ("lists", "then reads", "by", "#episodes", "#calls"),
            [(f.lists, f.reads, f.argument, f.num_episodes, f.num_calls) for f in summary.fan_outs[:_MOST_ROWS]],
        )
    if summary.num_duplicates:
        first = ", ".join(summary.duplicates[0][:4])
        output.say(f"nearly equal episodes: {summary.num_duplicates} more than needed, such as {first}")


def _tell_cost(summary: TraceSummary) -> None:
    if summary.usage is not None:
        usage = summary.usage
        cost = "" if usage.cost_usd is None else f", {usage.cost_usd:.4f} USD"
        output.say(f"tokens: {usage.input_tokens or 0} in, {usage.output_tokens or 0} out{cost}")
    if summary.models:
        output.say("models: " + ", ".join(f"{name} ({count})" for name, count in list(summary.models.items())[:5]))
    if summary.num_children:
        output.say(f"conversations of sub-agents and branches: {summary.num_children}")


def tell_tool(tool: ToolUse) -> None:
    """One tool in full."""
    output.say(f"{tool.name} ({tool.effect}): {tool.num_calls} calls in {tool.num_episodes} episodes")
    if tool.latency is not None:
        numbers = tool.latency
        output.say(
            f"latency of {numbers.count} calls: p50 {numbers.p50_ms:.1f} ms, p90 {numbers.p90_ms:.1f}, "
            f"p99 {numbers.p99_ms:.1f}, longest {numbers.max_ms:.1f}"
        )
    if tool.error_classes:
        output.table("Errors", ("error", "#calls"), list(tool.error_classes.items()))
    for title, schema in (("arguments", tool.arguments), ("result", tool.result)):
        output.say(f"{title}: {json.dumps(schema, ensure_ascii=False, indent=2)}")


def tell_redaction(report: RedactionReport | None) -> None:
    """What was replaced; nothing where nothing was."""
    if report is None or not report.num_replaced:
        return
    output.table(
        f"Redacted in {report.num_episodes_touched} of {report.num_episodes} episodes",
        ("kind", "#places", "#distinct values"),
        [(kind, count, report.num_distinct.get(kind, 0)) for kind, count in report.num_replaced.items()],
    )
