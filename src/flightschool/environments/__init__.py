"""Environments: tasks, tools and fresh worlds, built in or made from traces.

``load_environment`` opens one by reference. ``build_from_traces`` makes one of recorded episodes: recordings answer,
or a team's own tool code does. ``check_environment`` says what is wrong with any of them.
"""

from flightschool.environments.checking import check_environment
from flightschool.environments.code_world import CodeWorld, load_code
from flightschool.environments.declared import Declaration, DeclaredCheck, DeclaredEnvironment, load_declaration
from flightschool.environments.fidelity import Agreement, Fidelity, Mismatch, verify_fidelity
from flightschool.environments.from_traces import BuiltEnvironment, LeftOut, build_from_traces
from flightschool.environments.grouping import group_trials
from flightschool.environments.inventory import InventoryEntry, take_inventory
from flightschool.environments.recorded import DECLINE, NOT_RECORDED, RecordedWorld
from flightschool.environments.recordings import Coverage, Recording, Recordings, Share, coverage, record_answers
from flightschool.environments.registry import (
    BUILT_IN,
    EnvironmentRecord,
    environment_names,
    load_environment,
    load_record,
    save_environment,
)
from flightschool.environments.traced import AllowInventory, RenamedEnvironment, TracedContent, TracedEnvironment

__all__ = [
    "BUILT_IN",
    "DECLINE",
    "NOT_RECORDED",
    "Agreement",
    "AllowInventory",
    "BuiltEnvironment",
    "CodeWorld",
    "Coverage",
    "Declaration",
    "DeclaredCheck",
    "DeclaredEnvironment",
    "EnvironmentRecord",
    "Fidelity",
    "InventoryEntry",
    "LeftOut",
    "Mismatch",
    "RecordedWorld",
    "Recording",
    "Recordings",
    "RenamedEnvironment",
    "Share",
    "TracedContent",
    "TracedEnvironment",
    "build_from_traces",
    "check_environment",
    "coverage",
    "environment_names",
    "group_trials",
    "load_code",
    "load_declaration",
    "load_environment",
    "load_record",
    "record_answers",
    "save_environment",
    "take_inventory",
    "verify_fidelity",
]
