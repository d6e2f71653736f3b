"""The ``flightschool`` command: one file a verb group, assembled here, and the one boundary where errors end.

Exit codes: 0 fine, 1 what was examined fell short (or the house broke down), 2 wrong use or bad input,
130 interrupted. Nothing heavy is imported before a verb runs, so that ``--help`` answers at once.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

import typer

from flightschool import __version__
from flightschool.cli import output
from flightschool.cli.help_text import make_literal
from flightschool.cli.usage import as_flightschool_error, unexpected

__all__ = ["VERB_FILES", "build_app", "command_tree", "main"]

VERB_FILES = (
    "init",
    "quickstart",
    "doctor",
    "traces",
    "env",
    "rollout",
    "audit",
    "screen",
    "train",
    "runs",
    "eval",
    "review",
    "log",
    "serve",
    "models",
    "bench",
)
"""Modules beside this one, in the order of the flow; each has ``register(app)``."""

INTERRUPTED = 130


def build_app() -> typer.Typer:
    """The application with all verbs."""
    app = typer.Typer(
        name="flightschool",
        help="The harness and traces you already have go in; an agent that is trained, audited and measured comes out.",
        epilog="Example: flightschool quickstart",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    for name in VERB_FILES:
        importlib.import_module(f"flightschool.cli.{name}").register(app)
    return app


def _version(asked: bool) -> None:
    if asked:
        sys.stdout.write(f"flightschool {__version__}\n")
        raise typer.Exit


def _root(
    version: bool = typer.Option(False, "--version", help="Print the version.", is_eager=True, callback=_version),
) -> None:
    del version  # the callback has answered


def command_tree() -> Any:
    """The parsed command with its verbs and options, in the order of the flow."""
    tree: Any = typer.main.get_command(build_app())
    # The library lists plain verbs before groups of verbs; people look for them along the way of the data.
    tree.commands = {name: tree.commands[name] for name in VERB_FILES if name in tree.commands}
    make_literal(tree)
    return tree


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code; as a script, ``sys.exit`` takes it."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    words, json_mode = _take_json(given)
    try:
        with output.session(json_mode):
            return _run(words)
    except BrokenPipeError:
        # The reader of a pipe left early. Point stdout nowhere, or Python complains once more while it shuts down.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _take_json(words: Sequence[str]) -> tuple[list[str], bool]:
    """The words without ``--json`` (it may stand anywhere before ``--``), and whether it was there."""
    end = words.index("--") if "--" in words else len(words)
    kept = [word for word in words[:end] if word != "--json"]
    return kept + list(words[end:]), len(kept) < end


def _run(words: list[str]) -> int:
    try:
        result = command_tree().main(args=words, prog_name="flightschool", standalone_mode=False)
    except KeyboardInterrupt:
        return _interrupted()
    except Exception as error:  # noqa: BLE001 the boundary: whatever it is, the user gets one error and an exit code
        return _fail(error)
    if result == INTERRUPTED:
        return _interrupted()
    return result if isinstance(result, int) else 0


def _interrupted() -> int:
    output.say("interrupted; finished work is kept, the same command or --resume goes on")
    return INTERRUPTED


def _fail(error: Exception) -> int:
    if type(error).__name__ == "Abort" or isinstance(error.__cause__, KeyboardInterrupt):
        return _interrupted()
    if type(error).__name__ == "NoArgsIsHelpError" and not output.current().json_mode:
        # The help text is the message, and was already printed by versions that render it themselves.
        if error.args and error.args[0]:
            sys.stderr.write(str(error.args[0]).rstrip() + "\n")
        return 2
    if isinstance(error, BrokenPipeError):
        raise error
    told = as_flightschool_error(error) or unexpected(error)
    output.show_error(told)
    return told.exit_code
