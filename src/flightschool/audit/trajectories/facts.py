"""What the scan knows of an environment's tasks, read from their sealed side."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from flightschool.audit.trajectories.records import TaskFacts
from flightschool.audit.values import is_prose, parameter_schema
from flightschool.audit.view import secrets_of, stands_in
from flightschool.digest import canonical_json
from flightschool.errors import FlightschoolError
from flightschool.protocols import Environment
from flightschool.records import (
    CallCheck,
    CheckRule,
    Effect,
    JudgeCheck,
    MilestoneCheck,
    PanelCheck,
    Reference,
    SqlCheck,
    Task,
    ToolCall,
    ToolSpec,
)

__all__ = ["SHORTEST_SEALED", "elements", "facts_of", "sealed_texts"]

SHORTEST_SEALED = 24
"""Shorter texts of checks are words that a tool's answer may hold by itself."""
_NAME = re.compile(r"(?=.*[A-Za-z])[^\s]{3,}")
"""One word with a letter: numbers and dates may be computed, so that they stand nowhere before they are written."""
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


def facts_of(environment: Environment, tasks: Iterable[Task] | None = None) -> dict[str, TaskFacts]:
    """Digest of the task → facts, of these tasks or of all.

    Tasks whose sealed side cannot be read have their family and stratum alone.
    """
    specs = {spec.name: spec for spec in environment.tools()}
    found: dict[str, TaskFacts] = {}
    for task in environment.tasks() if tasks is None else tasks:
        plain = TaskFacts(task=task.id, family=task.family, stratum=task.stratum)
        try:
            found[task.digest] = _facts(task, environment.reference(task.id), specs)
        except FlightschoolError:
            found[task.digest] = plain
    return found


def elements(calls: Sequence[ToolCall]) -> frozenset[str]:
    """What calls do: tool, parameter and value, prose left out (it is worded freely); tools without arguments."""
    found = {call.name for call in calls}
    for call in calls:
        for parameter, value in call.arguments.items():
            if not is_prose(value):
                found.add(f"{call.name}.{parameter}={canonical_json(value).decode()}")
    return frozenset(found)


def _facts(task: Task, reference: Reference, specs: Mapping[str, ToolSpec]) -> TaskFacts:
    expected = (text for _, text in secrets_of(task, reference, (), specs))
    rules = [check.rule for check in reference.checks]
    named = {tool for rule in rules for tool in _tools(rule)}
    return TaskFacts(
        task=task.id,
        family=task.family,
        stratum=task.stratum,
        num_oracle_calls=len(reference.oracle) if reference.oracle else None,
        oracle=elements(reference.oracle),
        tools=frozenset({call.name for call in reference.oracle} | named),
        written=frozenset(
            text for text in (*_written(reference.oracle, specs), *expected) if _is_name(text, task.instruction)
        ),
        sealed=tuple(text for rule in rules for text in sealed_texts(rule) if len(text) >= SHORTEST_SEALED),
    )


def _is_name(text: str, instruction: str) -> bool:
    return _NAME.fullmatch(text) is not None and _DATE.search(text) is None and not stands_in(text, instruction)


def _written(oracle: Sequence[ToolCall], specs: Mapping[str, ToolSpec]) -> Iterator[str]:
    for call in oracle:
        spec = specs.get(call.name)
        if spec is None or spec.effect is Effect.READ:
            continue
        for parameter, value in call.arguments.items():
            if isinstance(value, str) and "enum" not in parameter_schema(spec, parameter):
                yield value


def _tools(rule: CheckRule) -> Iterator[str]:
    if isinstance(rule, CallCheck):
        yield rule.tool
    elif isinstance(rule, MilestoneCheck):
        yield from (milestone.tool for milestone in rule.milestones if milestone.tool)
    elif isinstance(rule, PanelCheck):
        for member in rule.members:
            yield from _tools(member.rule)


def sealed_texts(rule: CheckRule) -> Iterator[str]:
    """Texts of a check that nothing but the grader holds."""
    if isinstance(rule, SqlCheck):
        yield rule.query
    elif isinstance(rule, JudgeCheck):
        yield from (rule.criterion, rule.reference)
    elif isinstance(rule, PanelCheck):
        for member in rule.members:
            yield from sealed_texts(member.rule)
