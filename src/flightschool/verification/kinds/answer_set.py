"""The final message lists exactly the expected items."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from flightschool.records import Json, SetAnswerCheck
from flightschool.verification.kinds.base import Finding, Kind, show
from flightschool.verification.kinds.extract import part_after
from flightschool.verification.kinds.file import strict_json
from flightschool.verification.states import States

__all__ = ["ANSWER_SET"]

_BULLET = re.compile(r"^\s*(?:[-*•–]|\d{1,3}[.)])\s+(.*\S)\s*$")
_AND = re.compile(r"\s+(?:and|und|et|y|&)\s+", re.IGNORECASE)
_LEADING_AND = re.compile(r"^(?:and|und|et|y|&)\s+", re.IGNORECASE)
_MOST_CHARACTERS = 100_000


def _judge(rule: SetAnswerCheck, states: States) -> Finding:
    said = part_after(states.evidence.answer, rule.after)
    if said is None:
        return Finding(False, f"answer {show(states.evidence.answer)} lacks {show(rule.after)}")
    if len(said) > _MOST_CHARACTERS:
        return Finding(False, f"an answer of {len(said)} characters is no list")
    readings = [[_folded(item) for item in items] for items in _readings(said)]
    wanted = [_folded(item) for item in rule.items]
    found = next((reading for reading in readings if _same(rule, reading, wanted)), readings[0])
    passed = _same(rule, found, wanted)
    missing = sorted((Counter(wanted) - Counter(found)).keys())
    extra = sorted(set(found) - set(wanted))
    text = f"answer lists {show(found)}"
    text += f", lacks {show(missing)}" if missing else ""
    text += f", and {show(extra)} beyond" if extra else ""
    return Finding(passed, text)


def _same(rule: SetAnswerCheck, found: list[str], wanted: list[str]) -> bool:
    if rule.order == "ordered":
        return found == wanted
    if rule.order == "multiset":
        return Counter(found) == Counter(wanted)
    return set(found) == set(wanted)


def _readings(text: str) -> list[list[str]]:
    """Items of a JSON list; else of bullets, if any line is one; else of what stands between commas and semicolons.

    There an "and" may part two items or belong to one ("nuts and bolts"): both readings count.
    """
    try:
        value = strict_json(text.strip())
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, list):
        return [[item if isinstance(item, str) else show(item) for item in value]]
    bullets = [match.group(1) for line in text.splitlines() if (match := _BULLET.match(line))]
    if bullets:
        return [bullets]
    parts = [re.sub(_LEADING_AND, "", part.strip()) for part in re.split(r"[,;\n]", text) if part.strip()]
    apart = [one for part in parts for one in re.split(_AND, part)]
    return [apart, parts]


def _folded(item: str) -> str:
    return " ".join(item.casefold().split()).strip(" .\"'`")


def _problem(rule: SetAnswerCheck) -> str:
    folded = [_folded(item) for item in rule.items]
    if not all(folded):
        return "an item is empty"
    if not folded:
        return "an empty list is what every answer without items says"
    if rule.order == "set" and len(set(folded)) < len(folded):
        return "two items of a set are the same"
    return ""


def _expected(rule: SetAnswerCheck) -> Iterator[Json]:
    return iter(rule.items)


ANSWER_SET = Kind(_judge, _problem, _expected)
