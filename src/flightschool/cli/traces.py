"""``traces import · show · list · export``: recordings of the team's own agent, in and out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import typer

from flightschool.cli import output
from flightschool.cli.references import check_name, existing_path, workspace
from flightschool.cli.verb import group, verb

if TYPE_CHECKING:
    from flightschool.traces import TraceSummary

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    traces = group(app, "traces", "Recordings of an agent at work: import, look at, export.")
    verb(traces, "import", example="flightschool traces import runs.jsonl --name support-june")(import_)
    verb(traces, "list", example="flightschool traces list")(list_)
    verb(traces, "show", example="flightschool traces show support-june")(show)
    verb(traces, "export", example="flightschool traces export support-june --format otlp --out june.json")(export)


def import_(
    path: str = typer.Argument(..., help="A trace file, or a folder of .json and .jsonl files."),
    name: str = typer.Option(..., "--name", help="Name of the set in the workspace."),
    format: str = typer.Option("auto", "--format", help="auto, openai-chat, otlp or tau-bench."),
) -> None:
    """Import recorded episodes into the workspace: all of them, or none and one error."""
    from flightschool.traces import import_traces, save_traces, summarise

    check_name(name, "--name")
    source = existing_path(path, "trace file")
    with workspace() as space:
        traces = import_traces(source, format)
        record = save_traces(space.store, name, traces)
        summary = summarise(traces)
    _tell(name, summary)
    output.finish({"name": name, "digest": record.blob, "traces": _builtins(summary)})


def list_() -> None:
    """List the trace sets of the workspace."""
    from flightschool.traces import TraceRecord, trace_names

    with workspace() as space:
        records = [space.store.get("traces", name, TraceRecord) for name in trace_names(space.store)]
    output.table(
        "Traces",
        ("name", "format", "#episodes", "#calls"),
        [(r.name, r.format, r.num_episodes, r.num_calls) for r in records],
    )
    output.finish({"traces": [_builtins(record) for record in records]})


def show(name: str = typer.Argument(..., help="Name of a set.")) -> None:
    """Show what a set holds: tools, errors, turns, strata, and what is missing in it."""
    from flightschool.traces import load_traces, summarise

    with workspace() as space:
        summary = summarise(load_traces(space.store, name))
    _tell(name, summary)
    output.finish({"name": name, "traces": _builtins(summary)})


def export(
    name: str = typer.Argument(..., help="Name of a set."),
    format: str = typer.Option("openai-chat", "--format", help="openai-chat or otlp."),
    out: Path = typer.Option(..., "--out", help="File to write."),
) -> None:
    """Write a set to a file in an open format."""
    from flightschool.traces import export as write
    from flightschool.traces import load_traces

    with workspace() as space:
        episodes = load_traces(space.store, name).episodes
    write(episodes, out, format)
    output.say(f"{len(episodes)} episodes written to {out}")
    output.finish({"name": name, "format": format, "out": str(out), "num_episodes": len(episodes)})


def _builtins(record: msgspec.Struct) -> dict[str, Any]:
    built: dict[str, Any] = msgspec.to_builtins(record)
    return built


def _tell(name: str, summary: TraceSummary) -> None:
    succeeded = (
        "" if summary.success_share is None else f", {summary.success_share:.0%} of {summary.num_outcomes} succeeded"
    )
    output.say(
        f"{name}: {summary.num_episodes} episodes ({summary.format}), {summary.num_calls} calls, "
        f"{summary.error_share:.1%} of them errors{succeeded}"
    )
    rows = [(tool.name, tool.effect, tool.num_calls, tool.num_errors, tool.num_episodes) for tool in summary.tools]
    output.table("", ("tool", "effect", "#calls", "#errors", "#episodes"), rows)
    if summary.strata:
        output.table("", ("stratum", "#episodes"), summary.strata.items())
    if summary.num_issues:
        output.say(f"{summary.num_issues} issues, the first of them:", style="yellow")
        for issue in summary.issues[:5]:
            output.say(f"  {issue}")
