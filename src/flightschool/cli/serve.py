"""``serve env``: an environment for the trainers and harnesses of others."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from flightschool.cli import output
from flightschool.cli.references import actor, fault_profile, open_environment, workspace_if_any
from flightschool.cli.verb import group, verb
from flightschool.errors import GateError, InputError

if TYPE_CHECKING:
    from flightschool.protocols import Environment
    from flightschool.serving import Offer, TaskDesk
    from flightschool.serving.openenv import ServerSettings
    from flightschool.store import Workspace

__all__ = ["register"]

_LOOPBACK = ("127.0.0.1", "localhost")
TOKEN_VARIABLE = "FLIGHTSCHOOL_TOKEN"


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    serve = group(app, "serve", "Servers on this machine.")
    verb(serve, "env", example="flightschool serve env desk --port 8000 --processes 2")(env)


def env(
    environment: str = typer.Argument(..., metavar="E", help="Environment: a name, or a path."),
    host: str = typer.Option(
        "127.0.0.1", "--host", help="Address to listen at; others than this machine need a token."
    ),
    port: int = typer.Option(8000, "--port", min=0, max=65535, help="Port; 0 takes a free one."),
    processes: int = typer.Option(1, "--processes", min=1, max=256, help="Server processes behind the one port."),
    sessions: int = typer.Option(256, "--sessions", min=1, help="Episodes at once, over all processes."),
    tasks: str | None = typer.Option(
        None, "--tasks", help="sound | all: sound ones outside suites (default in a workspace), or every one."
    ),
    reason: str = typer.Option("", "--reason", help="Why tasks are served that were not found sound; logged."),
    perturb: str | None = typer.Option(None, "--perturb", help="Weather of every episode: noisy, storm, or a path."),
    step_timeout: float = typer.Option(60.0, "--step-timeout", min=0.001, help="Seconds that one tool call may take."),
    idle_timeout: float = typer.Option(1800.0, "--idle-timeout", min=0.1, help="Seconds after which a session ends."),
    production: bool = typer.Option(False, "--production", help="Without /reset, /step and /state over HTTP."),
    write: Path | None = typer.Option(
        None, "--write", help="Write an OpenEnv package to this folder instead of serving."
    ),
) -> None:
    """Serve an environment over the OpenEnv protocol (and MCP at /mcp), until interrupted.

    In a workspace only tasks are served whose reward was audited and found sound, and that no frozen suite holds,
    unless --tasks all is given with a reason, which is written to the audit log. A token in FLIGHTSCHOOL_TOKEN is asked
    of every client.
    """
    from flightschool.serving import TaskDesk
    from flightschool.serving.openenv import write_folder

    token = os.environ.get(TOKEN_VARIABLE, "")
    if host not in _LOOPBACK and not token:
        raise InputError(
            f"{host} can be reached from other machines, and there is no token",
            where="--host",
            expected=f"a secret in {TOKEN_VARIABLE}",
            mend=f"set {TOKEN_VARIABLE}, or serve at 127.0.0.1",
        )
    space = workspace_if_any()
    world = open_environment(environment, space)
    splits = _splits(world, space, tasks, reason)
    if write is not None:
        written = write_folder(write, environment, world, space, splits)
        output.say(f"{write}: {len(written)} files; check with: openenv validate {write} --level static")
        output.finish({"env": world.name, "folder": str(write), "files": written})
        return
    desk = TaskDesk(world, splits)
    offer = _offer(world, perturb)
    _serve(offer, desk, _settings(sessions, step_timeout, idle_timeout, production, token), host, port, processes)


def _offer(world: Environment, perturb: str | None) -> Offer:
    from flightschool.serving import Offer

    return Offer(world, weather=fault_profile(perturb))


def _settings(sessions: int, step_s: float, idle_s: float, production: bool, token: str) -> ServerSettings:
    from flightschool.serving.openenv import ServerSettings, SessionLimits

    return ServerSettings(
        most_sessions=sessions,
        limits=SessionLimits(step_timeout_s=step_s, idle_timeout_s=idle_s),
        mode="production" if production else "simulation",
        token=token,
    )


def _serve(offer: Offer, desk: TaskDesk, settings: ServerSettings, host: str, port: int, processes: int) -> None:
    from flightschool.serving.openenv import listen, serve_forever

    try:
        listener = listen(host, port)
    except OSError as error:
        raise InputError(
            f"cannot listen at {host}:{port}: {error.strerror or error}",
            where="--port",
            expected="a free port of this machine",
            mend="name another one; 0 takes a free one",
        ) from error
    number = listener.getsockname()[1]
    name, tasks = offer.environment.name, len(desk.splits[desk.default])
    url = f"http://{host}:{number}"

    def ready() -> None:
        output.say(f"{name}: {tasks} tasks ({desk.default}) at {url}, {processes} processes; end with Ctrl-C")

    serve_forever(listener, offer, desk, settings, num_processes=processes, ready=ready)
    output.finish({"env": name, "url": url, "num_tasks": tasks, "processes": processes})


def _splits(world: Environment, space: Workspace | None, tasks: str | None, reason: str) -> dict[str, tuple[str, ...]]:
    """What is served: ``train`` (sound, outside suites), or ``all``."""
    from flightschool.serving import ALL

    if tasks not in (None, "sound", "all"):
        raise InputError(f"cannot serve {tasks!r} tasks", where="--tasks", expected="sound or all", mend="correct it")
    every = tuple(task.id for task in world.tasks())
    if space is None:
        if tasks == "sound":
            raise InputError(
                "audits are kept in a workspace, and there is none",
                where="--tasks sound",
                expected="a workspace around the working directory",
                mend="flightschool init DIR, then flightschool audit in it",
            )
        output.say("no workspace here: nothing is known of these rewards; audit them before you train on them")
        return {ALL: every}
    with space:
        if tasks == "all":
            from flightschool.governance import AuditLog, override

            override(AuditLog(space.store), "audit", f"serve {world.name}", actor(), reason)
            return {ALL: every}
        sound = _sound(world, space)
    if not sound:
        raise GateError(
            f"no task of {world.name!r} was audited, found sound and left outside the suites",
            where="serve env",
            expected="an audited reward: others will train on it",
            mend=f"flightschool audit {world.name}; or --tasks all --reason TEXT, which is logged",
        )
    return {"train": sound, ALL: sound}


def _sound(world: Environment, space: Workspace) -> tuple[str, ...]:
    from flightschool.audit import AuditIndex
    from flightschool.stations import frozen_suites

    held = {digest for suite in frozen_suites(space.store, world.name) for digest in suite.task_digests.values()}
    sound = AuditIndex(space.store, world).sound(world.tasks())
    return tuple(task.id for task in sound if task.digest not in held)
