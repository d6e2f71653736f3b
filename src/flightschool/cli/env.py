"""``env build · import · export · list · show · check``: environments from traces, of other ecosystems, built in."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import typer

from flightschool.cli import env_import, env_package, output
from flightschool.cli.env_check import check
from flightschool.cli.env_drafts import draft_checks
from flightschool.cli.references import check_name, open_environment, workspace, workspace_if_any
from flightschool.cli.verb import group, verb

if TYPE_CHECKING:
    from flightschool.environments import BuiltEnvironment, EnvironmentRecord, Fidelity
    from flightschool.protocols import Environment

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    env = group(app, "env", "Environments: build from traces, import, list, show, check.")
    verb(env, "build", example="flightschool env build --from-traces june --name support --code my_agent.tools")(build)
    verb(env, "draft-checks", example="flightschool env draft-checks support --statements said.txt")(draft_checks)
    env_import.register(env)
    env_package.register(env)
    verb(env, "list", example="flightschool env list")(list_)
    verb(env, "show", example="flightschool env show desk")(show)
    verb(env, "check", example="flightschool env check desk --json")(check)


def build(
    traces: str = typer.Option(..., "--from-traces", help="Name of an imported set."),
    name: str = typer.Option(..., "--name", help="Name of the environment."),
    state: Path | None = typer.Option(None, "--state", help="Folder of JSON files: the state the episodes began with."),
    code: str | None = typer.Option(None, "--code", help="Module or .py file whose functions answer tool calls."),
    checks: Path | None = typer.Option(None, "--checks", help="TOML file of checks that judge the tasks too."),
    user: str = typer.Option("", "--user", help="Users to ask: scripted, or openai:URL#MODEL; else the brief is told."),
    imitate: str = typer.Option("", "--imitate", help="openai:URL#MODEL invents unknown reads; never worth a reward."),
    out: Path | None = typer.Option(None, "--out", help="Folder of the package; by default environments/NAME."),
    episodes: bool = typer.Option(True, "--episodes/--no-episodes", help="Whether the recordings go into the package."),
) -> None:
    """Build an environment from recorded episodes, and print the share of recorded calls that it reproduces.

    With --code the calls are executed; tools that it has no function for, and all without it, are answered by what is
    inferred of them on --state, else from the recordings; what neither knows is a typed error. The package that is
    written (env.toml, tasks, state, tools, verifiers, report) can be read, and imported elsewhere with env import.
    """
    from flightschool.environments import build_from_traces
    from flightschool.traces import load_traces

    check_name(name, "--name")
    with workspace() as space:
        place = env_package.free_place(space, name, out)
        recorded = load_traces(space.store, traces)
        built = build_from_traces(recorded, name, state=state, code=code, checks=checks, user=user, imitation=imitate)
        record = env_package.keep_built(space, built, recorded, traces, place, episodes=episodes)
    output.say(f"{name}: {record.num_tasks} tasks, {record.num_tools} tools, answered by {record.kind}")
    without = _without_code(built)
    if without:
        output.say(f"no function in --code, answered by lower rungs: {', '.join(without[:10])}", style="yellow")
    _tell_fidelity(record.fidelity)
    for left in record.left_out[:5]:
        output.say(f"left out: task {left.task}: {left.reason}")
    if len(record.left_out) > 5:
        output.say(f"… and {len(record.left_out) - 5} more; see flightschool env show {name} --json")
    guessed = [entry.spec.name for entry in record.inventory if entry.effect_guessed]
    if guessed:
        output.say(f"effects guessed by name, check them: {', '.join(guessed[:10])}", style="yellow")
    output.say(f"package: {place}")
    output.finish({**_kept(record), "without_code": without, "package": str(place)})


def _without_code(built: BuiltEnvironment) -> list[str]:
    """Tools that were called and have no function, where others have one."""
    from flightschool.environments.examining import underlying

    traced = underlying(built.environment)
    coded = () if traced is None else traced.content.coded
    return [one.spec.name for one in built.inventory if coded and one.num_calls and one.spec.name not in coded]


def list_() -> None:
    """List the built-in environments and those of the workspace."""
    from flightschool.environments import BUILT_IN, environment_names, load_record

    space = workspace_if_any()
    records = []
    if space is not None:
        with space:
            records = [load_record(space.store, name) for name in environment_names(space.store)]
    rows: list[tuple[object, ...]] = [(name, "built in", "", "") for name in BUILT_IN]
    rows += [(record.name, record.kind, record.num_tasks, record.num_tools) for record in records]
    output.table("Environments", ("name", "answered by", "#tasks", "#tools"), rows)
    kept = [{"name": r.name, "digest": r.digest, "kind": r.kind, "num_tasks": r.num_tasks} for r in records]
    output.finish({"built_in": list(BUILT_IN), "environments": kept})


def show(environment: str = typer.Argument(..., metavar="E", help="Environment: a name, or a path.")) -> None:
    """Show an environment: tools, strata and families, and how true it is to its traces."""
    space = workspace_if_any()
    world = open_environment(environment, space)
    record = None
    if space is not None:
        from flightschool.environments import environment_names, load_record

        with space:
            record = load_record(space.store, environment) if environment in environment_names(space.store) else None
    strata = _strata(world)
    output.say(f"{world.name}: {len(world.tasks())} tasks, {len(world.tools())} tools, {world.digest}")
    output.table(
        "",
        ("stratum", "#traffic", "#tasks", "#families"),
        [(s["name"], f"{s['weight']:.0%}", s["num_tasks"], s["num_families"]) for s in strata],
    )
    output.table(
        "", ("tool", "effect", "what it does"), [(t.name, t.effect.value, t.description) for t in world.tools()]
    )
    if record is not None:
        _tell_fidelity(record.fidelity)
    output.finish(
        {
            "name": world.name,
            "digest": world.digest,
            "num_tasks": len(world.tasks()),
            "strata": strata,
            "tools": list(world.tools()),
            "kept": _kept(record) if record is not None else None,
        }
    )


def _strata(world: Environment) -> list[dict[str, Any]]:
    tasks = world.tasks()
    counts = Counter(task.stratum for task in tasks)
    families = {name: len({task.family for task in tasks if task.stratum == name}) for name in counts}
    return [
        {"name": name, "weight": world.strata.get(name, 0.0), "num_tasks": counts[name], "num_families": families[name]}
        for name in counts
    ]


def _kept(record: EnvironmentRecord) -> dict[str, Any]:
    """The record without what only the workspace needs to rebuild it."""
    built: dict[str, Any] = msgspec.to_builtins(record)
    return {key: value for key, value in built.items() if key not in ("content", "state", "examination", "package")}


def _tell_fidelity(fidelity: Fidelity) -> None:
    def share(part: Any) -> str:
        return f"{part.hits} of {part.total}" + (f" ({part.value:.1%})" if part.total else "")

    parts = f"reads {share(fidelity.reads)}, writes {share(fidelity.writes)}"
    output.say(f"recorded calls reproduced: {share(fidelity.calls)}; {parts}")
    left_out = [
        (fidelity.num_unmatched, "episodes whose task the environment does not have"),
        (fidelity.num_incomplete, "calls whose recording is not whole"),
    ]
    for number, what in left_out:
        if number:
            output.say(f"not compared: {number} {what}")
    agreement = fidelity.agreement
    if not agreement.successes.total + agreement.failures.total:
        output.say("no recorded outcome was held against the checks (judges and sandboxes: flightschool env check)")
        return
    output.say(
        f"checks agree with {share(agreement.successes)} recorded successes, {share(agreement.failures)} failures"
    )
