"""Run by a Python with verifiers 0.4: its own bridge to NeMo Gym against a resources server of ours.

``peer_verifiers.py URL ROWS CALLS``: loads the rows, seeds, calls each tool and verifies with the bridge's own code.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
from types import SimpleNamespace
from typing import Any


async def main(url: str, rows: str, calls: list[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    bridge: Any = importlib.import_module("verifiers.v1.tasksets.nemo_gym.taskset")
    toolset: Any = importlib.import_module("verifiers.v1.tasksets.nemo_gym.toolset")
    types: Any = importlib.import_module("verifiers.v1.types")
    config = bridge.NeMoGymConfig(dataset=rows, task=bridge.NeMoGymTaskConfig(resources_url=url))
    tasks = list(bridge.NeMoGymTaskset(config).load())
    said = SimpleNamespace(message=types.AssistantMessage(content="Done."), sampled=True, timestamp=0.0)
    metrics: dict[str, float] = {}
    trace = SimpleNamespace(
        id="trace",
        state=toolset.NeMoGymState(),
        branches=[SimpleNamespace(nodes=[said])],
        info={},
        record_metric=metrics.__setitem__,
    )
    await tasks[0].setup(trace, None)
    answers = []
    for name, arguments in calls:
        assert name in trace.state.direct_tools, name
        answers.append((await trace.state.post(name, arguments)).json())
    reward = await tasks[0].nemo_gym(trace)
    return {"num_tasks": len(tasks), "answers": answers, "reward": reward, "metrics": metrics}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3])))))  # noqa: T201
