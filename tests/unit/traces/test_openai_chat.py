"""The chat format: what is read, what is refused and where, and that an export comes back the same."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flightschool.errors import TraceError
from flightschool.records import Effect, Message, ToolCall, ToolSpec
from flightschool.store import SqlStore
from flightschool.traces import (
    EXPORT_FORMATS,
    RecordedCall,
    RecordedEpisode,
    RecordedTurn,
    TaskHint,
    TraceSet,
    Usage,
    export,
    import_traces,
    load_traces,
    result_value,
    save_traces,
)


def line(*messages: dict[str, Any], **extra: Any) -> str:
    return json.dumps({"messages": list(messages), **extra})


def asks(name: str, arguments: Any, call_id: str | None = "c1") -> dict[str, Any]:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    call: dict[str, Any] = {"type": "function", "function": {"name": name, "arguments": text}}
    if call_id is not None:
        call["id"] = call_id
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def answers(content: Any, call_id: str | None = "c1", **extra: Any) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "tool", "content": content, **extra}
    if call_id is not None:
        message["tool_call_id"] = call_id
    return message


USER = {"role": "user", "content": "Where is A1?"}
GOOD = line(
    USER, asks("get", {"id": "A1"}), answers('{"at": "dock"}'), {"role": "assistant", "content": "At the dock."}
)


def read(tmp_path: Path, text: str | bytes, name: str = "t.jsonl") -> tuple[RecordedEpisode, ...]:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return import_traces(path).episodes


def refused(tmp_path: Path, text: str | bytes, format: str = "openai-chat") -> TraceError:  # noqa: A002
    path = tmp_path / "t.jsonl"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(TraceError) as caught:
        import_traces(path, format)
    error = caught.value
    assert error.what
    assert str(path) in error.where
    assert error.expected
    assert error.mend
    return error


class TestWhatIsRead:
    def test_a_call_with_its_answer(self, tmp_path: Path) -> None:
        (episode,) = read(tmp_path, GOOD + "\n")
        (call,) = episode.calls
        assert (call.turn, call.id, call.name, call.arguments) == (0, "c1", "get", {"id": "A1"})
        assert call.text == '{"at": "dock"}'
        assert call.value == {"at": "dock"}
        assert not call.is_error
        assert [m.role for m in episode.messages] == ["user", "assistant", "tool", "assistant"]
        assert episode.instruction == "Where is A1?"
        assert episode.success is None
        assert episode.issues == ()

    def test_one_array_a_pretty_object_crlf_and_a_byte_order_mark(self, tmp_path: Path) -> None:
        expected = [c.value for c in read(tmp_path, GOOD)[0].calls]
        array = f"[\n{GOOD},\n{GOOD}\n]"
        pretty = json.dumps(json.loads(GOOD), indent=2)
        for text, count in (
            (array, 2),
            (pretty, 1),
            (f"{GOOD}\r\n{GOOD}\r\n", 2),
            (b"\xef\xbb\xbf" + GOOD.encode(), 1),
        ):
            episodes = read(tmp_path, text)
            assert len(episodes) == count
            assert [c.value for c in episodes[-1].calls] == expected

    def test_parts_are_joined_and_other_parts_are_named(self, tmp_path: Path) -> None:
        parts = [
            {"type": "text", "text": "Where "},
            {"type": "image_url", "image_url": {}},
            {"type": "text", "text": "?"},
        ]
        (episode,) = read(tmp_path, line({"role": "user", "content": parts}))
        assert episode.instruction == "Where ?"
        assert episode.issues == ("a part of type image_url was left out",)

    def test_legacy_function_call(self, tmp_path: Path) -> None:
        legacy = {"role": "assistant", "content": None, "function_call": {"name": "get", "arguments": '{"id": 1}'}}
        (episode,) = read(tmp_path, line(USER, legacy, {"role": "function", "name": "get", "content": "ok"}))
        (call,) = episode.calls
        assert (call.name, call.arguments, call.text, call.complete) == ("get", {"id": 1}, "ok", True)

    def test_missing_ids_are_paired_by_order_and_name(self, tmp_path: Path) -> None:
        two = asks("get", {}, None)
        two["tool_calls"] += asks("put", {}, None)["tool_calls"]
        (episode,) = read(tmp_path, line(USER, two, answers("p", None, name="put"), answers("g", None, name="get")))
        assert {c.name: c.text for c in episode.calls} == {"get": "g", "put": "p"}
        assert len({c.id for c in episode.calls}) == 2

    def test_an_id_used_again_in_a_later_turn_stays_distinct(self, tmp_path: Path) -> None:
        (episode,) = read(
            tmp_path, line(USER, asks("get", {"n": 1}), answers("1"), asks("get", {"n": 2}), answers("2"))
        )
        assert [(c.id, c.text, c.turn) for c in episode.calls] == [("c1", "1", 0), ("c1#2", "2", 1)]
        assert episode.messages[-1].tool_call_id == "c1#2"

    def test_broken_arguments_are_the_policys_fault_and_named(self, tmp_path: Path) -> None:
        (episode,) = read(tmp_path, line(USER, asks("get", '{"id": '), answers("bad arguments", is_error=True)))
        (call,) = episode.calls
        assert not call.complete
        assert call.is_error
        assert "arguments of call c1" in episode.issues[0]

    def test_an_unanswered_call_is_incomplete(self, tmp_path: Path) -> None:
        (episode,) = read(tmp_path, line(USER, asks("get", {})))
        assert not episode.calls[0].complete
        assert episode.issues == ("call c1 has no answer",)

    @pytest.mark.parametrize(
        ("content", "is_error"),
        [
            ("Error: gone", True),
            ('{"error": "gone"}', True),
            ('{"error": null}', False),
            ("errors: 0", False),
            ("", False),
        ],
    )
    def test_errors_without_a_flag(self, tmp_path: Path, content: str, is_error: bool) -> None:
        (episode,) = read(tmp_path, line(USER, asks("get", {}), answers(content)))
        assert episode.calls[0].is_error is is_error

    def test_a_flag_wins(self, tmp_path: Path) -> None:
        (episode,) = read(tmp_path, line(USER, asks("get", {}), answers("Error: log shown", is_error=False)))
        assert not episode.calls[0].is_error

    def test_task_and_outcome_from_metadata(self, tmp_path: Path) -> None:
        table = {"task_id": 7, "stratum": "s", "family": "f", "trial": 2, "reward": 0.5, "outcome": "failed", "x": 1}
        (episode,) = read(tmp_path, line(USER, metadata=table))
        assert episode.hint == TaskHint(id="7", stratum="s", family="f", trial=2)
        assert episode.success is False
        assert episode.reward == 0.5
        assert episode.metadata == {"x": 1}

    def test_nan_in_a_tool_result_stays_text(self, tmp_path: Path) -> None:
        (episode,) = read(tmp_path, line(USER, asks("get", {}), answers('{"t": NaN}')))
        assert episode.calls[0].value == '{"t": NaN}'

    def test_numbers_beyond_64_bits_survive(self, tmp_path: Path) -> None:
        (episode,) = read(
            tmp_path, line(USER, asks("get", {"n": 10**30}), answers('{"m": 123456789012345678901234567890}'))
        )
        with SqlStore("sqlite://") as store:
            save_traces(store, "big", TraceSet(format="x", episodes=(episode,)))
            (back,) = load_traces(store, "big").episodes
        assert back.calls[0].arguments == {"n": 10**30}
        assert back == episode

    def test_a_huge_line(self, tmp_path: Path) -> None:
        big = "x" * 5_000_000
        (episode,) = read(tmp_path, line(USER, asks("get", {}), answers(big)))
        assert len(episode.calls[0].text) == 5_000_000

    def test_ids_used_twice_in_a_file_are_told_apart(self, tmp_path: Path) -> None:
        text = line(USER, metadata={"id": "e"}) + "\n" + line(USER, metadata={"id": "e"})
        first, second = read(tmp_path, text)
        assert (first.id, second.id) == ("e", "e#2")
        assert second.issues == ("the episode id 'e' was used 2 times",)

    def test_tool_definitions_with_a_stated_effect(self, tmp_path: Path) -> None:
        stated = {"name": "a", "parameters": {"type": "object"}, "annotations": {"destructiveHint": True}}
        plain = {"type": "function", "function": {"name": "b", "description": "B"}}
        (episode,) = read(tmp_path, line(USER, tools=[stated, plain]))
        assert [(t.name, t.effect) for t in episode.tools] == [("a", Effect.DESTROY), ("b", Effect.READ)]
        assert episode.stated_effects == ("a",)


class TestWhatIsRefused:
    def test_a_broken_line_names_file_and_line(self, tmp_path: Path) -> None:
        error = refused(tmp_path, f"{GOOD}\n{GOOD[:-20]}\n")
        assert error.where.endswith("t.jsonl:2")
        assert "not valid JSON" in error.what

    def test_a_broken_element_of_an_array_names_the_line(self, tmp_path: Path) -> None:
        error = refused(tmp_path, f'[\n{GOOD},\n{{"messages": [}}\n]')
        assert error.where.endswith("t.jsonl:3")

    @pytest.mark.parametrize(
        ("text", "word"),
        [
            (b"", "empty"),
            (b" \n\n", "empty"),
            (b"\x1f\x8b\x08\x00abc", "gzip"),
            (b"PK\x03\x04abc", "zip"),
            (b"SQLite format 3\x00", "SQLite"),
            (b'{"messages": "\xff\xfe"}', "UTF-8"),
            (b"[]", "empty list"),
            (b"[1]", "a number"),
            (b"null", "null"),
            (b'{"messages": [], "x": NaN}', "NaN"),
            (b'{"messages": [], "x": 1e999}', "1e999"),
            (b'{"messages": [{"role": "user", "content": "\\ud800"}]}', "surrogate"),
            (b"[" * 100_000, "JSON"),
            (b'{"messages": [], "x": ' + b"[" * 150 + b"]" * 150 + b"}", "nested deeper"),
        ],
    )
    def test_files_that_are_no_traces(self, tmp_path: Path, text: bytes, word: str) -> None:
        assert word in refused(tmp_path, text).what

    @pytest.mark.parametrize(
        ("text", "word"),
        [
            (line(), "no messages"),
            ('{"messages": {}}', "no messages"),
            (line(USER, {"role": "narrator", "content": ""}), "unknown role"),
            (line(USER, answers("x", "nobody")), "answers no call"),
            (line(USER, {"role": "assistant", "tool_calls": [{"id": "c"}]}), "no name"),
            (line(USER, {"role": "assistant", "tool_calls": {"id": "c"}}), "no list"),
            (line({"role": "user", "content": [1]}), "neither text nor parts"),
            (line(USER, metadata=[]), "metadata"),
            (line(USER, metadata={"reward": "much"}), "reward"),
            (line(USER, metadata={"outcome": "perhaps"}), "outcome"),
            (line(USER, metadata={"actions": [{"x": 1}]}), "action"),
            (line(USER, tools={}), "tools is no list"),
            (line(USER, tools=[{"name": "a", "x-flightschool": {"effect": "odd"}}]), "tool definition"),
        ],
    )
    def test_lines_of_a_wrong_shape(self, tmp_path: Path, text: str, word: str) -> None:
        error = refused(tmp_path, text)
        assert word in error.what
        assert ":1" in error.where

    def test_one_id_twice_before_an_answer(self, tmp_path: Path) -> None:
        twice = asks("get", {})
        twice["tool_calls"] *= 2
        assert "used twice" in refused(tmp_path, line(USER, twice)).what

    def test_nothing_is_half_imported(self, tmp_path: Path) -> None:
        (tmp_path / "a.jsonl").write_text(GOOD)
        (tmp_path / "b.jsonl").write_text(GOOD + "\n{")
        with pytest.raises(TraceError, match=r"b\.jsonl:2"):
            import_traces(tmp_path)


# ------------------------------------------------------------------------------------------------ round trip

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
VALUE = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
NAME = st.sampled_from(["get_order", "cancel_order", "notify"])
TOOL = ToolSpec(name="notify", description="Tell", parameters={"type": "object"}, effect=Effect.SEND)


TURN = st.builds(
    RecordedTurn,
    turn=st.just(0),
    model=st.just("m-1"),
    reasoning=st.sampled_from(["", "hm", "first\nthen"]),
    start_ms=st.just(None),
    end_ms=st.sampled_from([None, 12.5]),
    usage=st.sampled_from([None, Usage(input_tokens=7, cost_usd=0.25), Usage(output_tokens=3, cached_tokens=1)]),
)


def at_turn(number: int, turn: RecordedTurn) -> RecordedTurn:
    return msgspec.structs.replace(turn, turn=number)


@st.composite
def episodes(draw: st.DrawFn) -> RecordedEpisode:
    messages = [
        Message(role=role, content=draw(TEXT)) for role in draw(st.sampled_from([("user",), ("system", "user")]))
    ]
    calls: list[RecordedCall] = []
    timed = draw(st.booleans())
    for turn in range(draw(st.integers(0, 3))):
        asked = []
        for _ in range(draw(st.integers(1, 2))):
            text = draw(TEXT | VALUE.map(json.dumps))
            start = turn * 100.0 if timed else None
            call = RecordedCall(
                turn=turn,
                id=f"call_{len(calls)}",
                name=draw(NAME),
                arguments=draw(st.dictionaries(TEXT, VALUE, max_size=3)),
                text=text,
                value=result_value(text),
                is_error=draw(st.booleans()),
                start_ms=start,
                end_ms=None if start is None else start + draw(st.integers(0, 90)) / 8,
                fault=draw(st.sampled_from(["", "stale_read"])),
            )
            calls.append(call)
            asked.append(call)
        wanted = tuple(ToolCall(id=c.id, name=c.name, arguments=c.arguments) for c in asked)
        messages.append(Message(role="assistant", content=draw(TEXT), tool_calls=wanted))
        messages += [Message(role="tool", content=c.text, tool_call_id=c.id) for c in asked]
    messages.append(Message(role=draw(st.sampled_from(["assistant", "user"])), content=draw(TEXT)))
    num_turns = sum(message.role == "assistant" for message in messages)
    turns = tuple(draw(TURN.map(partial(at_turn, turn))) for turn in range(num_turns) if draw(st.booleans()))
    tools, stated = draw(st.sampled_from([((), ()), ((TOOL,), ("notify",))]))
    return RecordedEpisode(
        id=draw(st.text("abc1", min_size=1, max_size=5)),
        source="",
        messages=tuple(messages),
        calls=tuple(calls),
        tools=tools,
        stated_effects=stated,
        hint=TaskHint(id=draw(TEXT), trial=draw(st.integers(0, 3)), actions=draw(st.sampled_from([None, ()]))),
        success=draw(st.sampled_from([None, True, False])),
        metadata={"note": draw(VALUE)},
        turns=turns,
        labels=draw(st.sampled_from([{}, {"helpful": 0.5, "verdict": "good"}])),
        started_at=draw(st.sampled_from(["", "2025-05-01T12:00:00.250+00:00"])),
        usage=draw(st.sampled_from([None, Usage(output_tokens=9, cost_usd=0.5)])),
    )


class TestRoundTrip:
    @pytest.mark.parametrize("format_name", EXPORT_FORMATS)
    @given(made=episodes())
    @settings(max_examples=40, deadline=None)
    def test_an_export_comes_back_the_same_and_is_deterministic(
        self, format_name: str, made: RecordedEpisode, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        folder = tmp_path_factory.mktemp("trip")
        report = export([made], folder / "a.jsonl", format_name)
        assert (report.num_episodes, report.losses) == (1, {})
        export([made], folder / "b.jsonl", format_name)
        assert (folder / "a.jsonl").read_bytes() == (folder / "b.jsonl").read_bytes()
        back = import_traces(folder / "a.jsonl", format_name)
        assert back.format == format_name
        assert msgspec.structs.replace(back.episodes[0], source="") == made
        assert not [f.name for f in folder.iterdir() if f.name.startswith(".new-")]
