"""What every kind of check is: a judge, a test of its declaration, and the values that it must keep secret."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from flightschool.records import Json, Vote
from flightschool.verification.states import States

__all__ = ["Finding", "Kind", "nothing", "show"]

R = TypeVar("R")


class Finding(NamedTuple):
    """What a judge found."""

    passed: bool
    found: str
    """The evidence, in words."""
    votes: tuple[Vote, ...] = ()


def nothing(_rule: object) -> Iterator[Json]:
    """For kinds that expect no value that could leak."""
    return iter(())


@dataclass(frozen=True)
class Kind(Generic[R]):
    """One kind of check."""

    judge: Callable[[R, States], Finding]
    """Raises ``InfrastructureError`` where it cannot judge and the policy could not have caused that."""
    problem: Callable[[R], str]
    """Why such a check is not usable, or an empty text: it could never fail, or not the same way twice."""
    expected: Callable[[R], Iterator[Json]] = nothing
    """Values that solve it: an audit looks for them in what the policy can see."""


def show(value: Json) -> str:
    """A value as evidence: short, and storable whatever the policy wrote."""
    text = json.dumps(value, ensure_ascii=False, default=repr)
    text = text.encode("utf-8", "backslashreplace").decode()  # a lone surrogate could not be stored
    return text if len(text) <= 300 else text[:297] + "…"
