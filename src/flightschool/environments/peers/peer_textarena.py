"""TextArena, spoken by its own Python: games of one player, seeds are tasks."""

from __future__ import annotations

import importlib
import importlib.metadata
from typing import Any

__all__ = ["Session", "describe"]

TOOL = {
    "name": "act",
    "description": "Say the next move, in the form that the game asks for.",
    "parameters": {
        "type": "object",
        "properties": {"action": {"type": "string"}},
        "required": ["action"],
        "additionalProperties": False,
    },
}


def _begun(name: str, seed: int) -> Any:
    env: Any = importlib.import_module("textarena").make(name)
    env.reset(num_players=1, seed=seed)
    return env


def describe(source: dict[str, Any]) -> dict[str, Any]:
    """One task a game and seed; the first observation is its instruction."""
    tasks = []
    for name in source["names"]:
        for seed in source["seeds"]:
            env = _begun(name, seed)
            _, observation = env.get_observation()
            tasks.append(
                {
                    "id": f"{name}-{seed}",
                    "family": f"{name}-{seed}",
                    "stratum": name,
                    "instruction": str(observation),
                    "start": {"game": name, "seed": seed},
                    "oracle": [],
                }
            )
    version = importlib.metadata.version("textarena")
    return {"version": version, "tool": TOOL, "tasks": tasks, "argument": "action", "observed": True}


class Session:
    """One game."""

    def __init__(self, source: dict[str, Any], start: dict[str, Any]) -> None:
        del source
        self._env = _begun(start["game"], start["seed"])

    def reset(self) -> dict[str, Any]:
        """The first observation."""
        return {"value": str(self._env.get_observation()[1])}

    def act(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """One move; rewards are known when the game is over."""
        del tool  # there is one
        done, _ = self._env.step(arguments["action"])
        if not done:
            return {"value": str(self._env.get_observation()[1])}
        rewards, _ = self._env.close()
        return {"value": {"done": True}, "reward": float(rewards.get(0, 0.0)), "done": True}

    def close(self) -> None:
        """Nothing is held."""
