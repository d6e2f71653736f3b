"""The plainest harness that verifiers can load: words and tool calls, in the process that runs the rollout.

Its own chat loop is a script for which verifiers installs an interpreter over the network; this one needs nothing.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
from typing import Any

__all__ = ["PeerHarness"]  # noqa: F822  made when it is asked for, by a Python that has verifiers

_NEVER = None


def __getattr__(name: str) -> Any:
    if name == "PeerHarness":
        return _harness()
    raise AttributeError(name)


@functools.cache
def _harness() -> type:
    """The class, made where verifiers can be imported."""
    v1: Any = importlib.import_module("verifiers.v1")

    class PeerHarness(v1.Harness[v1.HarnessConfig]):  # type: ignore[misc]
        """Asks the model, calls the tools, until it calls none."""

        APPENDS_SYSTEM_PROMPT = True
        SUPPORTS_MCP = True
        SUPPORTS_RESUME = True
        EXECUTES_CODE = False
        NEEDS_CONTAINER = False

        async def launch(
            self, ctx: Any, trace: Any, runtime: Any, endpoint: str, secret: str, mcp_urls: dict[str, str], data: Any
        ) -> Any:
            """One segment of the exchange."""
            del trace, runtime
            system, prompt = self.resolve_prompt(data)
            messages = [{"role": "system", "content": system}] if system else []
            messages += _opening(prompt)
            return await _chat(ctx.model, endpoint, secret, mcp_urls, messages)

    return PeerHarness


def _opening(prompt: Any) -> list[dict[str, Any]]:
    if prompt is None:
        return []
    if isinstance(prompt, str):
        return [{"role": "user", "content": prompt}]
    wire: Any = importlib.import_module("verifiers.v1.dialects.chat").message_to_wire
    return [wire(message) for message in prompt]


async def _chat(model: str, endpoint: str, secret: str, urls: dict[str, str], messages: list[dict[str, Any]]) -> Any:
    httpx: Any = importlib.import_module("httpx")
    mcp: Any = importlib.import_module("verifiers.v1.harnesses.utils.mcp")
    result: Any = importlib.import_module("verifiers.v1.runtimes").ProgramResult
    servers = {"mcpServers": {name: {"url": url} for name, url in urls.items()}}
    headers = {"Authorization": f"Bearer {secret}"}
    async with contextlib.AsyncExitStack() as stack, httpx.AsyncClient(timeout=_NEVER, headers=headers) as client:
        tools, dispatch, connections = await mcp.connect_mcp(servers, stack) if urls else ([], {}, {})
        while True:
            body = {"model": model, "messages": messages, **({"tools": tools} if tools else {})}
            answer = await client.post(f"{endpoint}/chat/completions", json=body)
            if answer.status_code != 200:
                return result(exit_code=1, stdout="", stderr=answer.text)
            message = answer.json()["choices"][0]["message"]
            messages.append({key: value for key, value in message.items() if key in ("role", "content", "tool_calls")})
            if not message.get("tool_calls"):
                return result(exit_code=0, stdout="", stderr="")
            for call in message["tool_calls"]:
                told = await _called(mcp, connections, dispatch, call["function"])
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": told})


async def _called(mcp: Any, connections: Any, dispatch: Any, function: dict[str, Any]) -> Any:
    """The answer of a tool; what it cannot be called with is told to the model."""
    if function["name"] not in dispatch:
        return f"error: unknown tool {function['name']!r}"
    return await mcp.call_mcp(connections, dispatch, function["name"], json.loads(function["arguments"]))
