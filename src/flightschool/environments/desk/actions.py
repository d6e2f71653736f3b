"""What the tools do to the state: one small function a tool, errors of the domain as ``DeskError``.

Readers leave empty columns out, so every answer is a short flat object.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable

from flightschool.environments.desk.schema import Cell
from flightschool.records import Json

__all__ = ["ACTIONS", "Action", "DeskError"]

Action = Callable[[sqlite3.Connection, dict[str, Cell]], Json]
"""Runs on the state with checked arguments and gives the answer."""

DONE: Json = {"ok": True}


class DeskError(Exception):
    """A request that the desk refuses; the text is told to the agent."""


def _record(db: sqlite3.Connection, table: str, kind: str, key: Cell) -> dict[str, Cell]:
    cursor = db.execute(f"SELECT * FROM {table} WHERE id = ?", (key,))
    row = cursor.fetchone()
    if row is None:
        raise DeskError(f"no {kind} {key}")
    return {column[0]: value for column, value in zip(cursor.description, row, strict=True) if value is not None}


def _reader(table: str, kind: str, argument: str) -> Action:
    def read(db: sqlite3.Connection, arguments: dict[str, Cell]) -> Json:
        record = _record(db, table, kind, arguments[argument])
        del record["id"]
        return record

    return read


def _lister(table: str, answer: str, column: str = "state", value: str | None = None) -> Action:
    where = f' AND "{column}" IS NOT ?'

    def find(db: sqlite3.Connection, arguments: dict[str, Cell]) -> Json:
        _record(db, "assets", "asset", arguments["asset"])
        rows = db.execute(f"SELECT id FROM {table} WHERE asset = ?{where}", (arguments["asset"], value))
        return {answer: [row[0] for row in rows]}

    return find


def _changer(table: str, kind: str, key: str, sets: dict[str, str]) -> Action:
    """Sets columns (column → argument, or a literal after ``=``) of the row that argument ``key`` names."""
    assignments = ", ".join(f'"{column}" = ?' for column in sets)

    def change(db: sqlite3.Connection, arguments: dict[str, Cell]) -> Json:
        _record(db, table, kind, arguments[key])
        values = [source[1:] if source.startswith("=") else arguments[source] for source in sets.values()]
        db.execute(f"UPDATE {table} SET {assignments} WHERE id = ?", (*values, arguments[key]))
        return DONE

    return change


def _next_id(db: sqlite3.Connection, table: str, prefix: str) -> str:
    taken = {row[0] for row in db.execute(f"SELECT id FROM {table}")}
    return next(name for number in range(1, len(taken) + 2) if (name := f"{prefix}{number}") not in taken)


def _insert(db: sqlite3.Connection, table: str, values: Iterable[tuple[str, Cell]]) -> None:
    columns, cells = zip(*values, strict=True)
    names = ",".join(f'"{column}"' for column in columns)
    db.execute(f"INSERT OR IGNORE INTO {table} ({names}) VALUES ({','.join('?' * len(cells))})", cells)


def _create_order(db: sqlite3.Connection, arguments: dict[str, Cell]) -> Json:
    _record(db, "assets", "asset", arguments["asset"])
    name = _next_id(db, "orders", "N")
    _insert(db, "orders", [("id", name), *arguments.items(), ("state", "new")])
    return {"order": name}


def _reserve_part(db: sqlite3.Connection, arguments: dict[str, Cell]) -> Json:
    part = _record(db, "parts", "part", arguments["part"])
    _record(db, "orders", "order", arguments["order"])
    if part.get("stock") == 0 or part.get("state") == "scrapped":
        raise DeskError(f"no stock of {arguments['part']}")
    _insert(db, "reservations", arguments.items())
    return DONE


def _order_part(db: sqlite3.Connection, arguments: dict[str, Cell]) -> Json:
    _record(db, "parts", "part", arguments["part"])
    _insert(db, "purchases", [("id", _next_id(db, "purchases", "B")), *arguments.items()])
    return DONE


def _issue_permit(db: sqlite3.Connection, arguments: dict[str, Cell]) -> Json:
    _record(db, "orders", "order", arguments["order"])
    name = _next_id(db, "permits", "Y")
    _insert(db, "permits", [("id", name), *arguments.items(), ("state", "issued")])
    return {"permit": name}


def _book_person(db: sqlite3.Connection, arguments: dict[str, Cell]) -> Json:
    _insert(db, "bookings", arguments.items())
    return DONE


def _notify(db: sqlite3.Connection, arguments: dict[str, Cell]) -> Json:
    _insert(db, "notices", [("id", _next_id(db, "notices", "M")), *arguments.items()])
    return DONE


def _request_approval(db: sqlite3.Connection, arguments: dict[str, Cell]) -> Json:
    """Asking twice for the same thing is one request; what nobody ruled on is refused."""
    pair = (arguments["action"], arguments["subject"])
    known = db.execute("SELECT id FROM approvals WHERE action = ? AND subject = ?", pair).fetchone()
    if known is None:
        ruling = db.execute("SELECT state FROM rulings WHERE action = ? AND subject = ?", pair).fetchone()
        known = (_next_id(db, "approvals", "V"),)
        state = ruling[0] if ruling else "refused"
        _insert(db, "approvals", [("id", known[0]), *arguments.items(), ("state", state)])
    return {"approval": known[0]}


def _decline(db: sqlite3.Connection, arguments: dict[str, Cell]) -> Json:
    """The first decline stands: a repetition after a lost answer adds nothing."""
    _insert(db, "declines", [("id", "D1"), *arguments.items()])
    return DONE


ACTIONS: dict[str, Action] = {
    "get_asset": _reader("assets", "asset", "asset"),
    "get_alert": _reader("alerts", "alert", "alert"),
    "get_order": _reader("orders", "order", "order"),
    "get_part": _reader("parts", "part", "part"),
    "get_permit": _reader("permits", "permit", "permit"),
    "get_technician": _reader("technicians", "technician", "person"),
    "get_plan": _reader("plans", "plan for", "asset"),
    "get_readings": _reader("readings", "readings of", "asset"),
    "get_approval": _reader("approvals", "approval", "approval"),
    "list_alerts": _lister("alerts", "alerts", "state", "done"),
    "list_orders": _lister("orders", "orders", "state", "closed"),
    "find_parts": _lister("parts", "parts", "state", "scrapped"),
    "create_order": _create_order,
    "assign_order": _changer("orders", "order", "order", {"technician": "technician"}),
    "set_level": _changer("orders", "order", "order", {"level": "level"}),
    "schedule_order": _changer("orders", "order", "order", {"day": "day"}),
    "set_hours": _changer("orders", "order", "order", {"hours": "hours"}),
    "log_value": _changer("orders", "order", "order", {"value": "value"}),
    "close_order": _changer("orders", "order", "order", {"code": "code", "state": "=closed"}),
    "reserve_part": _reserve_part,
    "order_part": _order_part,
    "move_part": _changer("parts", "part", "part", {"bin": "bin"}),
    "acknowledge_alert": _changer("alerts", "alert", "alert", {"taken_by": "person", "state": "=taken"}),
    "issue_permit": _issue_permit,
    "extend_permit": _changer("permits", "permit", "permit", {"day": "day"}),
    "set_state": _changer("assets", "asset", "asset", {"state": "state"}),
    "book_person": _book_person,
    "request_approval": _request_approval,
    "decline": _decline,
    "notify": _notify,
    "scrap_part": _changer("parts", "part", "part", {"state": "=scrapped"}),
}
"""Tool → what it does, by the desk's own names (renaming happens in the world)."""
