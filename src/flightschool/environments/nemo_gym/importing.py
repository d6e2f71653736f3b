"""Rows of NeMo Gym with a running resources server as an environment of ours."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from flightschool.digest import digest as content_digest
from flightschool.environments.foreign.content import ForeignContent, ForeignTask, reward_checks
from flightschool.environments.nemo_gym.session import FINISH, NemoGymSession
from flightschool.errors import InputError
from flightschool.records import Effect, Json, Reference, Task, ToolSpec
from flightschool.traces import effect_by_name

__all__ = ["import_nemo_gym"]

_FINISH = ToolSpec(
    name=FINISH,
    description="End the task with the final message.",
    parameters={"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]},
    effect=Effect.WRITE,
)


def import_nemo_gym(
    url: str, rows: Path, *, num_tasks: int, threshold: float, max_turns: int
) -> tuple[ForeignContent, tuple[str, ...]]:
    """Read a data file; also the tools whose effects are guesses.

    Args:
        url: the resources server; one session is seeded to see that it answers.
        rows: JSON lines with ``responses_create_params``.
        num_tasks: most rows.

    Raises:
        InputError: naming file and line.
        InfrastructureError: the server does not answer.
    """
    read = _read(rows)[:num_tasks]
    specs: dict[str, ToolSpec] = {}
    tasks: dict[str, Task] = {}
    starts: dict[str, ForeignTask] = {}
    for where, row in read:
        names = []
        for tool in _tools(row, where):
            spec = _spec(tool, where)
            if specs.setdefault(spec.name, spec) != spec:
                raise InputError(
                    f"the tool {spec.name!r} is another one in earlier rows", where=where, expected="one meaning a name"
                )
            names.append(spec.name)
        task = _task(row, where, (*names, FINISH), max_turns)
        if task.id in tasks:
            raise InputError(f"the row {task.id!r} is there twice", where=where, expected="distinct rows")
        tasks[task.id], starts[task.id] = task, ForeignTask(start=row)
    session = NemoGymSession(url, read[0][1])
    try:
        session.reset()
    finally:
        session.close()
    content = ForeignContent(
        ecosystem="nemo-gym",
        address=url.rstrip("/"),
        source={},
        policy_text="",
        strata={"rows": 1.0},
        tasks=tuple(tasks.values()),
        starts=starts,
        references=tuple(Reference(task_id=task_id, checks=reward_checks()) for task_id in tasks),
        tools=(*specs.values(), _FINISH),
        allowed=(*specs, FINISH),  # a resources server is a simulator
        threshold=threshold,
        reward_rule="last",
    )
    return content, tuple(specs)


def _read(path: Path) -> list[tuple[str, dict[str, Json]]]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"the rows cannot be read: {error}", where=str(path), expected="JSON lines", mend="check --tasks"
        ) from error
    found = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        try:
            row = msgspec.json.decode(line)
        except (msgspec.DecodeError, RecursionError) as error:
            raise InputError(f"no JSON: {error}", where=where, expected="a JSON object", mend="correct it") from error
        if not isinstance(row, dict) or not isinstance(row.get("responses_create_params"), dict):
            raise InputError(
                "not a row of NeMo Gym",
                where=where,
                expected="an object with responses_create_params",
                mend="correct it",
            )
        found.append((where, row))
    if not found:
        raise InputError("there are no rows", where=str(path), expected="a JSON object a line", mend="write one")
    return found


def _tools(row: Mapping[str, Json], where: str) -> list[Mapping[str, Json]]:
    """The tools of a row, each an object with an object for a schema."""
    tools = row["responses_create_params"].get("tools") or []
    objects = isinstance(tools, list) and all(isinstance(one, dict) for one in tools)
    if not objects or not all(isinstance(one.get("parameters") or {}, dict) for one in tools):
        raise InputError(
            "tools that are none",
            where=where,
            expected='a list of {"name", "description", "parameters": {…}}',
            mend="correct the row",
        )
    found: list[Mapping[str, Json]] = tools
    return found


def _spec(tool: Mapping[str, Json], where: str) -> ToolSpec:
    name = tool.get("name")
    if not isinstance(name, str) or not name or name == FINISH:
        raise InputError(f"a tool named {name!r}", where=where, expected="a name of its own", mend="rename it")
    return ToolSpec(
        name=name,
        description=str(tool.get("description") or ""),
        parameters=tool.get("parameters") or {"type": "object"},
        effect=effect_by_name(name)[0] or Effect.WRITE,
    )


def _task(row: Mapping[str, Json], where: str, tools: tuple[str, ...], max_turns: int) -> Task:
    told = row["responses_create_params"].get("input")
    messages = [{"role": "user", "content": told}] if isinstance(told, str) else told
    if not isinstance(messages, list) or not all(isinstance(m, dict) for m in messages):
        raise InputError("the row has no messages", where=where, expected="a text or a list of messages as input")
    guidance = [_text(m) for m in messages if m.get("role") in ("system", "developer")]
    asked = [_text(m) for m in messages if m.get("role") == "user"]
    if len(asked) != 1 or len(guidance) + 1 != len(messages):
        raise InputError(
            "the row is a conversation under way", where=where, expected="one user message after system messages"
        )
    named = row.get("task_id") or row.get("id")
    name = str(named) if isinstance(named, str | int) else content_digest(dict(row))[7:19]
    return Task(
        id=name,
        family=name,
        stratum="rows",
        instruction=f"{asked[0]}\n\nEnd with the tool {FINISH}.",
        initial_state="",
        guidance="\n".join(guidance),
        tools=tools,
        max_turns=max_turns,
    )


def _text(message: Mapping[str, Json]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return str(content or "")
