"""Rules of single checks, on the end state, the calls or the final answer: data, judged in another process."""

from __future__ import annotations

from typing import Literal

import msgspec

from flightschool.records.base import Json, Record


class SqlCheck(Record, frozen=True, kw_only=True, tag="sql"):
    """The query on the end state returns exactly ``expected`` (rows in any order unless the query orders them)."""

    query: str
    expected: tuple[tuple[Json, ...], ...]


class DiffCheck(Record, frozen=True, kw_only=True, tag="diff"):
    """Rows added, removed or changed against the initial state stay within ``allowed`` (table → most rows)."""

    allowed: dict[str, int]


class CallCheck(Record, frozen=True, kw_only=True, tag="calls"):
    """Between ``least`` and ``most`` *successful* calls of ``tool`` whose arguments contain ``arguments``."""

    tool: str
    arguments: dict[str, Json] = msgspec.field(default_factory=dict)
    least: int = 1
    most: int | None = None
    before: str | None = None
    """If set, only calls before the first successful call of this tool count."""


class AnswerCheck(Record, frozen=True, kw_only=True, tag="answer"):
    """The final message contains (case-folded) every one of ``contains``."""

    contains: tuple[str, ...]


FLOAT_NOISE = 1e-9
"""What arithmetic in floats may leave, in terms of the number: the default of ``relative``. Of whole numbers it says
nothing; they are equal or not, unless another bound is declared."""


class Comparison(Record, frozen=True, kw_only=True):
    """How a found value is held against an expected one, at every depth."""

    tolerance: float = 0.0
    """Largest absolute difference of two equal numbers."""
    relative: float = FLOAT_NOISE
    """Largest difference in terms of the expected number; the larger of the two bounds counts. The default holds for
    floats alone."""
    order: Literal["ordered", "set", "multiset", "by_key"] = "ordered"
    """How the items of lists find one another."""
    key: str = ""
    """Field that identifies an item; ``by_key`` only."""
    ignore: tuple[str, ...] = ()
    """Places that are not compared, as dotted paths; ``*`` stands for any one part: ``orders.*.updated_at``."""
    subset: bool = False
    """Whether found objects may have more keys than expected ones."""
    unit: str = ""
    """Unit of expected numbers; found texts with a unit are converted to it, bare numbers are taken to be in it."""


class StateCheck(Record, frozen=True, kw_only=True, tag="state"):
    """The end state is the expected one: tables of rows (as objects) of SQLite, top-level keys of JSON."""

    expected: dict[str, Json]
    compare: Comparison = Comparison(order="multiset")
    unnamed: Literal["unchanged", "ignored"] = "unchanged"
    """What holds for tables that ``expected`` does not name: as in the initial state, or anything."""


class JsonCheck(Record, frozen=True, kw_only=True, tag="json"):
    """The value at ``pointer`` (RFC 6901) of a JSON end state equals ``expected``."""

    expected: Json
    pointer: str = ""
    compare: Comparison = Comparison()


class FileCheck(Record, frozen=True, kw_only=True, tag="file"):
    """A file of the end state holds what is expected, or was removed (``absent``), or not written (``unwritten``)."""

    path: str
    format: Literal["text", "json", "jsonl", "csv", "sha256", "absent", "unwritten"] = "text"
    expected: Json = None
    """Text; JSON; list of rows; hex digest. Text is compared without line-end differences and trailing white space."""
    compare: Comparison = Comparison()


class CommandCheck(Record, frozen=True, kw_only=True, tag="command"):
    """A test command ends with 0 in a second, fresh sandbox that holds the end state."""

    command: tuple[str, ...]
    """Words; no shell sees them."""
    files: dict[str, str] = msgspec.field(default_factory=dict)
    """Tests and references by absolute path, laid over the end state: what the policy left there is gone."""
    timeout_s: float = 600.0
    junit: str = ""
    """Absolute path of a JUnit report that the command writes, in a folder of its own."""
    num_tests: int = 0
    """Tests that the report must show as run and passed: none collected, or all skipped, is no pass."""


class NumberAnswerCheck(Record, frozen=True, kw_only=True, tag="answer_number"):
    """The final message states one number (of a unit), and it is the expected one."""

    value: float
    unit: str = ""
    """Empty: a bare number, whatever word follows it."""
    tolerance: float = 0.0
    relative: float = FLOAT_NOISE
    """The default holds for fractions alone, as in ``Comparison``."""
    which: Literal["only", "last"] = "only"
    """``only``: all numbers stated are the expected one, so listing many passes nothing; ``last``: the last is."""
    after: str = ""
    """If set, only what follows the last occurrence of this text is read."""
    decimal: Literal[".", ","] = "."


class DateAnswerCheck(Record, frozen=True, kw_only=True, tag="answer_date"):
    """The final message states one calendar date, and it is the expected one."""

    date: str
    """ISO 8601, year-month-day."""
    slashes: Literal["refused", "day_first", "month_first"] = "refused"
    """How 03/05/2024 is read; ``refused``: only where one reading is possible."""
    which: Literal["only", "last"] = "only"
    after: str = ""


class SetAnswerCheck(Record, frozen=True, kw_only=True, tag="answer_set"):
    """The final message lists exactly the expected items: a JSON list, bullets, or items between commas."""

    items: tuple[str, ...]
    order: Literal["ordered", "set", "multiset"] = "set"
    after: str = ""


class JsonAnswerCheck(Record, frozen=True, kw_only=True, tag="answer_json"):
    """The final message is JSON, or holds exactly one fenced block of it, and it equals ``expected``."""

    expected: Json
    compare: Comparison = Comparison()
    after: str = ""


class JudgeCheck(Record, frozen=True, kw_only=True, tag="judge"):
    """A language model says that the answer meets a criterion, asked more than once with the options swapped."""

    criterion: str
    endpoint: str
    """``openai:URL#MODEL``: any server of the OpenAI chat format."""
    key_env: str = "OPENAI_API_KEY"
    """Environment variable that holds the key; servers without keys: an empty text."""
    reference: str = ""
    """What a right answer says; shown to the judge alone."""
    shows: tuple[Literal["answer", "calls"], ...] = ("answer",)
    votes: int = 2
    """Times that the judge is asked; the order of the two options alternates."""
    quorum: Literal["all", "majority"] = "all"
    least_words: int = 2
    """Shorter answers are not put before the judge and do not pass."""
    most_characters: int = 20_000
    """Longer answers neither."""
    timeout_s: float = 60.0
