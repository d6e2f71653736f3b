"""Where the audit of an environment keeps what it found so far.

Folders are kept for good, by the digest of all that they hold. The code behind an environment is not in its digest, so
what is kept of it serves one audit only: one that was killed goes on, one that ended leaves nothing behind.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from flightschool.audit.journal import Lines, journal_name
from flightschool.audit.records import TaskReports
from flightschool.protocols import Environment, RewardComposition

__all__ = ["open_journal"]

AUDITOR: Final = 2
"""Raised when probes change, so that an audit that was begun with others begins anew."""


def open_journal(
    data: Path,
    environment: Environment,
    composition: RewardComposition,
    *,
    repeats: int,
    seed: int = 0,
    source: str = "",
    fresh: bool = False,
) -> Lines[TaskReports]:
    """What an audit that did not end has found; ``forget`` it when it ended.

    Args:
        data: folder of the workspace's data, or the user's cache.
        environment: that is audited.
        composition: makes the rewards.
        repeats: plays of each reference.
        seed: of the plays.
        source: what else must be the same, such as the date of a module.
        fresh: begin anew.
    """
    name = journal_name(f"environment {environment.name} {source}")
    mode = f"play {environment.digest} {composition.digest} {repeats} {seed} {source}"
    return Lines(data / "audits" / name, TaskReports, auditor=AUDITOR, mode=mode, fresh=fresh)
