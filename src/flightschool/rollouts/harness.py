"""The built-in tool-calling harness, and how an episode ends early.

Control flow by typed exceptions: whatever ends an attempt inside an endpoint raises ``EpisodeEndError`` with the
reason, so that the loop itself stays a handful of lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from flightschool.protocols import ModelEndpoint, ToolEndpoint
from flightschool.records import EndReason, Json, Message, Task, ToolCall, ToolResult
from flightschool.rollouts.dialect import MalformedCallError

__all__ = ["EpisodeEndError", "ToolCallingHarness", "opening_messages"]


class EpisodeEndError(Exception):
    """The attempt is over, for the reason given."""

    def __init__(self, reason: EndReason, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else str(reason))
        self.reason = reason
        self.detail = detail


def opening_messages(task: Task) -> list[Message]:
    """What the policy sees before its first turn: guidance, the worked example if the task has one, the instruction."""
    return [
        Message(role="system", content=task.guidance),
        *task.example,
        Message(role="user", content=task.instruction),
    ]


class ToolCallingHarness:
    """Ask, call, tell, until a message without a call, an accepted ``decline`` or a limit.

    Args:
        max_invalid: malformed or refused turns after which the attempt ends; each is told to the policy first.
        max_repeats: how often a turn may repeat the one before, when all its calls failed and fail alike again; with
            that repeat the attempt ends. A call that is answered, if only with another error, is no such repeat.
        decline_tool: name of the tool that ends the attempt when it succeeds.
    """

    def __init__(self, *, max_invalid: int = 2, max_repeats: int = 2, decline_tool: str = "decline") -> None:
        self.max_invalid = max_invalid
        self.max_repeats = max_repeats
        self.decline_tool = decline_tool

    async def run(self, task: Task, model: ModelEndpoint, tools: ToolEndpoint) -> EndReason:
        """Drive one attempt to its end."""
        messages = opening_messages(task)
        specs = tools.specs()
        num_invalid = num_repeats = 0
        failed: _Turn | None = None
        for _ in range(task.max_turns):
            try:
                reply = await model.complete(messages, specs)
            except MalformedCallError as error:
                num_invalid += 1
                if num_invalid >= self.max_invalid:
                    return EndReason.INVALID_CALLS
                messages += _told_invalid(error)
                continue
            messages.append(reply)
            if not reply.tool_calls:
                return EndReason.FINISHED
            results = await tools.call(reply.tool_calls)
            messages += [Message(role="tool", content=r.content, tool_call_id=r.call_id) for r in results]
            turn = _failed_turn(reply.tool_calls, results)
            num_repeats = num_repeats + 1 if turn is not None and turn == failed else 0
            failed = turn
            if num_repeats >= self.max_repeats:
                return EndReason.REPEATED
            if self._declined(reply, [r.is_error for r in results]):
                return EndReason.DECLINED
        return EndReason.MAX_TURNS

    def _declined(self, reply: Message, errors: Sequence[bool]) -> bool:
        return any(
            call.name == self.decline_tool and not failed for call, failed in zip(reply.tool_calls, errors, strict=True)
        )


_Turn: TypeAlias = list[tuple[str, dict[str, Json], str]]
"""(tool, arguments, answer) of each call of a turn."""


def _failed_turn(calls: Sequence[ToolCall], results: Sequence[ToolResult]) -> _Turn | None:
    """What was asked and answered, if every call failed."""
    if not all(result.is_error for result in results):
        return None
    return [(call.name, call.arguments, result.content) for call, result in zip(calls, results, strict=True)]


def _told_invalid(error: MalformedCallError) -> list[Message]:
    told = Message(role="tool", content='{"error": "no valid call"}')
    return [Message(role="assistant", content=error.text), told]
