"""A bound on real time for code of other people's making that runs in this process: tools and checks may hang."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["OutOfTimeError", "time_limit"]

_AGAIN_S = 1.0
"""Raised anew after so long: code with a bare ``except`` swallows the first one."""


class OutOfTimeError(BaseException):
    """The time is over. No ``Exception``: examined code, and the harness around it, catch those."""


@contextmanager
def time_limit(seconds: float | None) -> Iterator[None]:
    """Raise ``OutOfTimeError`` in the block once it has taken so long; None: never.

    Without effect outside of the main thread, which alone can be interrupted.
    """
    if seconds is None or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        del number, frame
        raise OutOfTimeError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
