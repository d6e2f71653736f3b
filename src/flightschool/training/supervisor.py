"""The supervisor: starts a run again when a process of it was lost, with pauses that double. Imports no torch.

What it restarts is a whole incarnation: journal and newest checkpoint say what goes on (see ``journal``), so nothing
is lost and nothing trains twice, whichever process died. It gives up when ``max_restarts`` incarnations in a row ended
without a new checkpoint: then the cause does not go away by itself. Errors that another start would meet again (a
broken token contract, a full disk, three steps in a row that are not finite) are never retried.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from flightschool.training.dispatcher import pause_s
from flightschool.training.incidents import Incidents
from flightschool.training.link import StationLostError

__all__ = ["supervise"]

R = TypeVar("R")


def supervise(
    fly: Callable[[], R],
    *,
    step_reached: Callable[[], int],
    max_restarts: int,
    pause: float,
    incidents: Incidents,
    sleep: Callable[[float], None] = time.sleep,
) -> R:
    """Run ``fly`` until it ends without losing a station.

    Args:
        fly: one incarnation.
        step_reached: step of the newest checkpoint: the measure of progress.
        max_restarts: incarnations that may be lost in a row without progress.
        pause: seconds before the first restart.
        incidents: are told of every restart.
        sleep: awaits so many seconds.

    Raises:
        StationLostError: the last of them, when no restart is left.
    """
    lost, reached = 0, step_reached()
    while True:
        try:
            return fly()
        except StationLostError as error:
            now = step_reached()
            lost, reached = (1 if now > reached else lost + 1), now
            if lost > max_restarts:
                raise
            wait_s = pause_s(pause, lost)
            kind = "hang" if "hangs" in error.what else "restart"
            incidents.add(kind, f"{error.what}; begun again from step {now} in {wait_s:g} s ({lost} of {max_restarts})")
        sleep(wait_s)
