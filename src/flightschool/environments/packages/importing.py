"""A package becomes an environment of a workspace: all of it is held against its digests before anything is kept.

A package may come from anywhere. Nothing in it leads out of its folder, and nothing runs before it is trusted by name:
its code, commands and servers that it would ask, and keys that these would be given.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from flightschool.digest import canonical_json
from flightschool.digest import digest as content_digest
from flightschool.environments.built import LeftOut
from flightschool.environments.declared import Declaration
from flightschool.environments.examining import Examination
from flightschool.environments.fidelity import Fidelity
from flightschool.environments.foreign import ForeignContent
from flightschool.environments.from_traces import open_code
from flightschool.environments.inventory import InventoryEntry
from flightschool.environments.packages.layout import (
    CODE,
    DECLARED,
    EPISODES,
    MANIFEST,
    PARTS,
    REPORT,
    STATE,
    decode_part,
    duplicated,
    parsed,
    state_table,
)
from flightschool.environments.packages.manifest import Manifest, file_digest, read_file, read_manifest
from flightschool.environments.packages.places import check_place, default_place, recorded_place, remove_package
from flightschool.environments.packages.trust import demands
from flightschool.environments.packages.writing import write_package
from flightschool.environments.registry import EnvironmentRecord, check_environment_name, kind_of, put_record
from flightschool.environments.traced import RenamedEnvironment, TracedContent
from flightschool.errors import FlightschoolError, GateError, InputError
from flightschool.governance.withholding import require_not_withdrawn
from flightschool.protocols import Store
from flightschool.records import Json, Record, Reference
from flightschool.traces import RecordedEpisode, StoredTraces, TraceSet, save_traces
from flightschool.verification import CheckVerifier

__all__ = ["PackageContent", "import_package", "read_package"]

R = TypeVar("R")


class Report(Record, frozen=True, kw_only=True):
    """What of the report is kept with an environment."""

    fidelity: Fidelity
    inventory: tuple[InventoryEntry, ...]
    left_out: tuple[LeftOut, ...]
    examination: Examination | None


class PackageContent(msgspec.Struct, frozen=True, kw_only=True):
    """A package that was read and found whole; nothing of it has run."""

    folder: Path
    manifest: Manifest
    content: TracedContent | ForeignContent | None
    """None: code makes the environment."""
    declared: Declaration | None
    tables: dict[str, bytes]
    code: bytes
    """Source of the tool functions, where it lies in the package."""
    traces: TraceSet | None
    report: Report

    @property
    def demands(self) -> tuple[str, ...]:
        """What would run or be asked, so that somebody must trust it."""
        return demands(self.manifest.code, self.content, self.declared)


def read_package(folder: Path) -> PackageContent:
    """Read a package and hold each file, and the environment, against its digest.

    Raises:
        InputError: what is missing, changed or broken, by its file.
    """
    manifest = read_manifest(folder)
    if not manifest.complete:
        raise InputError(
            "the package was not written to its end",
            where=str(folder / MANIFEST),
            expected="complete = true",
            mend="write it again where it came from: flightschool env export E --out DIR",
        )
    files = {name: _verified(folder, name, wanted) for name, wanted in manifest.files.items()}
    found = PackageContent(
        folder=folder,
        manifest=manifest,
        content=_content(folder, manifest, files),
        declared=_kept(files, DECLARED, folder, Declaration) if DECLARED in files else None,
        tables={state_table(name): data for name, data in files.items() if name.startswith(STATE)},
        code=_code(folder, manifest, files),
        traces=_traces(folder, manifest, files),
        report=_report(folder, files),
    )
    _refuse_another(found)
    return found


def import_package(
    store: Store, root: Path, folder: Path, *, name: str = "", trusted: bool = False
) -> tuple[EnvironmentRecord, PackageContent]:
    """Keep the environment of a package in a workspace, with a package of its own there.

    Args:
        store: the workspace's store.
        root: folder of the workspace.
        folder: the package.
        name: name in the workspace; the package's own by default. It is not part of the digest.
        trusted: whether its code may run and the servers that it names may be asked.

    Raises:
        InputError: the package is not whole, its name is taken by something else, or nobody trusts what it would run.
        GateError: tasks of it were sealed, here or where it was written.
    """
    found = read_package(folder)
    name = name or found.manifest.name
    check_environment_name(name)
    require_not_withdrawn(store, found.manifest.digest)
    _refuse_sealed(found)
    if found.demands and not trusted:
        raise InputError(
            f"the package would run or ask: {'; '.join(found.demands[:8])}",
            where=str(folder),
            expected="somebody who has looked at that and trusts it",
            mend="look at it, then import with --trust",
        )
    if found.manifest.kind == "environment":
        _refuse_other_code(found)
    place = default_place(root, name)
    same = place.resolve() == folder.resolve()
    if not same:
        check_place(place)
    traces = _free_name(store, found, name)
    record = msgspec.structs.replace(_record(store, found, name), traces=traces, package=recorded_place(root, place))
    return _kept_whole(store, found, record, place), found


# ------------------------------------------------------------------------------------------------ reading


def _verified(folder: Path, name: str, wanted: str) -> bytes:
    data = read_file(folder, name)
    if file_digest(data) != wanted:
        raise InputError(
            f"{name} is not as it was written",
            where=str(folder / name),
            expected=f"a file with the digest that {MANIFEST} names: {wanted[:19]}…",
            mend="get the package again; checks are changed with env build --checks, or drafted and signed",
        )
    return data


def _content(folder: Path, manifest: Manifest, files: dict[str, bytes]) -> TracedContent | ForeignContent | None:
    if manifest.kind == "environment":
        return None
    plain: dict[str, Json] = dict(manifest.content)
    for part in PARTS:
        if part.file in files:
            plain[part.field] = decode_part(part, files[part.file], str(folder / part.file))
    kind: Any = ForeignContent if manifest.kind == "foreign" else TracedContent
    try:
        made: TracedContent | ForeignContent = msgspec.convert(plain, kind)
    except (msgspec.ValidationError, RecursionError) as error:
        raise _broken(folder, str(error)) from error
    _refuse_odd(folder, made)
    return made


def _refuse_odd(folder: Path, content: TracedContent | ForeignContent) -> None:
    """Ids that stand twice, tasks and references that do not belong together, checks that cannot judge."""
    waiting = content.waiting if isinstance(content, TracedContent) else ()
    tasks = [task.id for task in content.tasks]
    for what, names in (
        ("task", [*tasks, *(one.task.id for one in waiting)]),
        ("reference", [one.task_id for one in content.references]),
        ("tool", [tool.name for tool in content.tools]),
    ):
        twice = duplicated(Counter(names))
        if twice:
            raise _broken(folder, f"{what} {twice!r} stands twice")
    alone = sorted({one.task_id for one in content.references} ^ set(tasks))
    if alone:
        raise _broken(folder, f"{alone[0]!r} has a task without a reference, or a reference without a task")
    for reference in content.references:
        _refuse_unusable(folder, reference)


def _refuse_unusable(folder: Path, reference: Reference) -> None:
    try:
        CheckVerifier(reference.checks)
    except FlightschoolError as error:
        raise _broken(folder, f"task {reference.task_id!r} cannot be judged: {error.what}") from error


def _kept(files: dict[str, bytes], name: str, folder: Path, kind: type[R]) -> R:
    try:
        return msgspec.convert(parsed(files[name], str(folder / name)), kind)
    except (msgspec.ValidationError, RecursionError) as error:
        raise _broken(folder / name, str(error)) from error


def _report(folder: Path, files: dict[str, bytes]) -> Report:
    if REPORT not in files:
        raise _broken(folder, f"{REPORT} is missing")
    told = parsed(files[REPORT], str(folder / REPORT))
    if not isinstance(told, dict):
        raise _broken(folder / REPORT, "no object")
    try:
        return msgspec.convert({key: told.get(key) for key in Report.__struct_fields__}, Report)
    except (msgspec.ValidationError, RecursionError) as error:
        raise _broken(folder / REPORT, str(error)) from error


def _code(folder: Path, manifest: Manifest, files: dict[str, bytes]) -> bytes:
    if not manifest.code.startswith(CODE):
        return b""
    if manifest.code not in files:
        raise _broken(folder, f"its code {manifest.code!r} is missing")
    return files[manifest.code]


def _traces(folder: Path, manifest: Manifest, files: dict[str, bytes]) -> TraceSet | None:
    if EPISODES not in files:
        return None
    episodes = []
    for number, line in enumerate(files[EPISODES].split(b"\n"), 1):
        if line.strip():
            where = f"{folder / EPISODES}, line {number}"
            try:
                episodes.append(msgspec.convert(parsed(line, where), RecordedEpisode))
            except (msgspec.ValidationError, RecursionError) as error:
                raise _broken(Path(where), str(error)) from error
    found = TraceSet(format=manifest.traces_format, episodes=tuple(episodes))
    if found.digest != manifest.traces_digest:
        raise _broken(folder / EPISODES, "other episodes than it was built from")
    return found


def _refuse_another(found: PackageContent) -> None:
    """The content, its state and its code must give the digest that the package has."""
    manifest, content, folder = found.manifest, found.content, found.folder
    if content is None:
        return
    if len(content.tasks) != manifest.num_tasks:
        raise _broken(folder / MANIFEST, f"{manifest.num_tasks} tasks are named, {len(content.tasks)} are there")
    if isinstance(content, TracedContent):
        tables = {name: parsed(data, str(folder / f"state/{name}.json")) for name, data in found.tables.items()}
        needed = bool(content.state_digest and (content.code or content.programs))
        if needed != bool(tables) or (tables and content_digest(tables) != content.state_digest):
            raise _broken(folder / "state", "another initial state than the environment was made of")
        if bool(manifest.code) != bool(content.code) or manifest.kind != kind_of(content):
            raise _broken(folder / MANIFEST, f"its kind is no {manifest.kind!r}")
        if found.code and file_digest(found.code) != content.code_digest:
            raise _broken(folder / manifest.code, "other code than the environment was made of")
    digest = content.digest if isinstance(content, ForeignContent) else content_digest(content)
    if found.declared is not None:
        digest = content_digest({"inner": digest, "checks": found.declared})
    if digest != manifest.digest:
        raise InputError(
            "the files do not make the environment that the package names",
            where=str(folder / MANIFEST),
            expected=manifest.digest,
            mend="get the package again where it came from",
        )


def _refuse_other_code(found: PackageContent) -> None:
    """A whole environment's digest is known when its code has run."""
    manifest = found.manifest
    code = str(found.folder / manifest.code) if found.code else manifest.code
    strata = manifest.content.get("strata")
    if not isinstance(strata, dict) or not all(isinstance(one, float | int) for one in strata.values()):
        raise _broken(found.folder / MANIFEST, "no shares of traffic: content.strata")
    made = RenamedEnvironment(manifest.name, open_code(code), strata).digest
    if found.declared is not None:
        made = content_digest({"inner": made, "checks": found.declared})
    if made != manifest.digest:
        raise InputError(
            "the code does not make the environment that the package names",
            where=code,
            expected=manifest.digest,
            mend="get the package again, and the versions of what its code imports",
        )


def _refuse_sealed(found: PackageContent) -> None:
    if found.manifest.num_sealed:
        raise GateError(
            f"{found.manifest.num_sealed} tasks are sealed where it was written, and its code would make them again",
            where=str(found.folder / MANIFEST),
            expected="an environment of which nothing is sealed, or one whose tasks are data",
            mend="measure and train where the holdout is sealed",
        )


def _broken(where: Path, what: str) -> InputError:
    return InputError(
        f"not a whole package: {what}",
        where=str(where),
        expected="a package as flightschool writes it",
        mend="write it again where it came from: flightschool env export E --out DIR",
    )


# ------------------------------------------------------------------------------------------------ keeping


def _kept_whole(store: Store, found: PackageContent, record: EnvironmentRecord, place: Path) -> EnvironmentRecord:
    """Recordings, package and record, or, if anything fails, none of them."""
    new_traces = found.traces is not None and not store.has("traces", record.traces)
    new_place = not place.exists()
    try:
        if found.traces is not None:
            save_traces(store, record.traces, found.traces)
        write_package(store, record, place, episodes=found.traces is not None)
        if found.code:  # until now it was read where it came from
            record = msgspec.structs.replace(record, code=str(place.resolve() / found.manifest.code))
        put_record(store, record)
    except BaseException:
        if new_traces:
            store.delete("traces", record.traces)
        if new_place:
            remove_package(place)
        raise
    return record


def _record(store: Store, found: PackageContent, name: str) -> EnvironmentRecord:
    manifest, content, report = found.manifest, found.content, found.report
    code = str(found.folder.resolve() / manifest.code) if found.code else manifest.code
    plain: dict[str, Any] = {
        "name": name,
        "digest": manifest.digest,
        "kind": manifest.kind,
        "num_tasks": manifest.num_tasks,
        "num_tools": len(content.tools) if content is not None else len(report.inventory),
        "strata": dict(content.strata) if content is not None else manifest.content["strata"],
        "content": "" if content is None else store.put_blob(canonical_json(content)),
        "state": {
            table: store.put_blob(canonical_json(json.loads(data))) for table, data in sorted(found.tables.items())
        },
        "code": code,
        "checks": "" if found.declared is None else store.put_blob(canonical_json(found.declared)),
        "traces_digest": manifest.traces_digest,
        "traces": manifest.traces,
    }
    return msgspec.convert({**plain, **msgspec.to_builtins(report)}, EnvironmentRecord)


def _free_name(store: Store, found: PackageContent, name: str) -> str:
    """A name for the recordings: their own, unless other ones have it here."""
    wanted = found.manifest.traces
    if found.traces is None or not wanted:
        return wanted
    for candidate in (wanted, f"{name}-traces"):
        if not store.has("traces", candidate) or StoredTraces(store, candidate).record.blob == found.traces.digest:
            return candidate
    raise InputError(
        f"there are other recordings named {wanted!r} and {name}-traces",
        where="the workspace",
        expected="a free name",
        mend="import with another --name",
    )
