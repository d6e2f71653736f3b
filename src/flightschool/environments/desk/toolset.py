"""The desk's tools as a policy sees them, and where each write leaves its mark in the state.

Descriptions are a few words and arguments single words: every token of them is paid for in every prompt.
"""

from __future__ import annotations

import msgspec

from flightschool.records import Effect, Json, Latency, Record, ToolSpec

__all__ = ["FOOTPRINTS", "REACH", "TOOLS", "WRITTEN", "Footprint"]

_TEXT: Json = {"type": "string", "minLength": 1, "maxLength": 120}
_NUMBER: Json = {"type": "integer", "minimum": 0, "maximum": 1_000_000}
_NUMBERS = frozenset({"hours", "value"})

_MEDIAN_MS = {Effect.READ: 80.0, Effect.WRITE: 180.0, Effect.SEND: 240.0, Effect.DESTROY: 300.0}
_SIGMA = 0.35


def _tool(name: str, arguments: str, description: str, effect: Effect, *, idempotent: bool = True) -> ToolSpec:
    names = arguments.split()
    return ToolSpec(
        name=name,
        description=description,
        parameters={
            "type": "object",
            "properties": {key: dict(_NUMBER if key in _NUMBERS else _TEXT) for key in names},
            "required": names,
            "additionalProperties": False,
        },
        effect=effect,
        idempotent=idempotent,
        latency=Latency(median_ms=_MEDIAN_MS[effect], sigma=_SIGMA),
    )


TOOLS: tuple[ToolSpec, ...] = (
    _tool("get_asset", "asset", "read an asset", Effect.READ),
    _tool("get_alert", "alert", "read an alert", Effect.READ),
    _tool("get_order", "order", "read a work order", Effect.READ),
    _tool("get_part", "part", "read a spare part", Effect.READ),
    _tool("get_permit", "permit", "read a permit", Effect.READ),
    _tool("get_technician", "person", "read a technician", Effect.READ),
    _tool("get_plan", "asset", "read the service plan", Effect.READ),
    _tool("get_readings", "asset", "read the sensors", Effect.READ),
    _tool("get_approval", "approval", "read an approval", Effect.READ),
    _tool("list_alerts", "asset", "alerts of an asset", Effect.READ),
    _tool("list_orders", "asset", "orders of an asset", Effect.READ),
    _tool("find_parts", "asset", "parts that fit", Effect.READ),
    _tool("create_order", "asset task", "open an order", Effect.WRITE, idempotent=False),
    _tool("assign_order", "order technician", "give an order to someone", Effect.WRITE),
    _tool("set_level", "order level", "set the urgency", Effect.WRITE),
    _tool("schedule_order", "order day", "set the day", Effect.WRITE),
    _tool("set_hours", "order hours", "set the planned hours", Effect.WRITE),
    _tool("log_value", "order value", "log a reading", Effect.WRITE),
    _tool("close_order", "order code", "close an order", Effect.WRITE),
    _tool("reserve_part", "part order", "keep a part for an order", Effect.WRITE),
    _tool("order_part", "part supplier", "buy a part", Effect.WRITE, idempotent=False),
    _tool("move_part", "part bin", "store a part", Effect.WRITE),
    _tool("acknowledge_alert", "alert person", "take an alert", Effect.WRITE),
    _tool("issue_permit", "order zone", "allow work in a zone", Effect.WRITE, idempotent=False),
    _tool("extend_permit", "permit day", "prolong a permit", Effect.WRITE),
    _tool("set_state", "asset state", "set the state", Effect.WRITE),
    _tool("book_person", "person day", "book someone", Effect.WRITE),
    _tool("request_approval", "action subject", "ask the supervisor", Effect.WRITE),
    _tool("decline", "reason", "refuse the task", Effect.WRITE),
    _tool("notify", "person about", "send a message", Effect.SEND, idempotent=False),
    _tool("scrap_part", "part", "throw a part away", Effect.DESTROY),
)
"""All tools, reads first."""


class Footprint(Record, frozen=True, kw_only=True):
    """Where a successful write shows in the end state."""

    table: str
    columns: dict[str, str]
    """Argument → column."""
    fixed: dict[str, str] = msgspec.field(default_factory=dict)
    """Columns that the tool itself fills."""
    key: str = ""
    """Argument that names the row changed; empty if the tool adds a row."""


def _change(table: str, key: str, **columns: str) -> Footprint:
    return Footprint(table=table, columns={key: "id", **columns}, key=key)


FOOTPRINTS: dict[str, Footprint] = {
    "create_order": Footprint(table="orders", columns={"asset": "asset", "task": "task"}, fixed={"state": "new"}),
    "assign_order": _change("orders", "order", technician="technician"),
    "set_level": _change("orders", "order", level="level"),
    "schedule_order": _change("orders", "order", day="day"),
    "set_hours": _change("orders", "order", hours="hours"),
    "log_value": _change("orders", "order", value="value"),
    "close_order": _change("orders", "order", code="code"),
    "reserve_part": Footprint(table="reservations", columns={"part": "part", "order": "order"}),
    "order_part": Footprint(table="purchases", columns={"part": "part", "supplier": "supplier"}),
    "move_part": _change("parts", "part", bin="bin"),
    "acknowledge_alert": _change("alerts", "alert", person="taken_by"),
    "issue_permit": Footprint(table="permits", columns={"order": "order", "zone": "zone"}, fixed={"state": "issued"}),
    "extend_permit": _change("permits", "permit", day="day"),
    "set_state": _change("assets", "asset", state="state"),
    "book_person": Footprint(table="bookings", columns={"person": "person", "day": "day"}),
    "notify": Footprint(table="notices", columns={"person": "person", "about": "about"}),
    "scrap_part": Footprint(table="parts", columns={"part": "id"}, fixed={"state": "scrapped"}, key="part"),
}
"""Tools that change the plant. ``request_approval`` and ``decline`` are acts of procedure and judged apart."""

WRITTEN: dict[str, str] = {
    **{name: mark.table for name, mark in FOOTPRINTS.items()},
    "request_approval": "approvals",
    "decline": "declines",
}
"""Tool → the one table that it writes to."""

REACH: dict[str, frozenset[str]] = {
    tool: frozenset(tables.split())
    for tool, tables in {
        "get_asset": "assets",
        "get_alert": "alerts",
        "get_order": "orders",
        "get_part": "parts",
        "get_permit": "permits",
        "get_technician": "technicians",
        "get_plan": "plans",
        "get_readings": "readings",
        "get_approval": "approvals",
        "list_alerts": "assets alerts",
        "list_orders": "assets orders",
        "find_parts": "assets parts",
        "create_order": "assets orders",
        "assign_order": "orders",
        "set_level": "orders",
        "schedule_order": "orders",
        "set_hours": "orders",
        "log_value": "orders",
        "close_order": "orders",
        "reserve_part": "parts orders reservations",
        "order_part": "parts purchases",
        "move_part": "parts",
        "acknowledge_alert": "alerts",
        "issue_permit": "orders permits",
        "extend_permit": "permits",
        "set_state": "assets",
        "book_person": "bookings",
        "request_approval": "approvals rulings",
        "decline": "declines",
        "notify": "notices",
        "scrap_part": "parts",
    }.items()
}
"""Tool → all tables that it reads or writes. A world offers a tool only if it has all of them."""
