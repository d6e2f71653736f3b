"""Run by a Python with openenv: its own clients against a server of ours. ``peer_openenv.py URL TOKEN ORACLES``."""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
from typing import Any


def call(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"type": "call_tool", "tool_name": name, "arguments": arguments}


def synchronous(url: str, headers: dict[str, str], oracles: dict[str, Any]) -> list[float]:
    """The generic client, task after task."""
    generic: Any = importlib.import_module("openenv.core.generic_client")
    rewards = []
    with generic.GenericEnvClient(base_url=url, headers=headers).sync() as env:
        for task_id, oracle in oracles.items():
            opened = env.reset(task_id=task_id, episode_id="mine")
            assert opened.observation["task_id"] == task_id, opened
            for name, arguments in oracle["calls"]:
                step = env.step(call(name, arguments))
                assert step.done in (False, name == "decline"), step
            last = step if step.done else env.step(call("final_answer", {"answer": oracle["answer"]}))
            assert last.done
            assert last.metadata["reward_components"]["total"] == last.reward
            assert env.state()["episode_id"] == "mine"
            rewards.append(last.reward)
        told = ""
        try:
            env.step({"type": "fly"})
        except RuntimeError as error:
            told = str(error)
        assert "VALIDATION_ERROR" in told, "a wrong action was taken"
    return rewards


async def tools(url: str, headers: dict[str, str], oracles: dict[str, Any]) -> float:
    """The MCP client: tools over HTTP, reset over the WebSocket, one session."""
    mcp: Any = importlib.import_module("openenv.core.mcp_client")
    task_id, oracle = next(iter(oracles.items()))
    async with mcp.MCPToolClient(base_url=url, headers=headers) as env:
        await env.reset(task_id=task_id)
        listed = {tool.name for tool in await env.list_tools()}
        assert "final_answer" in listed, listed
        for name, arguments in oracle["calls"]:
            await env.call_tool(name, **arguments)
        await env.call_tool("final_answer", answer=oracle["answer"])
        state = await env._send_and_receive({"type": "state"})
        return float(state["data"]["reward"])


async def many(url: str, headers: dict[str, str], num: int) -> int:
    """Sessions side by side."""
    generic: Any = importlib.import_module("openenv.core.generic_client")

    async def one(seed: int) -> str:
        async with generic.GenericEnvClient(base_url=url, headers=headers) as env:
            opened = await env.reset(seed=seed)
            await env.step({"type": "list_tools"})
            return str(opened.observation["task_id"])

    named = await asyncio.gather(*(one(seed) for seed in range(num)))
    return len(set(named))


if __name__ == "__main__":
    address, token, given = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    shown = {"Authorization": f"Bearer {token}"} if token else {}
    print(  # noqa: T201  the test reads it
        json.dumps(
            {
                "rewards": synchronous(address, shown, given),
                "mcp_reward": asyncio.run(tools(address, shown, given)),
                "num_tasks": asyncio.run(many(address, shown, 24)),
            }
        )
    )
