"""First station: recorded traces become an environment of the workspace."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from flightschool.environments import (
    BuiltEnvironment,
    build_from_traces,
    environment_names,
    load_environment,
    load_record,
    save_environment,
)
from flightschool.protocols import Environment
from flightschool.records import Record
from flightschool.stations.settings import EnvironmentTable
from flightschool.stations.telling import Tell
from flightschool.store import Workspace
from flightschool.traces import TraceSet, import_traces, save_traces

__all__ = ["SHIPPED", "Collected", "collect", "shipped_traces"]

SHIPPED = "shipped"
"""Names the traces of the worked domain in place of a path."""


class Collected(Record, frozen=True, kw_only=True):
    """What the traces gave."""

    num_episodes: int
    num_calls: int
    share_reproduced: float
    """Share of recorded calls that the environment answers alike, injected faults apart."""


def shipped_traces() -> Path:
    """The traces of the worked domain, in OpenAI chat JSON lines."""
    return Path(str(files("flightschool.environments.desk") / "traces" / "desk_chat.jsonl"))


def collect(space: Workspace, table: EnvironmentTable, tell: Tell) -> tuple[Environment, Collected]:
    """Import, build, keep; or open what the workspace has, if the table names no traces.

    Raises:
        TraceError, ConfigError: the traces or the code cannot be used; nothing is kept then.
        NotFoundError: no traces are named, and there is no such environment.
    """
    tell.station("traces → environment")
    if table.traces is None:
        environment, collected = _existing(space, table.name)
    else:
        environment, collected = _build(space, table, table.traces)
    tell.note(
        f"{collected.num_episodes} episodes, {collected.num_calls} calls; "
        f"{collected.share_reproduced:.1%} of recorded calls reproduced; {len(environment.tasks())} tasks"
    )
    return environment, collected


def _build(space: Workspace, table: EnvironmentTable, source: str) -> tuple[Environment, Collected]:
    path = shipped_traces() if source == SHIPPED else Path(source)
    traces: TraceSet = import_traces(path, table.format)
    built: BuiltEnvironment = build_from_traces(traces, table.name, state=table.state, code=table.code)
    save_traces(space.store, table.name, traces)
    save_environment(space.store, built)
    num_calls = sum(len(episode.calls) for episode in traces.episodes)
    collected = Collected(
        num_episodes=len(traces.episodes), num_calls=num_calls, share_reproduced=built.fidelity.calls.value
    )
    return built.environment, collected


def _existing(space: Workspace, name: str) -> tuple[Environment, Collected]:
    environment = load_environment(name, space)
    if name not in environment_names(space.store):  # built in: there are no recordings to be true to
        return environment, Collected(num_episodes=0, num_calls=0, share_reproduced=1.0)
    fidelity = load_record(space.store, name).fidelity
    agreement = fidelity.agreement
    collected = Collected(
        num_episodes=agreement.successes.total + agreement.failures.total,
        num_calls=fidelity.calls.total,
        share_reproduced=fidelity.calls.value,
    )
    return environment, collected
