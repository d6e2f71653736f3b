"""The final message says certain texts."""

from __future__ import annotations

import re
from collections.abc import Iterator

from flightschool.records import AnswerCheck, Json
from flightschool.verification.kinds.base import Finding, Kind, show
from flightschool.verification.states import States

__all__ = ["ANSWER"]


def _judge(rule: AnswerCheck, states: States) -> Finding:
    answer = states.evidence.answer
    missing = [text for text in rule.contains if not _says(answer, text)]
    return Finding(not missing, f"answer {show(answer)}" + (f" lacks {show(missing)}" if missing else ""))


def _says(answer: str, text: str) -> bool:
    """Case-folded containment; a number is not found inside a longer number (15 is not said by 150 or 2.15)."""
    wanted = " ".join(text.casefold().split())
    head = r"(?<!\d)(?<!\d[.,])" if wanted[:1].isdigit() else ""
    tail = r"(?!\d)(?![.,]\d)" if wanted[-1:].isdigit() else ""
    return re.search(head + re.escape(wanted) + tail, " ".join(answer.casefold().split())) is not None


def _problem(rule: AnswerCheck) -> str:
    return "" if all(text.strip() for text in rule.contains or ("",)) else "an empty text is in every answer"


def _expected(rule: AnswerCheck) -> Iterator[Json]:
    return iter(rule.contains)


ANSWER = Kind(_judge, _problem, _expected)
