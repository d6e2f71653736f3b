"""The order desk: a small world of our own on which this package and its peer train alike.

Two kinds of episode, both with ids that occur once:

- ``orders``: read an order, refund what was paid, say so. Three turns, two calls, two worked examples.
- ``refund``: the order stands in the instruction; one turn, one call, one worked example.

Both are judged by the same fifths on both sides: the order was read (where it must be), it was refunded, and exactly
what was paid was refunded. The world is a dictionary: what is measured is the trainer, not a database.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

from flightschool.digest import digest
from flightschool.errors import NotFoundError
from flightschool.protocols import PermissionDecision, Permissions, World, WorldReply
from flightschool.records import (
    CallCheck,
    CheckKind,
    CheckSpec,
    Effect,
    Json,
    JsonCheck,
    Message,
    Record,
    Reference,
    Task,
    ToolCall,
    ToolEvent,
    ToolSpec,
)

__all__ = ["MAX_TURNS", "Kind", "Order", "OrdersEnvironment", "draw_orders"]

Kind: TypeAlias = Literal["refund", "orders"]

MAX_TURNS: Mapping[Kind, int] = {"refund": 1, "orders": 3}
"""Assistant turns before an episode is cut, on both sides."""

_ITEMS = ("lamp", "chair", "kettle", "radio", "clock", "mirror", "basket", "carpet", "ladder", "bucket")
_CARRIERS = ("Nordpost", "Quickline", "Bluevan", "Farway")
_GUIDANCE: Mapping[Kind, str] = {
    "orders": "You work at the order desk. Read the order first, refund exactly what was paid, then say Done.",
    "refund": "You work at the order desk. Refund exactly what was paid for the order, without the shipping.",
}


class Order(Record, frozen=True, kw_only=True):
    """What a task is about."""

    id: str
    item: str
    carrier: str
    shipping: int
    paid: int


def draw_orders(num: int, seed: int) -> tuple[Order, ...]:
    """Orders whose ids differ from one another, and from those of the worked examples."""
    chance = random.Random(seed)
    numbers = chance.sample(range(1000, 9000), num)
    return tuple(
        Order(
            id=f"{chance.choice('BCDFGHJKLM')}{number}",
            item=chance.choice(_ITEMS),
            carrier=chance.choice(_CARRIERS),
            shipping=chance.randint(2, 9),
            paid=chance.randint(11, 98),
        )
        for number in numbers
    )


def _tool(name: str, description: str, effect: Effect, **properties: str) -> ToolSpec:
    schema = {
        "type": "object",
        "properties": {key: {"type": kind} for key, kind in properties.items()},
        "required": list(properties),
        "additionalProperties": False,
    }
    return ToolSpec(name=name, description=description, parameters=schema, effect=effect)


_READ = _tool("get_order", "what was ordered and paid", Effect.READ, order="string")
_REFUND = _tool("refund", "give money back", Effect.WRITE, order="string", amount="integer")
_TOOLS: Mapping[Kind, tuple[ToolSpec, ...]] = {"refund": (_REFUND,), "orders": (_READ, _REFUND)}


def _shown(order: Order) -> dict[str, Json]:
    return {
        "order": order.id,
        "item": order.item,
        "carrier": order.carrier,
        "shipping": order.shipping,
        "paid": order.paid,
    }


class _OrdersWorld:
    """The orders and refunds of one attempt."""

    def __init__(self, orders: Mapping[str, Order], refunds: Mapping[str, int]) -> None:
        self._orders, self._refunds = orders, dict(refunds)

    def execute(self, call: ToolCall) -> WorldReply:
        """Run one call; an unknown order is an error of the domain."""
        order = self._orders.get(call.arguments["order"])
        if order is None:
            return WorldReply(value={"error": "no such order"}, is_error=True)
        if call.name == _READ.name:
            return WorldReply(value=_shown(order))
        self._refunds[order.id] = call.arguments["amount"]
        return WorldReply(value={"ok": True})

    def snapshot(self) -> bytes:
        """Refunds as JSON."""
        return json.dumps({"refunds": self._refunds}, sort_keys=True).encode()

    def fork(self) -> World:
        """An independent copy."""
        return _OrdersWorld(self._orders, self._refunds)

    def close(self) -> None:
        """Nothing is held."""


class _AllAllowed:
    def decide(self, call: ToolCall, events: Sequence[ToolEvent]) -> PermissionDecision:
        del call, events
        return PermissionDecision(allowed=True, rule="order-desk")


class OrdersEnvironment:
    """Implements ``protocols.Environment``; one task an order.

    Args:
        kind: of episode.
        orders: drawn by ``draw_orders``.
    """

    policy_text = "Refund what was paid."

    def __init__(self, kind: Kind, orders: Sequence[Order]) -> None:
        self.kind = kind
        self.name = f"order-desk-{kind}"
        self.strata: Mapping[str, float] = {kind: 1.0}
        self._orders = {order.id: order for order in orders}
        self._tasks = {order.id: _task(kind, order) for order in orders}

    @property
    def orders(self) -> tuple[Order, ...]:
        """What the tasks are about."""
        return tuple(self._orders.values())

    @property
    def digest(self) -> str:
        """Digest of tasks, tools and references."""
        return digest([list(self._tasks.values()), list(self.tools()), [self.reference(name) for name in self._tasks]])

    def tasks(self) -> Sequence[Task]:
        """All tasks, in the order of the orders."""
        return tuple(self._tasks.values())

    def task(self, task_id: str) -> Task:
        """One task."""
        if task_id not in self._tasks:
            raise NotFoundError(f"no task {task_id!r}", where=self.name, expected="a known order", mend="list tasks")
        return self._tasks[task_id]

    def tools(self) -> Sequence[ToolSpec]:
        """The tools of the kind."""
        return _TOOLS[self.kind]

    def permissions(self, task: Task) -> Permissions:
        """Everything that is offered is allowed."""
        del task
        return _AllAllowed()

    def open(self, task: Task) -> World:
        """The desk before anything was refunded."""
        del task
        return _OrdersWorld(self._orders, {})

    def reference(self, task_id: str) -> Reference:
        """The sealed side."""
        order = self._orders[self.task(task_id).id]
        refunded = CallCheck(tool=_REFUND.name, arguments={"order": order.id})
        exact = JsonCheck(expected={order.id: order.paid}, pointer="/refunds")
        checks: tuple[CheckSpec, ...] = (_check("refunded", refunded, 1.0), _check("exactly", exact, 3.0))
        oracle: tuple[ToolCall, ...] = (
            ToolCall(id="call_1_0", name=_REFUND.name, arguments={"order": order.id, "amount": order.paid}),
        )
        if self.kind == "orders":
            read = CallCheck(tool=_READ.name, arguments={"order": order.id}, before=_REFUND.name)
            checks = (_check("read", read, 1.0), *checks)
            oracle = (ToolCall(id="call_0_0", name=_READ.name, arguments={"order": order.id}), *oracle)
        return Reference(task_id=task_id, checks=checks, oracle=oracle)


def _check(name: str, rule: CallCheck | JsonCheck, weight: float) -> CheckSpec:
    return CheckSpec(id=name, kind=CheckKind.FUNCTIONAL, rule=rule, weight=weight)


def _task(kind: Kind, order: Order) -> Task:
    return Task(
        id=order.id,
        family=order.item,
        stratum=kind,
        instruction=_instruction(kind, order),
        initial_state="orders",
        guidance=_GUIDANCE[kind],
        example=_examples(kind),
        max_turns=MAX_TURNS[kind],
    )


def _instruction(kind: Kind, order: Order) -> str:
    if kind == "orders":
        return f"Refund order {order.id}."
    return f"Refund this order.\nResult: {json.dumps(_shown(order))}"


def _examples(kind: Kind) -> tuple[Message, ...]:
    shown = (
        Order(id="A4711", item="table", carrier="Nordpost", shipping=6, paid=84),
        Order(id="N0305", item="vase", carrier="Farway", shipping=3, paid=29),
    )
    if kind == "refund":
        return _example(kind, shown[0])
    return tuple(message for order in shown for message in _example(kind, order))


def _example(kind: Kind, order: Order) -> tuple[Message, ...]:
    refund = ToolCall(id="call_1_0", name=_REFUND.name, arguments={"order": order.id, "amount": order.paid})
    asked = Message(role="user", content=_instruction(kind, order))
    if kind == "refund":
        return asked, Message(role="assistant", tool_calls=(refund,))
    read = ToolCall(id="call_0_0", name=_READ.name, arguments={"order": order.id})
    return (
        asked,
        Message(role="assistant", tool_calls=(read,)),
        Message(role="tool", content=json.dumps(_shown(order)), tool_call_id=read.id),
        Message(role="assistant", tool_calls=(refund,)),
        Message(role="tool", content=json.dumps({"ok": True}), tool_call_id=refund.id),
        Message(role="assistant", content="Done."),
    )
