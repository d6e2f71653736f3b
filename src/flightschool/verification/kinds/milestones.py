"""Milestones that must be reached in a partial order, and minefields that must not be stepped on.

A milestone is a successful call (or a state at the end). It may come *after* others: then only calls of a later turn
count than the one in which those were reached, since calls of one turn run in parallel and none knew what another
said. Taking the earliest matching call for each milestone, in an order that respects ``after``, decides whether all
can be reached: a later choice never helps those that follow.
"""

from __future__ import annotations

import graphlib
import json
from collections.abc import Collection, Iterator, Sequence

from flightschool.records import CheckRule, Json, Milestone, MilestoneCheck, Minefield, MinefieldCheck, ToolEvent
from flightschool.verification.kinds.base import Finding, Kind, nothing
from flightschool.verification.kinds.calls import contains, took_effect
from flightschool.verification.states import States

__all__ = ["MILESTONES", "MINEFIELDS", "reached_turns"]

_NEVER = 1 << 62


def reached_turns(milestones: Sequence[Milestone], events: Sequence[ToolEvent]) -> dict[str, int]:
    """Milestone → turn in which it was reached, of those reached by calls."""
    by_id = {milestone.id: milestone for milestone in milestones}
    order = graphlib.TopologicalSorter({m.id: m.after for m in milestones}).static_order()
    done = [event for event in events if took_effect(event)]
    turns: dict[str, int] = {}
    for name in order:
        milestone = by_id[name]
        if milestone.state is not None:
            continue
        earliest = max((turns.get(before, _NEVER) for before in milestone.after), default=-1)
        hits = [event.turn for event in done if event.turn > earliest and _is_hit(milestone, event)]
        if len(hits) >= milestone.times:
            turns[name] = sorted(hits)[milestone.times - 1]
    return turns


def _is_hit(mark: Milestone, event: ToolEvent) -> bool:
    if event.call.name != mark.tool or not contains(event.call.arguments, mark.arguments):
        return False
    if mark.result is None:
        return True
    try:
        return contains(json.loads(event.result.content), mark.result)
    except (ValueError, RecursionError):
        return False


def _milestones(rule: MilestoneCheck, states: States) -> Finding:
    turns = reached_turns(rule.milestones, states.evidence.events)
    wanted = rule.targets or tuple(milestone.id for milestone in rule.milestones)
    told: list[str] = []
    missed: list[str] = []
    for milestone in rule.milestones:
        if milestone.id not in wanted:
            continue
        if milestone.state is not None:
            found = _at_the_end(milestone.state, states)
            good, said = found.passed, f"{milestone.id}: {found.found}"
        else:
            good = milestone.id in turns
            said = f"{milestone.id} in turn {turns[milestone.id]}" if good else milestone.id
        (told if good else missed).append(said)
    text = f"reached {', '.join(told) or 'none'}" + (f"; not reached: {', '.join(missed)}" if missed else "")
    return Finding(not missed, text[:1000])


def _minefields(rule: MinefieldCheck, states: States) -> Finding:
    turns = reached_turns(rule.milestones, states.evidence.events)
    hits: list[str] = []
    for mine in rule.mines:
        if mine.state is not None:
            found = _at_the_end(mine.state, states)
            hits += [f"{mine.id}: {found.found}"] if found.passed else []
            continue
        free = turns.get(mine.unless_after, _NEVER) if mine.unless_after else _NEVER
        at = [e.index for e in states.evidence.events if e.turn <= free and _steps_on(mine, e)]
        hits += [f"{mine.id} at call {', '.join(map(str, at[:8]))}"] if at else []
    return Finding(not hits, "; ".join(hits)[:1000] or "none stepped on")


def _steps_on(mine: Minefield, event: ToolEvent) -> bool:
    if event.call.name != mine.tool or not contains(event.call.arguments, mine.arguments):
        return False
    return mine.attempts or took_effect(event)


def _at_the_end(rule: CheckRule, states: States) -> Finding:
    from flightschool.verification.kinds import judge  # the table holds this kind

    return judge(rule, states)


def _milestones_problem(rule: MilestoneCheck) -> str:
    unknown = set(rule.targets) - {milestone.id for milestone in rule.milestones}
    if unknown:
        return f"target {min(unknown)!r} is no milestone of it"
    return "there are no milestones" if not rule.milestones else _graph_problem(rule.milestones)


def _minefields_problem(rule: MinefieldCheck) -> str:
    if not rule.mines:
        return "there are no minefields"
    names = {milestone.id for milestone in rule.milestones if milestone.state is None}
    for mine in rule.mines:
        problem = _mark_problem(mine.id, mine.tool, mine.state)
        if problem:
            return problem
        if mine.unless_after and mine.unless_after not in names:
            return f"minefield {mine.id!r} is free after {mine.unless_after!r}, which is no milestone by a call"
    return _graph_problem(rule.milestones)


def _graph_problem(milestones: Sequence[Milestone]) -> str:
    names = [milestone.id for milestone in milestones]
    by_call = {milestone.id for milestone in milestones if milestone.state is None}
    if len(set(names)) < len(names):
        return "two milestones have the same id"
    problem = next(filter(None, (_milestone_problem(milestone, by_call) for milestone in milestones)), "")
    if problem:
        return problem
    try:
        graphlib.TopologicalSorter({m.id: m.after for m in milestones}).prepare()
    except graphlib.CycleError as error:
        return f"milestones wait for each other: {' → '.join(error.args[1])}"
    return ""


def _milestone_problem(milestone: Milestone, by_call: Collection[str]) -> str:
    if milestone.times < 1:
        return f"milestone {milestone.id!r} is reached by no call at all"
    if milestone.state is not None and milestone.after:
        return f"milestone {milestone.id!r} is a state at the end, which comes after everything"
    late = [name for name in milestone.after if name not in by_call]
    if late:
        return f"milestone {milestone.id!r} comes after {late[0]!r}, which is no milestone by a call"
    return _mark_problem(milestone.id, milestone.tool, milestone.state)


def _mark_problem(name: str, tool: str, state: CheckRule | None) -> str:
    from flightschool.verification.kinds import problem_of

    if not name:
        return "a milestone or minefield has no id"
    if bool(tool) == (state is not None):
        return f"{name!r} needs either a tool or a state"
    return problem_of(state) if state is not None else ""


def _state_values(marks: Sequence[Milestone]) -> Iterator[Json]:
    from flightschool.verification.kinds import expected_values

    for mark in marks:
        if mark.state is not None:
            yield from expected_values(mark.state)


def _expected(rule: MilestoneCheck) -> Iterator[Json]:
    return _state_values(rule.milestones)


MILESTONES = Kind(_milestones, _milestones_problem, _expected)
MINEFIELDS = Kind(_minefields, _minefields_problem, nothing)
