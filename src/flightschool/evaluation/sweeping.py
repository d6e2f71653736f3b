"""Where sealed text lies in a workspace: one pass over the database and the files, and what becomes of each place."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from flightschool.digest import canonical_json
from flightschool.digest import digest as content_digest
from flightschool.environments import EnvironmentRecord, TracedContent
from flightschool.environments.declared import Declaration
from flightschool.environments.examining import underlying
from flightschool.environments.foreign import ForeignContent
from flightschool.environments.packages import edited_files, package_files
from flightschool.environments.packages.places import package_folder
from flightschool.environments.terminal import TerminalFolders
from flightschool.errors import GateError, StoreError
from flightschool.evaluation.needles import Needles
from flightschool.evaluation.suites import HOLDOUT_KIND, POOL_KIND, SUITE_KIND
from flightschool.governance import ReducedEnvironment
from flightschool.governance.withholding import KIND as WITHDRAWN_KIND
from flightschool.protocols import Environment
from flightschool.records import Json, Record, Task
from flightschool.store import SqlStore, everything
from flightschool.traces import StoredTraces, TraceRecord, save_episodes

__all__ = [
    "ENVIRONMENTS",
    "TRACES",
    "MovedRow",
    "Remainder",
    "Sweep",
    "files_with",
    "kept_record",
    "own_package",
    "refuse_stuck",
    "remainder_of",
    "require_gone",
]

V = TypeVar("V")

ENVIRONMENTS = "environments"
TRACES = "traces"
EPISODES = "terminal-episode"
MOST_NAMED = 8
_UNMOVABLE = frozenset({"log_entry", ENVIRONMENTS, SUITE_KIND, HOLDOUT_KIND, POOL_KIND})


class MovedRow(Record, frozen=True, kw_only=True):
    """A record or blob that was moved into the box."""

    kind: str
    key: str
    data: bytes


def kept_record(store: SqlStore, environment: Environment) -> EnvironmentRecord | None:
    """The record of an environment whose content the workspace keeps; None where code makes the tasks."""
    if not store.has(ENVIRONMENTS, environment.name):
        return None
    record = store.get(ENVIRONMENTS, environment.name, EnvironmentRecord)
    return record if record.content and record.digest == environment.digest else None


def own_package(store: SqlStore, environment: Environment, root: Path | None) -> Path | None:
    """The package of an environment, which follows it; None where there is none."""
    if root is None or not store.has(ENVIRONMENTS, environment.name):
        return None
    return package_folder(root, store.get(ENVIRONMENTS, environment.name, EnvironmentRecord))


class Remainder(msgspec.Struct, frozen=True):
    """What is left of an environment: its digest, and its record where the workspace keeps its content."""

    digest: str
    record: EnvironmentRecord | None
    outdated: tuple[str, ...] = ()
    """Blobs that only the environment as it was needs, beside its content."""


def remainder_of(
    store: SqlStore,
    environment: Environment,
    kept: EnvironmentRecord | None,
    sealed: Sequence[Task],
    needles: Needles,
) -> Remainder:
    """What is left of the environment, as kept content or as a view on the code."""
    if isinstance(environment, TerminalFolders):
        return Remainder(environment.without([task.id for task in sealed]), None)
    if kept is None:
        return Remainder(ReducedEnvironment(environment, [task.digest for task in sealed]).digest, None)
    hidden = {task.id for task in sealed}
    plain = json.loads(store.get_blob(kept.content))
    smaller: ForeignContent | TracedContent
    if kept.kind == "foreign":
        smaller = left = _less_foreign(msgspec.convert(plain, ForeignContent), hidden)
        digest = left.digest
    else:
        smaller = less = _less_traced(msgspec.convert(plain, TracedContent), hidden, needles)
        digest = content_digest(_as_loaded(less, environment))
    checks = kept.checks
    if checks:
        declared = _less_declared(msgspec.convert(json.loads(store.get_blob(checks)), Declaration), hidden, needles)
        checks, digest = store.put_blob(canonical_json(declared)), content_digest({"inner": digest, "checks": declared})
    record = msgspec.structs.replace(
        kept,
        digest=digest,
        num_tasks=len(smaller.tasks),
        content=store.put_blob(canonical_json(smaller)),
        checks=checks,
        left_out=tuple(one for one in kept.left_out if not needles.in_value(msgspec.to_builtins(one))),
        inventory=_without(kept.inventory, needles),
        fidelity=_without(kept.fidelity, needles),
        examination=None,  # it names tasks, and was taken of another environment
    )
    shared = {
        store.get(ENVIRONMENTS, key, EnvironmentRecord).checks for key in store.keys(ENVIRONMENTS) if key != kept.name
    }
    return Remainder(
        record.digest, record, (kept.checks,) if checks != kept.checks and kept.checks not in shared else ()
    )


def _less_foreign(content: ForeignContent, hidden: set[str]) -> ForeignContent:
    return msgspec.structs.replace(
        content,
        tasks=tuple(task for task in content.tasks if task.id not in hidden),
        references=tuple(ref for ref in content.references if ref.task_id not in hidden),
        starts={task: start for task, start in content.starts.items() if task not in hidden},
    )


def _less_declared(declared: Declaration, hidden: set[str], needles: Needles) -> Declaration:
    """Declared checks without those that judge sealed tasks alone, or say what is sealed."""
    rows = []
    for row in declared.checks:
        left = tuple(task for task in row.tasks if task not in hidden)
        if (left or not row.tasks) and not needles.in_value(msgspec.to_builtins(row.check)):
            rows.append(msgspec.structs.replace(row, tasks=left))
    return msgspec.structs.replace(declared, checks=tuple(rows))


def _less_traced(content: TracedContent, hidden: set[str], needles: Needles) -> TracedContent:
    tasks = tuple(task for task in content.tasks if task.id not in hidden)
    scopes = {task.initial_state for task in tasks}
    smaller = msgspec.structs.replace(
        content,
        tasks=tasks,
        references=tuple(ref for ref in content.references if ref.task_id not in hidden),
        tools=_without(content.tools, needles),
        recordings=tuple(
            one for one in content.recordings if one.scope in scopes and not needles.in_value(msgspec.to_builtins(one))
        ),
    )
    return msgspec.structs.replace(
        smaller,
        programs=tuple(_clean(content.programs, needles)),
        waiting=tuple(_clean(content.waiting, needles)),
        # what a user of a sealed task knows is its text, wherever else it may be said
        scripts=tuple(one for one in _clean(content.scripts, needles) if one.task not in hidden),
    )


def _clean(records: Sequence[V], needles: Needles) -> list[V]:
    """Records without those that hold sealed text: an inferred constant may have been taken from a sealed task."""
    return [one for one in records if not needles.in_value(msgspec.to_builtins(one))]


def _without(value: V, needles: Needles) -> V:
    """The same without sealed text. Schemas inferred from traces list the values that were seen, sealed ones too."""
    plain = msgspec.to_builtins(value)
    if not needles.in_value(plain):
        return value
    cut: V = msgspec.convert(_cut(plain, needles), type=_type_of(value))
    return cut


def _cut(value: Json, needles: Needles) -> Json:
    if isinstance(value, str):
        return "(sealed)" if needles.in_text(value) else value
    if isinstance(value, list | tuple):
        return [_cut(item, needles) for item in value]
    if not isinstance(value, dict):
        return value
    kept = dict(value)
    for word in ("enum", "examples"):  # of a JSON Schema: listed values, not prose
        listed = kept.get(word)
        if isinstance(listed, list) and needles.in_value(listed):
            del kept[word]  # a shorter list would forbid what the others may still say
    return {key: _cut(item, needles) for key, item in kept.items()}


def _type_of(value: object) -> Any:
    if isinstance(value, tuple):
        return tuple[type(value[0]), ...]  # type: ignore[misc]
    return type(value)


def _as_loaded(content: TracedContent, environment: Environment) -> TracedContent:
    """The content with what loading fills in from the code, which the environment at hand already carries."""
    whole = underlying(environment)
    return content if whole is None else msgspec.structs.replace(content, code_digest=whole.content.code_digest)


class Sweep:
    """One pass over the database: what moves into the box, what is written anew without it, what is stuck."""

    def __init__(self, store: SqlStore, needles: Needles, kept: EnvironmentRecord | None) -> None:
        self.moved: list[MovedRow] = []
        self.rewritten: list[tuple[str, str, msgspec.Struct]] = []
        self.blobs: set[str] = set()
        self.stuck: list[str] = []
        own = {kept.content} if kept is not None else set()
        self._split: set[str] = set()
        traces: dict[str, list[TraceRecord]] = defaultdict(list)
        others: dict[str, str] = {}
        for kind, key, data in everything(store):
            if kind == TRACES:
                record = msgspec.msgpack.decode(data, type=TraceRecord)
                for piece in record.pieces or (record.blob,):
                    traces[piece].append(record)
            elif kind == ENVIRONMENTS:
                content = msgspec.msgpack.decode(data, type=EnvironmentRecord).content
                others[content] = key
                if content in own and kept is not None and key != kept.name:
                    self.stuck.append(f"environment {key!r} (is the same)")
            if kind == WITHDRAWN_KIND or (kind == "blob" and key in own) or not needles.in_bytes(data):
                continue
            if kind == "blob" and key in traces:
                self.moved.append(MovedRow(kind="blob", key=key, data=data))
                self.blobs.add(key)
                for record in traces[key]:
                    self._split_traces(store, needles, record)
            elif kind == "blob" and key in others:
                self.stuck.append(f"environment {others[key]!r} (holds the same tasks)")
            elif kind in _UNMOVABLE and not (kind == ENVIRONMENTS and kept is not None and key == kept.name):
                self.stuck.append(f"{kind} {key}")
            elif kind not in _UNMOVABLE:
                self.moved.append(MovedRow(kind=kind, key=key, data=data))
                if kind == "blob":
                    self.blobs.add(key)
        self._move_episodes(store)

    def _move_episodes(self, store: SqlStore) -> None:
        """What attempts at sealed task folders left besides: output, verdicts, digests of end states."""
        attempts = {row.key for row in self.moved if row.kind == "attempt"}
        for kind, key, data in everything(store):
            if kind == EPISODES and key in attempts:
                self.moved.append(MovedRow(kind=kind, key=key, data=data))

    def _split_traces(self, store: SqlStore, needles: Needles, record: TraceRecord) -> None:
        """Keep a set anew without the episodes that hold sealed text."""
        if record.name in self._split:
            return
        self._split.add(record.name)
        stored = StoredTraces(store, record.name)
        clean = (one for one in stored if not needles.in_value(msgspec.to_builtins(one)))
        save_episodes(
            _Holding(store, self.rewritten),
            record.name,
            clean,
            record.format,
            redacted=record.redacted,
            replaced=lambda: record.replaced,
        )


class _Holding:
    """A store that writes blobs at once and holds records back, so that they go in with the rest or not at all."""

    def __init__(self, store: SqlStore, rows: list[tuple[str, str, msgspec.Struct]]) -> None:
        self._store = store
        self._rows = rows

    def put(self, kind: str, key: str, record: msgspec.Struct) -> None:
        self._rows.append((kind, key, record))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def files_with(
    needles: Needles,
    root: Path | None,
    store: SqlStore,
    package: Path | None = None,
    *,
    besides: Sequence[Path] = (),
) -> list[Path]:
    """Files of the workspace that hold sealed text, the database apart; none without a root.

    Args:
        package: its files are left out while they are as they were written: they will be written anew.
        besides: folders that are taken away themselves.
    """
    if root is None:
        return []
    database = store._parsed.database if store._parsed.get_backend_name() == "sqlite" else None
    own = [Path(f"{database}{end}") for end in ("", "-wal", "-shm", "-journal")] if database else []
    if package is not None and not edited_files(package):
        own += package_files(package)
    moved = [path for folder in besides for path in folder.rglob("*")]
    return needles.in_files(root, besides=[*own, *moved])


def refuse_stuck(stuck: Sequence[str], files: Sequence[Path]) -> None:
    """Refuse to seal while text lies where it cannot be moved from. Raises ``GateError`` naming the places."""
    places = [*stuck, *map(str, files)]
    if places:
        more = f" and {len(places) - MOST_NAMED} more" if len(places) > MOST_NAMED else ""
        raise GateError(
            f"text that is to be sealed also lies in {', '.join(places[:MOST_NAMED])}{more}",
            where="seal_holdout",
            expected="a workspace whose own database alone holds it",
            mend="move the files out of the workspace (or remove the entries) and freeze again; nothing has changed",
        )


def require_gone(store: SqlStore, needles: Needles, root: Path | None) -> None:
    """Search everything once more. Raises ``StoreError`` naming what is still there."""
    left = [
        f"{kind} {key}"
        for kind, key, data in everything(store)
        if kind != WITHDRAWN_KIND and needles.in_bytes(data)  # that one hides tasks by their digests, and holds no text
    ]
    left += map(str, files_with(needles, root, store))
    if left:
        raise StoreError(
            f"sealed text is still found in {', '.join(left[:MOST_NAMED])}",
            where="seal_holdout",
            expected="none",
            mend="another process wrote meanwhile: freeze under a new name with nothing else running",
        )
