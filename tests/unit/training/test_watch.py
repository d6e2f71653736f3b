"""A run whose event loop stands still says where it stands."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from flightschool.training.incidents import Incidents, read_incidents
from flightschool.training.watch import LoopWatch


def waits_for_ever(until: float) -> None:
    while time.monotonic() < until:
        time.sleep(0.01)


async def test_a_loop_that_stands_still_is_named(tmp_path: Path) -> None:
    path = tmp_path / "incidents.jsonl"
    async with LoopWatch(0.1, tmp_path / "trainer.log", Incidents(path)):
        await asyncio.sleep(0.3)  # awaiting is no standing still
        assert read_incidents(path) == ()
        end = time.monotonic() + 30.0
        while not read_incidents(path) and time.monotonic() < end:
            waits_for_ever(time.monotonic() + 0.5)
    incident = read_incidents(path)[0]
    assert incident.kind == "hang"
    assert "stands still for 0.1 s, in waits_for_ever (test_watch.py:" in incident.what
    assert "waits_for_ever" in (tmp_path / "trainer.log").read_text()
