"""Wrong variants of outputs: each says something else, and what may be right all the same does not bar."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightschool.audit.terminal.mutating import mutants_of
from flightschool.audit.terminal.outputs import Output, canonical


def output(
    data: str | bytes, kind: str, *, path: str = "/app/out", before: bytes | None = None, language: str = ""
) -> Output:
    content = data.encode() if isinstance(data, str) else data
    return Output(
        path=path,
        stage="",
        data=content,
        mode=0o644,
        kind=kind,
        language=language,
        before=before,
        named=True,
        graded=True,
    )


def texts(found: Output, instruction: str = "Do it.") -> dict[str, bytes | None]:
    return {mutant.what.removeprefix(f"{found.path}: "): mutant.data for mutant in mutants_of(found, instruction)}


def test_a_number_becomes_others_far_and_near() -> None:
    found = texts(output("105\n", "text"))
    assert found["emptied"] == b""
    assert found["105 became another number"] == b"158\n"
    assert found["105 became 106"] == b"106\n"
    assert found["a line of junk added"] == b"105\nunrelated 987654321\n"


def test_near_numbers_do_not_bar_where_the_instruction_allows_a_tolerance() -> None:
    near = {
        m.what: m.bars
        for m in mutants_of(output("26.25\n", "text"), "It is accepted within 0.01.")
        if "became 2" in m.what
    }
    assert near
    assert not any(near.values())
    strict = [m.bars for m in mutants_of(output("26.25\n", "text"), "Write it.") if m.flaw == "loose-tolerance"]
    assert strict == [True]


def test_rows_are_dropped_swapped_and_cut() -> None:
    found = texts(output("name,n\na,1\nb,2\nc,3\n", "table"))
    assert found["line 4 dropped"] == b"name,n\na,1\nb,2\n"
    assert found["a field of rows 2 and 3 swapped"] == b"name,n\na,2\nb,1\nc,3\n"
    assert found["cut to its first half"] == b"name,n\na,1\n"


def test_every_leaf_and_item_of_json_is_reached() -> None:
    value = {"a": 1, "b": [True, "x"], "c": {"d": 2.5}}
    found = texts(output(json.dumps(value), "json"))
    assert json.loads(found["a became another value"] or b"") == {**value, "a": 18}
    assert json.loads(found["b.0 became another value"] or b"")["b"] == [False, "x"]
    assert json.loads(found["emptied"] or b"") == {}
    assert any("dropped" in what for what in found)


def test_of_an_edited_file_only_the_edit_is_mutated() -> None:
    found = output("name=desk\nworkers=8\n", "text", before=b"name=desk\nworkers=2\n")
    changed = [m.data for m in mutants_of(found, "Set workers to 8.") if m.data]
    assert changed == [b"name=desk\nworkers=13\n"]


def test_functions_lose_their_bodies_and_operators_only_warn() -> None:
    code = "def add(a, b):\n    return a + b\n"
    found = mutants_of(output(code, "code", language="python"), "Write add.")
    stub = next(m for m in found if "all functions" in m.what)
    assert stub.data == b"def add(a, b):\n    return None\n"
    assert stub.bars
    operator = next(m for m in found if "operator" in m.what)
    assert operator.data == b"def add(a, b):\n    return a - b\n"
    assert not operator.bars


def test_of_volatile_output_only_presence_is_tried() -> None:
    from dataclasses import replace

    volatile = replace(output("17:03:22\n", "text"), stable=False)
    assert {m.flaw for m in mutants_of(volatile, "Write the time.")} == {"presence-only"}


@given(st.text(max_size=200), st.sampled_from(["text", "table", "json", "jsonl", "binary", "code"]))
def test_no_content_breaks_it_and_no_mutant_is_the_original(text: str, kind: str) -> None:
    if kind == "table" and not ("," in text and text.strip()):
        kind = "text"
    found = output(text, kind, language="python" if kind == "code" else "")
    for mutant in mutants_of(found, text):
        assert mutant.data != found.data
        assert mutant.path == found.path


@pytest.mark.parametrize(
    ("kind", "one", "other", "same"),
    [
        ("json", b'{"a": 1, "b": 2}', b'{"b":2,\n"a":1}\n', True),
        ("json", b'{"a": 1}', b'{"a": 2}', False),
        ("table", b"a,b\n", b'"a","b"\r\n', True),
        ("text", b"105\n", b"105  \n\n", True),
        ("text", b"105\n", b"106\n", False),
        ("binary", b"\x00", b"\x00\n", False),
    ],
)
def test_what_content_means(kind: str, one: bytes, other: bytes, same: bool) -> None:
    assert (canonical(kind, one) == canonical(kind, other)) is same
