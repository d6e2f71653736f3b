"""Scans kept with their runs, so that every report of a run can show what was suspicious in it."""

from __future__ import annotations

from collections.abc import Sequence

from flightschool.audit.trajectories.records import TrajectoryFinding
from flightschool.protocols import Store
from flightschool.records import Record

__all__ = ["load_scan", "save_scan"]

KIND = "trajectory-scan"


class TrajectoryScan(Record, frozen=True, kw_only=True):
    """What a scan of one run found."""

    run: str
    findings: tuple[TrajectoryFinding, ...]


def save_scan(store: Store, run: str, findings: Sequence[TrajectoryFinding]) -> None:
    """Keep a scan; an earlier one of the run is replaced."""
    store.put(KIND, run, TrajectoryScan(run=run, findings=tuple(findings)))


def load_scan(store: Store, run: str) -> tuple[TrajectoryFinding, ...]:
    """The findings of a run; none where it was not scanned."""
    return store.get(KIND, run, TrajectoryScan).findings if store.has(KIND, run) else ()
