"""JSON data as TOML text. The standard library reads TOML and does not write it; this is all that a task file needs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

from flightschool.records import Json

__all__ = ["toml_text"]

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def toml_text(table: Mapping[str, Json]) -> str:
    """TOML 1.0 that reads back as ``table``. Tables in lists below the top stand in line; None is refused.

    Raises:
        TypeError: a value that TOML has no kind for.
    """
    return "\n".join(_lines(table, ())).strip() + "\n"


def _lines(table: Mapping[str, Json], path: tuple[str, ...]) -> Iterator[str]:
    plain = {key: value for key, value in table.items() if not _is_section(value)}
    if path and (plain or not table):
        yield f"\n[{'.'.join(map(_key, path))}]"
    for key, value in plain.items():
        yield f"{_key(key)} = {_value(value)}"
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _lines(value, (*path, key))
        elif _is_section(value):
            for item in value:
                yield f"\n[[{'.'.join(map(_key, (*path, key)))}]]"
                yield from (f"{_key(name)} = {_value(inner)}" for name, inner in item.items())


def _is_section(value: Json) -> bool:
    return isinstance(value, Mapping) or (
        isinstance(value, list) and bool(value) and all(isinstance(item, Mapping) for item in value)
    )


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _string(key)


def _string(text: str) -> str:
    # JSON's escapes are TOML's, but TOML also wants DEL escaped.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: Json) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(key)} = {_value(item)}" for key, item in value.items()) + "}"
    raise TypeError(f"TOML has no kind for {value!r}")
