"""``init``: a workspace to start one's own agent from."""

from __future__ import annotations

from pathlib import Path

import typer

from flightschool.cli import output
from flightschool.cli.verb import verb

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the verb."""
    verb(app, "init", example="flightschool init my-agent")(init)


def init(directory: Path = typer.Argument(..., metavar="DIR", help="Folder to make the workspace in.")) -> None:
    """Make a workspace with a commented configuration and a small example that runs.

    Refuses a folder that is a workspace already, or that holds a file of one of the names it would write.
    """
    from flightschool.environments.template import init_files
    from flightschool.errors import InputError
    from flightschool.store import CONFIG_NAME, Workspace

    files = init_files()
    config = files.pop(CONFIG_NAME)
    taken = [name for name in files if (directory / name).exists()]
    if taken:
        raise InputError(
            f"{taken[0]} is there already",
            where=str(directory / taken[0]),
            expected="a folder without it",
            mend="move it away, or choose another folder",
        )
    with Workspace.create(directory, config_text=config) as space:
        for name, text in files.items():
            path = space.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        written = [str(space.root / name) for name in (CONFIG_NAME, *files)]
    output.say(f"workspace made in {directory}")
    output.say(f"next: cd {directory}; README.md there shows the way from recordings to training")
    output.finish({"workspace": str(space.root), "files": written})
