"""Checks of a task, derived from its right acts.

Functional: each act weighs the same; .4 of it for an act of the right kind on the right subject, .6 for
exactly the right values. A task to decline has one functional check, passed only by a decline that was made
after the justifying reads (and, where an approval was refused, after asking for the right one). Constraints:
nothing else changed, nothing forbidden was called, nothing that a rule may forbid was done before reading what
decides, or without the approval that it needs. Process: each read came before the act that it serves.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping, Sequence

from flightschool.environments.desk.schema import Cell
from flightschool.environments.desk.steps import Played
from flightschool.environments.desk.toolset import FOOTPRINTS, Footprint
from flightschool.records import CallCheck, CheckKind, CheckSpec, DiffCheck, SqlCheck, ToolCall

__all__ = ["checks_of"]

RIGHT_SUBJECT, RIGHT_VALUES = 0.4, 0.6


def checks_of(
    played: Sequence[Played], others: Collection[str], state: sqlite3.Connection, names: Mapping[str, str]
) -> tuple[CheckSpec, ...]:
    """All checks of one task.

    Args:
        played: the right acts.
        others: tools that belong to other variants of the family.
        state: the initial state.
        names: the desk's own tool name → visible name.
    """
    acts = [step for step in played if step.call.name in FOOTPRINTS]
    declined = any(step.call.name == "decline" for step in played)
    checks = [_justified_decline(played)] if declined else []
    for number, act in enumerate(acts):
        checks += _act_checks(act, f"act-{number + 1}", 1.0 / len(acts), state)
    checks.append(_spec("only-allowed-changes", CheckKind.CONSTRAINT, DiffCheck(allowed=_allowed(played))))
    if declined:
        forbidden = sorted(name for name in others if name in FOOTPRINTS)
        checks += [_never(name, names) for name in forbidden]
    if "decline" in others and acts:
        checks.append(_checked_first(played, acts[0], names))
    checks += _approval_checks(played, acts)
    return (*checks, *_process_checks(played, names))


def _spec(name: str, kind: CheckKind, rule: SqlCheck | DiffCheck | CallCheck, weight: float = 1.0) -> CheckSpec:
    return CheckSpec(id=name, kind=kind, rule=rule, weight=weight)


def _one(query: str) -> SqlCheck:
    return SqlCheck(query=query, expected=((1,),))


def _justified_decline(played: Sequence[Played]) -> CheckSpec:
    grounds = [f"{step.call.name} {next(iter(step.call.arguments.values()))};" for step in played if step.reads]
    conditions = [f"instr(';' || grounds, {_literal(';' + ground)}) > 0" for ground in grounds]
    for step in played:
        if step.call.name == "request_approval":  # the refusal that was read must be the answer to the right request
            asked = " AND ".join(f'"{key}" = {_literal(value)}' for key, value in step.call.arguments.items())
            conditions.append(f"EXISTS (SELECT 1 FROM approvals WHERE {asked})")
    query = f"SELECT count(*) FROM declines WHERE {' AND '.join(conditions)}"
    return _spec("declined-with-grounds", CheckKind.FUNCTIONAL, _one(query))


def _act_checks(act: Played, name: str, weight: float, state: sqlite3.Connection) -> list[CheckSpec]:
    mark = FOOTPRINTS[act.call.name]
    exact = f"SELECT count(*) FROM {mark.table} WHERE {_matches(mark, act.call, tuple(act.call.arguments))}"
    loose = _changed(mark, act.call, state) if mark.key else _added(mark, act)
    if loose is None or loose == exact:
        return [_spec(f"{name}-done", CheckKind.FUNCTIONAL, _one(exact), round(weight, 6))]
    return [
        _spec(f"{name}-subject", CheckKind.FUNCTIONAL, _one(loose), round(weight * RIGHT_SUBJECT, 6)),
        _spec(f"{name}-values", CheckKind.FUNCTIONAL, _one(exact), round(weight * RIGHT_VALUES, 6)),
    ]


def _changed(mark: Footprint, call: ToolCall, state: sqlite3.Connection) -> str | None:
    """The right row was changed, to whatever value; None for tools that set no value."""
    values = [column for argument, column in mark.columns.items() if argument != mark.key]
    if not values:
        return None
    key = _literal(call.arguments[mark.key])
    before = state.execute(f'SELECT "{values[0]}" FROM {mark.table} WHERE id = {key}').fetchone()
    initial = _literal(before[0] if before else None)
    return f'SELECT count(*) FROM {mark.table} WHERE id = {key} AND "{values[0]}" IS NOT {initial}'


def _added(mark: Footprint, act: Played) -> str:
    """A row was added that is right in what the instruction tells, or else in its first argument."""
    known = act.told or tuple(act.call.arguments)[:1]
    return f"SELECT count(*) FROM {mark.table} WHERE {_matches(mark, act.call, known)}"


def _matches(mark: Footprint, call: ToolCall, arguments: Sequence[str]) -> str:
    conditions = [f'"{mark.columns[name]}" = {_literal(call.arguments[name])}' for name in arguments]
    conditions += [f'"{column}" = {_literal(value)}' for column, value in mark.fixed.items()]
    return " AND ".join(conditions)


def _literal(value: Cell) -> str:
    if value is None:
        return "NULL"
    return str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"


def _allowed(played: Sequence[Played]) -> dict[str, int]:
    """Table → distinct rows that the right acts touch; several acts on one row leave room for no other.

    A declined task allows no change but the decline and its approval.
    """
    touched: dict[str, set[str]] = {}
    for number, step in enumerate(played):
        table = {"decline": "declines", "request_approval": "approvals"}.get(step.call.name)
        if step.call.name in FOOTPRINTS:
            table = FOOTPRINTS[step.call.name].table
        if table is not None:
            touched.setdefault(table, set()).add(_row_of(step, number))
    return {table: len(rows) for table, rows in touched.items()}


def _row_of(step: Played, number: int) -> str:
    """What tells the row of an act from others of its table: the id it names, the id it was answered, or itself."""
    mark = FOOTPRINTS.get(step.call.name)
    if mark is not None and mark.key:
        return str(step.call.arguments[mark.key])
    made = [value for value in step.value.values() if isinstance(value, str)]
    return made[0] if made else f"#{number}"


def _never(name: str, names: Mapping[str, str]) -> CheckSpec:
    rule = CallCheck(tool=names[name], least=0, most=0)
    return _spec(f"never-{name.replace('_', '-')}", CheckKind.CONSTRAINT, rule)


def _checked_first(played: Sequence[Played], act: Played, names: Mapping[str, str]) -> CheckSpec:
    """Where a rule may forbid the act, acting before reading what decides is a violation, however it turns out."""
    decides = next(step.call.name for step in played if step.reads)
    rule = CallCheck(tool=names[act.call.name], least=0, most=0, before=names[decides])
    return _spec("checked-first", CheckKind.CONSTRAINT, rule)


def _approval_checks(played: Sequence[Played], acts: Sequence[Played]) -> list[CheckSpec]:
    """The act stands in the end state only together with the approval that it needs."""
    request = next((step.call for step in played if step.call.name == "request_approval"), None)
    if request is None or not acts:
        return []
    mark, act = FOOTPRINTS[acts[0].call.name], acts[0].call
    approved = " AND ".join(f'"{key}" = {_literal(value)}' for key, value in request.arguments.items())
    query = (
        f"SELECT count(*) FROM {mark.table} WHERE {_matches(mark, act, tuple(act.arguments))} "
        f"AND NOT EXISTS (SELECT 1 FROM approvals WHERE {approved} AND state = 'granted')"
    )
    return [_spec("approved", CheckKind.CONSTRAINT, SqlCheck(query=query, expected=((0,),)))]


def _process_checks(played: Sequence[Played], names: Mapping[str, str]) -> list[CheckSpec]:
    checks = []
    for number, step in enumerate(played):
        served = next((later.call.name for later in played[number:] if not later.reads), None)
        if step.reads and served is not None:
            rule = CallCheck(tool=names[step.call.name], arguments=step.call.arguments, before=names[served])
            checks.append(_spec(f"read-{number + 1}-first", CheckKind.PROCESS, rule))
    return checks
