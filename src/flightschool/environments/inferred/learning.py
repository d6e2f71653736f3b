"""From recorded calls to programs of tools.

The episodes are walked call by call over the state that they started from. What a write answered is taken into the
state, so that each call stands before the state that it met. Then each tool is explained for itself: a program is
grown from few cases, corrected by the first cases that it gets wrong, and may leave some recordings unexplained; how
many is kept with it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from flightschool.digest import canonical_json
from flightschool.environments.inferred.conditions import separate
from flightschool.environments.inferred.credible import credible, parts
from flightschool.environments.inferred.database import Base, Database
from flightschool.environments.inferred.effects import Execute, learn_changes
from flightschool.environments.inferred.explaining import Case, explain, fits
from flightschool.environments.inferred.language import All, Arith, Const, Expr, Missing, Scope, Some, evaluate, shown
from flightschool.environments.inferred.programs import (
    Answer,
    Change,
    Outcome,
    Program,
    Put,
    absorb,
    find_put,
    make_changes,
    run,
    scope_of,
)
from flightschool.environments.inferred.querying import explain_query
from flightschool.environments.inferred.wording import explain_text, masked, words
from flightschool.records import Json
from flightschool.traces import RecordedEpisode
from flightschool.verification.rules import FAULTS_THAT_TOOK_EFFECT

__all__ = ["Execute", "Observation", "infer", "learn", "learn_all", "observe"]

_FIRST = 8
_MOST_ROUNDS = 10
_MOST_OUTLIERS = 6


class Observation(NamedTuple):
    """A recorded call with the state that it met."""

    tool: str
    scope: Scope
    value: Json
    is_error: bool
    episode: int
    key: bytes
    """Equal for equal calls with equal answers before equal changes."""
    fresh: bool
    """Whether no successful write came before it."""


def observe(
    episodes: Sequence[RecordedEpisode],
    base: Base,
    writes: Collection[str],
    changes: Mapping[str, Sequence[Change]] | None = None,
    executed: Mapping[str, Execute] | None = None,
) -> list[Observation]:
    """All calls that teach something, with the state that each met.

    Args:
        episodes: what was recorded.
        base: the state that they started from.
        writes: names of the tools that change state.
        changes: tool → what its successful calls change beside the row that they answer, if that is known.
        executed: tool → what does to the state what a call of it does, where that need not be inferred.
    """
    found: list[Observation] = []
    for index, episode in enumerate(episodes):
        database, wrote = base.open(), False
        for call in episode.calls:
            before = database.fork()
            if call.complete and not call.fault:
                key = canonical_json([call.name, call.arguments, call.value, call.is_error, before.changes()])
                scope = scope_of(call.arguments, before)
                found.append(Observation(call.name, scope, call.value, call.is_error, index, key, not wrote))
            if call.name in writes and (not call.is_error or call.fault in FAULTS_THAT_TOOK_EFFECT):
                wrote = True
                if call.name in (executed or {}):
                    (executed or {})[call.name](call.arguments, database)
                    continue
                put = find_put(call.value, base, database)
                if put is not None:
                    absorb(call.value, (put[0],), database)
                scope = {**scope_of(call.arguments, before), "out": call.value}
                make_changes((changes or {}).get(call.name, ()), scope, database)
    return found


def infer(
    episodes: Sequence[RecordedEpisode],
    base: Base,
    writes: Collection[str],
    executed: Mapping[str, Execute] | None = None,
) -> tuple[Program, ...]:
    """The programs that may answer, in the order of first sight of their tools; none of tools that are executed."""
    programs = learn_all(episodes, base, writes, executed)
    return tuple(one for one in programs.values() if credible(one, writes=one.tool in writes))


def learn_all(
    episodes: Sequence[RecordedEpisode],
    base: Base,
    writes: Collection[str],
    executed: Mapping[str, Execute] | None = None,
) -> dict[str, Program]:
    """Tool → what was inferred of it, changes that answers do not show included.

    Reads are explained first from calls that no write came before, so that what they show of the initial state is
    certain; by them it is found what writes change; then every tool is explained, each call before the state it met.
    """
    known = executed or {}
    fresh = [one for one in observe(episodes, base, writes, None, known) if one.fresh and one.tool not in writes]
    changes = learn_changes(episodes, base, writes, learn(fresh, writes), known)
    seen = [one for one in observe(episodes, base, writes, changes, known) if one.tool not in known]
    programs = learn(seen, writes)
    return {tool: msgspec.structs.replace(program, changes=changes.get(tool, ())) for tool, program in programs.items()}


def learn(observations: Iterable[Observation], writes: Collection[str]) -> dict[str, Program]:
    """Tool → what was inferred of it; tools of which nothing was are left out."""
    by_tool: dict[str, dict[bytes, Observation]] = {}
    for one in observations:
        by_tool.setdefault(one.tool, {}).setdefault(one.key, one)
    programs = {}
    for tool, distinct in by_tool.items():
        program = _program(tool, list(distinct.values()), tool in writes)
        if program is not None:
            programs[tool] = program
    return programs


def _program(tool: str, cases: Sequence[Observation], writes: bool) -> Program | None:
    successes = [one for one in cases if not one.is_error]
    answer = _grown([Case(one.scope, one.value) for one in successes]) if successes else None
    if answer is None:
        return None
    outcomes = [*_guards(cases, answer), Outcome(test=All(), answer=answer, is_error=False)]
    puts: dict[Put, None] = {}
    if writes:
        for one in successes:
            database: Database = one.scope["db"]
            put = find_put(one.value, database.base, database)
            if put is not None:
                puts.setdefault(put[0])
    program = Program(tool=tool, outcomes=tuple(outcomes), puts=tuple(puts), num_cases=len(cases), num_explained=0)
    return msgspec.structs.replace(program, num_explained=sum(_right(program, one) for one in cases))


def _right(program: Program, one: Observation) -> bool:
    return run(program, one.scope["args"], one.scope["db"]) == Answer(one.value, one.is_error)


# ------------------------------------------------------------------------------------------------ growing


def _grown(cases: Sequence[Case]) -> Expr | None:
    """An expression grown from a few cases, then from those that it gets wrong; some outliers may remain."""
    chosen = _varied(cases, _FIRST)
    expr = _explained(chosen)
    outliers: list[Case] = []
    if expr is None:
        return None
    for _ in range(_MOST_ROUNDS):
        wrong = [case for case in cases if case not in outliers and not fits(expr, case)]
        if not wrong:
            break
        better = _explained([*chosen, *wrong[:3]])
        if better is not None:
            chosen += wrong[:3]
            expr = better
            continue
        for case in wrong[:3]:
            better = _explained([*chosen, case])
            if better is None:
                outliers.append(case)
            else:
                chosen.append(case)
                expr = better
        if len(outliers) > _MOST_OUTLIERS:
            break
    return expr


def _varied(cases: Sequence[Case], number: int) -> list[Case]:
    """Cases spread over all of them, those with most in their answers first: a small answer tells little."""
    ranked = sorted(cases, key=lambda case: -len(canonical_json(case.value)))
    step = max(1, len(ranked) // number)
    return list(ranked[::step][:number])


def _explained(cases: Sequence[Case]) -> Expr | None:
    if all(isinstance(case.value, list) for case in cases):
        query = explain_query(cases, lambda inner: explain([Case(*pair) for pair in inner]))
        if query is not None and all(fits(query, case) for case in cases):
            return query
    return explain(cases)


# ------------------------------------------------------------------------------------------------ errors


def _guards(cases: Sequence[Observation], answer: Expr) -> list[Outcome]:
    """Guards in an order in which each tells its errors from all that is still to come."""
    waiting: dict[str, list[Observation]] = {}
    for one in cases:
        if one.is_error:
            waiting.setdefault(masked(one.value if isinstance(one.value, str) else shown(one.value)), []).append(one)
    passed = [one for one in cases if not one.is_error]
    guards: list[Outcome] = []
    progress = True
    while waiting and progress:
        progress = False
        for kind in sorted(waiting, key=lambda kind: -len(waiting[kind])):
            others = [one for other, found in waiting.items() if other != kind for one in found]
            guard = _guard(waiting[kind], [*passed, *others], answer)
            if guard is not None:
                guards.append(guard)
                del waiting[kind]
                progress = True
                break
    return guards


def _guard(errors: Sequence[Observation], others: Sequence[Observation], answer: Expr) -> Outcome | None:
    extra = tuple(_reckoned_in(answer))
    text = _told([_with_answer(one.scope, answer) for one in errors], [one.value for one in errors])
    if text is not None and not _names_item(errors, text):
        extra = (*_reckoned_in(text), *extra)
        test = separate(
            [_with_answer(one.scope, answer) for one in errors],
            [_with_answer(one.scope, answer) for one in others],
            extra,
        )
        if test is not None:
            return Outcome(test=test, answer=text, is_error=True)
    for of, culprits in _culprits(errors):
        inner = [{**one.scope, "item": item} for one, item in zip(errors, culprits, strict=True)]
        text = _told(inner, [one.value for one in errors])
        if text is None:
            continue
        innocent = [
            {**_with_answer(one.scope, answer), "item": item} for one in others for item in _items(of, one.scope)
        ]
        for one, culprit in zip(errors, culprits, strict=True):
            items = _items(of, one.scope)
            innocent += [{**one.scope, "item": item} for item in items[: items.index(culprit)]]
        test = separate([_with_answer(s, answer) for s in inner], innocent, extra)
        if test is not None:
            return Outcome(test=Some(of=of, test=test), answer=text, is_error=True)
    return None


def _told(scopes: Sequence[Scope], values: Sequence[Json]) -> Expr | None:
    """How errors are worded. One wording alone may hold words of the call: those are looked for first."""
    cases = [Case(*pair) for pair in zip(scopes, values, strict=True)]
    if all(isinstance(value, str) and value == values[0] for value in values):
        return explain_text(cases[:1], lambda _: None)
    return explain(cases, splits=0)


def _names_item(errors: Sequence[Observation], text: Expr) -> bool:
    """Whether an error that was taken to be always the same names an element of a list of the arguments."""
    return isinstance(text, Const) and next(iter(_culprits(errors)), None) is not None


def _with_answer(scope: Scope, answer: Expr) -> Scope:
    try:
        return {**scope, "out": evaluate(answer, {k: v for k, v in scope.items() if k in ("args", "db")})}
    except Missing:
        return scope


def _items(of: Expr, scope: Scope) -> list[Json]:
    try:
        items = evaluate(of, scope)
    except Missing:
        return []
    return items if isinstance(items, list) else []


def _culprits(errors: Sequence[Observation]) -> Iterable[tuple[Expr, list[Json]]]:
    """Lists of the arguments of which one element is named in every error, with these elements."""
    from flightschool.environments.inferred.addresses import addresses

    for expr, value in addresses({key: errors[0].scope[key] for key in ("args", "db")}):
        if not isinstance(value, list) or not value or not all(isinstance(item, dict) for item in value):
            continue
        found = []
        for one in errors:
            told = set(words(shown(one.value)))
            named = [item for item in _items(expr, one.scope) if _named(item, told)]
            if not named:
                break
            found.append(named[0])
        if len(found) == len(errors):
            yield expr, found


def _named(item: Json, told: set[str]) -> bool:
    return isinstance(item, dict) and any(
        isinstance(value, str) and len(value) > 2 and value in told for value in item.values()
    )


def _reckoned_in(expr: Expr) -> Iterable[Expr]:
    """The sums that an answer contains: what a guard may compare with."""
    return [part for part in parts(expr) if isinstance(part, Arith)]
