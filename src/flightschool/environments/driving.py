"""Calling the tool boundary from code without an event loop of its own."""

from __future__ import annotations

from flightschool.records import ToolCall, ToolResult
from flightschool.tools import ToolBoundary

__all__ = ["call_now"]


def call_now(boundary: ToolBoundary, call: ToolCall) -> ToolResult:
    """One call, answered before this returns.

    Raises:
        InfrastructureError: the world broke.
    """
    return boundary.run((call,))[0]
