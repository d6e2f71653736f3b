"""A small order desk's traces, for tests of environments that are made from traces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flightschool.traces import TraceSet, import_traces

CODE = """
def get_order(state, order_id):
    return state["orders"][order_id]


def cancel_order(state, order_id, reason=""):
    order = state["orders"][order_id]
    if order["status"] != "open":
        raise ValueError("only open orders can be cancelled")
    order["status"] = "cancelled"
    return order
"""


class Orders:
    """Builds episodes, and the files that environments are built from."""

    code_text = CODE

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def call(self, tool: str, call_id: str, answer: Any, **arguments: Any) -> list[dict[str, Any]]:
        function = {"name": tool, "arguments": json.dumps(arguments)}
        asked = {"role": "assistant", "tool_calls": [{"id": call_id, "function": function}]}
        text = answer if isinstance(answer, str) else json.dumps(answer)
        return [asked, {"role": "tool", "tool_call_id": call_id, "content": text}]

    def episode(self, *parts: list[dict[str, Any]], ask: str, say: str = "Done.", **metadata: Any) -> dict[str, Any]:
        messages = [{"role": "system", "content": "Cancel open orders only."}, {"role": "user", "content": ask}]
        for part in parts:
            messages += part
        return {"messages": [*messages, {"role": "assistant", "content": say}], "metadata": metadata}

    def cancelling(self, order: str, task: str, *, success: bool = True) -> dict[str, Any]:
        """Reads, cancels and reads again; a failure only reads."""
        before, after = {"id": order, "status": "open"}, {"id": order, "status": "cancelled"}
        parts = [self.call("get_order", "1", before, order_id=order)]
        if success:
            reason = f"the customer of {order} asked for it by mail"
            parts.append(self.call("cancel_order", "2", after, order_id=order, reason=reason))
            parts.append(self.call("get_order", "3", after, order_id=order))
        return self.episode(*parts, ask=f"Please cancel {order} of mine", task=task, success=success)

    def asking(self, order: str, task: str) -> dict[str, Any]:
        """A question that is answered from a read."""
        read = self.call("get_order", "1", {"id": order, "status": "open", "due": "2026-05-01"}, order_id=order)
        return self.episode(read, ask="When does it come?", say="On 2026-05-01.", task=task, success=True)

    def refusing(self, order: str, task: str) -> dict[str, Any]:
        """Ground truth says that nothing is to be done."""
        read = self.call("get_order", "1", {"id": order, "status": "shipped"}, order_id=order)
        return self.episode(read, ask=f"Stop {order} now!", task=task, success=True, actions=[])

    def traces(self, *episodes: dict[str, Any]) -> TraceSet:
        path = self.folder / "traces.jsonl"
        path.write_text("\n".join(json.dumps(e) for e in episodes))
        return import_traces(path)

    def state(self) -> Path:
        place = self.folder / "state"
        place.mkdir(exist_ok=True)
        orders = {f"A{n}": {"id": f"A{n}", "status": "shipped" if n % 5 == 0 else "open"} for n in range(12)}
        (place / "orders.json").write_text(json.dumps(orders))
        return place

    def code(self, text: str = CODE) -> str:
        path = self.folder / "tools.py"
        path.write_text(text)
        return str(path)


@pytest.fixture
def orders(tmp_path: Path) -> Orders:
    return Orders(tmp_path)
