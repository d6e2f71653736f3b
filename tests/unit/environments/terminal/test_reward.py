"""The verdict of a task's tests: a number, malformed, or missing; never 0 or 1 by default."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightschool.environments.terminal import (
    RewardMalformed,
    RewardMissing,
    RewardNumber,
    RewardProblem,
    read_pytest_summary,
    read_reward,
)

UNIT = st.floats(min_value=0.0, max_value=1.0)


def test_nothing_left_is_missing() -> None:
    assert read_reward({}) == RewardMissing()
    assert read_reward({"ctrf.json": b"{}", "verifier/reward.txt": b"1"}) == RewardMissing()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"", RewardProblem.EMPTY),
        (b" \n", RewardProblem.EMPTY),
        (b"nan", RewardProblem.NAN),
        (b"-NaN\n", RewardProblem.NAN),
        (b"inf", RewardProblem.INFINITE),
        (b"-Infinity", RewardProblem.INFINITE),
        (b"1e999", RewardProblem.INFINITE),
        (b"1.5", RewardProblem.ABOVE_ONE),
        (b"1.0000001", RewardProblem.ABOVE_ONE),
        (b"-1", RewardProblem.BELOW_ZERO),
        (b"-1e-9", RewardProblem.BELOW_ZERO),
        (b"passed", RewardProblem.NOT_A_NUMBER),
        (b"1 0", RewardProblem.NOT_A_NUMBER),
        (b"1\n1\n", RewardProblem.NOT_A_NUMBER),
        (b"1_0", RewardProblem.NOT_A_NUMBER),
        (b"0x1", RewardProblem.NOT_A_NUMBER),
        (b"true", RewardProblem.NOT_A_NUMBER),
        ("١".encode(), RewardProblem.NOT_A_NUMBER),
        (b"\xff\xfe1\x00", RewardProblem.NOT_UTF8),
        (b" " * 70000 + b"1", RewardProblem.TOO_LARGE),
    ],
)
def test_malformed_text_is_named(text: bytes, problem: RewardProblem) -> None:
    verdict = read_reward({"reward.txt": text})
    assert isinstance(verdict, RewardMalformed)
    assert (verdict.problem, verdict.source) == (problem, "reward.txt")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", RewardProblem.EMPTY),
        ("{}", RewardProblem.EMPTY),
        ("1", RewardProblem.NOT_AN_OBJECT),
        ("[1]", RewardProblem.NOT_AN_OBJECT),
        ("{", RewardProblem.NOT_JSON),
        ("[" * 20000, RewardProblem.NOT_JSON),
        ('{"reward": NaN}', RewardProblem.NAN),
        ('{"reward": Infinity}', RewardProblem.INFINITE),
        ('{"reward": 1' + "0" * 5000 + "}", RewardProblem.INFINITE),
        ('{"reward": 1.5}', RewardProblem.ABOVE_ONE),
        ('{"reward": -1}', RewardProblem.BELOW_ZERO),
        ('{"reward": "1"}', RewardProblem.NOT_A_NUMBER),
        ('{"reward": true}', RewardProblem.NOT_A_NUMBER),
        ('{"reward": null}', RewardProblem.NOT_A_NUMBER),
        ('{"reward": {"reward": 1}}', RewardProblem.NOT_A_NUMBER),
        ('{"reward": 0, "reward": 1}', RewardProblem.REPEATED_KEY),
        ('{"a": 1, "b": 1}', RewardProblem.NO_MAIN_KEY),
        ('{"reward": 1, "time": NaN}', RewardProblem.NAN),
    ],
)
def test_malformed_json_is_named_and_outranks_a_good_text(text: str, problem: RewardProblem) -> None:
    verdict = read_reward({"reward.json": text.encode(), "reward.txt": b"1"})
    assert isinstance(verdict, RewardMalformed)
    assert (verdict.problem, verdict.source) == (problem, "reward.json")


def test_json_outranks_text_and_keeps_all_numbers() -> None:
    both = read_reward({"reward.txt": b"0", "reward.json": b'{"reward": 1, "seconds": 12.5}'})
    assert both == RewardNumber(value=1.0, source="reward.json", rewards={"reward": 1.0, "seconds": 12.5})
    assert read_reward({"reward.json": b'{"accuracy": 0.25}'}) == RewardNumber(
        value=0.25, source="reward.json", rewards={"accuracy": 0.25}
    )


@given(UNIT)
def test_every_number_in_the_unit_interval_is_read_exactly(value: float) -> None:
    for files in ({"reward.txt": f" {value!r}\n".encode()}, {"reward.json": json.dumps({"reward": value}).encode()}):
        verdict = read_reward(files)
        assert isinstance(verdict, RewardNumber)
        assert verdict.value == value
        assert str(verdict.value) != "-0.0"


@given(st.floats(allow_nan=True, allow_infinity=True).filter(lambda x: not 0 <= x <= 1))
def test_no_number_outside_is_read(value: float) -> None:
    for files in ({"reward.txt": repr(value).encode()}, {"reward.json": json.dumps({"reward": value}).encode()}):
        assert isinstance(read_reward(files), RewardMalformed)


@given(st.dictionaries(st.sampled_from(["reward.json", "reward.txt"]), st.binary(max_size=24), max_size=2))
def test_any_bytes_give_a_verdict_and_only_spelled_numbers_count(files: dict[str, bytes]) -> None:
    verdict = read_reward(files)
    assert isinstance(verdict, RewardMissing) == (not files)
    if isinstance(verdict, RewardNumber):
        assert 0.0 <= verdict.value <= 1.0
        text = files[verdict.source].decode("utf-8-sig")
        assert verdict.value == (
            float(text) if verdict.source == "reward.txt" else next(iter(verdict.rewards.values()))
        )


@pytest.mark.parametrize(
    ("output", "value"),
    [
        ("=== 3 passed in 0.12s ===\n", 1.0),
        ("3 passed, 2 warnings in 0.1s\n", 1.0),
        ("\x1b[31m==== \x1b[1m1 failed\x1b[0m, \x1b[32m2 passed\x1b[0m in 61.20s (0:01:01) ====\x1b[0m\r\n", 0.0),
        ("==== 2 passed, 1 error in 1s ====\n", 0.0),
        ("=== 9 passed in 1s ===\nagain\n=== 1 failed in 1s ===\n", 0.0),
        ("=== 1 passed, 1 skipped in 1.00s ===\nbye\n", 1.0),
    ],
)
def test_pytest_summaries(output: str, value: float) -> None:
    assert read_pytest_summary(output) == RewardNumber(value=value, source="output")


def test_a_run_without_tests_or_summary_has_no_verdict() -> None:
    assert isinstance(read_pytest_summary("bash: pytest: command not found\n"), RewardMissing)
    nothing = read_pytest_summary("=== 4 skipped in 0.01s ===\n")
    assert isinstance(nothing, RewardMalformed)
    assert nothing.problem is RewardProblem.NO_SUMMARY
