"""Environments: tasks, tools and fresh worlds, built in or made from traces.

``load_environment`` opens one by reference. ``build_from_traces`` makes one of recorded episodes: recordings answer,
or a team's own tool code does. ``check_environment`` says what is wrong with any of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flightschool.lazy import on_first_use

if TYPE_CHECKING:
    from flightschool.environments.built import BuiltEnvironment, LeftOut
    from flightschool.environments.checking import check_environment
    from flightschool.environments.code_world import CodeWorld, load_code
    from flightschool.environments.declared import Declaration, DeclaredCheck, DeclaredEnvironment, load_declaration
    from flightschool.environments.drafting import DraftCheck, draft_checks
    from flightschool.environments.examining import Examination, StratumCoverage, examine
    from flightschool.environments.fidelity import Agreement, Fidelity, Mismatch, verify_fidelity
    from flightschool.environments.from_traces import build_from_traces, traffic_of
    from flightschool.environments.grouping import group_trials
    from flightschool.environments.held_out import HeldOut, hold_out
    from flightschool.environments.inventory import InventoryEntry, take_inventory
    from flightschool.environments.ladder import RUNGS, Ladder, LadderWorld
    from flightschool.environments.realism import WindTunnel, wind_tunnel
    from flightschool.environments.recorded import DECLINE, NOT_RECORDED
    from flightschool.environments.recordings import Coverage, Recording, Recordings, Share, coverage, record_answers
    from flightschool.environments.registry import (
        BUILT_IN,
        EnvironmentRecord,
        environment_names,
        load_environment,
        load_record,
        save_environment,
    )
    from flightschool.environments.signing import decide, load_drafts, save_drafts
    from flightschool.environments.traced import (
        AllowInventory,
        RenamedEnvironment,
        TracedContent,
        TracedEnvironment,
        Waiting,
    )
else:
    __getattr__ = on_first_use(__name__)

__all__ = [
    "BUILT_IN",
    "DECLINE",
    "NOT_RECORDED",
    "RUNGS",
    "Agreement",
    "AllowInventory",
    "BuiltEnvironment",
    "CodeWorld",
    "Coverage",
    "Declaration",
    "DeclaredCheck",
    "DeclaredEnvironment",
    "DraftCheck",
    "EnvironmentRecord",
    "Examination",
    "Fidelity",
    "HeldOut",
    "InventoryEntry",
    "Ladder",
    "LadderWorld",
    "LeftOut",
    "Mismatch",
    "Recording",
    "Recordings",
    "RenamedEnvironment",
    "Share",
    "StratumCoverage",
    "TracedContent",
    "TracedEnvironment",
    "Waiting",
    "WindTunnel",
    "build_from_traces",
    "check_environment",
    "coverage",
    "decide",
    "draft_checks",
    "environment_names",
    "examine",
    "group_trials",
    "hold_out",
    "load_code",
    "load_declaration",
    "load_drafts",
    "load_environment",
    "load_record",
    "record_answers",
    "save_drafts",
    "save_environment",
    "take_inventory",
    "traffic_of",
    "verify_fidelity",
    "wind_tunnel",
]
