"""The trajectory scan: what is suspicious in attempts that were made, during training or after it."""

from flightschool.audit.trajectories.canaries import canaries_of, mark_canaries
from flightschool.audit.trajectories.facts import facts_of
from flightschool.audit.trajectories.keeping import load_scan, save_scan
from flightschool.audit.trajectories.records import TaskFacts, TrajectoryFinding
from flightschool.audit.trajectories.scanning import scan_attempts, suspicious_passes
from flightschool.audit.trajectories.series import ChangePoint, change_point

__all__ = [
    "ChangePoint",
    "TaskFacts",
    "TrajectoryFinding",
    "canaries_of",
    "change_point",
    "facts_of",
    "load_scan",
    "mark_canaries",
    "save_scan",
    "scan_attempts",
    "suspicious_passes",
]
