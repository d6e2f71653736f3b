"""A kept environment becomes a folder.

Files are written in place, each at once, and ``env.toml`` last: a folder whose writing was cut short says so itself and
is written over. What lies there beside the package's own files is nobody's business here and stays.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import msgspec

from flightschool import __version__
from flightschool.environments.declared import Declaration
from flightschool.environments.foreign import ForeignContent
from flightschool.environments.packages.layout import (
    CODE,
    DECLARED,
    EPISODES,
    MANIFEST,
    PAGE,
    PARTS,
    REPORT,
    encode_part,
    state_file,
)
from flightschool.environments.packages.manifest import SCHEMA, Manifest, file_digest, manifest_text
from flightschool.environments.packages.places import FOLDERS, check_place, left_behind
from flightschool.environments.packages.telling import report_page, report_table
from flightschool.environments.registry import EnvironmentRecord, rebuild
from flightschool.environments.traced import TracedContent
from flightschool.errors import InputError
from flightschool.governance.withholding import ReducedEnvironment, served
from flightschool.protocols import Environment, Store
from flightschool.records import Json
from flightschool.store.files import write_whole
from flightschool.traces import StoredTraces, TraceRecord
from flightschool.traces.records import episode_json

__all__ = ["write_package"]

_ALWAYS = frozenset({"tasks", "tools", "references", "policy_text"})
"""Files that are there even where they hold nothing."""


def write_package(store: Store, record: EnvironmentRecord, folder: Path, *, episodes: bool = True) -> Manifest:
    """Write the package of a kept environment.

    Args:
        store: the workspace's store.
        record: what it keeps.
        folder: new, empty, or an older package of the same place, whose files are replaced.
        episodes: whether the recorded episodes go along, so that truth to them can be measured elsewhere too.

    Returns:
        The manifest, whose digest is the environment's.

    Raises:
        InputError: the folder holds something else, or was changed by hand.
        GateError: this form of the environment still holds tasks that are sealed here.
    """
    check_place(folder)
    environment = served(store, rebuild(store, record))
    files = _files(store, record, environment)
    traces = _traces(store, record) if episodes else None
    if traces is not None:
        files[EPISODES] = b"".join(episode_json(one) + b"\n" for one in StoredTraces(store, traces.name))
    manifest = Manifest(
        package=SCHEMA,
        name=record.name,
        digest=environment.digest,
        kind=record.kind,
        made_by=f"flightschool {__version__}",
        num_tasks=len(environment.tasks()),
        num_sealed=record.num_tasks - len(environment.tasks()) if isinstance(environment, ReducedEnvironment) else 0,
        code=_code_name(record.code),
        traces=record.traces,
        traces_format=traces.format if traces is not None else "",
        traces_digest=record.traces_digest,
        content=_short_fields(store, record, environment),
        files={name: file_digest(data) for name, data in sorted(files.items())},
    )
    _lay_down(folder, manifest, files)
    return manifest


def _traces(store: Store, record: EnvironmentRecord) -> TraceRecord | None:
    """The set that it was built from, if the workspace still has it as it was."""
    if not record.traces or not store.has("traces", record.traces):
        return None
    found = StoredTraces(store, record.traces).record
    return found if found.blob == record.traces_digest else None


def _plain(store: Store, record: EnvironmentRecord) -> dict[str, Json]:
    """The content as plain data, whole: fields at their defaults too."""
    kind = ForeignContent if record.kind == "foreign" else TracedContent
    built: dict[str, Json] = msgspec.to_builtins(msgspec.convert(json.loads(store.get_blob(record.content)), kind))
    return built


def _short_fields(store: Store, record: EnvironmentRecord, environment: Environment) -> dict[str, Json]:
    if record.kind == "environment":
        return {"strata": dict(environment.strata)}
    long = {part.field for part in PARTS}
    return {key: value for key, value in _plain(store, record).items() if key not in long}


def _files(store: Store, record: EnvironmentRecord, environment: Environment) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    if record.kind == "environment":  # its code makes the tasks; what is written of them is for people
        shown = {"tasks": environment.tasks(), "tools": environment.tools(), "policy_text": environment.policy_text}
        plain: dict[str, Json] = msgspec.to_builtins(shown)
    else:
        plain = _plain(store, record)
    for part in PARTS:
        if plain.get(part.field) or (part.field in plain and part.field in _ALWAYS):
            files[part.file] = encode_part(part, plain[part.field])
    for table, blob in record.state.items():
        files[state_file(table)] = store.get_blob(blob)
    if record.checks:
        declared = msgspec.convert(json.loads(store.get_blob(record.checks)), Declaration)
        files[DECLARED] = json.dumps(msgspec.to_builtins(declared), indent=1, ensure_ascii=False).encode() + b"\n"
    if record.code.endswith(".py"):
        files[_code_name(record.code)] = Path(record.code).read_bytes()
    told = report_table(record, environment)
    files[REPORT] = json.dumps(told, indent=1, ensure_ascii=False, allow_nan=False).encode() + b"\n"
    files[PAGE] = report_page(told).encode()
    return files


def _code_name(code: str) -> str:
    return f"{CODE}{Path(code).name}" if code.endswith(".py") else code


# ------------------------------------------------------------------------------------------------ on the disk


def _lay_down(folder: Path, manifest: Manifest, files: Mapping[str, bytes]) -> None:
    """Old files go, new ones come; until the last line the manifest says that it is incomplete."""
    old = left_behind(folder)
    named = dict.fromkeys(old, "") | manifest.files
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / MANIFEST, manifest_text(msgspec.structs.replace(manifest, complete=False, files=named)))
        for name in old:
            if name not in files:
                (folder / name).unlink(missing_ok=True)
        for name, data in files.items():
            (folder / name).parent.mkdir(exist_ok=True)
            write_whole(folder / name, data)
        for below in FOLDERS:
            if (folder / below).is_dir() and not any((folder / below).iterdir()):
                (folder / below).rmdir()
        write_whole(folder / MANIFEST, manifest_text(manifest))
    except OSError as error:
        raise InputError(
            f"the package cannot be written: {error.strerror}",
            where=str(error.filename or folder),
            expected="a folder that can be written",
            mend="mend its rights or give another place: --out DIR",
        ) from error
