"""reasoning-gym, Gymnasium and TextArena as published, by an interpreter of their own.

Installing them takes minutes: ``pytest -m slow``. An interpreter that has them may be named in
``FLIGHTSCHOOL_PEERS_PYTHON``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from flightschool.environments.foreign import ForeignEnvironment
from flightschool.environments.peers import PeerSettings, close_peers, import_peer
from flightschool.errors import InputError
from flightschool.records import ToolCall
from flightschool.rollouts import EpisodeRunner, NoopPolicy, OraclePolicy, run_attempts
from flightschool.verification import OutcomeReward

pytestmark = [pytest.mark.integration, pytest.mark.slow]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    named = os.environ.get("FLIGHTSCHOOL_PEERS_PYTHON")
    if not named:
        home = tmp_path_factory.mktemp("peers")
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
        named = str(home / "bin" / "python")
        packages = ["reasoning-gym==0.1.25", "gymnasium==1.4.0", "textarena==0.7.4"]
        subprocess.run([named, "-m", "pip", "install", "--quiet", *packages], check=True)
    yield named
    close_peers()


def test_every_generator_of_reasoning_gym(python: str) -> None:
    content, unsteady = import_peer("reasoning-gym", PeerSettings(python=python, names=(), num_seeds=1))
    assert len(unsteady) <= 2
    assert len(content.tasks) + len(unsteady) >= 105
    assert len({task.family for task in content.tasks}) == len(content.tasks)
    world = ForeignEnvironment("gym", content)
    solvable = [task for task in world.tasks() if world.reference(task.id).oracle]
    assert len(solvable) >= 0.9 * len(content.tasks)
    runner = EpisodeRunner(world, OutcomeReward(), run="r")
    solved = run_attempts(runner, solvable, OraclePolicy(world), seed=0)
    assert all(attempt.reward is not None and attempt.reward.success for attempt in solved)
    idle = run_attempts(runner, solvable, NoopPolicy(), seed=0)
    assert all(attempt.reward is not None and attempt.reward.outcome == 0.0 for attempt in idle)


def test_knobs_change_what_is_asked(python: str) -> None:
    def asked(**config: object) -> tuple[str, str]:
        content, _ = import_peer(
            "reasoning-gym",
            PeerSettings(python=python, names=("chain_sum",), num_seeds=1, config={"chain_sum": config}),
        )
        return content.tasks[0].instruction, content.digest

    easy, hard = asked(max_terms=2), asked(min_terms=9, max_terms=9)
    assert hard[0].count("+") + hard[0].count("-") > easy[0].count("+") + easy[0].count("-")
    assert easy[1] != hard[1]
    with pytest.raises(InputError, match="no generator"):
        import_peer("reasoning-gym", PeerSettings(python=python, names=("nonsense",)))


def test_a_frozen_lake_is_crossed(python: str) -> None:
    settings = PeerSettings(python=python, names=("FrozenLake-v1",), num_seeds=1, config={"is_slippery": False})
    world = ForeignEnvironment("lake", import_peer("gymnasium", settings)[0])
    far = world.open(world.tasks()[0])
    for action in (1, 1, 2, 1, 2, 2):
        reply = far.execute(ToolCall(id="c", name="act", arguments={"action": action}))
    assert reply.value == {"observation": 15, "done": True}
    assert json.loads(far.snapshot())["solved"] is True
    far.close()


def test_a_game_of_one_player(python: str) -> None:
    settings = PeerSettings(python=python, names=("GuessTheNumber-v0",), num_seeds=1)
    world = ForeignEnvironment("guess", import_peer("textarena", settings)[0])
    far = world.open(world.tasks()[0])
    replies = [far.execute(ToolCall(id="c", name="act", arguments={"action": f"[{n}]"})) for n in range(1, 21)]
    assert not any(reply.is_error for reply in replies[:1])
    state = json.loads(far.snapshot())
    assert state["done"] is True
    assert 0.0 <= state["reward"] <= 1.0
    far.close()
