"""``env import``: environments of other ecosystems."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from flightschool.cli import env_package, output
from flightschool.cli.references import check_name, workspace
from flightschool.cli.verb import verb
from flightschool.errors import InputError

if TYPE_CHECKING:
    from flightschool.environments import EnvironmentRecord
    from flightschool.environments.foreign import ForeignContent

__all__ = ["register"]

FORMATS = ("auto", "package", "openenv", "mcp", "nemo-gym", "reasoning-gym", "gymnasium", "textarena", "verifiers")
REWARDS = ("sum", "last", "max")


def register(env: typer.Typer) -> None:
    """Add the verb to the group ``env``."""
    verb(env, "import", example="flightschool env import http://127.0.0.1:8000 --format openenv --name echo")(import_)


def import_(
    source: str = typer.Argument(..., metavar="SOURCE", help="A folder, a URL, a command line, or names; see above."),
    name: str = typer.Option("", "--name", help="Name of the environment; a package has one of its own."),
    format: str = typer.Option("auto", "--format", help=" | ".join(FORMATS)),
    num: int = typer.Option(16, "-n", "--num", min=1, help="Most tasks; seeds of each name."),
    split: str = typer.Option("", "--split", help="openenv: split of the tasks; the first one by default."),
    threshold: float = typer.Option(1.0, "--threshold", help="Reward from which a task counts as solved."),
    reward: str = typer.Option("sum", "--reward", help="Reward of an episode: sum, last or max of its steps' rewards."),
    max_turns: int = typer.Option(16, "--max-turns", min=1, help="Turns after which an attempt is cut."),
    token_env: str = typer.Option("", "--token-env", help="Environment variable with the server's bearer token."),
    tasks: Path | None = typer.Option(None, "--tasks", help="mcp, nemo-gym: file of tasks, a JSON object a line."),
    effects: Path | None = typer.Option(None, "--effects", help="mcp: TOML file, tool = effect, as somebody decided."),
    confirm_effects: bool = typer.Option(
        False, "--confirm-effects", help="mcp: the guessed effects were looked at; else only reads may be called."
    ),
    python: str = typer.Option("", "--python", help="Interpreter that has the other ecosystem's packages."),
    knobs: Path | None = typer.Option(None, "--knobs", help="TOML file: configuration of generators or environments."),
    trust: bool = typer.Option(False, "--trust", help="package: its code may run, servers it names may be asked."),
) -> None:
    """Make an environment package, or an environment of another ecosystem, one of this workspace.

    A folder with env.toml is a package, as env build and env export write it. openenv URL: any OpenEnv server. mcp
    URL|COMMAND: tools of an MCP server, tasks from --tasks. nemo-gym URL: rows
    from --tasks, played at a resources server. reasoning-gym NAME,NAME|all: generators are families, seeds are tasks,
    --knobs their difficulty. gymnasium ID and textarena ID,ID: seeds are tasks. verifiers NAME: rows of a v1 taskset,
    or of a module with load_environment, are tasks, --knobs its arguments. The last four run under --python.
    """
    from flightschool.environments import save_environment
    from flightschool.environments.foreign.keeping import built_foreign

    kind = _format(source, format)
    if kind == "package":
        env_package.import_folder(Path(source), check_name(name, "--name") if name else "", trust)
        return
    check_name(name, "--name")
    _check(kind, reward, threshold)
    with workspace() as space:
        if kind == "openenv":
            content, guessed, notes = _openenv(source, num, split, threshold, reward, max_turns, token_env)
        elif kind == "mcp":
            content, guessed, notes = _mcp(source, tasks, effects, confirm_effects, max_turns, token_env)
        elif kind == "nemo-gym":
            content, guessed, notes = _nemo_gym(source, tasks, num, threshold, max_turns)
        else:
            content, guessed, notes = _peer(kind, source, python, num, knobs, threshold, reward, max_turns)
        record = save_environment(space.store, built_foreign(name, content, guessed))
    _tell(record, notes, guessed if kind == "mcp" and not confirm_effects else ())
    output.finish(
        {
            "name": record.name,
            "digest": record.digest,
            "kind": record.kind,
            "format": kind,
            "num_tasks": record.num_tasks,
            "num_tools": record.num_tools,
            "tools": [{"name": spec.name, "effect": spec.effect.value} for spec in content.tools],
            "effects_guessed": list(guessed),
            "allowed": list(content.allowed),
            "num_with_oracle": sum(bool(reference.oracle) for reference in content.references),
            "notes": list(notes),
        }
    )


def _format(source: str, format: str) -> str:
    """The format that was named, or that the source shows: a folder is a package, an address an OpenEnv server."""
    if format != "auto":
        return format
    if source.startswith(("http://", "https://")):
        return "openenv"
    if Path(source).is_dir():
        return "package"
    raise InputError(
        f"{source!r} does not show what it is",
        where="SOURCE",
        expected="the folder of a package, or --format: " + " | ".join(FORMATS[2:]),
        mend="check the path, or name the format",
    )


def _check(format: str, reward: str, threshold: float) -> None:
    if format not in FORMATS:
        raise InputError(
            f"no format {format!r}", where="--format", expected=" | ".join(FORMATS), mend="name one of these"
        )
    if reward not in REWARDS:
        raise InputError(f"no reward rule {reward!r}", where="--reward", expected="sum, last or max", mend="correct it")
    if not threshold > 0:
        raise InputError(
            "doing nothing would solve every task", where="--threshold", expected="a number above 0", mend="raise it"
        )


_Found = tuple["ForeignContent", tuple[str, ...], tuple[str, ...]]


def _openenv(url: str, num: int, split: str, threshold: float, reward: str, turns: int, token_env: str) -> _Found:
    from flightschool.environments.openenv import ImportSettings, import_openenv

    settings = ImportSettings(
        num_tasks=num, split=split, threshold=threshold, reward_rule=reward, max_turns=turns, key_env=token_env
    )
    imported = import_openenv(url, settings)
    return imported.content, imported.guessed, imported.notes


def _mcp(
    address: str, tasks: Path | None, effects: Path | None, confirm: bool, max_turns: int, token_env: str
) -> _Found:
    from flightschool.environments.mcp import McpSettings, import_mcp
    from flightschool.environments.peers import load_knobs

    if tasks is None:
        raise InputError(
            "a server's tools are no tasks",
            where="--tasks",
            expected='a file with {"id", "instruction", "checks"} a line',
            mend="write down what is to be done and how it is seen that it was; see docs/mcp.md",
        )
    decided = {} if effects is None else {str(tool): str(effect) for tool, effect in load_knobs(effects).items()}
    settings = McpSettings(
        tasks=tasks, confirm_effects=confirm, effects=decided, max_turns=max_turns, key_env=token_env
    )
    content, guessed = import_mcp(address, settings)
    return content, guessed, ()


def _nemo_gym(url: str, tasks: Path | None, num: int, threshold: float, max_turns: int) -> _Found:
    from flightschool.environments.nemo_gym import import_nemo_gym

    if tasks is None:
        raise InputError(
            "a resources server has no list of its rows", where="--tasks", expected="its data file", mend="name it"
        )
    content, guessed = import_nemo_gym(url, tasks, num_tasks=num, threshold=threshold, max_turns=max_turns)
    return content, guessed, ()


def _peer(
    format: str, source: str, python: str, num: int, knobs: Path | None, threshold: float, reward: str, turns: int
) -> _Found:
    from flightschool.environments.peers import PeerSettings, import_peer, load_knobs

    names = tuple(name.strip() for name in source.split(",") if name.strip())
    settings = PeerSettings(
        python=python or sys.executable,
        names=() if names == ("all",) else names,
        num_seeds=num,
        config={} if knobs is None else load_knobs(knobs),
        threshold=threshold,
        reward_rule=reward,
        max_turns=turns,
    )
    content, unsteady = import_peer(format, settings)
    known = sum(bool(reference.oracle) for reference in content.references)
    notes = [f"{known} of {len(content.tasks)} tasks have an oracle"]
    if unsteady:
        notes.append(f"left out, since equal seeds begin differently: {', '.join(unsteady[:10])}")
    return content, (), tuple(notes)


def _tell(record: EnvironmentRecord, notes: tuple[str, ...], denied: tuple[str, ...]) -> None:
    output.say(f"{record.name}: {record.num_tasks} tasks, {record.num_tools} tools, answered over there")
    for note in notes:
        output.say(note)
    rows = [(e.spec.name, e.spec.effect.value, e.effect_reason) for e in record.inventory]
    output.table("", ("tool", "effect", "known how"), rows[:20])
    if denied:
        output.say(
            "effects are guessed; until --confirm-effects or --effects FILE only reads may be called", style="yellow"
        )
