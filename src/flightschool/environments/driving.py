"""Calling the tool boundary from code without an event loop of its own."""

from __future__ import annotations

from flightschool.errors import InfrastructureError
from flightschool.records import ToolCall, ToolResult
from flightschool.tools import ToolBoundary

__all__ = ["call_now"]


def call_now(boundary: ToolBoundary, call: ToolCall) -> ToolResult:
    """One call, answered at once. Worlds are plain code, so the boundary's coroutine never really waits.

    Raises:
        InfrastructureError: the world broke, or something did wait.
    """
    steps = boundary.call((call,)).__await__()
    try:
        next(steps)
    except StopIteration as done:
        result: ToolResult = done.value[0]
        return result
    raise InfrastructureError("a tool waited", where=call.name, expected="an answer at once", mend="make it plain code")
