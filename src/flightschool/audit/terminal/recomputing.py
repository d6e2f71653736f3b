"""Truths worked out again, independently of reference and tests: a label that differs from them is wrong.

Only what the instruction asks for in plain words and the inputs in view decide: a function of each line, the digest of
a file, how many rows follow a header, the sum of a column. Where the reference agrees, or the words are not understood,
nothing is said.
"""

from __future__ import annotations

import csv
import hashlib
import io
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from typing import Final

from flightschool.audit.terminal.in_view import InView
from flightschool.audit.terminal.outputs import Output

__all__ = ["truths_of"]

_DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_DATE: Final = re.compile(r"(?<!\d)(\d{4})-(\d\d)-(\d\d)(?!\d)")
_FILTERED: Final = re.compile(
    r"\b(?:where|whose|which|with|without|only|above|below|over|under|per|each|except|other than"
    r"|distinct|unique|different|not"
    r"|non|empty|valid|after|before|between|more|less|at least|at most|greater|if|unless|ignor\w*"
    r"|skip\w*|exclud\w*|blank)\b",
    re.I,
)
_HEADER: Final = re.compile(r"\bheader|\bhead line|first line (?:names|holds|has|gives|contains)|column names", re.I)
_HOW_MANY: Final = re.compile(
    r"how many (\w+)(?: there are| are there| it has)?|(?:the )?(?:number|count) of (\w+)", re.I
)
_ROWS: Final = re.compile(r"rows?|records?|entries|readings?|measurements?|samples?|people|orders?|items?|\w+s", re.I)
_COLUMN: Final = re.compile(
    r"\b(sum|total|maximum|minimum) of (?:the |all )?(?:column |values of |values in )?[`'\"]?(\w+)[`'\"]?"
    r"(?: column)? (?:of|in) [`'\"]?(/[\w./-]+\.(?:csv|tsv))",
    re.I,
)


def truths_of(output: Output, view: InView) -> Iterator[tuple[str, str]]:
    """The right text where the reference's is wrong, and why."""
    if output.before is not None or output.kind not in ("text", "table"):
        return
    yield from _of_lines(output.text, view)
    yield from _of_header(output.text, view)
    yield from _of_digest(output.text, view)
    yield from _of_column(output.text, view)


# ------------------------------------------------------------------------------------------------ line by line


def _weekday(line: str) -> str:
    match = _DATE.search(line)
    if match is None:
        return ""
    try:
        return _DAYS[date(*map(int, match.groups())).weekday()]
    except ValueError:
        return ""


def _in_base(base: str) -> Callable[[str], str]:
    return lambda line: format(int(line), base) if re.fullmatch(r"\d{1,18}", line) else ""


def _roman(line: str) -> str:
    if not re.fullmatch(r"\d{1,4}", line) or not 0 < int(line) < 4000:
        return ""
    left, text = int(line), ""
    for value, letters in zip(
        (1000, 900, 500, 400, 100, 90, 50, 40, 10, 9, 5, 4, 1),
        ("M", "CM", "D", "CD", "C", "XC", "L", "XL", "X", "IX", "V", "IV", "I"),
        strict=True,
    ):
        while left >= value:
            text, left = text + letters, left - value
    return text


def _hashed(name: str) -> Callable[[str], str]:
    return lambda line: hashlib.new(name, line.encode(), usedforsecurity=False).hexdigest()


_OF_LINES: Final[tuple[tuple[re.Pattern[str], Callable[[str], str]], ...]] = (
    (re.compile(r"weekdays?|day of the week|days of the week", re.I), _weekday),
    (re.compile(r"\bbinary\b", re.I), _in_base("b")),
    (re.compile(r"hexadecimal", re.I), _in_base("x")),
    (re.compile(r"\broman\b", re.I), _roman),
    (re.compile(r"upper ?-?case|capital letters", re.I), str.upper),
    (re.compile(r"lower ?-?case|small letters", re.I), str.lower),
    (re.compile(r"\blengths?\b|how (?:long|many (?:characters|letters))", re.I), lambda line: str(len(line))),
    (re.compile(r"\breverse|\bbackwards", re.I), lambda line: line[::-1]),
    (re.compile(r"\bsquares?\b(?! roots?)", re.I), lambda line: str(int(line) ** 2) if line.isdigit() else ""),
    (re.compile(r"sha-?256", re.I), _hashed("sha256")),
    (re.compile(r"\bmd5", re.I), _hashed("md5")),
)


def _of_lines(text: str, view: InView) -> Iterator[tuple[str, str]]:
    """One function of every line: the reference agrees with it on most lines and errs on the others."""
    lines = [line.strip() for line in text.strip().splitlines()]
    if len(lines) < 3:
        return
    for source in view.inputs.values():
        given = [line.strip() for line in source.strip().splitlines()]
        if len(given) != len(lines):
            continue
        for asked, function in _OF_LINES:
            if not asked.search(view.instruction):
                continue
            right = [function(line) for line in given]
            told = [_last(line, want) for line, want in zip(lines, right, strict=True)]
            wrong = [at for at, (one, want) in enumerate(zip(told, right, strict=True)) if one != want]
            if all(right) and 0 < len(wrong) <= len(lines) / 3:
                fixed = _corrected(lines, told, right, wrong)
                at = wrong[0]
                yield fixed, f"{right[at]!r} for {given[at]!r} in line {at + 1}, where the reference says {told[at]!r}"
                return


def _last(line: str, want: str) -> str:
    """What a line says of its input: all of it, or its last word where it repeats the input before."""
    if len(want.split()) != 1 or len(line.split()) < 2:
        return line
    return re.split(r"[\s,;:=]+", line)[-1]


def _corrected(lines: Sequence[str], told: Sequence[str], right: Sequence[str], wrong: Sequence[int]) -> str:
    fixed = [line[: len(line) - len(told[at])] + right[at] if at in wrong else line for at, line in enumerate(lines)]
    return "\n".join(fixed) + "\n"


# ------------------------------------------------------------------------------------------------ one number


def _of_header(text: str, view: InView) -> Iterator[tuple[str, str]]:
    """How many rows follow a header, where the reference counts the header too."""
    asked = _HOW_MANY.search(view.instruction)
    if asked is None or not _HEADER.search(view.instruction) or not re.fullmatch(r"\s*\d+\s*", text):
        return
    around = view.instruction[max(0, asked.start() - 10) : asked.end() + 60]
    if _FILTERED.search(around) or re.search(r"\blines?\b|columns?|fields?", asked.group(), re.I):
        return
    for path, source in view.inputs.items():
        lines = [line for line in source.splitlines() if line.strip()]
        if path in view.instruction and len(lines) == int(text) and len(lines) > 1:
            yield f"{len(lines) - 1}\n", f"{len(lines) - 1}, since the first of the {len(lines)} lines is the header"


def _of_digest(text: str, view: InView) -> Iterator[tuple[str, str]]:
    """The digest of a whole file that the instruction names beside the function."""
    answer = text.strip().lower()
    asked = re.search(
        r"\b(sha-?(?:1|256|512)|md5) (?:sum |hash |digest |checksum )?of (?:the file )?[`'\"]?(/[\w./-]+\w)",
        view.instruction,
        re.I,
    )
    if asked is None or not re.fullmatch(r"[0-9a-f]{32,128}", answer):
        return
    source = view.inputs.get(asked.group(2))
    name = asked.group(1).lower().replace("-", "")
    if source is None or "\ufffd" in source:
        return
    right = hashlib.new(name, source.encode(), usedforsecurity=False).hexdigest()
    if right != answer and len(right) == len(answer):
        yield right + "\n", f"the {asked.group(1)} of {asked.group(2)} as it is"


def _of_column(text: str, view: InView) -> Iterator[tuple[str, str]]:
    """Sum, maximum or minimum of a whole column of integers that the instruction names with its file."""
    asked = _COLUMN.search(view.instruction)
    answer = re.fullmatch(r"\s*(-?\d+)\s*", text)
    source = view.inputs.get(asked.group(3), "") if asked else ""
    if asked is None or answer is None or not source or _FILTERED.search(view.instruction):
        return
    rows = list(csv.DictReader(io.StringIO(source), delimiter="\t" if asked.group(3).endswith(".tsv") else ","))
    cells = [row.get(asked.group(2)) or "" for row in rows]
    if len(cells) < 2 or not all(re.fullmatch(r"-?\d+", cell.strip()) for cell in cells):
        return
    numbers = [int(cell) for cell in cells]
    name = asked.group(1).lower()
    right = sum(numbers) if name in ("sum", "total") else max(numbers) if name == "maximum" else min(numbers)
    if right != int(answer.group(1)):
        yield f"{right}\n", f"{right}, the {name} of the column {asked.group(2)}"
