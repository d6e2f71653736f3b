"""One attempt's state with the domain code on it: a private in-memory database, opened from a shared start state."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

from flightschool.environments.desk.actions import ACTIONS, DeskError
from flightschool.environments.desk.schema import Cell, StartState, open_image
from flightschool.environments.desk.toolset import REACH, TOOLS, WRITTEN
from flightschool.errors import InfrastructureError
from flightschool.protocols import WorldReply
from flightschool.records import Json, ToolCall

__all__ = ["DeskWorld"]

_SPECS = {tool.name: tool for tool in TOOLS}
_LONGEST = 120
_LARGEST = 1_000_000


class DeskWorld:
    """Implements ``protocols.World``. Single use; the start state is shared and never changed.

    Args:
        start: the state to start from.
        internal: visible tool name → the desk's own name.
    """

    bounded = True
    """Answers by looking things up, without foreign code: a server may call it in its event loop."""

    def __init__(self, start: StartState, internal: Mapping[str, str]) -> None:
        self._start = start
        self._internal = internal
        self._source = start.image  # what the database is opened from, at the first call
        self._image: bytes | None = start.image  # None while the state may differ from it
        self._touched: frozenset[str] = frozenset()
        self._reads: frozenset[str] = frozenset()
        self._connection: sqlite3.Connection | None = None
        self._closed = False

    def execute(self, call: ToolCall) -> WorldReply:
        """Run one call; whatever the desk refuses is an error reply.

        Raises:
            InfrastructureError: the world was closed, or its database broke.
        """
        name = self._internal.get(call.name)
        if name is None or not REACH[name] <= self._start.tables:
            return _refusal(f"no tool {call.name}")
        try:
            arguments = _checked(name, call.arguments)
            if name == "decline":
                arguments["grounds"] = "".join(f"{read};" for read in sorted(self._reads))
            value = ACTIONS[name](self._database(), arguments)
        except DeskError as error:
            return _refusal(str(error))
        except sqlite3.Error as error:
            raise InfrastructureError(f"the desk's database broke: {error}", where=name) from error
        if name in WRITTEN:
            self._touched |= {WRITTEN[name]}
            self._image = None
        else:
            self._reads |= {f"{name} {next(iter(arguments.values()))}"}
        return WorldReply(value=value)

    def snapshot(self) -> bytes:
        """The state as a canonical SQLite image: equal states give equal bytes."""
        if self._image is None:
            self._image = self._start.canonical_image(self._database(), self._touched)
        return self._image

    def fork(self) -> DeskWorld:
        """An independent copy; its database is opened only when it is used."""
        copy = DeskWorld(self._start, self._internal)
        copy._source = self._image if self._image is not None else self._database().serialize()
        copy._image, copy._touched, copy._reads = self._image, self._touched, self._reads
        return copy

    def close(self) -> None:
        """Let the state go; later calls are infrastructure errors."""
        self._closed = True
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _database(self) -> sqlite3.Connection:
        if self._closed:
            raise InfrastructureError("the world was closed", mend="open a fresh one for each attempt")
        if self._connection is None:
            self._connection = open_image(self._source)
        return self._connection


def _refusal(text: str) -> WorldReply:
    return WorldReply(value={"error": text}, is_error=True)


def _checked(name: str, arguments: Mapping[str, Json]) -> dict[str, Cell]:
    """Arguments in the order of the schema. The boundary checks schemas too; the world must not break without it."""
    properties = _SPECS[name].parameters["properties"]
    for key in arguments:
        if key not in properties:
            raise DeskError(f"unknown argument {key}"[:_LONGEST])
    checked: dict[str, Cell] = {}
    for key, schema in properties.items():
        if key not in arguments:
            raise DeskError(f"{key} is missing")
        checked[key] = _number(key, arguments[key]) if schema["type"] == "integer" else _text(key, arguments[key])
    return checked


def _number(key: str, value: Json) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # JSON Schema counts 3.0 as an integer
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _LARGEST:
        raise DeskError(f"{key} must be a whole number")
    return value


def _text(key: str, value: Json) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= _LONGEST or not value.isprintable():
        raise DeskError(f"{key} must be a short text")
    return value
