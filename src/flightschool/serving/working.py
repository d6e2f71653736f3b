"""Where an episode's plain code runs: at once if it only looks things up, else in one thread of its own.

One thread, always the same: worlds may hold what only the thread that made it may touch (a SQLite connection).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

__all__ = ["Workplace"]

T = TypeVar("T")


class Workplace:
    """The place of one episode after another; closed by whoever made it.

    Args:
        at_once: whether nothing here takes long: no foreign code, no grader that runs programs or asks models.
    """

    def __init__(self, *, at_once: bool) -> None:
        self._at_once = at_once
        self._thread: ThreadPoolExecutor | None = None

    async def do(self, work: Callable[[], T], limit_s: float | None = None) -> T:
        """Run plain code.

        Raises:
            TimeoutError: it took longer; it goes on in its thread, which nobody can end.
        """
        if self._at_once:
            return work()
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="served-episode")
        return await asyncio.wait_for(asyncio.get_running_loop().run_in_executor(self._thread, work), limit_s)

    def close(self, last: Callable[[], None] | None = None) -> None:
        """Do a last thing where everything was done, and end; nothing is waited for."""
        if self._thread is None:
            if last is not None:
                last()
            return
        if last is not None:
            self._thread.submit(last)
        self._thread.shutdown(wait=False)
