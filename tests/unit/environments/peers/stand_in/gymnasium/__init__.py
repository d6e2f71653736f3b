"""A stand-in with Gymnasium's interface: a corridor of five places, the last one is the goal.

It makes the conversation with a peer testable without installing one; the real packages are spoken to in slow tests.
"""

from __future__ import annotations

import os
import time
from typing import Any


class Discrete:
    def __init__(self, n: int) -> None:
        self.n = n
        self.start = 0

    def contains(self, action: object) -> bool:
        return isinstance(action, int) and 0 <= action < self.n

    def __repr__(self) -> str:
        return f"Discrete({self.n})"


class Corridor:
    def __init__(self, length: int = 5) -> None:
        self.action_space = Discrete(4)
        self.length = length
        self.place = 0

    def reset(self, seed: int) -> tuple[int, dict[str, Any]]:
        self.place = seed % 2 if seed < 90 else time.perf_counter_ns()  # later seeds are not kept to
        return self.place, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        print("prints must not look like answers")  # noqa: T201
        if action == 2:
            raise RuntimeError("a defect of the environment")
        if action == 3:
            os._exit(7)
        self.place = max(0, self.place + (1 if action else -1))
        there = self.place == self.length - 1
        return self.place, 1.0 if there else 0.0, there, False, {}

    def close(self) -> None:
        pass


def make(name: str, **config: int) -> Corridor:
    if name != "Corridor-v0":
        raise LookupError(f"no environment {name}")
    return Corridor(**config)
