"""Least privilege at the desk: a task's tools and no others; reading is always allowed."""

from __future__ import annotations

from collections.abc import Sequence

from flightschool.digest import digest
from flightschool.protocols import PermissionDecision
from flightschool.records import Effect, Task, ToolCall, ToolEvent, ToolSpec

__all__ = ["DeskPermissions"]


class DeskPermissions:
    """Implements ``protocols.Permissions``; default deny."""

    def __init__(self, task: Task, tools: Sequence[ToolSpec]) -> None:
        self._rules = {
            tool.name: f"{tool.effect}-allowed" for tool in tools if tool.effect is Effect.READ or tool.name in task.tools
        }

    @property
    def digest(self) -> str:
        """Digest of the rules."""
        return digest(self._rules)

    def decide(self, call: ToolCall, events: Sequence[ToolEvent]) -> PermissionDecision:  # noqa: ARG002
        """Allow reads and the tools of the task."""
        rule = self._rules.get(call.name)
        if rule is None:
            return PermissionDecision(allowed=False, rule="default", reason="not among the tools of this task")
        return PermissionDecision(allowed=True, rule=rule)
