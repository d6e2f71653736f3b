"""An environment as it comes from the builder, with the report of its making."""

from __future__ import annotations

import msgspec

from flightschool.environments.fidelity import Fidelity
from flightschool.environments.inventory import InventoryEntry
from flightschool.protocols import Environment
from flightschool.records import Json, Record

__all__ = ["BuiltEnvironment", "LeftOut"]


class LeftOut(Record, frozen=True, kw_only=True):
    """A recorded task that gave no task of the environment."""

    task: str
    reason: str


class BuiltEnvironment(msgspec.Struct, frozen=True, kw_only=True):
    """An environment with the report of its making."""

    environment: Environment
    fidelity: Fidelity
    inventory: tuple[InventoryEntry, ...]
    left_out: tuple[LeftOut, ...]
    traces_digest: str
    code: str = ""
    state: dict[str, Json] | None = None
    """Initial state by table, if one was given."""
