"""An MCP server's tools with tasks of one's own as an environment.

A server says what its tools are, not what should be done with them: tasks come from a file, one JSON object a line::

    {"id", "instruction", "family"?, "stratum"?, "guidance"?, "tools"?, "max_turns"?, "checks": […], "oracle"?: […]}

Checks are those of this project, over calls, answers and the log of the episode (``/steps/0/tool`` …). Every attempt
gets a server of its own: a fresh program, or a fresh session over HTTP.

*Effects.* Annotations are hints that a server gives about itself: ``readOnlyHint`` makes a read, ``destructiveHint``
(or none of them, which the standard reads so) a destroying tool, ``openWorldHint`` on what neither reads nor destroys
a sending one. They are guesses until somebody confirmed them: until then only reads may be called.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from flightschool.environments.foreign.content import ForeignContent, ForeignTask, confirmed
from flightschool.environments.foreign.world import Observed
from flightschool.environments.mcp.transport import HttpTransport, McpClient, McpRefusedError, StdioTransport
from flightschool.environments.openenv.session import bearer
from flightschool.errors import InputError
from flightschool.records import CheckSpec, Effect, Json, Reference, Task, ToolCall, ToolSpec
from flightschool.verification import CheckVerifier

__all__ = ["McpSession", "McpSettings", "connect_mcp", "effect_of", "import_mcp", "read_tasks"]

_INVALID_PARAMS = -32602


class McpSettings(NamedTuple):
    """What is asked for."""

    tasks: Path
    """File of tasks."""
    confirm_effects: bool = False
    effects: Mapping[str, str] = {}
    """Tool → effect, as somebody decided; these are no guesses."""
    max_turns: int = 16
    key_env: str = ""
    timeout_s: float = 60.0


class _Row(msgspec.Struct, forbid_unknown_fields=True):
    """One line of the tasks."""

    id: str
    instruction: str
    checks: list[CheckSpec]
    family: str = ""
    stratum: str = "tasks"
    guidance: str = ""
    tools: list[str] = []
    max_turns: int = 0
    oracle: list[dict[str, Json]] = []
    oracle_answer: str = "Done."


def import_mcp(address: str, settings: McpSettings) -> tuple[ForeignContent, tuple[str, ...]]:
    """Read a server and a file of tasks; also the tools whose effects are guesses.

    Args:
        address: a URL, or a command line (split into words, no shell sees it).

    Raises:
        InputError: the file cannot be used, or names tools that the server does not have.
        InfrastructureError: the server does not answer.
    """
    client = _client(address, settings.key_env, settings.timeout_s)
    try:
        rows = client.list_tools()
        server, instructions = client.server, client.instructions
    finally:
        client.close()
    unknown = sorted(set(settings.effects) - {str(row.get("name")) for row in rows})
    if unknown:
        raise InputError(
            f"the server has no tool {unknown[0]!r}", where="effects", expected="its tools", mend="correct the name"
        )
    specs = tuple(_spec(row, settings.effects) for row in rows)
    guessed = tuple(spec.name for spec in specs if spec.name not in settings.effects)
    tasks, references = read_tasks(settings.tasks, specs, settings.max_turns)
    strata = [task.stratum for task in tasks]
    content = ForeignContent(
        ecosystem="mcp",
        address=address,
        source={"name": server.get("name"), "version": server.get("version")},
        policy_text=instructions,
        strata={name: strata.count(name) / len(strata) for name in sorted(set(strata))},
        tasks=tasks,
        starts={task.id: ForeignTask(start={}) for task in tasks},
        references=references,
        tools=specs,
        allowed=confirmed(specs, guessed, confirm=settings.confirm_effects),
        replays=False,
        key_env=settings.key_env,
    )
    return content, guessed


def effect_of(annotations: Mapping[str, Json]) -> Effect:
    """What a tool's annotations say that it does; without any, the worst, as the standard reads them."""
    if annotations.get("readOnlyHint") is True:
        return Effect.READ
    if annotations.get("destructiveHint", True) is not False:
        return Effect.DESTROY
    return Effect.SEND if annotations.get("openWorldHint", True) is not False else Effect.WRITE


def _spec(row: Mapping[str, Json], effects: Mapping[str, str]) -> ToolSpec:
    name = str(row.get("name"))
    annotations = row.get("annotations")
    hints = annotations if isinstance(annotations, dict) else {}
    try:
        effect = Effect(effects[name]) if name in effects else effect_of(hints)
    except ValueError:
        raise InputError(
            f"{effects[name]!r} is no effect", where=f"effect of {name}", expected=", ".join(Effect), mend="correct it"
        ) from None
    schema = row.get("inputSchema")
    return ToolSpec(
        name=name,
        description=str(row.get("description") or ""),
        parameters=schema if isinstance(schema, dict) else {"type": "object"},
        effect=effect,
        idempotent=hints.get("idempotentHint") is True,
    )


def read_tasks(
    path: Path, specs: tuple[ToolSpec, ...], max_turns: int
) -> tuple[tuple[Task, ...], tuple[Reference, ...]]:
    """Tasks and their sealed sides.

    Raises:
        InputError: naming file and line.
    """
    known = {spec.name for spec in specs}
    tasks: dict[str, Task] = {}
    references = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"the tasks cannot be read: {error}", where=str(path), expected="JSON lines", mend="check --tasks"
        ) from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        row = _row(line, where)
        named = {*row.tools, *(str(call.get("name")) for call in row.oracle)}
        if row.id in tasks or named - known:
            what = f"task {row.id!r} is there twice" if row.id in tasks else f"no tool {sorted(named - known)[0]!r}"
            raise InputError(what, where=where, expected="new ids, tools of the server", mend="correct the line")
        tasks[row.id] = Task(
            id=row.id,
            family=row.family or row.id,
            stratum=row.stratum,
            instruction=row.instruction,
            initial_state="",
            guidance=row.guidance,
            tools=tuple(row.tools),
            max_turns=row.max_turns or max_turns,
        )
        calls = [
            ToolCall(id=f"call_{index}", name=str(call["name"]), arguments=call.get("arguments", {}))
            for index, call in enumerate(row.oracle)
        ]
        references.append(
            Reference(task_id=row.id, checks=tuple(row.checks), oracle=tuple(calls), oracle_answer=row.oracle_answer)
        )
    if not tasks:
        raise InputError("there are no tasks", where=str(path), expected="a JSON object a line", mend="write one")
    return tuple(tasks.values()), tuple(references)


def _row(line: str, where: str) -> _Row:
    try:
        row = msgspec.json.decode(line, type=_Row)
        if not row.checks:
            raise InputError("a task without checks cannot be judged", expected="at least one check")
        CheckVerifier(row.checks)
    except (msgspec.DecodeError, RecursionError, InputError) as error:
        what = error.what if isinstance(error, InputError) else str(error)
        raise InputError(
            f"not a task: {what}",
            where=where,
            expected='{"id", "instruction", "checks": […]}',
            mend="correct the line",
        ) from error
    return row


# ------------------------------------------------------------------------------------------------ sessions


class McpSession:
    """Implements ``ForeignSession``: a server of its own for one attempt."""

    def __init__(self, address: str, key_env: str, timeout_s: float = 60.0) -> None:
        self._address = address
        self._key_env = key_env
        self._timeout_s = timeout_s
        self._client: McpClient | None = None

    def reset(self) -> Observed:
        """Start the server."""
        self._client = _client(self._address, self._key_env, self._timeout_s)
        return Observed(value=None)

    def act(self, call: ToolCall) -> Observed:
        """One tool call."""
        assert self._client is not None, "reset comes first"
        try:
            result = self._client.call(call.name, call.arguments)
        except McpRefusedError as error:
            if error.code == _INVALID_PARAMS:
                return Observed(value={"error": error.what}, is_error=True)
            raise
        return Observed(value=_value(result), is_error=result.get("isError") is True)

    def close(self) -> None:
        """End the server, or the session with it."""
        if self._client is not None:
            self._client.close()
            self._client = None


def connect_mcp(content: ForeignContent, task: Task) -> McpSession:
    """Open a task of an imported environment."""
    del task
    return McpSession(content.address, content.key_env)


def _client(address: str, key_env: str, timeout_s: float) -> McpClient:
    if address.startswith(("http://", "https://")):
        return McpClient(HttpTransport(address, bearer(key_env)), timeout_s)
    words = tuple(shlex.split(address))
    if not words:
        raise InputError("no command", where="SOURCE", expected="a URL or a command line", mend="name one")
    extra = {key_env: os.environ.get(key_env, "")} if key_env else {}
    return McpClient(StdioTransport(words, extra), timeout_s)


def _value(result: Mapping[str, Json]) -> Json:
    """Structured content where there is some, else the texts; JSON in a single text is read."""
    structured = result.get("structuredContent")
    if structured is not None:
        return structured
    content = result.get("content")
    parts = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    texts = [str(part.get("text")) for part in parts if part.get("type") == "text"]
    if len(texts) < len(parts):
        return {"texts": texts, "num_other_parts": len(parts) - len(texts)}
    if len(texts) != 1:
        return "\n".join(texts)
    try:
        return msgspec.json.decode(texts[0])
    except (msgspec.DecodeError, RecursionError):
        return texts[0]
