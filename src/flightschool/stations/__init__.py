"""Stations: each room bound to a workspace, so that the pipeline and the command line do the same things.

A station takes what the one before it left in the workspace, calls its room, and keeps the result. No rule of the
house is decided here; the gates stand in the rooms and raise.
"""

from flightschool.stations.collecting import Collected, collect
from flightschool.stations.flown import Flown, JobResult, Measured
from flightschool.stations.gates import Admission, Candidates, admit, audit, candidates, freeze, frozen_suites
from flightschool.stations.harnesses import make_harness
from flightschool.stations.imitating import learn_by_imitation
from flightschool.stations.measuring import EVALUATION_KIND, Checkride, Pilot, open_pilot
from flightschool.stations.readiness import check_job, check_settings, require_room, require_strata
from flightschool.stations.settings import JobSettings
from flightschool.stations.telling import Quiet, Tell
from flightschool.stations.training_station import (
    control_settings,
    fly,
    last_measurement_s,
    run_name,
    training_settings,
)
from flightschool.stations.unseen import require_unseen
from flightschool.stations.watching import Canaries, canary_tasks, scan_run
from flightschool.stations.writing import write_up

__all__ = [
    "EVALUATION_KIND",
    "Admission",
    "Canaries",
    "Candidates",
    "Checkride",
    "Collected",
    "Flown",
    "JobResult",
    "JobSettings",
    "Measured",
    "Pilot",
    "Quiet",
    "Tell",
    "admit",
    "audit",
    "canary_tasks",
    "candidates",
    "check_job",
    "check_settings",
    "collect",
    "control_settings",
    "fly",
    "freeze",
    "frozen_suites",
    "last_measurement_s",
    "learn_by_imitation",
    "make_harness",
    "open_pilot",
    "require_room",
    "require_strata",
    "require_unseen",
    "run_name",
    "scan_run",
    "training_settings",
    "write_up",
]
