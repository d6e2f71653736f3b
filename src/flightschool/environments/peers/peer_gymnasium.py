"""Gymnasium, spoken by its own Python: one environment, seeds are tasks."""

from __future__ import annotations

import importlib
import importlib.metadata
from typing import Any

__all__ = ["Session", "describe"]


def _made(source: dict[str, Any]) -> Any:
    return importlib.import_module("gymnasium").make(source["names"][0], **source["config"])


def _schema(space: Any) -> dict[str, Any]:
    """JSON Schema of a space's members."""
    kind = type(space).__name__
    if kind == "Discrete":
        first = int(space.start)
        return {"type": "integer", "minimum": first, "maximum": first + int(space.n) - 1}
    if kind == "MultiDiscrete":
        return {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": len(space.nvec)}
    if kind == "MultiBinary":
        return {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 1}}
    if kind == "Box":
        inner: dict[str, Any] = {"type": "number"}
        for size in reversed(space.shape):
            inner = {"type": "array", "items": inner, "minItems": int(size), "maxItems": int(size)}
        return inner
    if kind == "Text":
        return {"type": "string", "minLength": int(space.min_length), "maxLength": int(space.max_length)}
    raise TypeError(f"actions of a {kind} space cannot be told as JSON")


def describe(source: dict[str, Any]) -> dict[str, Any]:
    """One task a seed; the first observation is its instruction."""
    env = _made(source)
    name = source["names"][0]
    try:
        tool = {
            "name": "act",
            "description": "One step of the environment.",
            "parameters": {
                "type": "object",
                "properties": {"action": _schema(env.action_space)},
                "required": ["action"],
                "additionalProperties": False,
            },
        }
        tasks = []
        for seed in source["seeds"]:
            observation, _ = env.reset(seed=seed)
            tasks.append(
                {
                    "id": f"{name}-{seed}",
                    "family": f"{name}-{seed}",
                    "stratum": name,
                    "instruction": f"Act in {name}. It begins with: {observation!r}",
                    "start": {"seed": seed},
                    "oracle": [],
                }
            )
    finally:
        env.close()
    version = importlib.metadata.version("gymnasium")
    return {"version": version, "tool": tool, "tasks": tasks, "argument": "action", "observed": True}


class Session:
    """One episode."""

    def __init__(self, source: dict[str, Any], start: dict[str, Any]) -> None:
        self._env = _made(source)
        self._seed = start["seed"]

    def reset(self) -> dict[str, Any]:
        """The first observation."""
        observation, _ = self._env.reset(seed=self._seed)
        return {"value": observation}

    def act(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """One step. An action outside the space is the policy's error, and the episode stands."""
        del tool  # there is one
        action = arguments["action"]
        space = self._env.action_space
        if isinstance(action, list):
            action = importlib.import_module("numpy").asarray(action, dtype=space.dtype)
        if not space.contains(action):
            return {"value": {"error": f"not an action of {space}"}, "is_error": True}
        observation, reward, terminated, truncated, _ = self._env.step(action)
        done = bool(terminated or truncated)
        value = {"observation": observation, **({"done": True} if done else {})}
        return {"value": value, "reward": float(reward), "done": done}

    def close(self) -> None:
        """Let the environment go."""
        self._env.close()
