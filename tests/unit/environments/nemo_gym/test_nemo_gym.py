"""Rows of NeMo Gym as an environment, played at a resources server of ours over real HTTP."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from flightschool.environments.foreign import ForeignEnvironment
from flightschool.environments.nemo_gym import import_nemo_gym
from flightschool.errors import InfrastructureError, InputError
from flightschool.protocols import World, WorldReply
from flightschool.records import Outcome, Task, ToolCall
from flightschool.rollouts import EpisodeRunner, MessagesPolicy, scripted_turns
from flightschool.serving import Offer, TaskDesk
from flightschool.serving.nemo_gym import NemoGymServer, rows
from flightschool.testing.miniature import MiniatureEnvironment, MiniatureWorld
from flightschool.verification import OutcomeReward

MINIATURE = MiniatureEnvironment()
COPY = MINIATURE.tasks()[0]


class Broken(MiniatureEnvironment):
    def open(self, task: Task) -> World:
        class Lost(MiniatureWorld):
            def snapshot(self) -> bytes:
                if self.asked:
                    raise OSError("gone")
                return super().snapshot()

            asked = False

            def execute(self, call: ToolCall) -> WorldReply:
                self.asked = True
                return super().execute(call)

        return Lost()


def written(tmp_path: Path, made: list[Any]) -> Path:
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in made), encoding="utf-8")
    return path


def flown(environment: MiniatureEnvironment, path: Path, calls: list[ToolCall]) -> Any:
    async def served() -> Any:
        async with NemoGymServer(Offer(environment), TaskDesk(environment)) as server:
            content, guessed = await asyncio.to_thread(
                import_nemo_gym, server.url, path, num_tasks=3, threshold=0.9, max_turns=8
            )
            assert set(guessed) == {"get_price", "set_price", "decline"}
            world = ForeignEnvironment("theirs", content)
            policy = MessagesPolicy({COPY.id: scripted_turns(calls, "Done.")}, "p")
            runner = EpisodeRunner(world, OutcomeReward(), run="r")
            return await runner.attempt(world.task(COPY.id), policy, group="g", index=0, seed=0)

    return asyncio.run(served())


def test_a_row_is_played_and_verified_over_there(tmp_path: Path) -> None:
    path = written(tmp_path, rows(TaskDesk(MINIATURE)))
    finish = ToolCall(id="z", name="final_answer", arguments={"answer": "Done."})
    solved = flown(MINIATURE, path, [*MINIATURE.reference(COPY.id).oracle, finish])
    assert solved.outcome is Outcome.SCORED
    assert solved.reward.success
    idle = flown(MINIATURE, path, [finish])
    assert idle.reward.outcome == 0.0


def test_masked_rows_are_infrastructure(tmp_path: Path) -> None:
    path = written(tmp_path, rows(TaskDesk(MINIATURE)))
    read = ToolCall(id="a", name="get_price", arguments={"item": "bolt"})
    lost = flown(Broken(), path, [read, ToolCall(id="z", name="final_answer", arguments={"answer": "Done."})])
    assert lost.outcome is Outcome.INFRA_FAILURE
    assert lost.reward is None
    assert "not judged" in lost.detail


@pytest.mark.parametrize(
    ("row", "what"),
    [
        ({}, "not a row"),
        ({"responses_create_params": {}}, "no messages"),
        ({"responses_create_params": {"input": [{"role": "assistant", "content": "hi"}]}}, "under way"),
        ({"responses_create_params": {"input": "go", "tools": [{"name": "final_answer"}]}}, "a tool named"),
    ],
)
def test_rows_that_cannot_be_tasks(tmp_path: Path, row: Any, what: str) -> None:
    path = written(tmp_path, [row])
    with pytest.raises(InputError, match=what) as caught:
        import_nemo_gym("http://127.0.0.1:9", path, num_tasks=1, threshold=1.0, max_turns=8)
    assert caught.value.where == f"{path}:1"


def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    path = written(tmp_path, [{"responses_create_params": {"input": "go"}}])
    with pytest.raises(InfrastructureError, match="lost"):
        import_nemo_gym("http://127.0.0.1:9", path, num_tasks=1, threshold=1.0, max_turns=8)
