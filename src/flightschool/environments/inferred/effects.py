"""What writes change that they do not show: the difference between what views said before and what they say after.

A view whose program is known tells the row that it shows. Where a row is seen to differ from what it was, and just one
successful write stood between, that write did it. A change is believed if it explains at least three such sightings
and no row that was seen unchanged after the same write speaks against it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from flightschool.environments.inferred.database import Base, Database
from flightschool.environments.inferred.explaining import Case, explain, same
from flightschool.environments.inferred.language import (
    Const,
    Expr,
    Get,
    Made,
    Missing,
    Root,
    Row,
    Scope,
    evaluate,
    shown,
)
from flightschool.environments.inferred.programs import Change, Program, absorb, find_put, scope_of
from flightschool.records import Json
from flightschool.traces import RecordedCall, RecordedEpisode

__all__ = ["Execute", "learn_changes"]

Execute: TypeAlias = Callable[[dict[str, Json], Database], object]
"""Does to a state what a call with these arguments does to it."""

_LEAST_SIGHTINGS = 3


class _View(NamedTuple):
    """How a read shows a row."""

    table: str
    key: Expr
    source: Mapping[str, str]
    """Field of the answer → field of the row, where they differ in name."""
    without: Collection[str]
    nulls: bool


class _Sighting(NamedTuple):
    """A field of a row as it was seen after one write."""

    scope: Scope
    table: str
    key: str
    field: str
    value: Json


def learn_changes(
    episodes: Sequence[RecordedEpisode],
    base: Base,
    writes: Collection[str],
    programs: Mapping[str, Program],
    executed: Mapping[str, Execute] | None = None,
) -> dict[str, tuple[Change, ...]]:
    """Tool → changes of rows that its answer does not show.

    Args:
        episodes: what was recorded.
        base: the state that they started from.
        writes: names of the tools that change state.
        programs: reads that are explained.
        executed: tools of which nothing is to be learned: what a call does to the state is done to it.
    """
    views = {tool: view for tool, program in programs.items() if tool not in writes and (view := _view(program))}
    changed: dict[tuple[str, str, str], list[_Sighting]] = {}
    unchanged: dict[tuple[str, str, str], list[_Sighting]] = {}
    for episode in episodes:
        for tool, sighting, differs in _sightings(episode, base, writes, views, executed or {}):
            place = (tool, sighting.table, sighting.field)
            (changed if differs else unchanged).setdefault(place, []).append(sighting)
    found: dict[str, list[Change]] = {}
    for place, sightings in changed.items():
        change = _change(sightings, unchanged.get(place, []))
        if change is not None:
            found.setdefault(place[0], []).append(change)
    return {tool: tuple(changes) for tool, changes in found.items()}


def _view(program: Program) -> _View | None:
    answer = program.outcomes[-1].answer
    if isinstance(answer, Row):
        return _View(answer.table, answer.key, {}, (), True)
    if not isinstance(answer, Made) or not isinstance(answer.base, Row):
        return None
    source = {}
    for name, expr in answer.fields.items():
        direct = isinstance(expr, Get) and isinstance(expr.key, Const) and expr.base in (answer.base, Root(name="out"))
        source[name] = expr.key.value if direct and isinstance(expr, Get) and isinstance(expr.key, Const) else ""
    return _View(answer.base.table, answer.base.key, source, answer.without, answer.nulls)


def _sightings(
    episode: RecordedEpisode,
    base: Base,
    writes: Collection[str],
    views: Mapping[str, _View],
    executed: Mapping[str, Execute],
) -> Iterator[tuple[str, _Sighting, bool]]:
    database = base.open()
    since: list[tuple[RecordedCall, Database]] = []
    seen_at: dict[tuple[str, str], int] = {}
    for call in episode.calls:
        if not call.complete or call.fault:
            return  # what such a call did is not known
        if call.is_error:
            continue
        if call.name in executed:
            executed[call.name](call.arguments, database)
            continue
        if call.name in writes:
            since.append((call, database.fork()))
            put = find_put(call.value, base, database)
            if put is not None:
                absorb(call.value, (put[0],), database)
                seen_at[put[0].table, put[1]] = len(since)
            continue
        view = views.get(call.name)
        row = None if view is None else _shown_row(view, call, database)
        if view is None or row is None:
            continue
        key, old, new = row
        between = since[seen_at.get((view.table, key), 0) :]
        if len(between) == 1:
            write, before = between[0]
            scope = {**scope_of(write.arguments, before), "out": write.value}
            for field in new:
                differs = not same(old.get(field), new[field])
                yield write.name, _Sighting(scope, view.table, key, field, new[field]), differs
        seen_at[view.table, key] = len(since)
        database.put(view.table, key, new)


def _shown_row(
    view: _View, call: RecordedCall, database: Database
) -> tuple[str, dict[str, Json], dict[str, Json]] | None:
    """Key, the row as it was thought to be, and the row as the answer shows it."""
    try:
        key = shown(evaluate(view.key, scope_of(call.arguments, database)))
    except Missing:
        return None
    if not database.has(view.table, key) or not isinstance(call.value, dict):
        return None
    old = database.row(view.table, key)
    if not isinstance(old, dict):
        return None
    told = {view.source.get(name, name): value for name, value in call.value.items() if view.source.get(name, name)}
    new = {**old, **{name: value for name, value in told.items() if name in old}}
    if not view.nulls:
        hidden = set(view.without) | set(view.source.values())
        new |= {name: None for name in old if name not in told and name not in hidden}
    return key, old, new


def _change(sightings: Sequence[_Sighting], unchanged: Sequence[_Sighting]) -> Change | None:
    if len(sightings) < _LEAST_SIGHTINGS:
        return None
    first = sightings[0]
    key = explain([Case(one.scope, one.key) for one in sightings], splits=0)
    value = explain([Case(one.scope, one.value) for one in sightings], first.field, splits=0)
    if key is None or value is None or isinstance(key, Const):
        return None
    for one in unchanged:
        try:
            touched = shown(evaluate(key, one.scope)) == one.key
            if touched and not same(evaluate(value, one.scope), one.value):
                return None
        except Missing:
            continue
    return Change(table=first.table, key=key, field=first.field, value=value)
