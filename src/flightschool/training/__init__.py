"""Training: groups of episodes in, a better model out. Asynchronous, exactly-once, strict about staleness.

Importing this package imports no torch: everything that needs it runs in the trainer process, or is imported when a run
begins.
"""

from flightschool.training.algorithms import ALGORITHMS, Algorithm, GroupCredits, TermWeights
from flightschool.training.generation import GenerationStation, GroupRunner, LocalGeneration
from flightschool.training.orchestrator import Orchestrator, TrainResult
from flightschool.training.preflight import check_machine, preflight
from flightschool.training.progress import ProgressCallback, StepProgress
from flightschool.training.run import RunStart, TaskNotes, check_combination, read_run, resume, run_supervised, train
from flightschool.training.run_lock import refuse_held
from flightschool.training.settings import TrainingSettings
from flightschool.training.source import PoolSource

__all__ = [
    "ALGORITHMS",
    "Algorithm",
    "GenerationStation",
    "GroupCredits",
    "GroupRunner",
    "LocalGeneration",
    "Orchestrator",
    "PoolSource",
    "ProgressCallback",
    "RunStart",
    "StepProgress",
    "TaskNotes",
    "TermWeights",
    "TrainResult",
    "TrainingSettings",
    "check_combination",
    "check_machine",
    "preflight",
    "read_run",
    "refuse_held",
    "resume",
    "run_supervised",
    "train",
]
