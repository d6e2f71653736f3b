"""Checks as declared: rules made of other rules, a rule with its kind and weight, and the sealed side of a task."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, TypeAlias

import msgspec

from flightschool.records.base import Json, Record
from flightschool.records.rules import (
    AnswerCheck,
    CallCheck,
    CommandCheck,
    DateAnswerCheck,
    DiffCheck,
    FileCheck,
    JsonAnswerCheck,
    JsonCheck,
    JudgeCheck,
    NumberAnswerCheck,
    SetAnswerCheck,
    SqlCheck,
    StateCheck,
)
from flightschool.records.tools import ToolCall


class CheckKind(StrEnum):
    """What a failed check means."""

    FUNCTIONAL = "functional"  # part of the outcome
    CONSTRAINT = "constraint"  # a violation: gates the reward
    PROCESS = "process"  # shapes, bounded


class Milestone(Record, frozen=True, kw_only=True):
    """Something that happens on the way: a successful call, or a state at the end."""

    id: str
    tool: str = ""
    arguments: dict[str, Json] = msgspec.field(default_factory=dict)
    result: Json = None
    """If set, part of the result's JSON."""
    times: int = 1
    """Matching calls that it takes."""
    after: tuple[str, ...] = ()
    """Milestones that must be reached in an earlier turn: calls of one turn ran in parallel, none knew the other."""
    state: CheckRule | None = None
    """Instead of a call: what must hold of the end state."""


class MilestoneCheck(Record, frozen=True, kw_only=True, tag="milestones"):
    """Milestones are reached, each after those that it names."""

    milestones: tuple[Milestone, ...]
    targets: tuple[str, ...] = ()
    """Those that this check asks for; empty: all."""


class Minefield(Record, frozen=True, kw_only=True):
    """Something that must not happen: a call, or a state at the end."""

    id: str
    tool: str = ""
    arguments: dict[str, Json] = msgspec.field(default_factory=dict)
    attempts: bool = False
    """Whether calls that failed or were denied count too."""
    unless_after: str = ""
    """A milestone; calls in a later turn than it was reached are free."""
    state: CheckRule | None = None
    """Instead of a call: what must *not* hold of the end state."""


class MinefieldCheck(Record, frozen=True, kw_only=True, tag="minefields"):
    """None of the minefields was stepped on."""

    mines: tuple[Minefield, ...]
    milestones: tuple[Milestone, ...] = ()
    """Those that ``unless_after`` names, with all that these come after."""


class PanelMember(Record, frozen=True, kw_only=True):
    """One rule of a panel."""

    name: str
    rule: CheckRule
    author: str = ""


class PanelCheck(Record, frozen=True, kw_only=True, tag="panel"):
    """Several independent rules on the same question; how they differ is kept in the check's votes."""

    members: tuple[PanelMember, ...]
    decision: Literal["majority", "all", "veto"] = "all"
    """``majority``: more than half pass; ``all``; ``veto``: a majority, and none of ``veto`` is against."""
    veto: tuple[str, ...] = ()
    """Members whose no decides."""


CheckRule: TypeAlias = (
    SqlCheck
    | DiffCheck
    | CallCheck
    | AnswerCheck
    | StateCheck
    | JsonCheck
    | FileCheck
    | CommandCheck
    | NumberAnswerCheck
    | DateAnswerCheck
    | SetAnswerCheck
    | JsonAnswerCheck
    | JudgeCheck
    | MilestoneCheck
    | MinefieldCheck
    | PanelCheck
)


class CheckSpec(Record, frozen=True, kw_only=True):
    """A check as declared: data, so that it has a digest and can be judged in another process."""

    id: str
    kind: CheckKind
    rule: CheckRule
    weight: float = 1.0
    author: str = "environment"


class Reference(Record, frozen=True, kw_only=True):
    """The sealed side of a task: what it takes to judge it. Never given to a harness, a session or a policy."""

    task_id: str
    checks: tuple[CheckSpec, ...]
    oracle: tuple[ToolCall, ...] = ()
    """A sequence of calls that solves the task; empty when none is known."""
    oracle_answer: str = "Done."
    """The final message after the oracle's calls."""
    twin: str = ""
    """Id of the permitted twin of a must-abstain task (and the reverse)."""
    abstain: bool = False
    """Whether the right act is an explicit ``decline``."""
