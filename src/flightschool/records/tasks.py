"""Messages and tasks: what the harness and the policy may see."""

from __future__ import annotations

from enum import StrEnum

from flightschool.digest import digest as content_digest
from flightschool.records.base import Record
from flightschool.records.tools import ToolCall


class Message(Record, frozen=True, kw_only=True):
    """One chat message, in the roles of the OpenAI chat format."""

    role: str
    """``system``, ``user``, ``assistant`` or ``tool``."""
    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    """Calls asked for; only on ``assistant``."""
    tool_call_id: str = ""
    """The call answered; only on ``tool``."""


class Split(StrEnum):
    """Where a task may be used. Decided by family, never by row."""

    POOL = "pool"  # may be screened and trained on
    SUITE = "suite"  # frozen, measured on, never trained on
    HOLDOUT = "holdout"  # sealed until acceptance


class Task(Record, frozen=True, kw_only=True):
    """A task as the harness and the policy may see it. References and checks live in ``Reference``."""

    id: str
    family: str
    """Tasks of one family share wording, condition structure and world; splits never cut through a family."""
    stratum: str
    instruction: str
    initial_state: str
    """Name or digest of the state that an attempt starts from, understood by the environment."""
    guidance: str = ""
    """Excerpt of the policy text that the agent is shown."""
    tools: tuple[str, ...] = ()
    """Names of the tools shown; empty means all."""
    example: tuple[Message, ...] = ()
    """One worked example, shown before the instruction; empty means none."""
    max_turns: int = 8
    """Assistant turns before the attempt is cut."""

    @property
    def digest(self) -> str:
        """Content digest of the task."""
        return content_digest(self)
