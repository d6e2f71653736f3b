"""verifiers over its pipe: its own loop asks a model, and the policy that acts here is that model."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from flightschool.environments.foreign import ForeignEnvironment
from flightschool.environments.peers import PeerSettings, close_peers, import_peer
from flightschool.errors import InfrastructureError, InputError
from flightschool.records import Outcome, ToolCall
from flightschool.rollouts import EpisodeRunner, NoopPolicy, OraclePolicy, run_attempts
from flightschool.verification import OutcomeReward

STAND_IN = Path(__file__).with_name("stand_in")


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("PYTHONPATH", str(STAND_IN))
    yield
    close_peers()


def sums(**config: object) -> ForeignEnvironment:
    settings = PeerSettings(python=sys.executable, names=("sums",), num_seeds=8, config=config)
    return ForeignEnvironment("sums", import_peer("verifiers", settings)[0])


def test_rows_are_tasks_and_a_known_answer_in_the_form_that_scores_is_the_oracle() -> None:
    world = sums()
    assert [task.id for task in world.tasks()] == ["sums-0", "sums-1", "sums-2"]
    first = world.tasks()[0]
    assert (first.instruction, first.guidance) == ("1 + 2?", "Answer in <answer> marks.")
    assert first.tools == ("add", "reply")
    assert [tool.name for tool in world.tools()] == ["add", "reply"]
    assert world.tools()[0].parameters["properties"]["a"] == {"type": "integer"}
    assert [call.arguments for call in world.reference("sums-1").oracle] == [{"text": "<answer>42</answer>"}]
    assert world.reference("sums-2").oracle == ()
    assert sums(arguments={"offset": 5}).tasks()[0].instruction == "1 + 7?"
    assert sums(arguments={"offset": 5}).digest != world.digest


def test_tools_answer_words_end_it_and_its_scoring_decides() -> None:
    world = sums()
    far = world.open(world.tasks()[1])
    add = far.execute(ToolCall(id="1", name="add", arguments={"a": 20, "b": 22}))
    assert (add.value, add.is_error) == ("42", False)
    copy = far.fork()
    done = far.execute(ToolCall(id="2", name="reply", arguments={"text": "It is <answer>42</answer>."}))
    assert done.value == {"done": True}
    assert json.loads(far.snapshot())["reward"] == 1.0
    copy.execute(ToolCall(id="2", name="reply", arguments={"text": "41"}))
    assert json.loads(copy.snapshot())["solved"] is False
    far.close()
    copy.close()


def test_right_work_is_rewarded_idleness_is_not_and_what_breaks_there_is_no_zero() -> None:
    world = sums()
    runner = EpisodeRunner(world, OutcomeReward(), run="r")
    known = [task for task in world.tasks() if world.reference(task.id).oracle]
    solved = run_attempts(runner, known, OraclePolicy(world), seed=0)
    assert all(attempt.reward is not None and attempt.reward.success for attempt in solved)
    idle = run_attempts(runner, known, NoopPolicy(), seed=0)
    assert all(attempt.reward is not None and attempt.reward.outcome == 0.0 for attempt in idle)
    broken = world.open(world.task("sums-2"))
    with pytest.raises(InfrastructureError, match="the sandbox died"):
        broken.execute(ToolCall(id="1", name="reply", arguments={"text": "hm"}))
    broken.close()
    assert solved[0].outcome is Outcome.SCORED


def test_what_cannot_be_loaded_is_named() -> None:
    with pytest.raises(InputError, match="Could not import 'nothing'"):
        import_peer("verifiers", PeerSettings(python=sys.executable, names=("nothing",)))
    for config, word in (({"offset": 1}, "unknown key 'offset'"), ({"split": "test"}, "no split 'test'")):
        with pytest.raises(InputError, match=word):
            sums(**config)
    with pytest.raises(InputError, match="name one taskset"):
        import_peer("verifiers", PeerSettings(python=sys.executable, names=("sums", "more")))
