"""What the workspace knows of a rollout run: enough to find its attempts and replay them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

from flightschool.records import Record

if TYPE_CHECKING:
    from flightschool.perturbation import FaultProfile
    from flightschool.store import SqlStore

__all__ = [
    "PROFILE_KIND",
    "ROLLOUT_KIND",
    "Place",
    "RolloutRun",
    "TaskFolders",
    "open_rollout",
    "recorded_profile",
]

ROLLOUT_KIND = "rollout"
PROFILE_KIND = "fault-profile"


class RolloutRun(Record, frozen=True, kw_only=True):
    """One call of ``flightschool rollout``."""

    id: str
    environment: str
    """Name, for people."""
    environment_digest: str
    policy: str
    """The policy as it was written on the command line."""
    seed: int
    noise: str
    """Label of the fault profile, as attempts record it."""
    started_at: str
    """ISO 8601 UTC."""


class Place(Protocol):
    """What attempts are made in, as a run records it."""

    @property
    def name(self) -> str:
        """For people."""
        ...

    @property
    def digest(self) -> str:
        """Of its content."""
        ...


class TaskFolders(Record, frozen=True, kw_only=True):
    """Task folders as the place of a run."""

    name: str
    digest: str


def open_rollout(store: SqlStore, environment: Place, policy: str, seed: int, profile: FaultProfile | None) -> str:
    """Take the next free run id and record the run under it, atomically among processes."""
    number = len(store.keys(ROLLOUT_KIND)) + 1
    if profile is not None:
        store.put(PROFILE_KIND, profile.label, profile)
    while True:
        run = RolloutRun(
            id=f"rollout-{number:04d}",
            environment=environment.name,
            environment_digest=environment.digest,
            policy=policy,
            seed=seed,
            noise=profile.label if profile is not None else "clean",
            started_at=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        )
        if store.put_new(ROLLOUT_KIND, run.id, run):
            return run.id
        number += 1


def recorded_profile(store: SqlStore, noise: str) -> FaultProfile | None:
    """The fault profile that an attempt met, by its label."""
    from flightschool.perturbation import BUILT_IN, FaultProfile

    if noise in BUILT_IN:
        found = BUILT_IN[noise]
        return None if found.is_clean else found
    return store.get(PROFILE_KIND, noise, FaultProfile)
