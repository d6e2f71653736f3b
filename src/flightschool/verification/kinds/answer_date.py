"""The final message states one calendar date, in one of the ways in which dates are written."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date

from flightschool.records import DateAnswerCheck, Json
from flightschool.verification.kinds.base import Finding, Kind, show
from flightschool.verification.kinds.extract import part_after
from flightschool.verification.states import States

__all__ = ["ANSWER_DATE"]

_MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
_NUMBER_OF = {name: number for number, name in enumerate(_MONTHS, start=1)}
_NUMBER_OF |= {name[:3]: number for name, number in _NUMBER_OF.items()} | {"sept": 9}
_NAME = "|".join(sorted(_NUMBER_OF, key=len, reverse=True))
_DAY = r"(?P<d>\d{1,2})(?:st|nd|rd|th)?"
_FORMS = re.compile(
    rf"(?<!\d)(?<!\d[-/.])(?:(?P<iso>(?P<iy>\d{{4}})[-/](?P<im>\d{{1,2}})[-/](?P<id>\d{{1,2}}))"
    rf"|{_DAY}\.?\s+(?:of\s+)?(?P<m>{_NAME})\.?,?\s+(?P<y>\d{{4}})"
    rf"|(?P<m2>{_NAME})\.?\s+{_DAY.replace('<d>', '<d2>')},?\s+(?P<y2>\d{{4}})"
    rf"|(?P<dd>\d{{1,2}})\.\s?(?P<dm>\d{{1,2}})\.\s?(?P<dy>\d{{4}})"
    rf"|(?P<sa>\d{{1,2}})/(?P<sb>\d{{1,2}})/(?P<sy>\d{{4}}))(?!\d)(?![-/.]\d)",
    re.IGNORECASE | re.ASCII,
)


def _judge(rule: DateAnswerCheck, states: States) -> Finding:
    said = part_after(states.evidence.answer, rule.after)
    if said is None:
        return Finding(False, f"answer {show(states.evidence.answer)} lacks {show(rule.after)}")
    found = list(_dates(said, rule.slashes))
    if not found:
        return Finding(False, f"answer {show(said)} states no date; expected {rule.date}")
    counted = found[-1:] if rule.which == "last" else found
    passed = all(one == rule.date for one in counted)
    return Finding(passed, f"answer states {', '.join(found[:8])}; expected {rule.date}")


def _dates(text: str, slashes: str) -> Iterator[str]:
    """All dates of a text; those that do not exist, or can be read two ways, as written."""
    for match in _FORMS.finditer(text):
        part = match.groupdict()
        if part["iso"]:
            yield _iso(match, part["iy"], part["im"], part["id"])
        elif part["m"]:
            yield _iso(match, part["y"], str(_NUMBER_OF[part["m"].lower()]), part["d"])
        elif part["m2"]:
            yield _iso(match, part["y2"], str(_NUMBER_OF[part["m2"].lower()]), part["d2"])
        elif part["dd"]:
            yield _iso(match, part["dy"], part["dm"], part["dd"])
        else:
            yield _slashed(match, slashes)


def _slashed(match: re.Match[str], slashes: str) -> str:
    first, second, year = match["sa"], match["sb"], match["sy"]
    if slashes == "day_first":
        return _iso(match, year, second, first)
    if slashes == "month_first":
        return _iso(match, year, first, second)
    readings = {one for one in (_iso(match, year, second, first), _iso(match, year, first, second)) if "/" not in one}
    return readings.pop() if len(readings) == 1 else match.group()


def _iso(match: re.Match[str], year: str, month: str, day: str) -> str:
    try:
        return date(int(year), int(month), int(day)).isoformat()
    except ValueError:
        return match.group()


def _problem(rule: DateAnswerCheck) -> str:
    try:
        good = date.fromisoformat(rule.date).isoformat() == rule.date
    except ValueError:
        good = False
    return "" if good else f"{rule.date!r} is no date of the form 2024-03-05"


def _expected(rule: DateAnswerCheck) -> Iterator[Json]:
    yield rule.date


ANSWER_DATE = Kind(_judge, _problem, _expected)
