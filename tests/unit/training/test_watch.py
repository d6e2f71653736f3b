"""A run whose event loop stands still says where it stands."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
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


TRAINER = """
import sys, time
from multiprocessing.connection import Connection
from flightschool.training.messages import Done, encode

connection = Connection(int(sys.argv[1]))
for num_naps in (0, 20):
    connection.recv_bytes()
    for _ in range(num_naps):
        time.sleep(0.05)
    connection.send_bytes(encode(Done()))
"""
RUN = """
import asyncio, sys
from pathlib import Path
from flightschool.training.incidents import Incidents
from flightschool.training.link import ProcessLink, launcher
from flightschool.training.messages import Stop
from flightschool.training.watch import LoopWatch

async def main(folder, trainer):
    link = ProcessLink(launcher([sys.executable, "-c", trainer], 1), log=folder / "trainer.log", hang_s=30.0)
    await link.ask(Stop())
    link._hang_s = 2.5
    async with LoopWatch(1.0, folder / "trainer.log", Incidents(folder / "incidents.jsonl")):
        question = asyncio.create_task(link.ask(Stop()))
        await asyncio.sleep(0.1)
        print("asked", flush=True)
        await question
    link.kill()

asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
"""


def test_a_run_that_was_stopped_as_a_whole_hangs_nowhere(tmp_path: Path) -> None:
    """As when the machine sleeps: neither the loop nor a trainer that was stopped with it is accused afterwards."""
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, str(tmp_path), TRAINER], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    with process.stdout as said:
        assert said.readline() == "asked\n"
        os.killpg(process.pid, signal.SIGSTOP)
        time.sleep(3.0)
        os.killpg(process.pid, signal.SIGCONT)
        assert process.wait(30) == 0
    assert read_incidents(tmp_path / "incidents.jsonl") == ()
