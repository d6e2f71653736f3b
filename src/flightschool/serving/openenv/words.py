"""The words of OpenEnv 0.10 as they stand on the wire: schemas, messages, errors.

Written from the published protocol; ``docs/openenv.md`` lists the shapes. Nothing here knows an environment.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum, StrEnum
from typing import Any

import msgspec

from flightschool.records import Json, ToolSpec

__all__ = [
    "FINAL_ANSWER",
    "RESERVED",
    "Code",
    "InvalidError",
    "Rpc",
    "RpcError",
    "encode",
    "error_message",
    "final_answer_spec",
    "openapi",
    "read_action",
    "rpc_error",
    "rpc_result",
    "schemas",
    "shown_tool",
]

FINAL_ANSWER = "final_answer"
"""The tool by which a policy ends an episode with its last message; every served environment has it."""
RESERVED = frozenset({"reset", "step", "state", "close"})
"""Names that the protocol keeps for itself."""
PROTOCOL_VERSION = "1.0.0"

encode = msgspec.json.Encoder().encode


class Code(StrEnum):
    """Codes of error frames."""

    INVALID_JSON = "INVALID_JSON"
    UNKNOWN_TYPE = "UNKNOWN_TYPE"
    VALIDATION_ERROR = "VALIDATION_ERROR"
    EXECUTION_ERROR = "EXECUTION_ERROR"
    CAPACITY_REACHED = "CAPACITY_REACHED"
    FACTORY_ERROR = "FACTORY_ERROR"
    SESSION_ERROR = "SESSION_ERROR"


class Rpc(IntEnum):
    """Codes of JSON-RPC errors."""

    PARSE_ERROR = -32700
    INVALID_REQUEST = -32600
    METHOD_NOT_FOUND = -32601
    INVALID_PARAMS = -32602
    INTERNAL_ERROR = -32603
    SERVER_ERROR = -32000


class InvalidError(Exception):
    """A message of the wrong shape.

    Args:
        errors: what is wrong, in the shape of pydantic: ``type``, ``loc``, ``msg``, ``input``.
    """

    def __init__(self, *errors: dict[str, Json]) -> None:
        super().__init__("; ".join(str(error["msg"]) for error in errors))
        self.errors = list(errors)


class RpcError(Exception):
    """A JSON-RPC request that is answered by an error."""

    def __init__(self, code: Rpc, message: str, data: Json = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


def wrong(kind: str, place: tuple[str, ...], message: str, value: Json = None) -> dict[str, Json]:
    """One entry of a validation error."""
    return {"type": kind, "loc": list(place), "msg": message, "input": value}


# ------------------------------------------------------------------------------------------------ messages


def error_message(code: Code, message: str, **more: Json) -> dict[str, Json]:
    """An error frame."""
    return {"type": "error", "data": {"message": message, "code": code.value, **more}}


def rpc_result(request_id: Json, result: Json) -> dict[str, Json]:
    """A JSON-RPC answer."""
    return {"jsonrpc": "2.0", "id": request_id, "result": result}


def rpc_error(request_id: Json, code: Rpc, message: str, data: Json = None) -> dict[str, Json]:
    """A JSON-RPC error."""
    return {"jsonrpc": "2.0", "id": request_id, "error": {"code": int(code), "message": message, "data": data}}


def read_action(data: Json, *place: str) -> tuple[str, dict[str, Json]] | None:
    """(tool, arguments) of an action, or None for ``list_tools``.

    Raises:
        InvalidError: it is neither.
    """
    if not isinstance(data, dict):
        raise InvalidError(wrong("dict_type", place, "Input should be a valid dictionary", data))
    kind = data.get("type", "call_tool")
    if kind not in ("call_tool", "list_tools"):
        raise InvalidError(
            wrong("literal_error", (*place, "type"), "Input should be 'call_tool' or 'list_tools'", kind)
        )
    known = {"type", "metadata"} if kind == "list_tools" else {"type", "metadata", "tool_name", "arguments"}
    problems = [
        wrong("extra_forbidden", (*place, key), "Extra inputs are not permitted", data[key])
        for key in data
        if key not in known
    ]
    if not isinstance(data.get("metadata", {}), dict):
        problems.append(wrong("dict_type", (*place, "metadata"), "Input should be a valid dictionary"))
    if kind == "list_tools":
        if problems:
            raise InvalidError(*problems)
        return None
    name, arguments = data.get("tool_name"), data.get("arguments", {})
    if "tool_name" not in data:
        problems.append(wrong("missing", (*place, "tool_name"), "Field required", data))
    elif not isinstance(name, str):
        problems.append(wrong("string_type", (*place, "tool_name"), "Input should be a valid string", name))
    if not isinstance(arguments, dict):
        problems.append(wrong("dict_type", (*place, "arguments"), "Input should be a valid dictionary", arguments))
    if problems:
        raise InvalidError(*problems)
    return str(name), arguments


def shown_tool(spec: ToolSpec, key: str) -> dict[str, Json]:
    """A tool; ``key`` is ``input_schema`` in observations and ``inputSchema`` in JSON-RPC."""
    schema = spec.parameters or {"type": "object", "properties": {}}
    return {"name": spec.name, "description": spec.description, key: schema}


def final_answer_spec() -> ToolSpec:
    """The tool that ends an episode."""
    return ToolSpec(
        name=FINAL_ANSWER,
        description="End the task with the final message to the user. Nothing can be done afterwards.",
        parameters={
            "type": "object",
            "properties": {"answer": {"type": "string", "description": "the final message"}},
            "required": ["answer"],
            "additionalProperties": False,
        },
    )


# ------------------------------------------------------------------------------------------------ schemas

_METADATA = {"type": "object", "additionalProperties": True, "title": "Metadata", "default": {}}
_REWARD = {"anyOf": [{"type": "boolean"}, {"type": "integer"}, {"type": "number"}, {"type": "null"}], "default": None}
_OBSERVED: dict[str, Json] = {
    "done": {"type": "boolean", "default": False, "description": "Whether the episode is over"},
    "reward": {**_REWARD, "description": "Total reward once the episode is judged; null before"},
    "metadata": _METADATA,
}
_TEXT = {"type": "string"}


def _object(title: str, properties: Mapping[str, Json], required: list[str], *, closed: bool = True) -> dict[str, Json]:
    return {
        "title": title,
        "type": "object",
        "properties": dict(properties),
        "required": required,
        "additionalProperties": not closed,
    }


def schemas() -> dict[str, Json]:
    """What ``GET /schema`` answers."""
    error = _object("ToolError", {"error_type": _TEXT, "message": _TEXT}, ["error_type", "message"])
    return {
        "action": _object(
            "CallToolAction",
            {
                "metadata": _METADATA,
                "type": {"const": "call_tool", "default": "call_tool", "type": "string"},
                "tool_name": {**_TEXT, "description": "Name of the tool to call"},
                "arguments": {"type": "object", "additionalProperties": True, "default": {}},
            },
            ["tool_name"],
        ),
        "observation": _object(
            "CallToolObservation",
            {
                **_OBSERVED,
                "tool_name": _TEXT,
                "result": {"default": None},
                "error": {"anyOf": [error, {"type": "null"}], "default": None},
            },
            ["tool_name"],
        ),
        "state": _object(
            "State",
            {
                "episode_id": {"anyOf": [_TEXT, {"type": "null"}], "default": None},
                "step_count": {"type": "integer", "minimum": 0, "default": 0},
                "task_id": {"anyOf": [_TEXT, {"type": "null"}], "default": None},
                "done": {"type": "boolean", "default": False},
            },
            [],
            closed=False,
        ),
        "reset_observation": _object(
            "ResetObservation",
            {
                **_OBSERVED,
                "task_id": _TEXT,
                "instruction": _TEXT,
                "guidance": _TEXT,
                "messages": {"type": "array", "items": {"type": "object"}},
                "tools": {"type": "array", "items": {"type": "object"}},
            },
            ["task_id", "instruction", "tools"],
        ),
    }


def openapi(name: str, routes: Mapping[str, str]) -> dict[str, Any]:
    """A short OpenAPI document: ``path → method``, with the version that validators look for."""
    operation = {"responses": {"200": {"description": "Answered"}}}
    return {
        "openapi": "3.1.0",
        "info": {"title": f"{name}: OpenEnv Environment HTTP API", "version": PROTOCOL_VERSION},
        "paths": {path: {method.lower(): operation} for path, method in routes.items()},
    }
