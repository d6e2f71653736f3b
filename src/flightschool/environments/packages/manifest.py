"""``env.toml``: what a package is, and the digest of each of its files."""

from __future__ import annotations

import hashlib
import os
import stat
import tomllib
from pathlib import Path
from typing import Literal

import msgspec

from flightschool.environments.packages.layout import MANIFEST, known_file
from flightschool.errors import InputError
from flightschool.records import Json, Record

__all__ = ["SCHEMA", "Manifest", "file_digest", "manifest_text", "read_file", "read_manifest"]

SCHEMA = 1
_MOST_MANIFEST = 16 * 1024 * 1024
MOST_BYTES = 4 * 1024**3
"""Largest file of a package, in bytes."""
_CHUNK = 1 << 20

_HEAD = """\
# A flightschool environment. Read what you like; what is changed by hand is refused, since the digests below are held
# against every file. Into another workspace: flightschool env import FOLDER
"""


class Manifest(Record, frozen=True, kw_only=True):
    """The file ``env.toml``."""

    package: int
    """Version of the layout."""
    complete: bool = True
    """False while it is being written."""
    name: str
    digest: str
    """Of the environment: the same wherever it is imported."""
    kind: Literal["recordings", "functions", "mixed", "environment", "foreign"]
    made_by: str = ""
    num_tasks: int
    num_sealed: int = 0
    """Tasks that code makes and that are sealed where the package was written."""
    code: str = ""
    """File of the package, or the dotted name of a module that must be installed where it is used."""
    traces: str = ""
    """Name of the set of traces that it was built from."""
    traces_format: str = ""
    traces_digest: str = ""
    content: dict[str, Json] = msgspec.field(default_factory=dict)
    """Short fields of the content."""
    files: dict[str, str] = msgspec.field(default_factory=dict)
    """File → digest of its bytes."""


def manifest_text(manifest: Manifest) -> bytes:
    """``env.toml`` of a manifest."""
    from flightschool.environments.terminal.toml_text import toml_text  # a heavy package for one small function

    table = {key: value for key, value in msgspec.to_builtins(manifest).items() if value not in ("", {})}
    return (_HEAD + toml_text(table)).encode()


def file_digest(data: bytes) -> str:
    """Digest of a file's bytes."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a package, whatever state its files are in.

    Raises:
        InputError: the folder is no package, or a file name in it leads elsewhere.
    """
    where = str(folder / MANIFEST)
    try:
        table = tomllib.loads(read_file(folder, MANIFEST, most=_MOST_MANIFEST).decode("utf-8"))
        version = table.get("package")
        if isinstance(version, int) and version != SCHEMA:
            raise InputError(
                f"a package of another version ({version})",
                where=where,
                expected=f"package = {SCHEMA}",
                mend="use the flightschool version that wrote it",
            )
        manifest = msgspec.convert(table, Manifest)
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError, RecursionError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"not the manifest of an environment: {type(error).__name__}: {error}",
            where=where,
            expected="env.toml as flightschool writes it",
            mend="write the package again where it came from: flightschool env export E --out DIR",
        ) from error
    for name in manifest.files:
        if not known_file(name):
            raise InputError(
                f"names a file that no package has: {name!r}",
                where=where,
                expected="the files of a package, none of them outside it",
                mend="do not trust this folder; write the package again where it came from",
            )
    return manifest


def read_file(folder: Path, name: str, *, most: int = MOST_BYTES) -> bytes:
    """The bytes of a file of a package. No link is followed below the folder, and nothing but a plain file is read.

    Raises:
        InputError: it is missing, a link, no plain file, too large, or cannot be read.
    """
    opened: list[int] = []
    try:
        place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        opened.append(place)
        *above, last = name.split("/")
        for step in above:
            place = os.open(step, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=place)
            opened.append(place)
        file = os.open(last, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=place)
        opened.append(file)
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode) or status.st_size > most:
            raise _unreadable(folder, name, f"no plain file of at most {most} bytes")
        return _all(file)
    except OSError as error:
        what = "a link, or not what its name says" if error.errno in (40, 20) else str(error.strerror)  # ELOOP, ENOTDIR
        raise _unreadable(folder, name, what) from error
    finally:
        for one in opened:
            os.close(one)


def _all(file: int) -> bytes:
    pieces = []
    while piece := os.read(file, _CHUNK):
        pieces.append(piece)
    return b"".join(pieces)


def _unreadable(folder: Path, name: str, why: str) -> InputError:
    return InputError(
        f"a file of the package cannot be read: {why}",
        where=str(folder / name),
        expected="a plain file inside the folder",
        mend="write the package again where it came from: flightschool env export E --out DIR",
    )
