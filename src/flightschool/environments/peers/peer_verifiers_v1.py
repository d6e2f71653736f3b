"""Tasksets of verifiers 0.4 (``verifiers.v1``): its own environment, tool servers, hooks and scoring."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import importlib.metadata
import itertools
from typing import Any

from peer_model import MODEL  # type: ignore[import-not-found]  # beside this file, see peer_main

__all__ = ["Adapter"]

_MOST_ROWS = 4096
_START_S = 100.0


class Adapter:
    """One taskset with its environment.

    Args:
        name: its package, installed over there.
        config: ``arguments`` of the taskset's configuration.
        loop: where rollouts run.
    """

    def __init__(self, name: str, config: dict[str, Any], loop: Any) -> None:
        if "split" in config:
            raise LookupError("tasksets have no splits; select rows with their own arguments")
        loaders: Any = importlib.import_module("verifiers.v1.utils.loaders")
        agents: Any = importlib.import_module("verifiers.v1.configs.agent")
        taskset = {"id": name, **config.get("arguments", {})}
        roles = agents.agent_config_fields(loaders.env_config_type(name)(taskset=taskset))
        if len(roles) != 1:
            raise LookupError(f"{name} is played by several agents: {', '.join(roles)}")
        seat = {"harness": {"id": "peer_verifiers_harness"}, "runtime": {"type": "subprocess"}}
        self._env = loaders.load_environment(loaders.resolve_env_config({"taskset": taskset, next(iter(roles)): seat}))
        self._tasks = list(itertools.islice(iter(self._env.taskset), _MOST_ROWS))
        self.num_rows = len(self._tasks)
        self.version = f"{importlib.metadata.version('verifiers')}, {name} {_version(name)}"
        self._serving: contextlib.AsyncExitStack | None = None
        loop.run(self._start()).result(_START_S)

    async def _start(self) -> None:
        """Tool servers that all tasks share; they end with this process."""
        self._serving = contextlib.AsyncExitStack()
        await self._serving.enter_async_context(self._env.serving())

    def family(self, row: int) -> str:
        """The task's own name, else the row."""
        data = self._tasks[row].data
        return str(data.name or data.id or f"row-{row}")

    def answer(self, row: int) -> str | None:
        """The known answer, if the task's data have a field of that name."""
        found = getattr(self._tasks[row].data, "answer", None)
        return str(found) if found not in (None, "") else None

    async def rollout(self, row: int, url: str) -> tuple[float, str]:
        """Play a task; its reward, and what broke."""
        clients: Any = importlib.import_module("verifiers.v1.clients")
        client = clients.EvalClientConfig(base_url=url, api_key_var="FLIGHTSCHOOL_PEER_MODEL_KEY")
        episode = await self._env.run_episode(self._tasks[row], clients.ModelContext(model=MODEL, client=client))
        errors = [*episode.errors, *(error for trace in episode.traces for error in trace.errors)]
        if errors or not episode.ok:
            return 0.0, "; ".join(f"{one.type}: {one.message}" for one in errors[:2]) or "the episode is not ok"
        await asyncio.sleep(0)
        return float(sum(trace.reward for trace in episode.traces)), ""


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name.rsplit("/", 1)[-1])
    except importlib.metadata.PackageNotFoundError:
        return "(unversioned)"
