"""The kinds of checks: one file each, joined in one table by the type of their rule."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from flightschool.records import (
    AnswerCheck,
    CallCheck,
    CheckRule,
    CommandCheck,
    DateAnswerCheck,
    DiffCheck,
    FileCheck,
    Json,
    JsonAnswerCheck,
    JsonCheck,
    JudgeCheck,
    MilestoneCheck,
    MinefieldCheck,
    NumberAnswerCheck,
    PanelCheck,
    Record,
    SetAnswerCheck,
    SqlCheck,
    StateCheck,
)
from flightschool.verification.kinds.answer import ANSWER
from flightschool.verification.kinds.answer_date import ANSWER_DATE
from flightschool.verification.kinds.answer_json import ANSWER_JSON
from flightschool.verification.kinds.answer_number import ANSWER_NUMBER
from flightschool.verification.kinds.answer_set import ANSWER_SET
from flightschool.verification.kinds.base import Finding, Kind
from flightschool.verification.kinds.calls import CALLS
from flightschool.verification.kinds.command import COMMAND
from flightschool.verification.kinds.diff import DIFF
from flightschool.verification.kinds.file import FILE
from flightschool.verification.kinds.json_value import JSON_VALUE
from flightschool.verification.kinds.llm_judge import JUDGE
from flightschool.verification.kinds.milestones import MILESTONES, MINEFIELDS
from flightschool.verification.kinds.panel import PANEL
from flightschool.verification.kinds.sql import SQL
from flightschool.verification.kinds.state import STATE
from flightschool.verification.states import States

__all__ = ["KINDS", "Finding", "Kind", "expected_values", "judge", "problem_of"]

KINDS: Mapping[type[Record], Kind[Any]] = {
    SqlCheck: SQL,
    DiffCheck: DIFF,
    CallCheck: CALLS,
    AnswerCheck: ANSWER,
    StateCheck: STATE,
    JsonCheck: JSON_VALUE,
    FileCheck: FILE,
    CommandCheck: COMMAND,
    NumberAnswerCheck: ANSWER_NUMBER,
    DateAnswerCheck: ANSWER_DATE,
    SetAnswerCheck: ANSWER_SET,
    JsonAnswerCheck: ANSWER_JSON,
    JudgeCheck: JUDGE,
    MilestoneCheck: MILESTONES,
    MinefieldCheck: MINEFIELDS,
    PanelCheck: PANEL,
}


def judge(rule: CheckRule, states: States) -> Finding:
    """Judge one rule.

    Raises:
        InfrastructureError: it cannot be judged, and the policy could not have caused that.
    """
    return KINDS[type(rule)].judge(rule, states)


def problem_of(rule: CheckRule) -> str:
    """Why a rule is not usable, or an empty text."""
    return KINDS[type(rule)].problem(rule)


def expected_values(rule: CheckRule) -> Iterator[Json]:
    """Values that solve the rule: whoever looks for leaks looks for these in what the policy can see."""
    return KINDS[type(rule)].expected(rule)
