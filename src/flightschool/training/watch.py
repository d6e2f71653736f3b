"""Notices when the event loop of a run stands still, and says where. Imports no torch.

Generation, verification and the coordinator share one loop. Whatever blocks it (a pass that never returns, a check
that waits for a lock) silences all of them, and nothing within the loop can tell. So a thread listens to a heart that
beats in the loop: when it has been still for too long, the stacks of all threads are written into the run's log and
the place becomes an incident. Nothing is ended, since this is the process that would have to begin anew: whoever
started it is told, and ``train --resume`` goes on from what is on disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import sys
import threading
import time
from pathlib import Path
from types import FrameType, TracebackType

from flightschool.training.incidents import Incidents

__all__ = ["LoopWatch"]

_LONGEST_BEAT_S = 1.0


class LoopWatch:
    """Watches the running event loop; an asynchronous context manager.

    Args:
        limit_s: seconds without a beat after which the loop counts as standing still.
        log: file for the stacks.
        incidents: are told, once for each time.
    """

    def __init__(self, limit_s: float, log: Path, incidents: Incidents) -> None:
        self._limit_s, self._log, self._incidents = limit_s, log, incidents
        self._beat_s = min(_LONGEST_BEAT_S, limit_s / 4.0)
        self._last = time.monotonic()
        self._over = threading.Event()

    async def __aenter__(self) -> LoopWatch:
        self._thread_id = threading.get_ident()
        self._last = time.monotonic()
        self._heart = asyncio.create_task(self._beat(), name="heart")
        self._thread = threading.Thread(target=self._listen, name="loop-watch", daemon=True)
        self._thread.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._heart.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._heart
        self._thread.join()

    async def _beat(self) -> None:
        while True:
            self._last = time.monotonic()
            await asyncio.sleep(self._beat_s)

    def _listen(self) -> None:
        told = 0.0
        while not self._over.wait(self._beat_s):
            last = self._last
            if time.monotonic() - last > self._limit_s and told != last:
                told = last
                self._tell()

    def _tell(self) -> None:
        frame = sys._current_frames().get(self._thread_id)  # the only way to another thread's stack
        with self._log.open("a", encoding="utf-8") as stream:
            faulthandler.dump_traceback(stream, all_threads=True)
        what = f"the run's event loop stands still for {self._limit_s:g} s{_place(frame)}"
        self._incidents.add("hang", f"{what}; all stacks are in {self._log.name}")


def _place(frame: FrameType | None) -> str:
    if frame is None:
        return ""
    return f", in {frame.f_code.co_name} ({Path(frame.f_code.co_filename).name}:{frame.f_lineno})"
