"""Records of an episode in a terminal task, beside the ``Attempt`` that they belong to."""

from __future__ import annotations

import msgspec

from flightschool.environments.terminal.grading import Graded
from flightschool.environments.terminal.trees import NotRunnable, Substitution
from flightschool.records import Attempt, Record
from flightschool.sandbox import Enforcement

__all__ = ["Episode", "NotRun", "StageResult", "TerminalEpisode"]


class StageResult(Record, frozen=True, kw_only=True):
    """One stage as it went."""

    name: str
    end_state: str
    """Digest of what was written so far, times left out; empty: it was too large to be read."""
    blob: str = ""
    """Digest of the blob that ``regrade`` takes; empty: none was kept."""
    graded: Graded | None = None
    """None: the stage's end state was not graded."""
    output: str = ""
    """End of what the policy's program printed."""
    enforcement: tuple[Enforcement, ...] = ()
    """How the limits of the policy's sandbox were kept, line by line."""


class TerminalEpisode(Record, frozen=True, kw_only=True):
    """What an attempt at a terminal task left besides its ``Attempt``."""

    attempt: str
    folder: str
    """Where the task lay on this machine."""
    base: Substitution
    image_digest: str
    stages: tuple[StageResult, ...]
    stood_in: tuple[str, ...] = ()
    """Packages and tools that the build and the scripts ask for and that were there already, and as what."""
    networked: tuple[str, ...] = ()
    """Steps of the build that this machine's network was lent to."""


class NotRun(Record, frozen=True, kw_only=True):
    """A task that was not attempted, since it cannot be run here. It counts nowhere."""

    task: str
    task_digest: str
    need: str
    """``docker``, ``network``, ``variable`` (of the host) or ``solution``."""
    reason: str
    mend: str = ""
    """What would let it run here, where something is known that would."""

    @classmethod
    def of(cls, task: str, task_digest: str, found: NotRunnable) -> NotRun:
        """From what a build said."""
        return cls(task=task, task_digest=task_digest, need=found.need, reason=found.reason, mend=found.mend)


class Episode(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt with what it left; in memory only."""

    attempt: Attempt
    details: TerminalEpisode | None
    """None: no image could be built."""
    faulty_task: bool = False
    """Of an infrastructure failure: whether the task's own build failed, or its tests ran without a proper verdict."""
    lost: tuple[Episode, ...] = ()
    """Attempts of the same member before this one, each lost to the infrastructure."""
