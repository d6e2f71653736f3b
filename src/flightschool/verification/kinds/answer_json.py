"""The final message is JSON, or holds exactly one block of it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from flightschool.records import Json, JsonAnswerCheck
from flightschool.verification.comparing import comparison_problem, differences
from flightschool.verification.kinds.base import Finding, Kind, show
from flightschool.verification.kinds.extract import part_after
from flightschool.verification.kinds.file import strict_json
from flightschool.verification.kinds.state import leaves
from flightschool.verification.states import States

__all__ = ["ANSWER_JSON"]

_FENCED = re.compile(r"^```[a-zA-Z]*[ \t]*\n(.*?)^```[ \t]*$", re.DOTALL | re.MULTILINE)


def _judge(rule: JsonAnswerCheck, states: States) -> Finding:
    said = part_after(states.evidence.answer, rule.after)
    if said is None:
        return Finding(False, f"answer {show(states.evidence.answer)} lacks {show(rule.after)}")
    blocks = _FENCED.findall(said)
    if len(blocks) > 1:
        return Finding(False, f"the answer holds {len(blocks)} blocks; which is meant is not guessed")
    try:
        value = strict_json(blocks[0] if blocks else said.strip())
    except (ValueError, RecursionError) as error:
        return Finding(False, f"answer {show(said)} is no JSON: {str(error)[:120]}")
    wrong = differences(value, rule.expected, rule.compare)
    return Finding(not wrong, "; ".join(map(str, wrong[:8])) or f"answer {show(value)}")


def _problem(rule: JsonAnswerCheck) -> str:
    return comparison_problem(rule.compare, rule.expected)


def _expected(rule: JsonAnswerCheck) -> Iterator[Json]:
    return leaves(rule.expected)


ANSWER_JSON = Kind(_judge, _problem, _expected)
