"""JSON piece by piece: equal to reading it whole, wherever the pieces end, and strict about what is broken."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flightschool.errors import TraceError
from flightschool.traces import streaming
from flightschool.traces.spooling import Spool
from flightschool.traces.streaming import JsonStream, json_objects

VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
OBJECT = st.dictionaries(st.text(max_size=5), VALUE, max_size=4)
LAYOUT = st.sampled_from([{}, {"indent": 1}, {"ensure_ascii": False}, {"separators": (",", ":")}])


def encodable(value: Any) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


class TestPieces:
    @given(
        objects=st.lists(OBJECT.filter(encodable), min_size=1, max_size=4),
        layout=LAYOUT,
        chunk=st.integers(1, 40),
        as_array=st.booleans(),
    )
    @settings(max_examples=150, deadline=None)
    def test_any_layout_and_any_cut_give_the_same(
        self,
        objects: list[dict[str, Any]],
        layout: dict[str, Any],
        chunk: int,
        as_array: bool,
        tmp_path_factory: pytest.TempPathFactory,
    ) -> None:
        path = tmp_path_factory.mktemp("cut") / "t.json"
        text = json.dumps(objects, **layout) if as_array else "\n".join(json.dumps(one, **layout) for one in objects)
        path.write_bytes(text.encode())
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(streaming, "_CHUNK", chunk)
            assert [value for _, value in json_objects(path)] == objects

    @given(text=st.text('[]{},:"\\ \n01ae-truflsn', max_size=30), chunk=st.integers(1, 9))
    @settings(max_examples=200, deadline=None)
    def test_whatever_is_there_the_only_error_is_ours(
        self, text: str, chunk: int, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        path = tmp_path_factory.mktemp("odd") / "t.json"
        path.write_text(text)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(streaming, "_CHUNK", chunk)
            try:
                list(json_objects(path))
            except TraceError as error:
                told = error
            else:
                return
        assert str(path) in told.where
        assert told.expected
        assert told.mend

    def test_members_are_read_one_by_one(self, tmp_path: Path) -> None:
        path = tmp_path / "t.json"
        path.write_text('{"a": 1, "rows": [1, 2,\n 3], "b": {"c": []}}')
        found: dict[str, Any] = {}
        with JsonStream(path) as stream:
            for key in stream.members():
                found[key] = [v for _, v in stream.elements()] if stream.peek() == "[" else stream.value()[1]
            stream.finish()
        assert found == {"a": 1, "rows": [1, 2, 3], "b": {"c": []}}


class TestLines:
    def test_an_element_is_named_with_the_line_on_which_it_begins(self, tmp_path: Path) -> None:
        path = tmp_path / "t.json"
        path.write_text('[\n{"a":\n 1},\n\n{"b": 2}]')
        assert list(json_objects(path)) == [(2, {"a": 1}), (5, {"b": 2})]

    @pytest.mark.parametrize(
        ("text", "line", "word"),
        [
            (b'{"a": 1}\n{"b": \n{"c": 3}\n', 2, "not valid JSON"),
            (b'{"a": 1}\n\n{"b": 2', 3, "not valid JSON"),
            (b'[{"a": 1}\n{"b": 2}]', 2, "where ']' belongs"),
            (b'[{"a": 1}] x', 1, "after the end"),
            (b'{"a": 1}\n"\xff"', 2, "not UTF-8"),
            (b'{"a": 1}\n2\n', 2, "holds a number"),
        ],
    )
    def test_errors_name_the_line(self, tmp_path: Path, text: bytes, line: int, word: str) -> None:
        path = tmp_path / "t.jsonl"
        path.write_bytes(text)
        with pytest.raises(TraceError, match=word) as caught:
            list(json_objects(path))
        assert f"t.jsonl:{line}" in caught.value.where

    @pytest.mark.parametrize("size", [5 << 18, 3 << 20])
    def test_a_line_beyond_the_limit_is_one_error(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
    ) -> None:
        monkeypatch.setattr(streaming, "MAX_VALUE_BYTES", 1 << 20)
        monkeypatch.setattr(streaming, "_CHUNK", 1 << 16)
        path = tmp_path / "t.jsonl"
        path.write_text('{"a": 1}\n{"b": "' + "x" * size + '"}\n')
        with pytest.raises(TraceError, match="longer than 1 MiB") as caught:
            list(json_objects(path))
        assert caught.value.where.endswith("t.jsonl:2")


def test_rows_come_back_by_key_in_their_order() -> None:
    with Spool() as spool:
        for number in range(1200):
            spool.add(f"k{number % 3}", {"n": number, "big": 10**30})
        assert [row["n"] for row in spool.rows(["k2", "k0"])] == [*range(2, 1200, 3), *range(0, 1200, 3)]
        assert list(spool.rows(["none"])) == []
