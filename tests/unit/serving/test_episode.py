"""Episodes that somebody else drives, and which task one is about."""

from __future__ import annotations

import pytest

from flightschool.errors import InfrastructureError, InputError, NotFoundError
from flightschool.protocols import World, WorldReply
from flightschool.records import EndReason, Outcome, Task, ToolCall
from flightschool.rollouts import EpisodeRunner, OraclePolicy, run_attempts
from flightschool.serving import Offer, TaskDesk, shown_task
from flightschool.testing.miniature import MiniatureEnvironment, MiniatureWorld
from flightschool.verification import OutcomeReward

MINIATURE = MiniatureEnvironment()
COPY = MINIATURE.tasks()[0]


def test_the_reward_is_the_runners() -> None:
    """The same calls give the same verdict and the same reward, whoever drives."""
    runner = EpisodeRunner(MINIATURE, OutcomeReward(), run="r")
    attempts = run_attempts(runner, MINIATURE.tasks(), OraclePolicy(MINIATURE), seed=0)
    for task, attempt in zip(MINIATURE.tasks(), attempts, strict=True):
        reference = MINIATURE.reference(task.id)
        episode = Offer(MINIATURE).open(task, seed=attempt.seed)
        for call in reference.oracle:
            episode.act((call,))
        judged = episode.finish(reference.oracle_answer)
        assert attempt.verdict == judged.verdict
        assert attempt.reward is not None
        assert judged.reward is not None
        assert judged.reward.outcome == attempt.reward.outcome
        assert judged.outcome is attempt.outcome
        assert judged.reason is attempt.reason


def test_an_end_is_an_end() -> None:
    episode = Offer(MINIATURE).open(COPY)
    first = episode.finish("")
    assert episode.finish("another answer") is first
    with pytest.raises(InfrastructureError, match="over"):
        episode.act((ToolCall(id="1", name="get_price", arguments={"item": "bolt"}),))


def test_turns_not_calls_are_counted() -> None:
    """Calls of one turn run in parallel, as in the built-in harness."""
    episode = Offer(MINIATURE).open(COPY, max_turns=2)
    calls = [ToolCall(id=str(n), name="get_price", arguments={"item": "bolt"}) for n in range(5)]
    assert len(episode.act(calls)) == 5
    assert episode.num_turns == 1
    assert len(episode.act(calls)) == 5
    judged = episode.judged
    assert judged is not None
    assert judged.reason is EndReason.MAX_TURNS
    assert judged.outcome is Outcome.POLICY_FAILURE
    assert judged.reward is not None


def test_infrastructure_has_no_reward_and_says_to_mask() -> None:
    class Lost(MiniatureEnvironment):
        def open(self, task: Task) -> World:
            class Broken(MiniatureWorld):
                def execute(self, call: ToolCall) -> WorldReply:
                    raise OSError("gone")

            return Broken()

    episode = Offer(Lost()).open(COPY)
    with pytest.raises(InfrastructureError):
        episode.act((ToolCall(id="1", name="get_price", arguments={"item": "bolt"}),))
    judged = episode.judged
    assert judged is not None
    assert judged.reward is None
    assert judged.as_json()["mask_sample"] is True
    assert judged.as_json()["reward_components"] == {}


def test_one_world_that_may_take_long_puts_all_into_threads() -> None:
    class Mixed(MiniatureEnvironment):
        def open(self, task: Task) -> World:
            world = super().open(task)
            world.bounded = task.id != self.tasks()[-1].id  # type: ignore[attr-defined]
            return world

    class Quick(Mixed):
        def open(self, task: Task) -> World:
            world = MiniatureWorld()
            world.bounded = True  # type: ignore[attr-defined]
            return world

    assert Offer(Quick()).answers_at_once
    assert not Offer(Mixed()).answers_at_once
    assert not Offer(MINIATURE).answers_at_once


def test_what_is_told_of_a_judgement_holds_no_evidence() -> None:
    judged = Offer(MINIATURE).open(COPY).finish("")
    assert judged.verdict is not None
    assert judged.verdict.checks[0].evidence
    assert all(set(check) == {"id", "kind", "weight", "passed"} for check in judged.as_json()["checks"])


# ---------------------------------------------------------------------------------------------- tasks


def test_seeds_name_task_and_weather() -> None:
    desk = TaskDesk(MINIATURE)
    num = len(MINIATURE.tasks())
    assert desk.choose({"seed": 0}) == desk.choose({"seed": 0})
    assert desk.choose({"seed": num}).task == desk.choose({"seed": 0}).task
    assert desk.choose({"seed": num}).seed != desk.choose({"seed": 0}).seed
    assert desk.choose({"task_id": COPY.id}) == desk.choose({"task_id": COPY.id})
    assert desk.choose({"task_id": COPY.id, "seed": 9}).seed == 9
    assert desk.choose({"split": "all", "index": 1}).task.id == MINIATURE.tasks()[1].id
    assert desk.choose({}).task in MINIATURE.tasks()


def test_a_split_hides_the_rest() -> None:
    few = tuple(task.id for task in MINIATURE.tasks()[:2])
    desk = TaskDesk(MINIATURE, {"train": few, "all": few})
    assert {desk.choose({"seed": seed}).task.id for seed in range(50)} == set(few)
    with pytest.raises(InputError, match="no task"):
        desk.choose({"task_id": MINIATURE.tasks()[5].id})
    assert [shown_task(task, n, "train")["index"] for n, task in enumerate(desk.tasks("train"))] == [0, 1]


@pytest.mark.parametrize(
    "asked",
    [{"seed": -1}, {"seed": "1"}, {"seed": True}, {"task_id": 3}, {"split": "x"}, {"index": 99}, {"index": 1.0}],
)
def test_what_is_not_there_is_refused(asked: dict[str, object]) -> None:
    with pytest.raises((InputError, NotFoundError)):
        TaskDesk(MINIATURE).choose(asked)


def test_nothing_to_serve_is_an_error() -> None:
    with pytest.raises(InputError, match="no task"):
        TaskDesk(MINIATURE, {"train": ()})
