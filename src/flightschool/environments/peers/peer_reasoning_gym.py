"""reasoning-gym, spoken by its own Python: generators are families, seeds are tasks."""

from __future__ import annotations

import importlib
import importlib.metadata
import random
from typing import Any

__all__ = ["Session", "describe"]

SUBMIT = {
    "name": "submit",
    "description": "Give the answer. It can be given once.",
    "parameters": {
        "type": "object",
        "properties": {"answer": {"type": "string"}},
        "required": ["answer"],
        "additionalProperties": False,
    },
}


def _gym() -> Any:
    return importlib.import_module("reasoning_gym")


def _entry(start: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    random.seed(start["seed"])  # a few generators draw from the common source of chance
    data = _gym().create_dataset(start["dataset"], size=1, seed=start["seed"], **start["config"])
    return data, data[0]


def describe(source: dict[str, Any]) -> dict[str, Any]:
    """Tasks of the named generators (all if none is named), with the oracle where the own answer is accepted."""
    datasets: Any = importlib.import_module("reasoning_gym.factory").DATASETS
    known = sorted(name for name in datasets if name != "composite")
    names = source["names"] or known
    unknown = [name for name in names if name not in datasets]
    if unknown:
        raise LookupError(f"no generator {unknown[0]!r}; there are {', '.join(known)}")
    tasks = []
    for name in names:
        config = source["config"].get(name, {})
        stratum = datasets[name][0].__module__.split(".")[1]
        for seed in source["seeds"]:
            start = {"dataset": name, "seed": seed, "config": config}
            data, entry = _entry(start)
            answer = str(entry["answer"])
            tasks.append(
                {
                    "id": f"{name}-{seed}",
                    "family": name,
                    "stratum": stratum,
                    "instruction": entry["question"],
                    "start": start,
                    "oracle": [answer] if float(data.score_answer(answer, entry)) >= source["threshold"] else [],
                }
            )
    version = importlib.metadata.version("reasoning-gym")
    return {"version": version, "tool": SUBMIT, "tasks": tasks, "argument": "answer", "observed": False}


class Session:
    """One question."""

    def __init__(self, source: dict[str, Any], start: dict[str, Any]) -> None:
        del source
        self._data, self._entry = _entry(start)

    def reset(self) -> dict[str, Any]:
        """The question."""
        return {"value": self._entry["question"]}

    def act(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Score the answer; the score is not told to whoever answers."""
        del tool  # there is one
        score = float(self._data.score_answer(arguments["answer"], self._entry))
        return {"value": {"accepted": True}, "reward": score, "done": True}

    def close(self) -> None:
        """Nothing is held."""
