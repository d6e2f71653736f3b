"""verifiers, spoken by its own Python: v1 tasksets and v0 ``load_environment`` modules.

Both run their own loop (turns, tools, stop conditions, scoring) and ask a model; ``peer_model`` lets the acting policy
be that model, so nothing of an environment is rebuilt here. Its tools are the tools that it shows to the model, and
``reply`` is the model's plain message.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import queue
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any

from peer_model import Asked, Ended, serve  # type: ignore[import-not-found]  # beside this file, see peer_main

__all__ = ["Session", "describe"]

REPLY = "reply"
ANSWER_S = 110.0
REPLY_TOOL = {
    "name": REPLY,
    "description": "Say something: a message to the user, or the final answer in the form that is asked for.",
    "parameters": {
        "type": "object",
        "properties": {"text": {"type": "string"}},
        "required": ["text"],
        "additionalProperties": False,
    },
}
FORMS = ("{}", "<answer>{}</answer>", "\\boxed{{{}}}", "<answer>\\boxed{{{}}}</answer>")
"""Forms in which environments commonly want an answer that their data hold plain."""


def describe(source: dict[str, Any]) -> dict[str, Any]:
    """One task a row, begun once: what the model is told and shown first is the task."""
    name = source["names"][0]
    adapter = _adapter(source)
    tools: dict[str, dict[str, Any]] = {}
    tasks, forms = [], list(FORMS)
    for row in range(min(len(source["seeds"]), adapter.num_rows)):
        session = Session(source, {"row": row})
        try:
            opening = session.reset()
            shown = session.tools
        finally:
            session.close()
        for tool in shown:
            if tool["name"] == REPLY:
                raise LookupError(f"{name} has a tool {REPLY!r} of its own")
            tools.setdefault(tool["name"], tool)
        answer = adapter.answer(row)
        oracle = None if answer is None else _oracle(source, row, answer, forms)
        tasks.append(
            {
                "id": f"{name}-{row}",
                "family": adapter.family(row),
                "stratum": name,
                "instruction": _rendered(session.first, ("user", "assistant")),
                "guidance": _rendered(session.first, ("system", "developer")),
                "tools": [*(tool["name"] for tool in shown), REPLY],
                "start": {"row": row},
                "oracle": [] if oracle is None else [oracle],
                "opening": opening["value"],
            }
        )
    return {
        "version": adapter.version,
        "tools": [*tools.values(), REPLY_TOOL],
        "tool": REPLY_TOOL,
        "tasks": tasks,
        "argument": "text",
        "observed": True,
    }


def _oracle(source: dict[str, Any], row: int, answer: str, forms: list[str]) -> str | None:
    """The known answer in the form that the environment's own scoring gives full marks, if there is one."""
    for form in tuple(forms):
        session = Session(source, {"row": row})
        try:
            session.reset()
            seen = session.act(REPLY, {"text": form.format(answer)})
        finally:
            session.close()
        if seen.get("reward", 0.0) >= source["threshold"]:
            forms.remove(form)
            forms.insert(0, form)  # the next row most likely wants the same
            return form.format(answer)
    return None


class Session:
    """One rollout over there, in which the policy is the model."""

    def __init__(self, source: dict[str, Any], start: dict[str, Any]) -> None:
        self._exchange, url = serve().open()
        adapter = _adapter(source)
        self._rollout = _loop().run(self._played(adapter, start["row"], url))
        self._num_calls = 0
        self._seen: list[dict[str, Any]] = []
        self.first: list[dict[str, Any]] = []
        """Messages of the first request."""
        self.tools: list[dict[str, Any]] = []

    async def _played(self, adapter: Any, row: int, url: str) -> None:
        try:
            reward, broken = await adapter.rollout(row, url)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001  told to the other side, which decides what it means
            reward, broken = 0.0, f"{type(error).__name__}: {error}"
        self._exchange.end(Ended(reward, broken))

    def reset(self) -> dict[str, Any]:
        """What the model is told first."""
        told = self._hear()
        if isinstance(told, Ended):
            raise RuntimeError(told.broken or "the rollout ended before the model was asked anything")
        self.first = self._seen = told.messages
        self.tools = [
            {"description": "", "parameters": {"type": "object"}, **tool["function"]}
            for tool in told.tools
            if tool.get("type") == "function"
        ]
        return {"value": {"messages": told.messages, "tools": [tool["name"] for tool in self.tools]}}

    def act(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """One message of the model: words, or one call."""
        if tool == REPLY:
            said: dict[str, Any] = {"content": arguments["text"]}
        else:
            self._num_calls += 1
            call = {"name": tool, "arguments": json.dumps(arguments)}
            said = {
                "content": None,
                "tool_calls": [{"id": f"call_{self._num_calls}", "type": "function", "function": call}],
            }
        self._exchange.say(said)
        told = self._hear()
        if isinstance(told, Ended):
            if told.broken:
                return {"broken": told.broken}
            return {"value": {"done": True}, "reward": told.reward, "done": True}
        return {"value": _news(self._seen, self._take(told))}

    def close(self) -> None:
        """Let the rollout go where it is."""
        self._rollout.cancel()
        serve().forget(self._exchange)

    def _take(self, told: Asked) -> list[dict[str, Any]]:
        now: list[dict[str, Any]] = told.messages
        self._seen = now
        return now

    def _hear(self) -> Asked | Ended:
        try:
            return self._exchange.hear(ANSWER_S)
        except queue.Empty:
            return Ended(0.0, f"it asked for nothing and did not end within {ANSWER_S:.0f} s")


def _news(before: list[dict[str, Any]], now: list[dict[str, Any]]) -> Any:
    """What stands after the model's own message; all of it, where the history was rewritten."""
    fresh = now[len(before) + 1 :] if len(now) > len(before) and now[: len(before)] == before else now
    told = [{"role": one["role"], "content": _text(one.get("content"))} for one in fresh]
    return told[0]["content"] if len(told) == 1 else told


def _rendered(messages: list[dict[str, Any]], roles: tuple[str, ...]) -> str:
    """The words of these roles; who said them is told where there is more than one message."""
    told = [(one["role"], _text(one.get("content"))) for one in messages if one["role"] in roles]
    if len(told) == 1 or len({role for role, _ in told}) == 1:
        return "\n\n".join(text for _, text in told)
    return "\n\n".join(f"{role}: {text}" for role, text in told)


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return "" if content is None else str(content)


# ------------------------------------------------------------------------------------------------ what is spoken to

_adapters: dict[str, Any] = {}


def _adapter(source: dict[str, Any]) -> Any:
    """The named environment, loaded once: v1 if the package has tasksets, else v0."""
    key = json.dumps([source["names"], source["config"]], sort_keys=True)
    if key not in _adapters:
        if len(source["names"]) != 1:
            raise LookupError("name one taskset or environment")
        unknown = sorted(set(source["config"]) - {"arguments", "split"})
        if unknown:
            raise LookupError(
                f"unknown key {unknown[0]!r}: [arguments] holds what it is loaded with, split is one word"
            )
        old = hasattr(importlib.import_module("verifiers"), "load_environment")
        made = importlib.import_module("peer_verifiers_v0" if old else "peer_verifiers_v1")
        _adapters[key] = made.Adapter(source["names"][0], source["config"], _loop())
    return _adapters[key]


class Loop:
    """One event loop in a thread of its own: environments hold locks and clients that belong to one."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def run(self, work: Coroutine[Any, Any, Any]) -> Future[Any]:
        """Begin work there."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)


_loops: list[Loop] = []


def _loop() -> Loop:
    if not _loops:
        _loops.append(Loop())
    return _loops[0]


with contextlib.suppress(ImportError):  # what it logs is for standard error, and little of it
    import logging

    logging.getLogger("verifiers").setLevel(logging.ERROR)
