"""A model in a terminal: the built-in harness, one tool, and a sandbox behind it.

The model is any policy with a model endpoint; it is told the step's instruction and may call ``shell``. Each command is
a shell of its own in the sandbox of the step, so files live on and variables and working directories do not. What it
is told of a command is its exit code and the end of what it printed. The step's time limit holds for the model's
thinking and its commands together, as it does for an agent elsewhere.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import msgspec

from flightschool.digest import derive_seed
from flightschool.environments.terminal import TaskStep
from flightschool.environments.terminal.as_tasks import MAX_TURNS
from flightschool.errors import InputError, TokenContractError
from flightschool.protocols import Harness
from flightschool.records import (
    Effect,
    EndReason,
    Message,
    Task,
    TokenSpan,
    TokenUse,
    ToolCall,
    ToolEvent,
    ToolResult,
    ToolSpec,
)
from flightschool.rollouts.harness import EpisodeEndError, ToolCallingHarness
from flightschool.rollouts.policies import Policy, PolicyEndpoint
from flightschool.rollouts.terminal.policies import Move
from flightschool.sandbox import ExecResult, Stopped

__all__ = ["SHELL_TOOL", "Seat", "ShellPolicy"]

Run = Callable[[str, float], Awaitable[ExecResult]]
"""Run a command line in the sandbox for so many seconds at most."""

SHELL_TOOL: Final = ToolSpec(
    name="shell",
    description="Run a command line with sh and see its exit code and the end of what it printed.",
    parameters={
        "type": "object",
        "properties": {"command": {"type": "string", "description": "The command line."}},
        "required": ["command"],
        "additionalProperties": False,
    },
    effect=Effect.WRITE,
)
GUIDANCE: Final = (
    "You work in a terminal. Do what is asked by calling the tool shell. Each command runs in a new shell in the "
    "working directory. When all is done, say so without calling a tool."
)
TOLD_BYTES: Final = 8000
"""Of what a command printed, the end."""
_OVER: Final = {
    Stopped.MEMORY: EndReason.RESOURCE_LIMIT,
    Stopped.CPU: EndReason.RESOURCE_LIMIT,
    Stopped.WALL: EndReason.TIME_LIMIT,
    Stopped.TIMEOUT: EndReason.TIME_LIMIT,
}
"""After these nothing more can run in the sandbox, or the step's time is over."""


class ShellPolicy:
    """A policy with a model endpoint, to act in terminals.

    Args:
        inner: the model.
        harness: drives it; the built-in one by default.
    """

    def __init__(self, inner: Policy, harness: Harness | None = None) -> None:
        self.name = inner.name
        self.inner = inner
        self._harness = harness or ToolCallingHarness()

    def move(self, stage: TaskStep) -> Move:
        """Nothing by itself: the runner asks for a seat, and the seat moves."""
        del stage
        return Move()

    def seat(self, task_id: str, seed: int, group: str, index: int, number: int) -> Seat:
        """The model at one attempt. Sampling follows the seed together with ``index`` and ``number``."""
        task = Task(
            id=task_id,
            family=task_id,
            stratum="",
            instruction="",
            initial_state="",
            guidance=GUIDANCE,
            max_turns=MAX_TURNS,
        )
        sampling = derive_seed("sample", seed, task_id, index, number)
        return Seat(self.name, task, self.inner.endpoint(task, sampling, group), self._harness)


class Seat:
    """One attempt of a model: what it said, sampled and did, over all steps of the task."""

    def __init__(self, name: str, task: Task, endpoint: PolicyEndpoint, harness: Harness) -> None:
        self.name = name
        self.messages: list[Message] = []
        self.events: list[ToolEvent] = []
        self._task = task
        self._endpoint = endpoint
        self._harness = harness
        self._said: list[Message] = []

    def move(self, stage: TaskStep) -> Move:
        """Act by talking with the model."""

        async def act(run: Run, timeout_s: float) -> tuple[EndReason, str]:
            return await self._act(stage, run, timeout_s)

        return Move(act=act)

    @property
    def spans(self) -> tuple[TokenSpan, ...]:
        """Tokens, where the endpoint knows them."""
        return self._endpoint.spans()

    @property
    def usage(self) -> TokenUse | msgspec.UnsetType:
        """Tokens as a server counted them."""
        found: TokenUse | None = getattr(self._endpoint, "usage", None)
        return msgspec.UNSET if found is None else found

    @property
    def generation_ms(self) -> float:
        """Virtual milliseconds of generation."""
        return self._endpoint.generation_ms

    def close(self) -> None:
        """The attempt is over."""
        self._endpoint.close()

    async def complete(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Message:
        """Ask the model and keep the conversation."""
        self._said[:] = messages
        reply = await self._endpoint.complete(messages, tools)
        self._said.append(reply)
        return reply

    async def _act(self, stage: TaskStep, run: Run, timeout_s: float) -> tuple[EndReason, str]:
        self._said = []
        task = msgspec.structs.replace(self._task, instruction=stage.instruction)
        tools = _Shell(run, timeout_s, self.events)
        try:
            async with asyncio.timeout(timeout_s):
                return await self._harness.run(task, self, tools), ""
        except TimeoutError:
            return EndReason.TIME_LIMIT, f"not done after {timeout_s:g} s"
        except EpisodeEndError as end:
            return end.reason, end.detail
        except TokenContractError as error:
            return EndReason.ENGINE_ERROR, str(error)
        finally:
            self.messages += self._said


class _Shell:
    """The tool (``protocols.ToolEndpoint``)."""

    def __init__(self, run: Run, timeout_s: float, events: list[ToolEvent]) -> None:
        self._run = run
        self._ends = time.monotonic() + timeout_s
        self._events = events
        self._turn = events[-1].turn + 1 if events else 0

    def specs(self) -> Sequence[ToolSpec]:
        return (SHELL_TOOL,)

    async def call(self, calls: Sequence[ToolCall]) -> Sequence[ToolResult]:
        """One after the other: commands of one turn share their files."""
        results = []
        for call in calls:
            result = await self._one(call)
            results.append(result)
            event = ToolEvent(
                index=len(self._events),
                turn=self._turn,
                call=call,
                result=result,
                effect=Effect.WRITE,
                start_ms=0.0,
                end_ms=0.0,
            )
            self._events.append(event)
        self._turn += 1
        return results

    async def _one(self, call: ToolCall) -> ToolResult:
        command = call.arguments.get("command")
        if call.name != SHELL_TOOL.name or not isinstance(command, str) or set(call.arguments) != {"command"}:
            expected = f"{SHELL_TOOL.name}(command: string), not {call.name}({', '.join(call.arguments)})"
            return _told(call, {"error": f"no such call; expected {expected}"}, failed=True)
        if not command.strip() or "\0" in command:
            return _told(call, {"error": "no command"}, failed=True)
        try:
            done = await self._run(command, max(0.1, self._ends - time.monotonic()))
        except InputError as error:  # a command that no system would start
            return _told(call, {"error": error.what}, failed=True)
        over = _OVER.get(done.stopped)
        if over is not None:
            raise EpisodeEndError(over, f"ended by its {done.stopped.value} limit")
        printed = (done.stdout + done.stderr)[-TOLD_BYTES:].decode(errors="replace")
        code = done.exit_code if done.exit_code is not None else f"signal {done.signal}"
        return _told(call, {"exit_code": code, "output": printed}, failed=not done.ok)


def _told(call: ToolCall, content: dict[str, object], *, failed: bool) -> ToolResult:
    text = json.dumps(content, ensure_ascii=False)
    return ToolResult(call_id=call.id, content=text, is_error=failed, served_by="terminal")
