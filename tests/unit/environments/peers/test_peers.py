"""Peers over their pipe: a stand-in for Gymnasium is spoken to in a process of its own, exactly as the real one is."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from flightschool.environments.foreign import ForeignEnvironment, LostSessionError
from flightschool.environments.foreign.lines import LineProcess
from flightschool.environments.foreign.world import ForeignWorld
from flightschool.environments.peers import PeerSettings, close_peers, import_peer, load_knobs
from flightschool.errors import InfrastructureError, InputError
from flightschool.records import ToolCall

STAND_IN = Path(__file__).with_name("stand_in")


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("PYTHONPATH", str(STAND_IN))
    yield
    close_peers()


def corridor(num_seeds: int = 2, **config: int) -> ForeignEnvironment:
    settings = PeerSettings(python=sys.executable, names=("Corridor-v0",), num_seeds=num_seeds, config=config)
    return ForeignEnvironment("corridor", import_peer("gymnasium", settings)[0])


def opened(world: ForeignEnvironment, number: int = 0) -> ForeignWorld:
    found = world.open(world.tasks()[number])
    assert isinstance(found, ForeignWorld)
    return found


def go(world: ForeignWorld, action: int) -> object:
    return world.execute(ToolCall(id="c", name="act", arguments={"action": action})).value


def test_seeds_are_tasks_and_the_space_is_the_schema() -> None:
    world = corridor(num_seeds=2)
    assert [task.id for task in world.tasks()] == ["Corridor-v0-0", "Corridor-v0-1"]
    (tool,) = world.tools()
    assert tool.parameters["properties"]["action"] == {"type": "integer", "minimum": 0, "maximum": 3}
    assert world.content.source["version"] == "1.0"
    assert world.digest == corridor(num_seeds=2).digest
    assert world.digest != corridor(num_seeds=2, length=7).digest


def test_tasks_that_do_not_keep_to_their_seeds_are_left_out() -> None:
    settings = PeerSettings(python=sys.executable, names=("Corridor-v0",), num_seeds=92)
    content, unsteady = import_peer("gymnasium", settings)
    assert unsteady == ("Corridor-v0-90", "Corridor-v0-91")
    assert len(content.tasks) == 90


def test_an_episode_is_played_over_there_and_judged_here() -> None:
    far = opened(corridor())
    assert json.loads(far.snapshot())["reward"] == 0.0
    assert go(far, 1) == {"observation": 1}
    for _ in range(2):
        go(far, 1)
    assert go(far, 1) == {"observation": 4, "done": True}
    state = json.loads(far.snapshot())
    assert state["solved"] is True
    assert state["done"] is True
    assert go(far, 1) == {"error": "the episode is over"}
    far.close()


def test_sessions_of_one_process_do_not_meet() -> None:
    world = corridor()
    first, second = opened(world), opened(world, 1)
    go(first, 1)
    go(first, 1)
    assert go(second, 1) == {"observation": 2}
    assert go(first, 1) == {"observation": 3}
    copy = first.fork()
    assert go(copy, 0) == {"observation": 2}
    assert go(first, 1) == {"observation": 4, "done": True}
    for one in (first, second, copy):
        one.close()


def test_what_the_environment_raises_on_an_action_is_an_answer() -> None:
    far = opened(corridor())
    reply = far.execute(ToolCall(id="c", name="act", arguments={"action": 2}))
    assert reply.is_error
    assert "a defect of the environment" in reply.value["error"]
    assert go(far, 1) == {"observation": 1}
    far.close()


def test_a_process_that_dies_is_replaced_and_its_other_episodes_are_brought_back() -> None:
    world = corridor()
    victim, other = opened(world), opened(world)
    go(other, 1)
    go(other, 1)
    with pytest.raises(LostSessionError, match="ended"):
        go(victim, 3)  # whenever it is played again, it ends again
    assert go(other, 1) == {"observation": 3}
    victim.close()
    other.close()


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no environment Maze"):
        import_peer("gymnasium", PeerSettings(python=sys.executable, names=("Maze",)))
    with pytest.raises(InputError, match="ModuleNotFoundError"):
        import_peer("textarena", PeerSettings(python=sys.executable, names=("x",)))
    with pytest.raises(InputError, match="cannot be started"):
        import_peer("gymnasium", PeerSettings(python=str(tmp_path / "python"), names=("x",)))
    with pytest.raises(InputError, match="no environment is named"):
        import_peer("gymnasium", PeerSettings(python=sys.executable, names=()))
    broken = tmp_path / "knobs.toml"
    broken.write_text("= 3", encoding="utf-8")
    for path in (broken, tmp_path / "none.toml"):
        with pytest.raises(InputError, match="configuration"):
            load_knobs(path)


# ---------------------------------------------------------------------------------------------- lines


def program(code: str) -> LineProcess:
    return LineProcess([sys.executable, "-c", code])


def test_lines_longer_than_a_pipe_and_in_pieces() -> None:
    code = (
        "import sys\nfor line in sys.stdin: sys.stdout.write(line.strip()); sys.stdout.write('\\n'); sys.stdout.flush()"
    )
    echo = program(code)
    for size in (1, 70_000, 400_000):
        message = {"text": "ä" * size}
        echo.tell(message)
        assert echo.hear(10) == message
    echo.close()
    echo.close()
    with pytest.raises(LostSessionError):
        echo.tell({})


def gone_soon(pid: int) -> bool:
    """Killed processes end when the kernel comes to it."""
    status = Path(f"/proc/{pid}/stat")
    end = time.monotonic() + 10
    while time.monotonic() < end:
        try:
            if status.read_text(encoding="utf-8").split()[2] == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.01)
    return False


def test_nothing_that_it_started_stays() -> None:
    code = (
        "import subprocess, sys, time\np = subprocess.Popen(['sleep', '60'])\nprint(p.pid, flush=True)\ntime.sleep(60)"
    )
    made = program(code)
    child = made.hear(10)
    started = time.monotonic()
    with pytest.raises(InfrastructureError, match="in time"):
        made.hear(0.1)
    assert time.monotonic() - started < 10
    assert gone_soon(int(child))


def test_complaints_are_told() -> None:
    made = program("import sys; sys.exit('the licence is missing')")
    with pytest.raises(LostSessionError, match="licence"):
        made.hear(10)
