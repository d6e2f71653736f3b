"""What lies where in a package, and how a part of the content becomes a file and comes back.

Long parts have a file of their own, in the form that reads best: a record a line where there are many, indented JSON
where there are few, plain text where it is prose. What is short stands in ``env.toml``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple
from urllib.parse import unquote

from flightschool.digest import canonical_json
from flightschool.errors import InputError
from flightschool.records import Json
from flightschool.traces.loading import parse_json

__all__ = [
    "CODE",
    "DECLARED",
    "EPISODES",
    "MANIFEST",
    "PAGE",
    "PARTS",
    "REPORT",
    "STATE",
    "decode_part",
    "duplicated",
    "encode_part",
    "is_package",
    "known_file",
    "parsed",
    "state_file",
    "state_table",
]

MANIFEST = "env.toml"
REPORT = "report.json"
PAGE = "report.md"
EPISODES = "episodes.jsonl"
DECLARED = "verifiers/declared.json"
STATE = "state/"
CODE = "code/"


class Part(NamedTuple):
    """A field of the content and its file."""

    field: str
    file: str
    shape: Literal["text", "lines", "json"]


PARTS = (
    Part("policy_text", "policy.txt", "text"),
    Part("tasks", "tasks.jsonl", "lines"),
    Part("waiting", "waiting.jsonl", "lines"),
    Part("scripts", "users.jsonl", "lines"),
    Part("tools", "tools.json", "json"),
    Part("programs", "programs.json", "json"),
    Part("recordings", "recordings.jsonl", "lines"),
    Part("subsets", "subsets.json", "json"),
    Part("references", "verifiers/references.jsonl", "lines"),
    Part("starts", "starts.json", "json"),
    Part("source", "source.json", "json"),
)
_NAMES = frozenset({*(part.file for part in PARTS), REPORT, PAGE, EPISODES, DECLARED})
_ODD = re.compile(r"[%/\\\x00-\x1f\x7f]|^\.")
_TABLE_FILE = re.compile(r"state/(?!\.)[^/\\\x00-\x1f\x7f]{1,250}\.json")
_CODE_FILE = re.compile(r"code/[^/\\.\x00-\x1f\x7f][^/\\\x00-\x1f\x7f]{0,200}\.py")


def is_package(folder: Path) -> bool:
    """Whether a folder says that it is one."""
    return (folder / MANIFEST).is_file()


def known_file(name: str) -> bool:
    """Whether a package may name such a file. None leads out of the folder."""
    return name in _NAMES or bool(_TABLE_FILE.fullmatch(name) or _CODE_FILE.fullmatch(name))


def state_file(table: str) -> str:
    """File of a table of the initial state; what no file name may hold is written as ``%XX``."""
    return f"{STATE}{_ODD.sub(lambda found: f'%{ord(found.group()):02X}', table)}.json"


def state_table(file: str) -> str:
    """The table that a file holds."""
    return unquote(file.removeprefix(STATE).removesuffix(".json"))


def encode_part(part: Part, value: Json) -> bytes:
    """A field of the content as a file. ``value`` is plain data."""
    if part.shape == "text":
        return str(value).encode()
    if part.shape == "lines":
        return b"".join(canonical_json(one) + b"\n" for one in value)
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False).encode() + b"\n"


def decode_part(part: Part, data: bytes, where: str) -> Json:
    """A file as plain data.

    Raises:
        InputError: it is not in the form of its part; names the line.
    """
    if part.shape == "text":
        return _text(data, where)
    if part.shape == "json":
        return parsed(data, where)
    lines = data.split(b"\n")
    return [parsed(line, f"{where}, line {number}") for number, line in enumerate(lines, 1) if line.strip()]


def parsed(data: bytes, where: str) -> Any:  # Any: JSON that a stranger may have written
    """JSON that can be kept. Raises ``InputError``."""
    return parse_json(_text(data, where), where)


def _text(data: bytes, where: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            "no UTF-8 text", where=where, expected="UTF-8", mend="write the package again where it came from"
        ) from error


def duplicated(names: Mapping[str, int]) -> str:
    """The first name that occurs more than once; empty: none does."""
    return next((name for name, count in names.items() if count > 1), "")
