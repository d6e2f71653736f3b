"""What the tests of a task said: a number, a malformed verdict, or none. Pure functions of bytes.

A grader that crashed, ran out of time or was tampered with must not look like a failed or a passed task, so nothing
here has a default: whoever gets no ``RewardNumber`` has an infrastructure failure in hand (invariant 1).

Precedence: ``reward.json`` outranks ``reward.txt`` whenever it exists. A malformed ``reward.json`` is malformed; the
text file beside it is not asked, since two verdicts that disagree are a sign that something else wrote one.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import TypeAlias

import msgspec

from flightschool.records import Json, Record

__all__ = [
    "RewardMalformed",
    "RewardMissing",
    "RewardNumber",
    "RewardProblem",
    "RewardReading",
    "read_pytest_summary",
    "read_reward",
]

JSON_NAME = "reward.json"
TEXT_NAME = "reward.txt"
MAIN_KEY = "reward"
MAX_REWARD_BYTES = 1 << 16
"""A verdict is a few numbers; a larger file is not parsed."""

_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_NAN = re.compile(r"[+-]?nan", re.IGNORECASE)
_INFINITY = re.compile(r"[+-]?inf(?:inity)?", re.IGNORECASE)


class RewardProblem(StrEnum):
    """What is wrong with a verdict."""

    EMPTY = "empty"
    TOO_LARGE = "too_large"
    NOT_UTF8 = "not_utf8"
    NOT_A_NUMBER = "not_a_number"  # text, null, a list, true …
    NAN = "nan"
    INFINITE = "infinite"
    ABOVE_ONE = "above_one"
    BELOW_ZERO = "below_zero"
    NOT_JSON = "not_json"
    NOT_AN_OBJECT = "not_an_object"
    REPEATED_KEY = "repeated_key"
    NO_MAIN_KEY = "no_main_key"  # several numbers, none of them called ``reward``
    NO_SUMMARY = "no_summary"  # the tests printed no summary that can be read


class RewardNumber(Record, frozen=True, kw_only=True, tag="number"):
    """The verdict is a number."""

    value: float
    """0..1."""
    source: str
    """File, or ``output`` for a printed summary."""
    rewards: dict[str, float] = msgspec.field(default_factory=dict)
    """All numbers of ``reward.json`` by key; finite, not bound to 0..1 but for the one that counts."""


class RewardMalformed(Record, frozen=True, kw_only=True, tag="malformed"):
    """There is a verdict and it says no number in 0..1."""

    problem: RewardProblem
    source: str
    detail: str
    """The offending value, cut."""


class RewardMissing(Record, frozen=True, kw_only=True, tag="missing"):
    """The tests left no verdict."""

    looked_for: tuple[str, ...] = (JSON_NAME, TEXT_NAME)


RewardReading: TypeAlias = RewardNumber | RewardMalformed | RewardMissing


class _MalformedError(Exception):
    def __init__(self, problem: RewardProblem, detail: object) -> None:
        super().__init__(problem)
        self.problem = problem
        self.detail = str(detail)[:80]


def read_reward(files: Mapping[str, bytes]) -> RewardReading:
    """The verdict in the files that the tests left in ``/logs/verifier``, by plain file name. Never raises."""
    name = next((name for name in (JSON_NAME, TEXT_NAME) if name in files), None)
    if name is None:
        return RewardMissing()
    try:
        text = _text(files[name])
        rewards = _json_rewards(text) if name == JSON_NAME else {MAIN_KEY: _plain_number(text)}
        return RewardNumber(value=_main(rewards), source=name, rewards=rewards)
    except _MalformedError as error:
        return RewardMalformed(problem=error.problem, source=name, detail=error.detail)


def _text(data: bytes) -> str:
    if len(data) > MAX_REWARD_BYTES:
        raise _MalformedError(RewardProblem.TOO_LARGE, f"{len(data)} bytes")
    try:
        text = data.decode("utf-8-sig").strip()
    except UnicodeDecodeError as error:
        raise _MalformedError(RewardProblem.NOT_UTF8, f"byte {error.start}") from None
    if not text:
        raise _MalformedError(RewardProblem.EMPTY, "")
    return text


def _plain_number(text: str) -> float:
    # float() alone would take "1_0", "١" and "infinity".
    if _NUMBER.fullmatch(text):
        return _finite(float(text))
    if _NAN.fullmatch(text):
        raise _MalformedError(RewardProblem.NAN, text)
    if _INFINITY.fullmatch(text):
        raise _MalformedError(RewardProblem.INFINITE, text)
    raise _MalformedError(RewardProblem.NOT_A_NUMBER, text)


def _json_rewards(text: str) -> dict[str, float]:
    try:
        value = json.loads(text, object_pairs_hook=_unrepeated, parse_int=_integer)
    except (ValueError, RecursionError) as error:
        raise _MalformedError(RewardProblem.NOT_JSON, error) from None
    if not isinstance(value, dict):
        raise _MalformedError(RewardProblem.NOT_AN_OBJECT, text)
    if not value:
        raise _MalformedError(RewardProblem.EMPTY, text)
    return {key: _json_number(key, number) for key, number in value.items()}


def _integer(digits: str) -> float:
    # Integers of thousands of digits are refused by int(); as a float they are what they mean: infinite.
    return float(digits)


def _unrepeated(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise _MalformedError(RewardProblem.REPEATED_KEY, ", ".join(key for key, _ in pairs))
    return value


def _json_number(key: str, value: Json) -> float:
    if not isinstance(value, float):
        raise _MalformedError(RewardProblem.NOT_A_NUMBER, f"{key} = {value!r}")
    return _finite(value)


def _finite(value: float) -> float:
    if math.isnan(value):
        raise _MalformedError(RewardProblem.NAN, value)
    if math.isinf(value):
        raise _MalformedError(RewardProblem.INFINITE, value)
    return value + 0.0  # -0.0 becomes 0.0


def _main(rewards: dict[str, float]) -> float:
    if MAIN_KEY in rewards:
        value = rewards[MAIN_KEY]
    elif len(rewards) == 1:
        value = next(iter(rewards.values()))
    else:
        raise _MalformedError(RewardProblem.NO_MAIN_KEY, ", ".join(rewards))
    if value > 1.0:
        raise _MalformedError(RewardProblem.ABOVE_ONE, value)
    if value < 0.0:
        raise _MalformedError(RewardProblem.BELOW_ZERO, value)
    return value


# ------------------------------------------------------------------------------------------------ printed summaries

_SUMMARY_LINE = re.compile(r"^=* *((?:\d+ [a-z]+(?:, )?)+) in [\d.:]+s?(?: \([\d:]+\))? *=*$", re.MULTILINE)
_COUNT = re.compile(r"(\d+) ([a-z]+)")
_BAD = ("failed", "error", "errors")


def read_pytest_summary(output: str) -> RewardReading:
    """The verdict of pytest's last summary line (``3 passed, 1 failed in 0.10s``), as Terminal-Bench 1 judges.

    1 when at least one test passed and none failed or errored, 0 when one did. A run that tested nothing, or that
    printed no summary, has no verdict. Who can write to the output can forge it, so it is only read from a sandbox
    that the agent never touched.
    """
    plain = re.sub(r"\x1b\[[0-9;]*m", "", output).replace("\r\n", "\n")
    lines = _SUMMARY_LINE.findall(plain)
    if not lines:
        return RewardMissing(looked_for=("summary line of pytest",))
    counts = {word: int(count) for count, word in _COUNT.findall(lines[-1])}
    if any(counts.get(word) for word in _BAD):
        return RewardNumber(value=0.0, source="output")
    if counts.get("passed"):
        return RewardNumber(value=1.0, source="output")
    return RewardMalformed(problem=RewardProblem.NO_SUMMARY, source="output", detail=lines[-1])
