"""Checks declared in TOML::

    [[check]]
    id = "refunded"
    kind = "functional"          # functional | constraint | process
    rule = "sql"                 # see ``kinds``
    query = "select status from orders where id = 'A1'"
    expected = [["refunded"]]

Beside ``id``, ``kind``, ``rule``, ``weight`` and ``author``, the keys of a check are those of its rule.
``expected_file`` (and ``files_from``, ``reference_file``) take their value from a file beside the TOML file, so that
it enters the digest. Rules inside rules (``members`` of a panel, ``state`` of a milestone) are tables of the same
form, with ``rule``.
"""

from __future__ import annotations

import difflib
import json
import re
import tomllib
import typing
from collections.abc import Iterator, Mapping
from datetime import date, datetime, time
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec

from flightschool.config import load_toml
from flightschool.errors import ConfigError, FlightschoolError
from flightschool.records import CheckSpec, FileCheck, Json
from flightschool.verification.kinds import KINDS
from flightschool.verification.verifier import CheckVerifier

__all__ = ["RULES", "load_checks", "parse_checks"]

_COMMON = ("id", "kind", "rule", "weight", "author")
_FILES = {"expected_file": "expected", "reference_file": "reference", "files_from": "files"}
_MOST_BYTES = 16 << 20
RULES: Mapping[str, type[msgspec.Struct]] = {str(kind.__struct_config__.tag): kind for kind in KINDS}
"""Name of a rule in TOML → its record."""


def load_checks(path: Path) -> tuple[CheckSpec, ...]:
    """The checks of a TOML file, each of them usable.

    Raises:
        ConfigError: the file cannot be read, or the first thing in it that is wrong: an unknown key (with the nearest
            known one), a missing or mistyped value, a check that cannot pass and fail.
    """
    return parse_checks(load_toml(path), folder=path.parent, where=str(path))


def parse_checks(table: Mapping[str, Any], *, folder: Path, where: str) -> tuple[CheckSpec, ...]:
    """The checks of a table that was read from TOML (see ``load_checks``)."""
    _refuse_unknown(table, ("check",), where)
    rows = table.get("check")
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise ConfigError(
            "no checks are declared", where=where, expected="at least one [[check]] table", mend="declare one"
        )
    specs = tuple(_spec(row, folder, f"{where}: check {row.get('id', number)}") for number, row in enumerate(rows, 1))
    try:
        CheckVerifier(specs)
    except FlightschoolError as error:
        raise ConfigError(
            error.what, where=f"{where}: {error.where}", expected=error.expected, mend=error.mend
        ) from error
    return specs


def _spec(row: dict[str, Any], folder: Path, where: str) -> CheckSpec:
    common: dict[str, Any] = {key: row[key] for key in ("id", "kind", "weight", "author") if key in row}
    for key in ("id", "kind"):
        if key not in common:
            raise ConfigError(f"{key!r} is missing", where=where, expected=f"a check with {key}", mend=f"add {key}")
    if common["id"] == "":
        raise ConfigError("the id is empty", where=where, expected="a name", mend="name the check")
    rule = _rule({key: value for key, value in row.items() if key not in common}, folder, where, _COMMON)
    return _convert({**common, "rule": rule}, CheckSpec, where)


def _rule(row: dict[str, Any], folder: Path, where: str, beside: tuple[str, ...] = ("rule",)) -> dict[str, Any]:
    """A rule's table as msgspec reads it: with ``type``, files read in, rules inside it likewise."""
    name = row.get("rule")
    if not isinstance(name, str) or name not in RULES:
        near = difflib.get_close_matches(str(name), list(RULES), n=1)
        raise ConfigError(
            f"unknown rule {name!r}" if name is not None else "'rule' is missing",
            where=where,
            expected=", ".join(sorted(RULES)),
            mend=f"did you mean {near[0]!r}?" if near else "name one of these",
        )
    kind = RULES[name]
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    from_files = [key for key, target in _FILES.items() if target in fields]
    _refuse_unknown(row, (*beside, *fields, *from_files), where)
    made: dict[str, Any] = {"type": name}
    for key, value in row.items():
        if key in _FILES and key not in fields:
            made[_FILES[key]] = _from_file(kind, key, row, folder, where)
        elif key != "rule":
            _known_below(value, fields[key].type, f"{where}: {key}")
            made[key] = _plain(_nested(value, folder, where))
    return made


def _nested(value: Json, folder: Path, where: str) -> Json:
    """Rules inside a value: of members of a panel under ``rule``, of milestones and minefields under ``state``."""
    if isinstance(value, list):
        return [_nested(item, folder, where) for item in value]
    if isinstance(value, dict):
        inner = {key: _rule(v, folder, f"{where}: {key}") for key, v in value.items() if _is_rule(key, v)}
        return {**value, **inner}
    return value


def _is_rule(key: str, value: Json) -> bool:
    return key in ("rule", "state") and isinstance(value, dict) and "rule" in value


def _known_below(value: Json, annotation: Any, where: str) -> None:
    """Refuse unknown keys of records inside a rule: comparisons, milestones, minefields, members."""
    record = next(_records_in(annotation), None)
    if record is None:
        return
    for row in value if isinstance(value, list) else [value]:
        if isinstance(row, dict):
            _refuse_unknown(row, tuple(field.name for field in msgspec.structs.fields(record)), where)


def _records_in(annotation: Any) -> Iterator[type]:
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        yield annotation
    for inner in typing.get_args(annotation):
        yield from _records_in(inner)


def _from_file(kind: type, key: str, row: Mapping[str, Any], folder: Path, where: str) -> Json:
    target = _FILES[key]
    if target in row:
        raise ConfigError(f"both {key!r} and {target!r}", where=where, expected="one of them", mend="remove one")
    name = row[key]
    if key == "files_from" and isinstance(name, dict):
        return {place: _text(folder, source, where) for place, source in name.items()}
    text = _text(folder, name, where)
    as_text = target == "reference" or (kind is FileCheck and row.get("format", "text") in ("text", "sha256"))
    if as_text:
        return text
    try:
        return tomllib.loads(text) if str(name).endswith(".toml") else json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"{name} cannot be read: {error}", where=where, expected="JSON, or TOML in a .toml file", mend="correct it"
        ) from error


def _text(folder: Path, name: Json, where: str) -> str:
    try:
        path = folder / str(name)
        if path.stat().st_size > _MOST_BYTES:
            raise OSError(f"more than {_MOST_BYTES} bytes")
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"file {name!r} cannot be read: {error}",
            where=where,
            expected="a UTF-8 file, named from the folder of the declaration",
            mend="check the name",
        ) from error


def _plain(value: Json) -> Json:
    """TOML has dates; records have texts of ISO 8601."""
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return {key: _plain(inner) for key, inner in value.items()} if isinstance(value, dict) else value


def _refuse_unknown(row: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    for key in row:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            raise ConfigError(
                f"unknown key {key!r}",
                where=where,
                expected=", ".join(sorted(set(known))),
                mend=f"did you mean {near[0]!r}?" if near else "remove it",
            )


def _convert(table: dict[str, Any], kind: type[CheckSpec], where: str) -> CheckSpec:
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        place = re.search(r"at `\$\.?(.*)`$", str(error))
        path = place.group(1) if place else ""
        told = f"{where}: {path.removeprefix('rule.')}" if path else where
        raise (_no_such_word(table, path, told) or _wrong_value(error, told)) from error


def _wrong_value(error: msgspec.ValidationError, where: str) -> ConfigError:
    return ConfigError(
        f"wrong value: {error}", where=where, expected="what the message names", mend="correct the value"
    )


def _no_such_word(table: dict[str, Any], path: str, where: str) -> ConfigError | None:
    """The error of a text where one of a few words belongs; None: the error is another."""
    value, words = _at(table, path)
    if not isinstance(value, str) or not words or value in words:
        return None
    near = difflib.get_close_matches(value, words, n=1)
    return ConfigError(
        f"unknown value {value!r}",
        where=where,
        expected=f"one of {', '.join(words)}",
        mend=f"did you mean {near[0]!r}?" if near else "choose one of these",
    )


def _at(table: dict[str, Any], path: str) -> tuple[Json, list[str]]:
    """The value at a path of the table (``rule.members[0].rule.order``), and the words that may stand there."""
    value: Json = table
    annotation: Any = CheckSpec
    for name, index in re.findall(r"(\w+)|\[(\d+)\]", path.replace("[...]", "")):
        if index:
            value = value[int(index)]
            continue
        # a rule is one of many records, and says itself which
        record = RULES.get(value.get("type", "")) or next(_records_in(annotation))
        annotation = next(field.type for field in msgspec.structs.fields(record) if field.name == name)
        value = value.get(name)
    return value, list(_words(annotation))


def _words(annotation: Any) -> Iterator[str]:
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        yield from (str(member.value) for member in annotation)
    for inner in typing.get_args(annotation):
        yield from (inner,) if isinstance(inner, str) else _words(inner)
