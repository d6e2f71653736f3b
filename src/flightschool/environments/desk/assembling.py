"""From cases to tasks and their sealed references.

The oracle is played on the real world, so worked examples and expected values are what the tools really answer.
Checks follow from the steps: nothing about them is written by hand, so no family can forget one.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from flightschool.environments.desk.casting import Case
from flightschool.environments.desk.families import Family
from flightschool.environments.desk.judging import checks_of
from flightschool.environments.desk.schema import Cell, StartState, open_image
from flightschool.environments.desk.steps import Played, play
from flightschool.environments.desk.toolset import REACH, TOOLS
from flightschool.records import Message, Reference, Task, ToolCall

__all__ = ["Assembled", "assemble"]

_SPARE_TURNS = 3


class Assembled(NamedTuple):
    """A family made concrete."""

    start: StartState
    """Initial state that all its tasks start from."""
    tasks: tuple[Task, ...]
    references: tuple[Reference, ...]


def assemble(family: Family, cases: Sequence[Case], names: Mapping[str, str]) -> Assembled:
    """Tasks of all cases but the last, which becomes their worked example.

    Args:
        names: the desk's own tool name → visible name.
    """
    start = StartState(_rows(cases), _tables(family))
    state = open_image(start.image)
    example = _example(family, cases[-1], start, names)
    shown = _shown(family, names)
    tasks, references = [], []
    for index, case in enumerate(cases[:-1]):
        played = play(family, case, start)
        task = Task(
            id=f"{family.name}-{index}",
            family=family.name,
            stratum=family.stratum,
            instruction=family.say.format_map(case.slots),
            initial_state=family.name,
            guidance=family.rule,
            tools=shown,
            example=example,
            max_turns=len(played) + _SPARE_TURNS,
        )
        tasks.append(task)
        references.append(_reference(family, task.id, played, state, names, twin=_twin(family, cases, index)))
    state.close()
    return Assembled(start=start, tasks=tuple(tasks), references=tuple(references))


def _rows(cases: Sequence[Case]) -> dict[str, list[dict[str, Cell]]]:
    tables: dict[str, list[dict[str, Cell]]] = {}
    for case in cases:
        for table, row in case.rows:
            tables.setdefault(table, []).append(row)
    return tables


def _wanted(family: Family) -> set[str]:
    """Tools of all variants and the distractors, by the desk's own names."""
    return {str(step["call"]) for step in family.steps} | set(family.extra)


def _tables(family: Family) -> frozenset[str]:
    """All that the shown tools can reach; see ``schema.py`` for why no more."""
    return frozenset[str]().union(*(REACH[tool] for tool in _wanted(family)))


def _shown(family: Family, names: Mapping[str, str]) -> tuple[str, ...]:
    """The tools that a task shows, in the environment's order, which tells nothing of the task."""
    wanted = _wanted(family)
    return tuple(names[tool.name] for tool in TOOLS if tool.name in wanted)


def _example(family: Family, case: Case, start: StartState, names: Mapping[str, str]) -> tuple[Message, ...]:
    messages = [Message(role="user", content=family.say.format_map(case.slots))]
    for number, step in enumerate(play(family, case, start)):
        call = ToolCall(id=f"example_{number}", name=names[step.call.name], arguments=step.call.arguments)
        messages.append(Message(role="assistant", tool_calls=(call,)))
        content = json.dumps(step.value, ensure_ascii=False)
        messages.append(Message(role="tool", content=content, tool_call_id=call.id))
    return (*messages, Message(role="assistant", content="Done."))


def _twin(family: Family, cases: Sequence[Case], index: int) -> str:
    """Pairs of neighbours: a case that must be declined and one that must not."""
    partner = index ^ 1
    if partner >= len(cases) - 1 or _declines(family, cases[index]) == _declines(family, cases[partner]):
        return ""
    return f"{family.name}-{partner}"


def _declines(family: Family, case: Case) -> bool:
    return any(step["call"] == "decline" for step in family.steps_of(case.variant))


def _reference(
    family: Family,
    task_id: str,
    played: Sequence[Played],
    state: sqlite3.Connection,
    names: Mapping[str, str],
    twin: str,
) -> Reference:
    oracle = [
        ToolCall(id=f"oracle_{number}", name=names[step.call.name], arguments=step.call.arguments)
        for number, step in enumerate(played)
    ]
    others = {str(step["call"]) for step in family.steps} - {step.call.name for step in played}
    return Reference(
        task_id=task_id,
        checks=checks_of(played, others, state, names),
        oracle=tuple(oracle),
        twin=twin,
        abstain=any(step.call.name == "decline" for step in played),
    )
