"""Many server processes behind one port: sessions are found from everywhere, the dead are replaced, nothing stays."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from flightschool.environments.openenv.link import ask_http
from flightschool.errors import InfrastructureError

pytestmark = pytest.mark.integration

SERVE = """
import sys
from flightschool.serving import Offer, TaskDesk
from flightschool.serving.openenv import ServerSettings, listen, serve_forever
from flightschool.testing.miniature import MiniatureEnvironment
environment = MiniatureEnvironment()
listener = listen("127.0.0.1", 0)
print(listener.getsockname()[1], flush=True)
serve_forever(listener, Offer(environment), TaskDesk(environment), ServerSettings(most_sessions=6), num_processes=3)
"""


class Crew:
    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self.process = process
        self.url = f"http://127.0.0.1:{port}"

    def members(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children()

    def rpc(self, method: str, **params: Any) -> Any:
        return ask_http(self.url, "/mcp", {"jsonrpc": "2.0", "id": 1, "method": method, "params": params})[1]

    def closed(self, session: str) -> bool:
        return bool(self.rpc("openenv/session/close", session_id=session).get("result", {}).get("closed"))


@pytest.fixture
def crew() -> Iterator[Crew]:
    process = subprocess.Popen([sys.executable, "-c", SERVE], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield Crew(process, int(process.stdout.readline()))
    finally:
        process.terminate()
        process.wait(10)
        process.stdout.close()


def until(true: Callable[[], bool], limit_s: float = 10.0) -> bool:
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if true():
            return True
        time.sleep(0.02)
    return False


def six_sessions(crew: Crew) -> list[str]:
    return [crew.rpc("openenv/session/create")["result"]["session_id"] for _ in range(6)]


def test_sessions_are_found_from_every_process_and_counted_together(crew: Crew, hand: Any) -> None:
    named = six_sessions(crew)
    for _ in range(20):  # which process takes a connection is the kernel's choice, and may be the same one six times
        if len({one.split("-")[0] for one in named}) > 1:
            break
        for one in named:
            assert until(partial(crew.closed, one))
        named = six_sessions(crew)
    assert len({one.split("-")[0] for one in named}) > 1, "one process took them all"
    assert crew.rpc("openenv/session/create")["error"]["data"] == {"active_sessions": 6, "max_sessions": 6}
    for number, one in enumerate(named):  # each from whichever process comes: three times
        for _ in range(3):
            result = crew.rpc("tools/call", session_id=one, name="get_price", arguments={"item": "bolt"})["result"]
            assert result["data"]["price"] == 3
        attached = hand(crew.url, query=f"session_id={one}")
        assert attached.state()["step_count"] == 3
        attached.link.close()
        if number < 2:
            assert until(partial(crew.closed, one))
    assert "result" in crew.rpc("openenv/session/create")


def test_a_killed_process_takes_its_sessions_and_is_replaced(crew: Crew, hand: Any) -> None:
    hands = [hand(crew.url) for _ in range(3)]
    for one in hands:
        one.reset(seed=1)
    before = {member.pid for member in crew.members()}
    victim = crew.members()[0]
    victim.kill()
    lost = 0
    for one in hands:
        try:
            assert one.state()["step_count"] == 0
        except InfrastructureError:
            lost += 1
    assert lost == 1
    assert until(lambda: len(crew.members()) == 3 and {m.pid for m in crew.members()} != before)
    again = [hand(crew.url) for _ in range(3)]
    assert all(one.reset(seed=1)["type"] == "observation" for one in again)


def test_nothing_outlives_the_parent(crew: Crew) -> None:
    assert until(lambda: len(crew.members()) == 3)
    members = crew.members()
    os.kill(crew.process.pid, signal.SIGKILL)
    _, alive = psutil.wait_procs(members, timeout=10)
    assert not alive


def test_the_verb_serves_what_was_found_sound(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "flightschool.cli", "serve", "env", "desk", "--port", "0", "--json"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    url = ""
    for line in process.stderr:
        if " at http" in line:
            url = line.split(" at ")[1].split(",")[0]
            break
    assert ask_http(url, "/health") == (200, {"status": "healthy"})
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=10)
    assert process.returncode == 0
    assert json.loads(out)["url"] == url
