"""Laws of episode lengths for the simulator: mean 1, eight members of a group share their task's factor."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from types import MappingProxyType

__all__ = ["LAWS", "LengthLaw", "bimodal", "heavy_tail", "lognormal"]

LengthLaw = Callable[[random.Random], Callable[[], float]]
"""Draws a task; what it returns draws the length of one attempt at it. Over tasks and attempts the mean is 1."""


def _unit_lognormal(chance: random.Random, sigma: float) -> float:
    """A lognormal factor with mean 1."""
    return chance.lognormvariate(-sigma * sigma / 2.0, sigma)


def lognormal(chance: random.Random) -> Callable[[], float]:
    """Tasks differ by σ = 0.75, attempts at one task by σ = 0.5: the mixture of the published comparison."""
    task = _unit_lognormal(chance, 0.75)
    return lambda: task * _unit_lognormal(chance, 0.5)


def heavy_tail(chance: random.Random) -> Callable[[], float]:
    """Tasks by a Pareto law with exponent 2.1, just short of infinite variance; attempts by σ = 0.5."""
    exponent = 2.1
    task = chance.paretovariate(exponent) * (exponent - 1.0) / exponent
    return lambda: task * _unit_lognormal(chance, 0.5)


def bimodal(chance: random.Random) -> Callable[[], float]:
    """Nine tasks of ten take half of the mean, the tenth eleven times that; attempts by σ = 0.25."""
    task = 0.5 if chance.random() < 0.9 else 5.5
    return lambda: task * _unit_lognormal(chance, 0.25)


LAWS: Mapping[str, LengthLaw] = MappingProxyType({"lognormal": lognormal, "heavy": heavy_tail, "bimodal": bimodal})
"""By name."""
