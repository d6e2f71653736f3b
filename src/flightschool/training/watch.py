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

__all__ = ["AwakeClock", "LoopWatch"]

_LONGEST_BEAT_S = 1.0


class AwakeClock:
    """Seconds in which whoever looks at it every ``beat_s`` was awake: a longer gap counts as two beats.

    Args:
        limit_s: seconds that are to be measured; a quarter of them, at most one second, is a beat.
    """

    def __init__(self, limit_s: float) -> None:
        self.beat_s = min(_LONGEST_BEAT_S, limit_s / 4.0)
        """Seconds after which to look again."""
        self._seen = time.monotonic()

    def lap(self) -> float:
        """Seconds awake since the last look."""
        before, self._seen = self._seen, time.monotonic()
        return min(self._seen - before, 2.0 * self.beat_s)


class LoopWatch:
    """Watches the running event loop; an asynchronous context manager.

    Args:
        limit_s: seconds without a beat, the watcher being awake, after which the loop counts as standing still.
        log: file for the stacks.
        incidents: are told, once for each time.
    """

    def __init__(self, limit_s: float, log: Path, incidents: Incidents) -> None:
        self._limit_s, self._log, self._incidents = limit_s, log, incidents
        self._beat_s = AwakeClock(limit_s).beat_s
        self._num_beats = 0
        self._over = threading.Event()

    async def __aenter__(self) -> LoopWatch:
        self._thread_id = threading.get_ident()
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
            self._num_beats += 1
            await asyncio.sleep(self._beat_s)

    def _listen(self) -> None:
        clock, heard, silent_s, told = AwakeClock(self._limit_s), -1, 0.0, False
        while not self._over.wait(clock.beat_s):
            lap_s = clock.lap()
            if self._num_beats != heard:
                heard, silent_s, told = self._num_beats, 0.0, False
                continue
            silent_s += lap_s
            if silent_s > self._limit_s and not told:
                told = True
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
