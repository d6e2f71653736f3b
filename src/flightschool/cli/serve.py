"""``serve env``: an environment for the trainers and harnesses of others."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
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

PROTOCOLS = ("openenv", "nemo-gym", "verifiers")
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
    protocol: str = typer.Option("openenv", "--protocol", help="openenv | nemo-gym; with --write also verifiers."),
    write: Path | None = typer.Option(
        None, "--write", help="Write instead of serving: openenv, verifiers: a package; nemo-gym: a file of rows."
    ),
) -> None:
    """Serve an environment over the OpenEnv protocol (and MCP at /mcp), until interrupted; or as others want it.

    --protocol nemo-gym is a resources server of NeMo Gym, one process on this machine; a verifiers taskset, written
    with --protocol verifiers --write DIR, asks it too.

    In a workspace only tasks are served whose reward was audited and found sound, and that no frozen suite holds,
    unless --tasks all is given with a reason, which is written to the audit log. A token in FLIGHTSCHOOL_TOKEN is asked
    of every client.
    """
    from flightschool.serving import TaskDesk

    _check_protocol(protocol, host, processes, write)
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
    desk = TaskDesk(world, splits)
    if write is not None:
        _write(protocol, write, environment, world, space, desk, splits)
        return
    offer = _offer(world, perturb)
    if protocol == "nemo-gym":
        _serve_nemo_gym(offer, desk, sessions, port)
        return
    _serve(offer, desk, _settings(sessions, step_timeout, idle_timeout, production, token), host, port, processes)


def _check_protocol(protocol: str, host: str, processes: int, write: Path | None) -> None:
    if protocol not in PROTOCOLS:
        raise InputError(
            f"no protocol {protocol!r}", where="--protocol", expected=" | ".join(PROTOCOLS), mend="name one of these"
        )
    if protocol == "verifiers" and write is None:
        raise InputError(
            "verifiers loads a package, it asks no server",
            where="--protocol verifiers",
            expected="--write DIR",
            mend="write the package, install it there, and serve with --protocol nemo-gym what it asks",
        )
    if protocol == "nemo-gym" and (host not in _LOOPBACK or processes > 1):
        raise InputError(
            "a resources server has no token and keeps its sessions in one process",
            where="--host" if host not in _LOOPBACK else "--processes",
            expected="this machine and one process",
            mend="leave it out; for more, serve the openenv protocol",
        )


def _write(
    protocol: str,
    path: Path,
    reference: str,
    world: Environment,
    space: Workspace | None,
    desk: TaskDesk,
    splits: dict[str, tuple[str, ...]],
) -> None:
    """What others load, as files."""
    if protocol == "openenv":
        from flightschool.serving.openenv import write_folder

        written = write_folder(path, reference, world, space, splits)
        output.say(f"{path}: {len(written)} files; check with: openenv validate {path} --level static")
    elif protocol == "verifiers":
        from flightschool.serving.verifiers import write_taskset

        written = write_taskset(path, reference, desk)
        output.say(f"{path}: {len(written)} files; what to do with them stands in README.md there")
    else:
        written = [path.name]
        _write_rows(path, desk)
    output.finish({"env": world.name, "folder": str(path), "files": written})


def _write_rows(path: Path, desk: TaskDesk) -> None:
    from flightschool.serving.nemo_gym import rows

    told = rows(desk)
    try:
        path.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in told))
    except OSError as error:
        raise InputError(
            f"cannot be written: {error.strerror or error}", where=str(path), expected="a file", mend="name another one"
        ) from error
    output.say(f"{path}: {len(told)} rows")


def _serve_nemo_gym(offer: Offer, desk: TaskDesk, sessions: int, port: int) -> None:
    import asyncio

    from flightschool.serving.nemo_gym import NemoGymServer

    server = NemoGymServer(offer, desk, most_sessions=sessions)

    async def serve() -> None:
        try:
            await server.http.start(port=port)
        except OSError as error:
            raise _taken("127.0.0.1", port, error) from error
        async with server:
            number = len(desk.splits[desk.default])
            output.say(f"{offer.environment.name}: {number} tasks ({desk.default}) at {server.url}; end with Ctrl-C")
            await asyncio.Event().wait()

    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve())
    output.finish({"env": offer.environment.name, "url": server.url, "num_tasks": len(desk.splits[desk.default])})


def _taken(host: str, port: int, error: OSError) -> InputError:
    return InputError(
        f"cannot listen at {host}:{port}: {error.strerror or error}",
        where="--port",
        expected="a free port of this machine",
        mend="name another one; 0 takes a free one",
    )


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
        raise _taken(host, port, error) from error
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
