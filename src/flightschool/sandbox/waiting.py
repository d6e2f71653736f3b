"""Waiting with a limit, in one turn of the event loop: ``asyncio.wait_for`` takes three, which a start would feel."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

__all__ = ["within"]

Result = TypeVar("Result")


async def within(seconds: float, future: asyncio.Future[Result]) -> Result:
    """The result of a future that nobody else waits for; it is done for when the time is over, or the waiter cancelled.

    Raises:
        TimeoutError: nothing came in time.
    """
    timer = future.get_loop().call_later(seconds, _too_late, future)
    try:
        return await future
    finally:
        timer.cancel()


def _too_late(future: asyncio.Future[Any]) -> None:
    if not future.done():
        future.set_exception(TimeoutError())
