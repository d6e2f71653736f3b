"""The session writes exactly what was sampled, and notices when it was not given the truth."""

from __future__ import annotations

import msgspec
import pytest

from flightschool.engines.requests import check_generation
from flightschool.errors import TokenContractError
from flightschool.protocols import Generation
from flightschool.records import EndReason, Message, SpanKind, ToolSpec, VersionRun
from flightschool.rollouts import EpisodeEndError, MalformedCallError, Sampling, Session
from flightschool.testing.engines import CLOSE, ByteTokenizer, SpokenEngine

TOOL = ToolSpec(
    name="get_price",
    description="price of an item",
    parameters={"properties": {"item": {}, "unit": {}}, "required": ["item"]},
)
OPENING = [Message(role="system", content="Help."), Message(role="user", content="Price of bolt?")]


def session(engine: SpokenEngine, **sampling: float) -> Session:
    settings = msgspec.structs.replace(Sampling(max_new_tokens=200), **sampling)
    return Session("s", engine, ByteTokenizer(), settings, seed=7)


async def test_two_turns_form_one_chain_and_nothing_is_rendered_twice() -> None:
    engine = SpokenEngine(['get_price {"item": "bolt"}', "It is 3."])
    talk = session(engine)
    first = await talk.complete(OPENING, [TOOL])
    history = [*OPENING, first, Message(role="tool", content='{"price": 3}', tool_call_id="call_0_0")]
    second = await talk.complete(history, [TOOL])

    assert first.tool_calls[0].arguments == {"item": "bolt"}
    assert second.content == "It is 3."
    spans = talk.spans()
    assert [s.kind for s in spans] == [SpanKind.PROMPT, SpanKind.COMPLETION, SpanKind.OBSERVATION, SpanKind.COMPLETION]
    assert [s.parent for s in spans] == [None, 0, 1, 2]
    context = [token for span in spans[:3] for token in span.token_ids_T]
    assert engine.requests[1].token_ids_T == tuple(context)
    assert engine.requests[1].token_ids_T[: len(engine.requests[0].token_ids_T)] == engine.requests[0].token_ids_T
    assert ByteTokenizer().decode(spans[2].token_ids_T) == 'Result: {"price": 3}'
    assert spans[1].token_ids_T[-1] == CLOSE
    assert engine.requests[1].seed != engine.requests[0].seed


async def test_what_is_shared_is_the_whole_prompt_or_all_of_it_before_the_last_message() -> None:
    prompts = {}
    for shared in ("prompt", "opening"):
        engine = SpokenEngine(["hello"])
        talk = Session("s", engine, ByteTokenizer(), Sampling(max_new_tokens=200, shared=shared), seed=7)
        await talk.complete(OPENING, [TOOL])
        prompts[shared] = engine.requests[0]
    whole, opening = prompts["prompt"], prompts["opening"]
    assert whole.token_ids_T == opening.token_ids_T
    assert whole.prefix_length == len(whole.token_ids_T)
    shown = ByteTokenizer().decode(opening.token_ids_T[: opening.prefix_length])
    assert shown == "Help.\nTools:\nget_price(item, unit?): price of an item"


async def test_results_of_one_turn_stand_in_one_turn_of_the_prompt_whatever_is_shared() -> None:
    results = [Message(role="tool", content=f"r{i}", tool_call_id=f"c{i}") for i in range(2)]
    engine = SpokenEngine(["hello"])
    talk = Session("s", engine, ByteTokenizer(), Sampling(max_new_tokens=200, shared="opening"), seed=7)
    await talk.complete([*OPENING, *results], [])
    assert "Result: r0\nResult: r1" in ByteTokenizer().decode(engine.requests[0].token_ids_T)


async def test_the_prompt_shows_guidance_and_tools_with_optional_arguments_marked() -> None:
    engine = SpokenEngine(["hello"])
    await session(engine).complete(OPENING, [TOOL])
    shown = ByteTokenizer().decode(engine.requests[0].token_ids_T)
    assert shown == "Help.\nTools:\nget_price(item, unit?): price of an itemPrice of bolt?"


async def test_an_edited_history_starts_a_new_tree() -> None:
    engine = SpokenEngine(["one", "two"])
    talk = session(engine)
    await talk.complete(OPENING, [])
    edited = [*OPENING, Message(role="assistant", content="something else"), Message(role="user", content="go on")]
    await talk.complete(edited, [])
    spans = talk.spans()
    assert [s.parent for s in spans] == [None, 0, None, 2]
    assert spans[2].kind is SpanKind.PROMPT


async def test_malformed_calls_raise_and_the_conversation_can_go_on_exactly() -> None:
    engine = SpokenEngine(['get_price {"item": ', "sorry"])
    talk = session(engine)
    with pytest.raises(MalformedCallError) as raised:
        await talk.complete(OPENING, [TOOL])
    told = [Message(role="assistant", content=raised.value.text), Message(role="tool", content="{}")]
    await talk.complete([*OPENING, *told], [TOOL])
    assert [s.parent for s in talk.spans()] == [None, 0, 1, 2]


async def test_limits_end_the_episode_with_their_reason() -> None:
    with pytest.raises(EpisodeEndError) as cut:
        await session(SpokenEngine(["x" * 50]), max_new_tokens=10).complete(OPENING, [])
    assert cut.value.reason is EndReason.TRUNCATED
    with pytest.raises(EpisodeEndError) as full:
        await session(SpokenEngine(["x"], max_context=5)).complete(OPENING, [])
    assert full.value.reason is EndReason.CONTEXT_FULL
    with pytest.raises(EpisodeEndError) as died:
        await session(SpokenEngine(["x"], fail_at=0)).complete(OPENING, [])
    assert died.value.reason is EndReason.ENGINE_ERROR


async def test_generation_moves_virtual_time_by_tokens() -> None:
    talk = session(SpokenEngine(["1234"]), prefill_tokens_per_s=1000.0, decode_tokens_per_s=10.0)
    await talk.complete(OPENING, [])
    num_prompt = len(talk.spans()[0].token_ids_T)
    assert talk.generation_ms == pytest.approx(num_prompt + 5 * 100.0)


GOOD = Generation(
    token_ids_T=(1, 2), logprobs_T=(-0.1, -0.2), versions=(VersionRun(step=3, count=2),), kv_step=3, finish="stop"
)


@pytest.mark.parametrize(
    "broken",
    [
        {"logprobs_T": (-0.1,)},
        {"logprobs_T": ()},
        {"logprobs_T": (-0.1, float("nan"))},
        {"logprobs_T": (-0.1, 0.5)},
        {"token_ids_T": (), "logprobs_T": ()},
        {"versions": (VersionRun(step=3, count=1),)},
        {"token_ids_T": (1,) * 9, "logprobs_T": (0.0,) * 9, "versions": (VersionRun(step=0, count=9),)},
    ],
)
def test_generations_that_are_not_token_exact_are_refused(broken: dict[str, object]) -> None:
    check_generation(GOOD)
    with pytest.raises(TokenContractError):
        check_generation(msgspec.structs.replace(GOOD, **broken))
