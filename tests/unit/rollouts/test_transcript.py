"""Histories become a forest: continued, forked, asked again or planted; every sampled token is trained exactly once."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flightschool.protocols import Generation, GenerationRequest
from flightschool.records import Message, SpanKind, TokenSpan, ToolCall, ToolSpec
from flightschool.rollouts import CutTurnError, MalformedCallError, Sampling, Session
from flightschool.testing.engines import CLOSE, ByteTokenizer, SpokenEngine
from flightschool.training.messages import TrainGroup, TrainMember
from flightschool.training.packing import pack_group

TOOL = ToolSpec(name="get_price", description="price", parameters={"properties": {"item": {}}, "required": ["item"]})
OPENING = [Message(role="system", content="Help."), Message(role="user", content="Price of bolt?")]


class CountingEngine(SpokenEngine):
    """Gives every sampled token a log-probability of its own, so that each can be told from all others."""

    num_tokens = 0

    async def generate(self, request: GenerationRequest) -> Generation:
        generation = await super().generate(request)
        first, self.num_tokens = self.num_tokens, self.num_tokens + len(generation.token_ids_T)
        logprobs_T = tuple(-(n + 1) / 1024 for n in range(first, self.num_tokens))
        return msgspec.structs.replace(generation, logprobs_T=logprobs_T)


def session(engine: SpokenEngine, most: int = 200) -> Session:
    return Session("s", engine, ByteTokenizer(), Sampling(max_new_tokens=most), seed=7)


def user(text: str) -> Message:
    return Message(role="user", content=text)


def assistant(text: str) -> Message:
    return Message(role="assistant", content=text)


def context_of(span: TokenSpan, spans: Sequence[TokenSpan]) -> tuple[int, ...]:
    tokens: tuple[int, ...] = ()
    above = span.parent
    while above is not None:
        tokens = spans[above].token_ids_T + tokens
        above = spans[above].parent
    return tokens


def trained_logprobs(spans: tuple[TokenSpan, ...], num_members: int = 2) -> list[Counter[float | None]]:
    members = tuple(TrainMember(attempt=f"a{i}", advantage=1.0 - i, spans=spans) for i in range(num_members))
    packs = pack_group(TrainGroup(id="g", members=members), newest_step=0)
    counts: list[Counter[float | None]] = [Counter() for _ in members]
    for pack in packs:
        for target in pack.targets:
            counts[target.member][target.logprob] += 1
    return counts


def check_exact(engine: SpokenEngine, spans: tuple[TokenSpan, ...]) -> None:
    """Every completion stands on the context it was sampled under, and each of its tokens is trained once."""
    completions = [span for span in spans if span.kind is SpanKind.COMPLETION]
    asked = Counter(request.token_ids_T for request in engine.requests)
    assert asked == Counter(context_of(span, spans) for span in completions)
    sampled = Counter(value for span in completions for value in span.logprobs_T)
    assert set(sampled.values()) == {1}
    for trained in trained_logprobs(spans):
        assert trained == sampled


async def test_a_branch_forks_after_the_last_completion_that_both_share() -> None:
    engine = CountingEngine(["one", "two", "three"])
    talk = session(engine)
    first = await talk.complete(OPENING, [])
    stem = [*OPENING, first]
    second = await talk.complete([*stem, user("a")], [])
    await talk.complete([*stem, user("b")], [])
    spans = talk.spans()
    assert second.content == "two"
    assert [s.parent for s in spans] == [None, 0, 1, 2, 1, 4]
    assert [s.turn for s in spans] == [0, 0, 1, 1, 2, 2]
    check_exact(engine, spans)


async def test_an_edited_answer_forks_before_it_and_is_never_trained() -> None:
    engine = CountingEngine(["one", "two", "three"])
    talk = session(engine)
    first = await talk.complete(OPENING, [])
    await talk.complete([*OPENING, first, user("a")], [])
    edited = [*OPENING, first, user("a"), assistant("2 (edited)"), user("c")]
    await talk.complete(edited, [])
    spans = talk.spans()
    assert [s.parent for s in spans] == [None, 0, 1, 2, 1, 4]
    assert "2 (edited)" in ByteTokenizer().decode(spans[4].token_ids_T)
    assert spans[4].kind is SpanKind.OBSERVATION
    check_exact(engine, spans)


async def test_the_same_words_asked_again_give_a_sibling_under_one_prompt() -> None:
    engine = CountingEngine(["one", "uno"])
    talk = session(engine)
    await asyncio.gather(talk.complete(OPENING, []), talk.complete(OPENING, []))
    assert [s.parent for s in talk.spans()] == [None, 0, 0]
    assert engine.requests[0].session != engine.requests[1].session  # an engine serves one request a session
    assert engine.requests[0].seed != engine.requests[1].seed
    check_exact(engine, talk.spans())
    talk.close()
    assert engine.released == ["s", "s#1"]


async def test_a_fresh_conversation_is_a_root_and_others_tools_are_another_history() -> None:
    engine = CountingEngine(["one", "sub", "two", "three"])
    talk = session(engine)
    first = await talk.complete(OPENING, [TOOL])
    await talk.complete([user("sub-agent, go")], [])
    await talk.complete([*OPENING, first, user("on")], [TOOL])
    await talk.complete([*OPENING, first, user("on")], [])
    assert [s.parent for s in talk.spans()] == [None, 0, None, 2, 1, 4, None, 6]
    check_exact(engine, talk.spans())


async def test_overlapping_conversations_do_not_mix() -> None:
    engine = CountingEngine(lambda context: f"re: {context[-3:]}")
    talk = session(engine)

    async def converse(name: str) -> list[str]:
        history, said = [user(f"I am {name}")], []
        for turn in range(3):
            reply = await talk.complete(history, [])
            said.append(reply.content)
            history += [reply, user(f"{name}-{turn}")]
        return said

    told = await asyncio.gather(*(converse(name) for name in ("ann", "bob", "eve")))
    assert told == [[f"re: {n}", f"re: {n[-1]}-0", f"re: {n[-1]}-1"] for n in ("ann", "bob", "eve")]
    roots = [s for s in talk.spans() if s.parent is None]
    assert len(roots) == 3
    check_exact(engine, talk.spans())


async def test_stripped_answers_and_reordered_arguments_are_found_again() -> None:
    engine = CountingEngine(["\n hello \n", 'f {"b": 1, "a": [1.0, "ü"]}', "end"])
    talk = session(engine)
    first = await talk.complete(OPENING, [])
    history = [*OPENING, assistant("hello"), user("x")]
    assert first.content == "hello"
    await talk.complete(history, [])
    call = ToolCall(id="other", name="f", arguments={"a": [1.0, "ü"], "b": 1})
    told = [*history, Message(role="assistant", tool_calls=(call,)), Message(role="tool", content="r")]
    await talk.complete(told, [])
    assert [s.parent for s in talk.spans()] == [None, 0, 1, 2, 3, 4]
    assert ByteTokenizer().decode(talk.spans()[1].token_ids_T) == "\n hello \n"
    check_exact(engine, talk.spans())


async def test_numbers_of_other_kinds_are_an_edit() -> None:
    engine = CountingEngine(['f {"a": 1}', "end"])
    talk = session(engine)
    await talk.complete(OPENING, [])
    call = ToolCall(id="call_0_0", name="f", arguments={"a": True})
    await talk.complete([*OPENING, Message(role="assistant", tool_calls=(call,)), user("x")], [])
    assert [s.parent for s in talk.spans()] == [None, 0, None, 2]


async def test_equal_answers_are_told_apart_by_the_ids_of_their_calls() -> None:
    engine = CountingEngine(['f {"a": 1}'] * 2 + ["end"])
    talk = session(engine)
    await talk.complete(OPENING, [])
    second = await talk.complete(OPENING, [])
    await talk.complete([*OPENING, second, Message(role="tool", content="r")], [])
    assert [s.parent for s in talk.spans()] == [None, 0, 0, 2, 3]


async def test_a_cut_answer_can_be_gone_on_after_and_is_closed_before() -> None:
    engine = CountingEngine(["x" * 50, "ok"])
    talk = session(engine, most=10)
    with pytest.raises(CutTurnError) as cut:
        await talk.complete(OPENING, [])
    assert cut.value.text == "x" * 10
    await talk.complete([*OPENING, assistant(cut.value.text), user("go on")], [])
    spans = talk.spans()
    assert [s.parent for s in spans] == [None, 0, 1, 2]
    assert spans[2].token_ids_T[0] == CLOSE
    check_exact(engine, spans)


async def test_a_cancelled_request_leaves_no_completion_and_can_be_asked_again() -> None:
    engine = CountingEngine(["one", "two"])
    talk = session(engine)
    request = asyncio.ensure_future(talk.complete(OPENING, []))
    await asyncio.sleep(0)
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    assert (await talk.complete(OPENING, [])).content == "one"
    assert [s.kind for s in talk.spans()] == [SpanKind.PROMPT, SpanKind.COMPLETION]


TEXTS = st.sampled_from(["one", " two\n", "", 'get_price {"item": "bolt"}', 'get_price {"item', "ünï"])
ACTS = st.tuples(st.sampled_from(["extend", "again", "edit", "plant"]), st.integers(0, 50), st.sampled_from("abc"))


@settings(max_examples=150, deadline=None)
@given(said=st.lists(TEXTS, min_size=14, max_size=14), acts=st.lists(ACTS, max_size=12))
def test_whatever_is_done_to_histories_each_sampled_token_trains_once(
    said: list[str], acts: list[tuple[str, int, str]]
) -> None:
    engine = CountingEngine(said)
    talk = session(engine)

    async def ask(history: list[Message]) -> list[Message]:
        with contextlib.suppress(MalformedCallError):
            return [*history, await talk.complete(history, [TOOL])]
        return [*history, assistant(said[len(engine.requests) - 1])]

    async def live() -> None:
        histories = [await ask(list(OPENING))]
        for act, which, letter in acts:
            history = histories[which % len(histories)]
            changed = {
                "extend": [*history, user(letter)],
                "again": history[:-1],
                "edit": [*history[:-1], assistant(f"edited {letter}"), user(letter)],
                "plant": [user(letter)],
            }[act]
            histories.append(await ask(changed))

    asyncio.run(live())
    check_exact(engine, talk.spans())
