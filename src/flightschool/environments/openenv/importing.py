"""Any OpenEnv server as an environment of ours.

Tasks are what the server can be begun with: those of its Task API where it has one, else seeds. The first observation
of each start becomes the task's instruction, if equal starts give equal observations; where they do not, a tool
``observe`` shows it when the episode has begun.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import quote

from flightschool.digest import canonical_json
from flightschool.digest import digest as content_digest
from flightschool.environments.foreign.content import ForeignContent, ForeignTask, reward_checks
from flightschool.environments.foreign.world import OBSERVE, Observed
from flightschool.environments.openenv.link import Link, ask_http
from flightschool.environments.openenv.session import ACT, Accounted, OpenEnvSession, bearer
from flightschool.errors import InfrastructureError, InputError
from flightschool.records import Effect, Json, Reference, Task, ToolSpec
from flightschool.traces import effect_by_name

__all__ = ["ImportSettings", "Imported", "import_openenv"]

_PROBES = 2
"""Starts that are begun twice, to see whether equal starts begin equally."""
_TEXTS = ("instruction", "prompt", "question")
_LONGEST_NAME = 80


class ImportSettings(NamedTuple):
    """What is not read from the server."""

    num_tasks: int = 16
    """Most tasks; of servers without a Task API, seeds 0, 1, 2 …"""
    split: str = ""
    """Split of the Task API; the first one if empty."""
    threshold: float = 1.0
    """Reward from which a task counts as solved."""
    reward_rule: str = "sum"
    max_turns: int = 16
    key_env: str = ""
    timeout_s: float = 60.0


class Imported(NamedTuple):
    """An environment with what is to be said about it."""

    content: ForeignContent
    guessed: tuple[str, ...]
    """Tools whose effects are guesses."""
    notes: tuple[str, ...]


class _Server(NamedTuple):
    """A server as it says it is."""

    url: str
    headers: dict[str, str]
    metadata: dict[str, Json]
    schema: dict[str, Json]


def import_openenv(url: str, settings: ImportSettings | None = None) -> Imported:
    """Read an OpenEnv server.

    Raises:
        InputError: the address is none, or the server has no task.
        InfrastructureError: the server does not answer, or not as the protocol says.
    """
    chosen = settings or ImportSettings()
    server = _look(url, bearer(chosen.key_env))
    specs, guessed, has_tools = _tools(server, chosen.timeout_s)
    starts = _starts(server, chosen)
    opened = [_open(server, start, chosen.timeout_s) for start in starts]
    steady = all(
        content_digest(_open(server, start, chosen.timeout_s).value) == content_digest(seen.value)
        for start, seen in list(zip(starts, opened, strict=True))[:_PROBES]
    )
    notes = _notes(opened, steady, chosen)
    if not steady:
        specs = (
            *specs,
            ToolSpec(name=OBSERVE, description="Show the state that the episode began with.", parameters={}),
        )
    tasks, tied = _task_records(server, starts, opened, steady, chosen)
    content = ForeignContent(
        ecosystem="openenv",
        address=url.rstrip("/"),
        source={
            "name": str(server.metadata.get("name", "")),
            "version": server.metadata.get("version"),
            "schema": content_digest(server.schema),
            "has_tools": has_tools,
        },
        policy_text=str(server.metadata.get("description") or ""),
        strata=_shares(tasks),
        tasks=tasks,
        starts=tied,
        references=tuple(Reference(task_id=task.id, checks=reward_checks()) for task in tasks),
        tools=specs,
        allowed=tuple(spec.name for spec in specs),  # a simulator: whatever its tools do, they do it to no one
        threshold=chosen.threshold,
        reward_rule=chosen.reward_rule,
        key_env=chosen.key_env,
    )
    return Imported(content, guessed, notes)


def _look(url: str, headers: dict[str, str]) -> _Server:
    status, health = ask_http(url, "/health", headers=headers)
    state = health.get("status") if isinstance(health, dict) else None
    if status != 200 or state == "unhealthy":
        raise InfrastructureError(
            f"the server is not well: HTTP {status}, {state!r}", where=url, expected="healthy", mend="see its log"
        )
    found = {path: ask_http(url, path, headers=headers) for path in ("/metadata", "/schema")}
    for path, (answered, body) in found.items():
        if answered != 200 or not isinstance(body, dict):
            raise InfrastructureError(
                f"{path} answers HTTP {answered}",
                where=url,
                expected="an OpenEnv server (0.2 or later)",
                mend="check the address and the token",
            )
    return _Server(url, headers, found["/metadata"][1], found["/schema"][1])


def _tools(server: _Server, timeout_s: float) -> tuple[tuple[ToolSpec, ...], tuple[str, ...], bool]:
    """Tools, the names of those with guessed effects, and whether actions are tool calls."""
    action = server.schema.get("action")
    action = action if isinstance(action, dict) else {}
    properties = action.get("properties", {})
    if "tool_name" not in properties and action.get("title") not in ("Action", "ListToolsAction"):
        kept = {name: schema for name, schema in properties.items() if name != "metadata"}
        required = [name for name in action.get("required", ()) if name in kept]
        parameters: dict[str, Json] = {"type": "object", "properties": kept, "required": required}
        if "$defs" in action:
            parameters["$defs"] = action["$defs"]
        spec = ToolSpec(name=ACT, description="Act in the environment.", parameters=parameters, effect=Effect.WRITE)
        return (spec,), (), False
    account = Accounted(Link(server.url, headers=server.headers), timeout_s)
    try:
        listed = account.list_tools()
    finally:
        account.close()
    specs, guessed = [], []
    for row in listed:
        effect, _ = effect_by_name(str(row.get("name", "")))
        schema = row.get("input_schema") or row.get("inputSchema") or {}
        specs.append(
            ToolSpec(
                name=str(row["name"]),
                description=str(row.get("description") or ""),
                parameters=schema,
                effect=effect or Effect.WRITE,
            )
        )
        guessed.append(str(row["name"]))
    if not specs:
        raise InputError(
            "the server lists no tools", where=server.url, expected="tools", mend="see what its list_tools answers"
        )
    return tuple(specs), tuple(guessed), True


def _starts(server: _Server, chosen: ImportSettings) -> list[dict[str, Json]]:
    """What episodes are begun with: rows of the Task API with what they say, else seeds."""
    status, names = ask_http(server.url, "/list_environments", headers=server.headers)
    if status == 200 and isinstance(names, list) and names:
        rows = _task_rows(server, quote(str(names[0]), safe=""), chosen)
        if rows:
            return rows
    if chosen.split:
        raise InputError(
            f"the server offers no split {chosen.split!r}", where="--split", expected="a Task API", mend="leave it out"
        )
    return [{"seed": seed} for seed in range(chosen.num_tasks)]


def _task_rows(server: _Server, name: str, chosen: ImportSettings) -> list[dict[str, Json]]:
    status, splits = ask_http(server.url, f"/{name}/splits", headers=server.headers)
    if status != 200 or not isinstance(splits, list) or not splits:
        return []
    offered = [str(split.get("name")) for split in splits if isinstance(split, dict)]
    split = chosen.split or offered[0]
    if split not in offered:
        raise InputError(
            f"the server has no split {split!r}", where="--split", expected=", ".join(offered), mend="name one of these"
        )
    _, counted = ask_http(server.url, f"/{name}/num_tasks", {"split": split}, headers=server.headers)
    total = counted.get("num_tasks", 0) if isinstance(counted, dict) else 0
    num = min(int(total), chosen.num_tasks)
    return [{"split": split, "index": index} for index in range(num)]


def _open(server: _Server, start: Mapping[str, Json], timeout_s: float) -> Observed:
    session = OpenEnvSession(
        lambda: Link(server.url, headers=server.headers), dict(start), has_tools=False, timeout_s=timeout_s
    )
    try:
        return session.reset()
    finally:
        session.close()


def _task_records(
    server: _Server, starts: list[dict[str, Json]], opened: list[Observed], steady: bool, chosen: ImportSettings
) -> tuple[tuple[Task, ...], dict[str, ForeignTask]]:
    tasks: list[Task] = []
    tied: dict[str, ForeignTask] = {}
    described = str(server.metadata.get("description") or "")
    for name, start, seen in zip(_names(starts, opened), starts, opened, strict=True):
        told = seen.value if isinstance(seen.value, dict) else {}
        family = told.get("family") if isinstance(told.get("family"), str) else name
        instruction = _instruction(seen.value) if steady else f"Call {OBSERVE} to see how things stand, then act."
        tasks.append(
            Task(
                id=name,
                family=str(family),
                stratum=str(start.get("split", "seeds")),
                instruction=instruction,
                initial_state=canonical_json(start).decode(),
                guidance=str(told["guidance"]) if isinstance(told.get("guidance"), str) else described,
                max_turns=chosen.max_turns,
            )
        )
        tied[name] = ForeignTask(start=start, opening_digest=content_digest(seen.value) if steady else "")
    return tuple(tasks), tied


def _names(starts: list[dict[str, Json]], opened: list[Observed]) -> list[str]:
    """Ids of tasks: those that the server tells, if it tells all of them apart; else what they are begun with."""
    told = [seen.value.get("task_id") if isinstance(seen.value, dict) else None for seen in opened]
    usable = [name for name in told if isinstance(name, str) and 0 < len(name) <= _LONGEST_NAME and name.isprintable()]
    if len(set(usable)) == len(starts):
        return usable
    return ["-".join(str(v) if key == "split" else f"{key}-{v}" for key, v in start.items()) for start in starts]


def _instruction(value: Json) -> str:
    """The first observation as text: its own words where it has some, else as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        for key in _TEXTS:
            if isinstance(value.get(key), str) and value[key].strip():
                return str(value[key])
    return canonical_json(value).decode()


def _notes(opened: list[Observed], steady: bool, chosen: ImportSettings) -> tuple[str, ...]:
    notes = []
    if not steady:
        notes.append(f"equal starts begin differently: the first observation is shown by the tool {OBSERVE!r}")
    if len(opened) > 1 and len({content_digest(seen.value) for seen in opened}) == 1:
        notes.append("every start begins alike: these may be one task under several names")
    if any(seen.done for seen in opened):
        notes.append("some episodes are over as soon as they begin")
    notes.append(f"a task counts as solved from a reward ({chosen.reward_rule}) of {chosen.threshold:g}")
    return tuple(notes)


def _shares(tasks: tuple[Task, ...]) -> dict[str, float]:
    if not tasks:
        raise InputError("the server has no task", where="Task API", expected="tasks", mend="see its splits")
    counts: dict[str, int] = {}
    for task in tasks:
        counts[task.stratum] = counts.get(task.stratum, 0) + 1
    return {name: count / len(tasks) for name, count in sorted(counts.items())}
