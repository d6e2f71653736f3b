"""First station: recorded traces become an environment of the workspace."""

from __future__ import annotations

import getpass
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory

from flightschool.environments import (
    BuiltEnvironment,
    build_from_traces,
    environment_names,
    load_environment,
    load_record,
    save_environment,
)
from flightschool.governance import AuditLog
from flightschool.protocols import Environment
from flightschool.records import Record
from flightschool.stations.settings import EnvironmentTable
from flightschool.stations.telling import Tell
from flightschool.store import Workspace
from flightschool.traces import Redactor, TraceSet, import_traces, redact_state, save_episodes, workspace_key

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
    traces: TraceSet = import_traces(shipped_traces() if source == SHIPPED else Path(source), table.format)
    with TemporaryDirectory() as scratch:
        state, redacted = table.state, None
        replaced: Mapping[str, int] = {}
        if source != SHIPPED:  # what ships is invented: there is nobody to protect
            redacted = table.redact
            traces, state, replaced = _redacted(space, table, source, traces, Path(scratch) / "state")
        built: BuiltEnvironment = build_from_traces(
            traces, table.name, state=state, code=table.code, checks=table.checks
        )
    save_episodes(
        space.store, table.name, traces.episodes, traces.format, redacted=redacted, replaced=lambda: dict(replaced)
    )
    save_environment(space.store, built, traces=table.name)
    num_calls = sum(len(episode.calls) for episode in traces.episodes)
    collected = Collected(
        num_episodes=len(traces.episodes), num_calls=num_calls, share_reproduced=built.fidelity.calls.value
    )
    return built.environment, collected


def _redacted(
    space: Workspace, table: EnvironmentTable, source: str, traces: TraceSet, target: Path
) -> tuple[TraceSet, Path | None, Mapping[str, int]]:
    """Traces and state with equal pseudonyms for equal people, and how many places were replaced, by kind."""
    if not table.redact:
        what = {"path": source}
        AuditLog(space.store).append(getpass.getuser(), "traces imported without redaction", table.name, what)
        return traces, table.state, {}
    redactor = Redactor(workspace_key(space.data))
    episodes = tuple(redactor.episodes(traces.episodes))
    state = table.state
    if state is not None:
        redact_state(state, target, redactor)
        state = target
    return TraceSet(format=traces.format, episodes=episodes), state, redactor.report().num_replaced


def _existing(space: Workspace, name: str) -> tuple[Environment, Collected]:
    environment = load_environment(name, space)
    if name not in environment_names(space.store):  # built in: there are no recordings to be true to
        return environment, Collected(num_episodes=0, num_calls=0, share_reproduced=1.0)
    fidelity = load_record(space.store, name).fidelity
    collected = Collected(
        num_episodes=fidelity.num_episodes + fidelity.num_unmatched,
        num_calls=fidelity.calls.total,
        share_reproduced=fidelity.calls.value,
    )
    return environment, collected
