"""Turns: so many at a time, and the first attempt at a task is alone until its image is built."""

from __future__ import annotations

import asyncio

import pytest

from flightschool.rollouts.terminal.running import Turns


async def most_together(turns: Turns, tasks: list[str]) -> int:
    """Most attempts that were under way at a time."""
    under_way, most = 0, 0

    async def attempt(task: str) -> None:
        nonlocal under_way, most
        async with turns.of(task):
            under_way += 1
            most = max(most, under_way)
            await asyncio.sleep(0.001)
            under_way -= 1

    await asyncio.gather(*(attempt(task) for task in tasks))
    return most


async def test_others_wait_until_the_first_at_a_task_has_built() -> None:
    turns = Turns(3)
    assert await most_together(turns, ["t"]) == 1
    assert await most_together(turns, ["t"] * 8) == 3
    assert await most_together(Turns(8), ["a", "a", "b", "b", "c"]) == 3


async def test_a_first_that_fails_has_built_nothing() -> None:
    turns = Turns(2)
    with pytest.raises(OSError, match="disk"):
        async with turns.of("t"):
            raise OSError("disk")
    entered: list[str] = []

    async def attempt(name: str) -> None:
        async with turns.of("t"):
            entered.append(name)
            await asyncio.sleep(0)
            entered.append(name)

    await asyncio.gather(attempt("a"), attempt("b"))
    assert entered == ["a", "a", "b", "b"]
