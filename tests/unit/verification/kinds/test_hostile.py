"""Whatever the policy says or leaves, there is a verdict: an error would be a way out of the denominator."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from flightschool.records import (
    AnswerCheck,
    Check,
    CheckRule,
    Comparison,
    DateAnswerCheck,
    FileCheck,
    Json,
    JsonAnswerCheck,
    JsonCheck,
    JudgeCheck,
    Milestone,
    MilestoneCheck,
    NumberAnswerCheck,
    SetAnswerCheck,
    StateCheck,
    ToolEvent,
)
from flightschool.verification.judging import refusal

Judge = Callable[..., Check]
quick = settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

LONGEST_S = 2.0
"""Of processor time, for one answer of 90 000 characters: some fifty times what it takes."""

ANSWERS: tuple[CheckRule, ...] = (
    AnswerCheck(contains=("ok",)),
    NumberAnswerCheck(value=15, unit="kg"),
    NumberAnswerCheck(value=15, decimal=",", after="is"),
    DateAnswerCheck(date="2024-03-05"),
    SetAnswerCheck(items=("a", "b"), after="\u0130"),
    JsonAnswerCheck(expected={"a": [1]}, compare=Comparison(order="set", tolerance=0.1)),
)
WORDS = [
    *(
        "15",
        "kg",
        "1e999",
        "9" * 400,
        "2024-03-05",
        "99/99/0000",
        "0000-00-00",
        "a",
        "and",
        "[1]",
        '{"a":',
        "```",
        "\n",
    ),
    *(",", "\u0130", "ß", "\ud800", "\u0000", "٣", "²", "½", "1e-400", "NaN", "-", "−"),
]
texts = (
    st.text(max_size=60)
    | st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join)
    | st.lists(st.sampled_from(WORDS), max_size=12).map("".join)
)


@quick
@given(texts, st.sampled_from(ANSWERS))
@example("[" * 50_000, ANSWERS[-1])
@example("1," * 20_000, ANSWERS[1])
@example("5 March " * 10_000, ANSWERS[3])
def test_any_answer(judge: Judge, answer: str, rule: CheckRule) -> None:
    assert judge(rule, answer) == judge(rule, answer)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=12,
)
COMPARED = (
    Comparison(),
    Comparison(order="multiset", tolerance=0.5),
    Comparison(order="set", ignore=("a.*.b",)),
    Comparison(order="by_key", key="a", subset=True),
)


@quick
@given(st.dictionaries(st.sampled_from("abc"), json_values, max_size=3), st.sampled_from(COMPARED))
def test_any_json_state(judge: Judge, end: dict[str, Json], how: Comparison) -> None:
    expected = [{"a": 1, "b": 2}, {"a": 2}]
    state = judge(StateCheck(expected={"a": expected}, compare=how, unnamed="ignored"), end=end)
    value = judge(JsonCheck(pointer="/a", expected=expected, compare=how), end=end)
    assert state.passed == value.passed, "two ways to ask the same"
    assert not value.passed or isinstance(end["a"], list)


@quick
@given(st.binary(max_size=60), st.sampled_from(["text", "json", "jsonl", "csv", "sha256"]))
@example(b"\xff", "text")
@example(b"a,b\n" + b'"' * 1001, "csv")
@example(b'{"a":' * 30_000, "json")
@example(b"a\n" + b"x" * 200_000, "csv")
def test_any_file(judge: Judge, data: bytes, format_: str) -> None:
    expected: Json = {"text": "x", "sha256": "0" * 64}.get(format_, [{"a": 1}])
    rule = FileCheck(path="/f", format=format_, expected=expected)  # type: ignore[arg-type]
    check = judge(rule, end={"files": {"/f": {"base64": base64.b64encode(data).decode()}}})
    assert not check.passed or (format_ != "sha256" and (b"x" if format_ == "text" else b"a") in data)


@quick
@given(st.text(max_size=80))
def test_any_result_of_a_call(judge: Judge, event: Callable[..., ToolEvent], content: str) -> None:
    rule = MilestoneCheck(milestones=(Milestone(id="m", tool="t", result={"a": 1}),))
    check = judge(rule, events=[event(0, "t", content=content), event(1, "t", content=json.dumps(content))])
    assert not check.passed or '"a"' in content


@quick
@given(texts)
def test_any_answer_before_a_judge(answer: str) -> None:
    rule = JudgeCheck(criterion="c", endpoint="openai:http://localhost/v1#m", key_env="")
    assert isinstance(refusal(rule, answer), str)


@pytest.mark.parametrize("rule", ANSWERS)
def test_long_answers_take_no_long_time(judge: Judge, rule: CheckRule) -> None:
    for word in ("1 ", "1,111", "a and ", "5 Mar ", " ", "-", "€", "\n- ", "15kg"):
        started = time.process_time()
        assert not judge(rule, word * (90_000 // len(word))).passed
        assert time.process_time() - started < LONGEST_S, repr(word)
