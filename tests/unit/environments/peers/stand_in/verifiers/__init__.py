"""A stand-in with the interface of verifiers before 0.2: an environment that asks a model until it says an answer.

It makes the conversation with a peer testable without installing one; the real package is spoken to in slow tests.
"""

from __future__ import annotations

import asyncio
import json
import urllib.request
from typing import Any

from .types import ClientConfig

ADD = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "The sum.",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
    },
}


class Rows(list[dict[str, Any]]):
    def to_list(self) -> list[dict[str, Any]]:
        return list(self)


class Sums:
    """Two sums, and a row on which the environment breaks after the first answer."""

    def __init__(self, offset: int = 0) -> None:
        self.offset = offset

    def get_eval_dataset(self) -> Rows:
        asked = [(1, 2), (20, 22)]
        rows = [{"prompt": f"{a} + {b + self.offset}?", "answer": str(a + b + self.offset)} for a, b in asked]
        return Rows([*rows, {"prompt": "break", "answer": None}])

    async def run_rollout(
        self, row: dict[str, Any], client: ClientConfig, model: str, sampling_args: Any
    ) -> dict[str, Any]:
        messages: list[dict[str, Any]] = [
            {"role": "system", "content": "Answer in <answer> marks."},
            {"role": "user", "content": row["prompt"]},
        ]
        while True:
            said = await asyncio.to_thread(self._ask, client.api_base_url, model, messages)
            messages.append(said)
            if row["prompt"] == "break":
                return {"reward": 0.0, "error": "the sandbox died"}
            if not said.get("tool_calls"):
                return {"reward": 1.0 if f"<answer>{row['answer']}</answer>" in said["content"] else 0.0}
            given = json.loads(said["tool_calls"][0]["function"]["arguments"])
            messages.append({"role": "tool", "tool_call_id": "x", "content": str(given["a"] + given["b"])})

    def _ask(self, url: str, model: str, messages: list[dict[str, Any]]) -> dict[str, Any]:
        print("prints must not look like answers")  # noqa: T201
        body = json.dumps({"model": model, "messages": messages, "tools": [ADD]}).encode()
        request = urllib.request.Request(f"{url}/chat/completions", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            told: dict[str, Any] = json.loads(answer.read())
        message: dict[str, Any] = told["choices"][0]["message"]
        return message


def load_environment(name: str, **arguments: int) -> Sums:
    if name != "sums":
        raise ValueError(f"Could not import {name!r} environment")
    return Sums(**arguments)
