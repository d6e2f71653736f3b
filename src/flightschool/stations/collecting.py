"""First station: recorded traces become an environment of the workspace."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from flightschool.environments import BuiltEnvironment, build_from_traces, save_environment
from flightschool.protocols import Environment
from flightschool.records import Record
from flightschool.stations.settings import EnvironmentTable
from flightschool.stations.telling import Tell
from flightschool.store import Workspace
from flightschool.traces import TraceSet, import_traces, save_traces

__all__ = ["Collected", "collect", "shipped_traces"]


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
    """Import, build, keep.

    Raises:
        TraceError, ConfigError: the traces or the code cannot be used; nothing is kept then.
    """
    tell.station("traces → environment")
    path = Path(table.traces) if table.traces else shipped_traces()
    traces: TraceSet = import_traces(path, table.format)
    built: BuiltEnvironment = build_from_traces(traces, table.name, state=table.state, code=table.code)
    save_traces(space.store, table.name, traces)
    save_environment(space.store, built)
    calls = built.fidelity.calls
    collected = Collected(
        num_episodes=len(traces.episodes),
        num_calls=sum(len(episode.calls) for episode in traces.episodes),
        share_reproduced=calls.value,
    )
    tell.note(
        f"{collected.num_episodes} episodes, {collected.num_calls} calls; "
        f"{collected.share_reproduced:.1%} of recorded calls reproduced"
    )
    return built.environment, collected
