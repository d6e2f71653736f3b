"""An environment of ours as a taskset of verifiers 0.4, in a package that its tools load unchanged.

The package holds what a policy may see: instructions and tools. Worlds, checks and references stay with the server that
it asks (``flightschool serve env E --protocol nemo-gym``), so a grader never shares a process with a program that
verifiers runs for the policy. An episode whose infrastructure failed raises in the taskset's reward: verifiers records
an error for it, and no score.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from flightschool import __version__
from flightschool.errors import InputError
from flightschool.serving.nemo_gym import rows
from flightschool.serving.tasks import TaskDesk

__all__ = ["package_name", "write_taskset"]

_PORT = 8100

_INIT = '''\
"""{name} as a verifiers taskset; the server of its worlds and checks is asked over HTTP."""

from {package}.taskset import ServedTaskset

__all__ = ["ServedTaskset"]
'''

_TASKSET = '''\
"""Tasks of {name}. Tools are called and answers judged by a flightschool server, one episode a rollout."""

import json
from pathlib import Path
from typing import Any

import httpx
import verifiers.v1 as vf
from mcp.types import CallToolResult, TextContent, Tool

ROWS = Path(__file__).with_name("tasks.jsonl")


class ServedTaskConfig(vf.TaskConfig):
    server: str = "{url}"
    """Where `flightschool serve env {reference} --protocol nemo-gym` answers."""
    timeout_s: float = 120.0


class ServedConfig(vf.TasksetConfig):
    task: ServedTaskConfig = ServedTaskConfig()
    tools: vf.SharedToolsetConfig = vf.SharedToolsetConfig()


class ServedState(vf.State):
    """The rollout's episode at the server; the tool server and the task's hooks both reach it."""

    server: str = ""
    timeout_s: float = 120.0
    cookies: dict[str, str] = {{}}
    shown: list[dict[str, Any]] = []

    async def post(self, route: str, body: dict[str, Any]) -> httpx.Response:
        async with httpx.AsyncClient(cookies=self.cookies, timeout=self.timeout_s) as client:
            return await client.post(f"{{self.server}}/{{route}}", json=body)


class ServedToolset(vf.Toolset[vf.SharedToolsetConfig, ServedState]):
    """The tools that a task shows, with the schemas that the environment declares."""

    TOOL_PREFIX = None

    def register(self, mcp: Any) -> None:
        mcp.list_tools = self._with_state(self.tools)
        mcp.call_tool = self._with_state(self.call)

    async def tools(self) -> list[Tool]:
        return [
            Tool(name=one["name"], description=one["description"], input_schema=one["parameters"])
            for one in self.state.shown
        ]

    async def call(self, name: str, arguments: dict[str, Any], context: Any = None) -> CallToolResult:
        answer = await self.state.post(name, arguments)
        text = [TextContent(type="text", text=answer.text)]
        return CallToolResult(content=text, is_error=not answer.is_success)


class ServedData(vf.TaskData):
    row: dict[str, Any]
    """The task as the server knows it."""


class ServedTask(vf.Task[ServedData, ServedState, ServedTaskConfig]):
    @property
    def key(self) -> str:
        return self.data.row["task_id"]

    async def setup(self, trace: vf.Trace) -> None:
        state = trace.state
        state.server, state.timeout_s = self.config.server.rstrip("/"), self.config.timeout_s
        state.shown = self.data.row["responses_create_params"]["tools"]
        begun = await state.post("seed_session", {{"task_id": self.data.row["task_id"]}})
        begun.raise_for_status()
        state.cookies.update(begun.cookies)

    @vf.reward(weight=1.0)
    async def judged(self, trace: vf.Trace) -> float:
        """What the environment's own checks make of the end state; an infrastructure failure has no score."""
        said = [message.content for message in _messages(trace) if message.role == "assistant" and message.content]
        message = {{"type": "message", "role": "assistant", "content": (said or [""])[-1]}}
        answer = await trace.state.post("verify", {{"response": {{"output": [message]}}}})
        answer.raise_for_status()
        told = answer.json()
        if told["mask_sample"]:
            raise RuntimeError(f"infrastructure failed: {{told['failure_kind']}}: {{told['failure_reason']}}")
        for name, value in told["reward_components"].items():
            trace.record_metric(f"reward_{{name}}", float(value))
        return float(told["reward"])


def _messages(trace: vf.Trace) -> list[Any]:
    return list(trace.branches[-1].messages) if trace.branches else []


class ServedTaskset(vf.Taskset[ServedTask, ServedConfig]):
    @classmethod
    def toolsets(cls, config: ServedConfig) -> list[vf.Toolset]:
        return [ServedToolset(config.tools)]

    def load(self) -> list[ServedTask]:
        return [_task(json.loads(line), self.config.task) for line in ROWS.read_text(encoding="utf-8").splitlines()]


def _task(row: dict[str, Any], config: ServedTaskConfig) -> ServedTask:
    asked = row["responses_create_params"]["input"]
    system = [one["content"] for one in asked if one["role"] == "system"]
    user = [one["content"] for one in asked if one["role"] == "user"]
    prompt = "\\n\\n".join(user)
    data = ServedData(
        id=row["task_id"], name=row["family"], prompt=prompt, system_prompt=system[0] if system else None, row=row
    )
    return ServedTask(data, config)


if __name__ == "__main__":
    ServedToolset.run()
'''

_PROJECT = """\
[build-system]
requires = ["setuptools>=68"]
build-backend = "setuptools.build_meta"

[project]
name = "{dashed}"
version = "{version}"
requires-python = ">=3.11"
dependencies = ["verifiers>=0.4,<0.5", "httpx"]

[tool.setuptools]
packages = ["{package}"]

[tool.setuptools.package-data]
{package} = ["tasks.jsonl"]
"""

_README = """\
# {dashed}

{name} as a verifiers v1 taskset: {num} tasks. Worlds and checks stay with a server:

```
flightschool serve env {reference} --protocol nemo-gym --port {port}
pip install .
vf-eval {dashed} --env.taskset.task.server {url} --env.agent.harness.id null --env.agent.runtime.type subprocess
```
"""


def package_name(environment: str) -> str:
    """Importable name of the package of an environment."""
    return (re.sub(r"[^a-z0-9]+", "_", environment.lower()).strip("_") or "environment") + "_taskset"


def write_taskset(folder: Path, reference: str, desk: TaskDesk, splits: Sequence[str] = ()) -> list[str]:
    """Write the package; relative paths of what was written.

    Args:
        folder: new or empty.
        reference: how the environment is named here, for the server's command.
        desk: its tasks.
        splits: which of them; the desk's default if none is named.

    Raises:
        InputError: the folder holds something already.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError("the folder is not empty", where=str(folder), expected="a new folder", mend="name another one")
    package = package_name(desk.environment.name)
    told = [row for split in splits or (desk.default,) for row in rows(desk, split)]
    facts = {
        "name": desk.environment.name,
        "package": package,
        "dashed": package.replace("_", "-"),
        "reference": reference,
        "version": __version__,
        "url": f"http://127.0.0.1:{_PORT}",
        "port": _PORT,
        "num": len(told),
    }
    texts: Mapping[str, str] = {
        "pyproject.toml": _PROJECT.format(**facts),
        "README.md": _README.format(**facts),
        f"{package}/__init__.py": _INIT.format(**facts),
        f"{package}/taskset.py": _TASKSET.format(**facts),
        f"{package}/tasks.jsonl": "".join(msgspec.json.encode(row).decode() + "\n" for row in told),
    }
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return sorted(texts)
