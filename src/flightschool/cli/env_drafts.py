"""``env draft-checks``: checks proposed from traces, rules and experts' words."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import typer

from flightschool.cli import output
from flightschool.cli.references import workspace
from flightschool.errors import InputError

if TYPE_CHECKING:
    from flightschool.environments import DraftCheck
    from flightschool.records import Json

__all__ = ["draft_checks", "tell_drafts", "traced_environment"]

MOST_SHOWN = 30


def draft_checks(
    environment: str = typer.Argument(..., metavar="E", help="An environment that was built from traces."),
    statements: Path | None = typer.Option(None, "--statements", help="Text file: one statement of an expert a line."),
    out: Path | None = typer.Option(None, "--out", help="TOML file to write; by default E-drafts.toml."),
) -> None:
    """Propose checks: what successes have in common, regularities, sentences of the rules, an expert's statements.

    Drafts score nothing. `review sign` puts one into the environment, `review reject` sets it aside.
    """
    from flightschool.environments import draft_checks as propose
    from flightschool.environments import load_record, save_drafts
    from flightschool.traces import load_traces

    lines = _lines(statements) if statements is not None else []
    with workspace() as space:
        record = load_record(space.store, environment)
        world = traced_environment(space, environment)
        if not record.traces or not space.store.has("traces", record.traces):
            raise InputError(
                "the traces that it was built from are not in the workspace",
                where=environment,
                expected="a set of traces",
                mend="import them and build it again",
            )
        episodes = load_traces(space.store, record.traces).episodes
        with output.progress("running successes again"):
            drafts = save_drafts(space.store, environment, propose(world, episodes, lines))
    target = out or Path(f"{environment}-drafts.toml")
    try:
        target.write_text(as_toml(environment, drafts), encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"cannot write: {error}", where=str(target), expected="a path that can be written", mend="choose --out"
        ) from error
    tell_drafts(drafts)
    output.say(f"{len(drafts)} drafts in {target}; none scores anything until it is signed: flightschool review sign")
    output.finish({"env": environment, "out": str(target), "drafts": drafts})


def traced_environment(space: Any, name: str) -> Any:
    """A kept environment whose checks are data.

    Raises:
        InputError: its checks are its own code's.
    """
    from flightschool.environments import load_environment
    from flightschool.environments.examining import underlying

    world = underlying(load_environment(name, space))
    if world is None:
        raise InputError(
            "this environment's checks are its own code's",
            where=name,
            expected="an environment from recordings or tool functions",
            mend="change the code",
        )
    return world


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"statements cannot be read: {error}", where=str(path), expected="a UTF-8 text", mend="check the path"
        ) from error


def tell_drafts(drafts: Sequence[DraftCheck]) -> None:
    """Show drafts that are still open."""
    waiting = [one for one in drafts if one.status == "draft"]
    rows = [
        (one.id, one.task or "all", one.source, "yes" if one.check else "write one", one.evidence)
        for one in waiting[:MOST_SHOWN]
    ]
    output.table("Drafts", ("id", "task", "source", "check", "evidence"), rows)
    if len(waiting) > len(rows):
        output.say(f"… and {len(waiting) - len(rows)} more")


# ------------------------------------------------------------------------------------------------ TOML


def as_toml(environment: str, drafts: Sequence[DraftCheck]) -> str:
    """The drafts as a file to read and to edit; a check stands in the form that ``--edit`` takes."""
    from flightschool.environments.terminal.toml_text import toml_text

    head = (
        f"# Proposed checks for {environment}. Drafts score nothing until they are signed:\n"
        f'#   flightschool review sign {environment} ID --reason "…" [--edit FILE]\n\n'
    )
    return head + toml_text({"draft": [_row(one) for one in drafts]})


def _row(draft: DraftCheck) -> dict[str, Json]:
    row: dict[str, Json] = {key: getattr(draft, key) for key in ("id", "task", "source", "status", "evidence")}
    if draft.by:
        row |= {"by": draft.by, "reason": draft.reason}
    if draft.check is not None:
        plain = msgspec.to_builtins(draft.check)
        rule = plain.pop("rule")
        row["check"] = [_without_nulls({"rule": rule.pop("type"), **plain, **rule})]
    return row


def _without_nulls(value: Json) -> Json:
    """The same without fields that are null: TOML has no null, and all of them are defaults."""
    if isinstance(value, dict):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list | tuple) else value
