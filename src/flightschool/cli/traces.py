"""``traces import · show · list · export``: recordings of the team's own agent, in and out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import typer

from flightschool.cli import output
from flightschool.cli.references import actor, check_name, existing_path, workspace
from flightschool.cli.verb import group, verb

if TYPE_CHECKING:
    from flightschool.store import Workspace
    from flightschool.traces import Redactor

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    traces = group(app, "traces", "Recordings of an agent at work: import, look at, export.")
    verb(traces, "import", example="flightschool traces import runs.jsonl --name support-june")(import_)
    verb(traces, "list", example="flightschool traces list")(list_)
    verb(traces, "show", example="flightschool traces show support-june")(show)
    verb(traces, "sample", example="flightschool traces sample codex --out sample.jsonl")(sample)
    verb(traces, "export", example="flightschool traces export support-june --format otlp --out june.json")(export)


def sample(
    format: str = typer.Argument(..., metavar="FORMAT", help="A format, as traces import names it."),
    out: Path = typer.Option(..., "--out", help="File to write."),
) -> None:
    """Write a small file of a format: what it looks like, and something to try the import on."""
    from flightschool.errors import InputError
    from flightschool.traces import sample_trace

    data = sample_trace(format)
    try:
        with out.open("xb") as file:
            file.write(data)
    except OSError as error:
        raise InputError(
            f"cannot write: {error}", where=str(out), expected="a new file", mend="choose another --out"
        ) from error
    output.say(f"{out}: one recorded episode, {len(data)} bytes")
    output.finish({"format": format, "out": str(out), "num_bytes": len(data)})


def import_(
    path: str = typer.Argument(..., help="A trace file, or a folder of trace files."),
    name: str = typer.Option(..., "--name", help="Name of the set in the workspace."),
    format: str = typer.Option(
        "auto",
        "--format",
        help="auto, or one of: anthropic-messages, anthropic-session, atif, codex, inspect, langfuse, langsmith, "
        "openai-chat, openai-responses, openinference, otlp, swe-agent, tau-bench.",
    ),
    strict: bool = typer.Option(False, "--strict", help="Take whatever is missing or doubtful for an error."),
    redact: bool = typer.Option(
        True, "--redact/--no-redact", help="Replace secrets, e-mail, phone and card numbers before anything is kept."
    ),
    names: Path | None = typer.Option(None, "--names", help="File of names to replace as well, one a line."),
    state: Path | None = typer.Option(None, "--state", help="Folder of JSON state to redact alike, with --state-out."),
    state_out: Path | None = typer.Option(None, "--state-out", help="New folder for the redacted state."),
) -> None:
    """Import recorded episodes into the workspace: all of them, or none and one error."""
    from flightschool.traces import EpisodeReader, StoredTraces, redact_state, save_episodes, summarise

    check_name(name, "--name")
    _check_options(redact, names, state, state_out)
    source = existing_path(path, "trace file")
    reader = EpisodeReader(source, format, strict=strict)
    with workspace() as space:
        redactor = _redactor(space, names) if redact else None
        with output.progress("episodes") as bar:
            episodes = _ticking(reader if redactor is None else redactor.episodes(reader), bar)
            record = save_episodes(
                space.store,
                name,
                episodes,
                lambda: reader.format,
                redacted=redact,
                replaced=None if redactor is None else lambda: redactor.report().num_replaced,
            )
        if not redact:
            _log_unredacted(space, name, source)
        report = None if redactor is None else redactor.report()
        if redactor is not None and state is not None and state_out is not None:
            num_files = redact_state(state, state_out, redactor)
            output.say(f"{num_files} files of state redacted alike into {state_out}")
        summary = summarise(StoredTraces(space.store, name))
    from flightschool.cli.traces_told import tell_redaction, tell_summary

    tell_summary(name, summary, brief=True)
    tell_redaction(report)
    told: dict[str, Any] = {"name": name, "digest": record.blob, "traces": _builtins(summary)}
    output.finish(told | {"redaction": None if report is None else _builtins(report)})


def list_() -> None:
    """List the trace sets of the workspace."""
    from flightschool.traces import TraceRecord, trace_names

    with workspace() as space:
        records = [space.store.get("traces", name, TraceRecord) for name in trace_names(space.store)]
    said = {True: "yes", False: "no", None: "not said"}
    output.table(
        "Traces",
        ("name", "format", "#episodes", "#calls", "redacted"),
        [(r.name, r.format, r.num_episodes, r.num_calls, said[r.redacted]) for r in records],
    )
    output.finish({"traces": [_builtins(record) for record in records]})


def show(
    name: str = typer.Argument(..., help="Name of a set."),
    tool: str | None = typer.Option(None, "--tool", help="Show one tool: errors, schemas, latency."),
) -> None:
    """Show what a set holds: tools, errors, intents, room for parallel calls, duplicates, and what is missing."""
    from flightschool.cli.traces_told import tell_summary, tell_tool
    from flightschool.errors import NotFoundError
    from flightschool.traces import StoredTraces, summarise

    with workspace() as space:
        summary = summarise(StoredTraces(space.store, name))
    if tool is None:
        tell_summary(name, summary)
        output.finish({"name": name, "traces": _builtins(summary)})
        return
    use = next((use for use in summary.tools if use.name == tool), None)
    if use is None:
        known = ", ".join(use.name for use in summary.tools[:20]) or "none"
        raise NotFoundError(f"no tool is called {tool!r}", where=f"traces {name!r}", expected=known, mend="name one")
    tell_tool(use)
    output.finish({"name": name, "tool": _builtins(use)})


def export(
    name: str = typer.Argument(..., help="Name of a set."),
    format: str = typer.Option("openai-chat", "--format", help="openai-chat, otlp, atif or inspect."),
    out: Path = typer.Option(..., "--out", help="File to write."),
) -> None:
    """Write a set to a file in an open format, and say what the format could not hold."""
    from flightschool.traces import StoredTraces
    from flightschool.traces import export as write

    with workspace() as space:
        report = write(StoredTraces(space.store, name), out, format)
    output.say(f"{report.num_episodes} episodes written to {out}")
    for what, count in report.losses.items():
        output.say(f"  not in the file: {what} ({count} episodes)", style="yellow")
    told = {"name": name, "format": format, "out": str(out), "num_episodes": report.num_episodes}
    output.finish(told | {"losses": report.losses})


def _check_options(redact: bool, names: Path | None, state: Path | None, state_out: Path | None) -> None:
    from flightschool.errors import InputError

    if not redact and (names is not None or state is not None):
        raise InputError(
            "--names and --state say what to redact, --no-redact says not to",
            where="--no-redact",
            expected="one or the other",
            mend="leave out --no-redact",
        )
    if (state is None) != (state_out is None):
        raise InputError(
            "--state and --state-out go together",
            where="--state" if state_out is None else "--state-out",
            expected="the folder of the state, and a new folder for the redacted one",
            mend="give both",
        )


def _redactor(space: Workspace, names: Path | None) -> Redactor:
    from flightschool.traces import Redactor, read_names, workspace_key

    return Redactor(workspace_key(space.data), () if names is None else read_names(names))


def _ticking(episodes: Any, bar: output.Ticker) -> Any:
    for episode in episodes:
        bar.tick()
        yield episode


def _log_unredacted(space: Workspace, name: str, source: Path) -> None:
    """Keeping originals is a decision, hence in the audit log."""
    from flightschool.governance import AuditLog

    AuditLog(space.store).append(actor(), "traces imported without redaction", name, {"path": str(source)})
    output.say("not redacted: the originals are in the workspace; this is noted in the audit log", style="yellow")


def _builtins(record: msgspec.Struct) -> dict[str, Any]:
    built: dict[str, Any] = msgspec.to_builtins(record)
    return built
