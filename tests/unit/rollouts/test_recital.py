"""A recital writes what a session would have had to sample, and is judged like any attempt."""

from __future__ import annotations

import pytest

from flightschool.records import EndReason, Message, SpanKind, ToolCall
from flightschool.rollouts import EnginePolicy, EpisodeRunner, RecitalPolicy, Sampling, demonstrate
from flightschool.testing.engines import ByteTokenizer, SpokenEngine
from flightschool.testing.miniature import MiniatureEnvironment
from flightschool.verification import OutcomeReward, RewardSettings

ENVIRONMENT = MiniatureEnvironment()
TASK = ENVIRONMENT.task("copy-bolt-gear")
READ = ToolCall(id="x", name="get_price", arguments={"item": "gear"})
WRITE = ToolCall(id="y", name="set_price", arguments={"item": "bolt", "price": 17})
SLIP = ToolCall(id="z", name="get_price", arguments={"thing": "gear"})


def runner() -> EpisodeRunner:
    return EpisodeRunner(ENVIRONMENT, OutcomeReward(RewardSettings()), run="r")


def turns(*calls: ToolCall, last: str = "Done.") -> list[Message]:
    said = [Message(role="assistant", tool_calls=(call,)) for call in calls]
    return [*said, Message(role="assistant", content=last)]


async def test_its_tokens_are_those_that_a_model_saying_the_same_would_have_sampled() -> None:
    recital = RecitalPolicy({TASK.id: turns(READ, WRITE)}, ByteTokenizer(), 4096)
    played = await runner().attempt(TASK, recital, group="g", index=0, seed=3)
    words = ('get_price {"item": "gear"}', 'set_price {"item": "bolt", "price": 17}', "Done.")
    spoken = EnginePolicy(SpokenEngine(words), ByteTokenizer(), "spoken", Sampling(max_new_tokens=200))
    sampled = await runner().attempt(TASK, spoken, group="g", index=0, seed=3)

    assert [s.token_ids_T for s in played.spans] == [s.token_ids_T for s in sampled.spans]
    assert [s.parent for s in played.spans] == [s.parent for s in sampled.spans]
    kinds = {SpanKind.COMPLETION: SpanKind.DEMONSTRATION}
    assert [s.kind for s in played.spans] == [kinds.get(s.kind, s.kind) for s in sampled.spans]
    assert all(not s.logprobs_T and not s.versions for s in played.spans)
    assert played.reward == sampled.reward
    assert played.timings.virtual_ms == sampled.timings.virtual_ms
    assert [m.content for m in played.messages] == [m.content for m in sampled.messages]


async def test_arguments_are_said_in_the_order_that_the_prompt_shows() -> None:
    sorted_by_a_store = ToolCall(id="y", name="set_price", arguments={"price": 17, "item": "bolt"})
    recital = RecitalPolicy({TASK.id: turns(sorted_by_a_store)}, ByteTokenizer(), 4096)
    played = await runner().attempt(TASK, recital, group="g", index=0, seed=3)
    [said] = [s for s in played.spans if s.kind is SpanKind.DEMONSTRATION][:1]
    assert ByteTokenizer().decode(said.token_ids_T) == 'set_price {"item": "bolt", "price": 17}'


async def test_a_recording_without_an_end_is_cut_and_one_that_is_too_long_does_not_fit() -> None:
    unfinished = RecitalPolicy({TASK.id: turns(READ)[:1]}, ByteTokenizer(), 4096)
    assert (await runner().attempt(TASK, unfinished, group="g", index=0, seed=3)).reason is EndReason.TRUNCATED
    short = RecitalPolicy({TASK.id: turns(READ, WRITE)}, ByteTokenizer(), 200)
    assert (await runner().attempt(TASK, short, group="g", index=0, seed=3)).reason is EndReason.CONTEXT_FULL


async def test_what_the_dialect_cannot_say_is_no_demonstration() -> None:
    mixed = Message(role="assistant", content="First I look.", tool_calls=(READ,))
    policy = RecitalPolicy({TASK.id: [mixed, mixed, *turns(WRITE)]}, ByteTokenizer(), 4096)
    assert (await runner().attempt(TASK, policy, group="g", index=0, seed=3)).reason is EndReason.INVALID_CALLS


def test_successes_of_the_given_tasks_are_kept_slips_cut_out_and_the_rest_is_counted() -> None:
    wrong = ToolCall(id="w", name="set_price", arguments={"item": "bolt", "price": 5})
    recordings = [
        (TASK.id, turns(READ, WRITE)),
        (TASK.id, turns(READ, wrong)),
        (TASK.id, turns(SLIP, READ, WRITE)),
        (TASK.id, turns(READ)[:1]),
        ("copy-seal-pump", turns(READ, WRITE)),
        ("unheard-of", turns(READ, WRITE)),
    ]
    found = demonstrate(runner(), [TASK], recordings, ByteTokenizer(), max_context=4096, seed=1)
    assert [(attempt.task, attempt.index) for attempt in found.attempts] == [(TASK.id, 0), (TASK.id, 2)]
    assert (found.num_recorded, found.num_mended) == (4, 1)
    assert found.left_out == {"failed": 1, "failed (truncated)": 1}
    clean, mended = found.attempts
    assert [s.token_ids_T for s in mended.spans] == [s.token_ids_T for s in clean.spans]  # the slip is gone


def test_of_many_one_of_each_family_comes_before_the_second_of_any() -> None:
    other = ENVIRONMENT.task("copy-seal-pump")
    assert other.family != TASK.family
    copied = turns(
        ToolCall(id="x", name="get_price", arguments={"item": "pump"}),
        ToolCall(id="y", name="set_price", arguments={"item": "seal", "price": 90}),
    )
    rows = [*[(TASK.id, turns(READ, WRITE))] * 3, (other.id, copied)]
    kept = demonstrate(runner(), [TASK, other], rows, ByteTokenizer(), max_context=4096, seed=1, most=2)
    assert [attempt.task for attempt in kept.attempts] == [TASK.id, other.id]
    assert kept.left_out == {"more than asked for": 2}


@pytest.mark.parametrize("seed", [1, 2])
def test_equal_seeds_give_equal_demonstrations(seed: int) -> None:
    rows = [(TASK.id, turns(READ, WRITE))]
    first, again = (demonstrate(runner(), [TASK], rows, ByteTokenizer(), max_context=4096, seed=seed) for _ in range(2))
    assert first.attempts[0].digest == again.attempts[0].digest
