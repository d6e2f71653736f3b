"""Environments by reference: the built-in desk, and those that the workspace keeps.

A reference is a name, with options for built-in ones: ``desk?seed=3&wording=FILE&rename=get_alert:fetch_alert``. A
kept environment is rebuilt from its record and must come out with the digest that was recorded, or it is refused:
code that changed since then is another environment. An http address is an OpenEnv server, read as it is now.
"""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar
from urllib.parse import parse_qsl

import msgspec

from flightschool.digest import canonical_json
from flightschool.environments.built import BuiltEnvironment, LeftOut
from flightschool.environments.code_world import load_code, source_digest, tool_functions
from flightschool.environments.declared import Declaration, DeclaredEnvironment
from flightschool.environments.examining import Examination
from flightschool.environments.fidelity import Fidelity
from flightschool.environments.foreign import ForeignContent, ForeignEnvironment
from flightschool.environments.from_traces import open_code
from flightschool.environments.inferred import Base
from flightschool.environments.inventory import InventoryEntry
from flightschool.environments.json_state import JsonBase
from flightschool.environments.peopling import open_models
from flightschool.environments.traced import RenamedEnvironment, TracedContent, TracedEnvironment
from flightschool.errors import ConfigError, InputError, NotFoundError, StoreError
from flightschool.protocols import Environment, Store
from flightschool.records import Record

if TYPE_CHECKING:
    from flightschool.store import Workspace

__all__ = [
    "BUILT_IN",
    "EnvironmentRecord",
    "check_environment_name",
    "environment_names",
    "kind_of",
    "load_environment",
    "load_record",
    "put_record",
    "rebuild",
    "record_of",
    "save_environment",
]

_KIND = "environments"
R = TypeVar("R", bound=Record)
BUILT_IN = ("desk",)
"""Names that need no workspace and cannot be given to other environments."""
TOKEN_VARIABLE = "FLIGHTSCHOOL_TOKEN"
_LONGEST_NAME = 200
"""Bytes; a package's folder has the name."""
_DESK_OPTIONS = ("seed", "wording", "rename")


class EnvironmentRecord(Record, frozen=True, kw_only=True):
    """An environment as the workspace keeps it."""

    name: str
    digest: str
    kind: Literal["recordings", "functions", "mixed", "environment", "foreign"]
    """What answers calls: recordings, tool functions on a state, functions for some tools and what is recorded for the
    others, a whole environment given by code, or another ecosystem."""
    num_tasks: int
    num_tools: int
    strata: dict[str, float]
    content: str = ""
    """Blob of the ``TracedContent`` or ``ForeignContent``; empty for a whole environment."""
    state: dict[str, str] = msgspec.field(default_factory=dict)
    """Table → blob of the initial state."""
    code: str = ""
    checks: str = ""
    """Blob of the ``Declaration`` of checks; empty where none were declared."""
    traces_digest: str = ""
    traces: str = ""
    """Name of the set of traces in the workspace, where it was built from one that has a name."""
    fidelity: Fidelity
    inventory: tuple[InventoryEntry, ...]
    left_out: tuple[LeftOut, ...]
    examination: Examination | None = None
    """The last whole examination of this very environment."""
    package: str = ""
    """Folder of its package, relative to the workspace where it lies inside; empty: none was written."""


def save_environment(store: Store, built: BuiltEnvironment, *, traces: str = "") -> EnvironmentRecord:
    """Keep an environment under its name, replacing an older one; see ``record_of``."""
    record = record_of(store, built, traces=traces)
    store.put(_KIND, record.name, record)
    return record


def record_of(store: Store, built: BuiltEnvironment, *, traces: str = "") -> EnvironmentRecord:
    """The record of an environment, not yet kept; its blobs are, so that no record ever dangles.

    Args:
        store: the workspace's store.
        built: the environment with the report of its making.
        traces: name of the set that it was built from.

    Raises:
        InputError: the name is built in, or cannot be told from a path or a reference with options.
    """
    environment = built.environment
    name = environment.name
    check_environment_name(name)
    content, state, kind, checks = "", {}, "environment", ""
    inner = environment
    if isinstance(environment, DeclaredEnvironment):
        checks, inner = store.put_blob(canonical_json(environment.declaration)), environment.inner
    if isinstance(inner, TracedEnvironment):
        content = store.put_blob(canonical_json(inner.content))
        kind = kind_of(inner.content)
        # recordings answer without the state, whose digest alone is kept
        tables = built.state or {} if inner.content.code or inner.content.programs else {}
        state = {table: store.put_blob(canonical_json(value)) for table, value in tables.items()}
    elif isinstance(environment, ForeignEnvironment):
        content, kind = store.put_blob(canonical_json(environment.content)), "foreign"
    return msgspec.convert(
        {
            "name": name,
            "digest": environment.digest,
            "kind": kind,
            "num_tasks": len(environment.tasks()),
            "num_tools": len(environment.tools()),
            "strata": dict(environment.strata),
            "content": content,
            "state": state,
            "code": _lasting(built.code),
            "checks": checks,
            "traces_digest": built.traces_digest,
            "traces": traces,
            "fidelity": built.fidelity,
            "inventory": built.inventory,
            "left_out": built.left_out,
        },
        EnvironmentRecord,
    )


def check_environment_name(name: str) -> None:
    """Refuse names that are built in, read as something else, or can name no folder. Raises ``InputError``."""
    odd = not name.isprintable() or len(name.encode(errors="replace")) > _LONGEST_NAME
    if name in BUILT_IN or not name or odd or set(name) & set("/?#:") or name.startswith("."):
        raise InputError(
            f"an environment cannot be named {name[:_LONGEST_NAME]!r}",
            where="--name",
            expected="a new name without '/', '?', '#', ':' and leading '.'",
            mend="choose another name",
        )


def kind_of(content: TracedContent) -> Literal["recordings", "functions", "mixed"]:
    """What answers the calls of an environment from traces."""
    return "mixed" if content.coded else "functions" if content.code else "recordings"


def put_record(store: Store, record: EnvironmentRecord) -> None:
    """Keep a record whose blobs the store already has, replacing an older one of its name."""
    store.put(_KIND, record.name, record)


def _lasting(code: str) -> str:
    """A reference to code that holds from every working directory."""
    return str(Path(code).resolve()) if "/" in code or code.endswith(".py") else code


def environment_names(store: Store) -> tuple[str, ...]:
    """Names of the kept environments, oldest first."""
    return tuple(store.keys(_KIND))


def load_record(store: Store, name: str) -> EnvironmentRecord:
    """The record of a kept environment. Raises ``NotFoundError``."""
    if not store.has(_KIND, name) and not environment_names(store):
        raise NotFoundError(
            f"there is no environment {name!r}, nor any other in this workspace",
            where=f"the workspace's store, {_KIND}",
            expected=f"one of {', '.join(BUILT_IN)}, or an environment built from traces",
            mend=f"flightschool traces import FILE --name TRACES, then env build --from-traces TRACES --name {name}",
        )
    return store.get(_KIND, name, EnvironmentRecord)


def load_environment(ref: str, workspace: Workspace | None = None) -> Environment:
    """The environment that a reference names.

    Raises:
        NotFoundError: neither built in nor in the workspace.
        ConfigError: wrong options, or code that cannot be loaded.
        InputError: the environment no longer has the digest that it was kept with.
    """
    if ref.startswith(("http://", "https://")):
        return _served(ref)
    if "://" in ref:
        raise NotFoundError(
            "an environment is named, or it is an OpenEnv server at an http address",
            where=ref,
            expected="a name of this workspace, or http://HOST:PORT",
            mend=f"flightschool env import {ref} --format mcp --name NAME, then give NAME",
        )
    name, options = _parse(ref)
    if name == "desk":
        return _desk(options, ref)
    if options:
        raise ConfigError("only built-in environments take options", where=ref, expected=name, mend="leave '?…' out")
    if workspace is None:
        raise NotFoundError(
            f"there is no built-in environment {name!r}",
            where=ref,
            expected=f"one of {', '.join(BUILT_IN)}, or a workspace that knows the name",
            mend="go to the folder with flightschool.toml",
        )
    return rebuild(workspace.store, load_record(workspace.store, name))


def rebuild(store: Store, record: EnvironmentRecord) -> Environment:
    """The environment of a record.

    Raises:
        ConfigError: its code cannot be loaded.
        InputError: it no longer has the digest that it was kept with.
    """
    environment = _judged(store, record, _rebuild(store, record))
    if environment.digest != record.digest:
        raise InputError(
            f"environment {record.name!r} is no longer what was kept",
            where=record.code or record.name,
            expected=record.digest,
            mend="its code changed: build it again with flightschool env build, and audit it again",
        )
    return environment


def _served(url: str) -> Environment:
    """An OpenEnv server as it is now, with the settings that ``env import`` has unless told otherwise.

    A token for it is taken from ``FLIGHTSCHOOL_TOKEN``.
    """
    from flightschool.environments.openenv import ImportSettings, import_openenv

    key_env = TOKEN_VARIABLE if os.environ.get(TOKEN_VARIABLE) else ""
    imported = import_openenv(url, ImportSettings(key_env=key_env))
    return ForeignEnvironment(url.partition("://")[2].rstrip("/").replace("/", "-"), imported.content)


def _judged(store: Store, record: EnvironmentRecord, environment: Environment) -> Environment:
    """With its declared checks, where there are some."""
    if not record.checks:
        return environment
    return DeclaredEnvironment(environment, _kept(store, record, record.checks, Declaration))


def _kept(store: Store, record: EnvironmentRecord, blob: str, kind: type[R]) -> R:
    try:
        return msgspec.convert(json.loads(store.get_blob(blob)), kind)
    except (msgspec.ValidationError, ValueError) as error:
        raise StoreError(
            f"the environment cannot be read: {error}",
            where=f"environment {record.name!r}",
            expected="an environment kept by this version",
            mend="build it again with flightschool env build",
        ) from error


def _rebuild(store: Store, record: EnvironmentRecord) -> Environment:
    if record.kind == "environment":
        return RenamedEnvironment(record.name, open_code(record.code), record.strata)
    if record.kind == "foreign":
        return ForeignEnvironment(record.name, _kept(store, record, record.content, ForeignContent))
    content = _kept(store, record, record.content, TracedContent)
    return open_content(store, record, content)


def open_content(store: Store, record: EnvironmentRecord, content: TracedContent) -> TracedEnvironment:
    """An environment of this content (the record's own, or a part of it), with the state and code of the record.

    Raises:
        ConfigError: the code cannot be loaded.
    """
    tables = {table: json.loads(store.get_blob(blob)) for table, blob in record.state.items()}
    models = open_models(content)
    if record.kind == "recordings":
        return TracedEnvironment(record.name, content, rows=Base(tables), models=models)
    module = load_code(record.code)
    called = content.coded or [entry.spec.name for entry in record.inventory if entry.num_calls]
    functions = tool_functions(module, called, f"--code {record.code}")
    content = msgspec.structs.replace(content, code_digest=source_digest(module))
    if content.coded:
        return TracedEnvironment(record.name, content, functions, rows=Base(tables), models=models)
    return TracedEnvironment(record.name, content, functions, JsonBase(tables), models=models)


def replace_content(store: Store, record: EnvironmentRecord, environment: TracedEnvironment, content: bytes) -> None:
    """Keep an environment's content anew, under its name and with its new digest."""
    changed = msgspec.structs.replace(
        record,
        digest=_judged(store, record, environment).digest,
        num_tasks=len(environment.tasks()),
        strata=dict(environment.strata),
        content=store.put_blob(content),
        examination=None,
    )
    store.put(_KIND, record.name, changed)


# ------------------------------------------------------------------------------------------------ references


def _parse(ref: str) -> tuple[str, dict[str, str]]:
    name, _, query = ref.partition("?")
    if not name:
        raise ConfigError("an environment reference is empty", where=ref, expected="NAME", mend="name one")
    if not query:
        return name, {}
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True)
    except ValueError as error:
        raise ConfigError(
            "options cannot be read", where=ref, expected="NAME?key=value&key=value", mend=str(error)
        ) from error
    if len(dict(pairs)) < len(pairs):
        raise ConfigError("an option is given twice", where=ref, expected="each option once", mend="remove one")
    return name, dict(pairs)


def _desk(options: Mapping[str, str], ref: str) -> Environment:
    from flightschool.environments.desk import build_environment  # builds its tasks when it is imported

    for key in options:
        if key not in _DESK_OPTIONS:
            near = difflib.get_close_matches(key, _DESK_OPTIONS, n=1)
            raise ConfigError(
                f"unknown option {key!r}",
                where=ref,
                expected=f"one of {', '.join(_DESK_OPTIONS)}",
                mend=f"did you mean {near[0]!r}?" if near else "remove it",
            )
    seed = options.get("seed", "0")
    if not seed.isascii() or not seed.isdigit():
        raise ConfigError(f"seed is {seed!r}", where=ref, expected="a whole number from 0", mend="correct the seed")
    wording = options.get("wording")
    return build_environment(
        seed=int(seed), wording=Path(wording) if wording else None, rename=_renames(options.get("rename", ""), ref)
    )


def _renames(text: str, ref: str) -> dict[str, str]:
    renames: dict[str, str] = {}
    for pair in filter(None, text.split(",")):
        old, _, new = pair.partition(":")
        if not old or not new or old in renames:
            raise ConfigError(
                f"cannot rename {pair!r}", where=ref, expected="rename=old:new,old:new", mend="correct 'rename'"
            )
        renames[old] = new
    return renames
