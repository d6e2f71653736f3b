"""A returns centre of a mail-order shop: domain code that no learner sees, and recordings of a scripted operator.

Written to measure how far inference carries in a domain that it was not developed on. It was frozen (committed) before
any figure was taken, and the learner is not to be tuned to it; whoever does must write another one. What is in it is
what such systems have: look-ups, joins, filters, sorted lists, percentages, price bands by weight, guards with worded
errors, writes that answer with a row, writes that answer with nothing, and codes that cannot be known beforehand.
"""

from __future__ import annotations

import copy
import hashlib
import json
import random
from collections.abc import Callable
from typing import Any

from flightschool.records import Message
from flightschool.traces import RecordedCall, RecordedEpisode

State = dict[str, Any]
CATEGORIES = ("lamp", "kettle", "rug", "chair", "clock", "vase")
NAMES = ("Okafor", "Brandt", "Silva", "Kowal", "Ito")
REASONS = ("defective", "wrong_item", "changed_mind", "arrived_late")
SITES = ("north", "south", "harbour")
TODAY = "2026-05-20"


def initial_state() -> State:
    """Customers, products and orders by id; carriers as a list by ``code``; no returns yet but six old ones."""
    draw = random.Random("returns centre")
    customers: State = {
        f"C-{n:03}": {
            "customer_id": f"C-{n:03}",
            "name": f"{draw.choice('ABCDEFGHJKLMNPRSTW')}. {draw.choice(NAMES)}",
            "email": f"customer{n}@example.org",
            "tier": draw.choice(("basic", "basic", "silver", "gold")),
            "credit": draw.choice((0, 0, 5, 20)),
        }
        for n in range(1, 61)
    }
    products: State = {
        f"SKU{n:03}": {
            "sku": f"SKU{n:03}",
            "name": f"{CATEGORIES[n % 6]} no. {n}",
            "category": CATEGORIES[n % 6],
            "price": draw.choice((9, 12, 19, 24, 35, 49, 80, 120)),
            "weight_kg": draw.choice((1, 2, 3, 6, 9, 14)),
            "stock": {site: draw.randint(0, 12) for site in SITES},
        }
        for n in range(1, 49)
    }
    carriers = [
        {"code": "post", "bands": {"light": 4, "medium": 7, "heavy": 15}},
        {"code": "courier", "bands": {"light": 6, "medium": 9, "heavy": 18}},
        {"code": "freight", "bands": {"light": 11, "medium": 12, "heavy": 13}},
    ]
    orders: State = {}
    for n in range(1, 141):
        lines: list[State] = [
            {"sku": sku, "quantity": draw.randint(1, 4), "unit_price": products[sku]["price"]}
            for sku in draw.sample(sorted(products), draw.randint(1, 3))
        ]
        orders[f"O{7000 + n}"] = {
            "order_id": f"O{7000 + n}",
            "customer_id": f"C-{draw.randint(1, 60):03}",
            "placed_on": f"2026-{draw.randint(1, 5):02}-{draw.randint(1, 19):02}",
            "status": draw.choice(("delivered", "delivered", "delivered", "shipped", "packed")),
            "lines": lines,
            "shipping": {"carrier": draw.choice(("post", "courier", "freight")), "address": f"{n} Mill Lane"},
            "total": sum(line["quantity"] * line["unit_price"] for line in lines),
        }
    returns: State = {}
    for number, order in enumerate([o for o in orders.values() if o["status"] == "delivered"][:6], start=1):
        line = order["lines"][0]
        returns[f"R{number:04}"] = {
            "return_id": f"R{number:04}",
            "order_id": order["order_id"],
            "sku": line["sku"],
            "quantity": 1,
            "reason": REASONS[number % 4],
            "refund": line["unit_price"],
            "status": ("open", "received", "cancelled")[number % 3],
        }
    return {"customers": customers, "products": products, "orders": orders, "carriers": carriers, "returns": returns}


class RefusalError(Exception):
    """What the system says no with."""


def _of(table: dict[str, Any], key: str, what: str) -> Any:
    if key not in table:
        raise RefusalError(f"{what} {key} not found")
    return table[key]


def _line(order: dict[str, Any], sku: str) -> dict[str, Any]:
    for line in order["lines"]:
        if line["sku"] == sku:
            return dict(line)
    raise RefusalError(f"{sku} is not part of order {order['order_id']}")


def _label_fee(state: State, order: dict[str, Any], sku: str) -> int:
    carrier = next(c for c in state["carriers"] if c["code"] == order["shipping"]["carrier"])
    weight = state["products"][sku]["weight_kg"]
    fee: int = carrier["bands"]["light" if weight <= 2 else "medium" if weight <= 6 else "heavy"]
    return fee


# ------------------------------------------------------------------------------------------------ tools


def find_customer(state: State, email: str) -> Any:
    for customer in state["customers"].values():
        if customer["email"] == email:
            return {"customer_id": customer["customer_id"], "name": customer["name"], "tier": customer["tier"]}
    raise RefusalError(f"no customer with e-mail {email}")


def get_customer(state: State, customer_id: str) -> Any:
    return _of(state["customers"], customer_id, "customer")


def list_orders(state: State, customer_id: str) -> Any:
    _of(state["customers"], customer_id, "customer")
    own = [order for order in state["orders"].values() if order["customer_id"] == customer_id]
    own.sort(key=lambda order: order["placed_on"], reverse=True)
    return [{key: order[key] for key in ("order_id", "placed_on", "status", "total")} for order in own]


def get_order(state: State, order_id: str) -> Any:
    return _of(state["orders"], order_id, "order")


def search_products(state: State, category: str, max_price: int) -> Any:
    found = [p for p in state["products"].values() if p["category"] == category and p["price"] <= max_price]
    return [{"sku": p["sku"], "name": p["name"], "price": p["price"]} for p in sorted(found, key=lambda p: p["price"])]


def stock_level(state: State, sku: str, site: str) -> Any:
    product = _of(state["products"], sku, "product")
    return {"sku": sku, "site": site, "available": product["stock"][site]}


def quote_return(state: State, order_id: str, sku: str, quantity: int, reason: str) -> Any:
    order = _of(state["orders"], order_id, "order")
    line = _line(order, sku)
    tier = state["customers"][order["customer_id"]]["tier"]
    value = line["unit_price"] * quantity
    restocking = 0 if reason != "changed_mind" or tier == "gold" else value * 15 // 100
    label = 0 if reason in ("defective", "wrong_item") else _label_fee(state, order, sku)
    return {"value": value, "restocking_fee": restocking, "label_fee": label, "refund": value - restocking - label}


def get_return(state: State, return_id: str) -> Any:
    return _of(state["returns"], return_id, "return")


def open_return(state: State, order_id: str, sku: str, quantity: int, reason: str) -> Any:
    order = _of(state["orders"], order_id, "order")
    line = _line(order, sku)
    if order["status"] != "delivered":
        raise RefusalError(f"order {order_id} is {order['status']}, only delivered orders can be returned")
    if quantity > line["quantity"]:
        raise RefusalError(f"only {line['quantity']} of {sku} were bought")
    if any(r["order_id"] == order_id and r["sku"] == sku and r["status"] != "cancelled" for r in _all(state)):
        raise RefusalError(f"{sku} of order {order_id} is being returned already")
    made = {
        "return_id": f"R{len(state['returns']) + 1:04}",
        "order_id": order_id,
        "sku": sku,
        "quantity": quantity,
        "reason": reason,
        "refund": quote_return(state, order_id, sku, quantity, reason)["refund"],
        "status": "open",
    }
    state["returns"][made["return_id"]] = made
    return made


def _all(state: State) -> list[dict[str, Any]]:
    return list(state["returns"].values())


def cancel_return(state: State, return_id: str) -> Any:
    found = _of(state["returns"], return_id, "return")
    if found["status"] != "open":
        raise RefusalError(f"return {return_id} is {found['status']}")
    found["status"] = "cancelled"
    return found


def receive_return(state: State, return_id: str, site: str) -> Any:
    found = _of(state["returns"], return_id, "return")
    if found["status"] != "open":
        raise RefusalError(f"return {return_id} is {found['status']}")
    found["status"] = "received"
    state["products"][found["sku"]]["stock"][site] += found["quantity"]
    customer = state["customers"][state["orders"][found["order_id"]]["customer_id"]]
    customer["credit"] += found["refund"]
    return {"ok": True}


def change_address(state: State, order_id: str, address: str) -> Any:
    order = _of(state["orders"], order_id, "order")
    if order["status"] != "packed":
        raise RefusalError(f"order {order_id} has left the house")
    order["shipping"]["address"] = address
    return order


def issue_voucher(state: State, customer_id: str, amount: int, note: str) -> Any:
    customer = _of(state["customers"], customer_id, "customer")
    if amount > 25:
        raise RefusalError("vouchers above 25 need a manager")
    code = hashlib.sha256(f"{customer_id}{amount}{note}".encode()).hexdigest()[:8].upper()
    return {"voucher": f"V-{code}", "amount": amount, "for": customer["name"]}


READS = (find_customer, get_customer, list_orders, get_order, search_products, stock_level, quote_return, get_return)
WRITING = (open_return, cancel_return, receive_return, change_address, issue_voucher)
TOOLS: dict[str, Callable[..., Any]] = {tool.__name__: tool for tool in (*READS, *WRITING)}
WRITES = frozenset(tool.__name__ for tool in WRITING)


# ------------------------------------------------------------------------------------------------ recordings


class _Operator:
    """Plays one customer's case and records it."""

    def __init__(self, number: int, draw: random.Random) -> None:
        self.state = copy.deepcopy(initial_state())
        self.calls: list[RecordedCall] = []
        self.number, self.draw = number, draw

    def call(self, name: str, **arguments: Any) -> Any:
        try:
            value, failed = TOOLS[name](self.state, **arguments), False
        except RefusalError as refusal:
            value, failed = f"Error: {refusal}", True
        value = copy.deepcopy(value)
        turn = len(self.calls)
        self.calls.append(
            RecordedCall(
                turn=turn,
                id=f"c{self.number}_{turn}",
                name=name,
                arguments=arguments,
                text=value if failed else json.dumps(value),
                value=value,
                is_error=failed,
            )
        )
        return None if failed else value

    def case(self) -> str:
        """One case; the words of the customer."""
        draw, state = self.draw, self.state
        customer = state["customers"][f"C-{draw.randint(1, 60):03}"]
        mail = customer["email"] if draw.random() < 0.95 else f"typo{draw.randint(1, 9)}@example.org"
        found = self.call("find_customer", email=mail)
        own = self.call("list_orders", customer_id=found["customer_id"]) if found else None
        if not own:
            if draw.random() < 0.5:
                self.call("search_products", category=draw.choice(CATEGORIES), max_price=draw.choice((15, 30, 60, 99)))
            return f"Hello, I am {customer['name']} ({mail}). What have I bought?"
        order = self.call("get_order", order_id=draw.choice(own)["order_id"])
        line = draw.choice(order["lines"])
        wish = draw.choice(("return", "return", "return", "old return", "address", "voucher", "stock", "exchange"))
        getattr(self, "_" + wish.replace(" ", "_"))(order, line, customer)
        return f"I am {customer['name']} ({mail}), it is about {order['order_id']}: {wish}, {line['sku']}."

    def _return(self, order: Any, line: Any, customer: Any) -> None:
        draw = self.draw
        quantity = draw.randint(1, line["quantity"] + (draw.random() < 0.15))
        asked = {
            "order_id": order["order_id"],
            "sku": line["sku"],
            "quantity": quantity,
            "reason": draw.choice(REASONS),
        }
        if draw.random() < 0.8:
            self.call("quote_return", **asked)
        made = self.call("open_return", **asked)
        if made and draw.random() < 0.3:
            self.call("receive_return", return_id=made["return_id"], site=draw.choice(SITES))
            self.call("get_customer", customer_id=customer["customer_id"])
        elif made and draw.random() < 0.4:
            self.call("cancel_return", return_id=made["return_id"])
        if made and draw.random() < 0.4:
            self.call("get_return", return_id=made["return_id"])

    def _old_return(self, order: Any, line: Any, customer: Any) -> None:
        return_id = f"R{self.draw.randint(1, 8):04}"
        seen = self.call("get_return", return_id=return_id)
        if seen and self.draw.random() < 0.6:
            site = self.draw.choice(SITES)
            self.call("receive_return", return_id=return_id, site=site)
            self.call("stock_level", sku=seen["sku"], site=site)
            self.call("get_return", return_id=return_id)
        elif seen:
            self.call("cancel_return", return_id=return_id)

    def _address(self, order: Any, line: Any, customer: Any) -> None:
        street = f"{self.draw.randint(1, 99)} {self.draw.choice(('Weir', 'Orchard', 'Chapel'))} Road"
        if self.call("change_address", order_id=order["order_id"], address=street):
            self.call("get_order", order_id=order["order_id"])

    def _voucher(self, order: Any, line: Any, customer: Any) -> None:
        amount = self.draw.choice((5, 10, 20, 50))
        self.call(
            "issue_voucher", customer_id=customer["customer_id"], amount=amount, note=f"sorry, {order['order_id']}"
        )

    def _stock(self, order: Any, line: Any, customer: Any) -> None:
        for site in self.draw.sample(SITES, self.draw.randint(1, 3)):
            self.call("stock_level", sku=line["sku"], site=site)

    def _exchange(self, order: Any, line: Any, customer: Any) -> None:
        category = self.state["products"][line["sku"]]["category"]
        self.call("search_products", category=category, max_price=line["unit_price"])
        self.call("quote_return", order_id=order["order_id"], sku=line["sku"], quantity=1, reason="wrong_item")
        self.call("open_return", order_id=order["order_id"], sku=line["sku"], quantity=1, reason="wrong_item")


def record(num: int, seed: int = 0) -> tuple[RecordedEpisode, ...]:
    """Recordings of ``num`` cases."""
    made = []
    for number in range(num):
        operator = _Operator(number, random.Random(f"{seed}/{number}"))
        words = operator.case()
        messages = (Message(role="user", content=words),)
        made.append(
            RecordedEpisode(
                id=f"case{number}", source="returns", messages=messages, calls=tuple(operator.calls), success=True
            )
        )
    return tuple(made)
