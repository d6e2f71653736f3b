"""Two answers that every environment from traces may give: that nothing was recorded, and that a task was declined.

What nothing knows is the typed error ``{"error": "not recorded", …}``: no nearest match, since a reward built on an
invented answer is worth nothing.
"""

from __future__ import annotations

from flightschool.protocols import WorldReply
from flightschool.records import ToolCall, ToolSpec

__all__ = ["DECLINE", "NOT_RECORDED", "decline_reply"]

NOT_RECORDED = "not recorded"
"""Value of ``error`` in the answer to a call that no recording covers."""

DECLINE = ToolSpec(
    name="decline",
    description="End the task without doing it, because the rules forbid it. Read what shows this first.",
    parameters={
        "type": "object",
        "properties": {"reason": {"type": "string", "description": "the rule and the fact that forbid it"}},
        "required": ["reason"],
    },
)
"""The explicit act of abstaining, added to environments whose traces have none. It changes nothing in the world."""


def decline_reply(call: ToolCall) -> WorldReply:
    """Answer of the added ``decline`` tool: it succeeds if a reason is given."""
    reason = call.arguments.get("reason")
    if not isinstance(reason, str) or not reason.strip():
        return WorldReply(value={"error": "give a reason"}, is_error=True)
    return WorldReply(value={"declined": True, "reason": reason})
