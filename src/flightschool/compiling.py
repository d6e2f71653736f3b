"""C sources of this package, compiled once into the user's cache where a compiler is there.

A build is named by the digest of what it was made from, put in place whole or not at all, and used only if it belongs
to the user and nobody else may write to it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

__all__ = ["NO_COMPILER", "Build", "build_places", "compilers", "digest_of_sources", "find_build", "run_compiler"]

Build = Callable[[Path], str]
"""Makes the file that it is given, tried and ready for use; returns why it could not, or an empty text."""

_COMPILERS: Final = ("cc", "gcc", "clang")
_COMPILE_S: Final = 120.0
NO_COMPILER: Final = f"no C compiler ({', '.join(_COMPILERS)})"


def compilers() -> list[str]:
    """The C compilers on PATH, best first."""
    return [found for name in _COMPILERS if (found := shutil.which(name))]


def run_compiler(command: Sequence[str]) -> str:
    """Run it; returns what it said if it failed, or an empty text."""
    environ = {name: os.environ[name] for name in ("PATH", "TMPDIR") if name in os.environ}
    try:
        done = subprocess.run(
            command, env=environ, stdin=subprocess.DEVNULL, capture_output=True, timeout=_COMPILE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode == 0:
        return ""
    return done.stderr.decode(errors="replace").strip()[-500:] or "the compiler failed"


def digest_of_sources(sources: Sequence[Path], *choices: object) -> str:
    """Of the files, the machine and whatever else was chosen."""
    known = hashlib.sha256(repr((platform.machine(), *choices)).encode())
    for path in sorted(sources):
        known.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return known.hexdigest()[:32]


def find_build(name: str, user: int, build: Build) -> tuple[Path | None, str]:
    """The build of this name in one of the user's caches, made in the first that takes it; or why there is none.

    Args:
        name: with the digest of what it is made from.
        user: who must own it.
        build: makes it, beside its place.
    """
    folders = build_places(user)
    for folder in folders:
        if _is_ours(folder / name, user):
            return folder / name, ""
    if not compilers():
        return None, NO_COMPILER
    said = "no folder for it"
    for folder in folders:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not _is_ours(folder, user):
                continue
            said = _in_place(folder / name, build)
        except OSError as error:
            said = str(error)
            continue
        if not said:
            return folder / name, ""
    return None, said


def _in_place(target: Path, build: Build) -> str:
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".building-") as folder:
        made = Path(folder) / target.name
        said = build(made)
        if not said:
            made.replace(target)
        return said


def build_places(user: int) -> list[Path]:
    """Folders for builds, best first; the last is for users without a home of their own."""
    chosen = os.environ.get("FLIGHTSCHOOL_CACHE")
    if chosen:
        return [Path(chosen) / "native"]
    places = [Path(tempfile.gettempdir()) / f"flightschool-{user}" / "native"]
    with contextlib.suppress(RuntimeError):  # no home folder at all
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        places.insert(0, root / "flightschool" / "native")
    return places


def _is_ours(path: Path, user: int) -> bool:
    """It and the folder it lies in belong to the user, and nobody else may write to them; no links."""
    for one in (path, path.parent):
        try:
            found = one.lstat()
        except OSError:
            return False
        if found.st_uid != user or found.st_mode & 0o022 or stat.S_ISLNK(found.st_mode):
            return False
    return True
