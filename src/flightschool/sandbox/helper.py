"""The native helper: launcher and agent in C, compiled once into the user's cache where a compiler is there.

It does what ``node`` does, several times as fast; without it ``node`` does it, and ``FLIGHTSCHOOL_SANDBOX_HELPER=off``
keeps to that. A build is named by the digest of what it was made from, put in place whole or not at all, and run only
if it belongs to the user and nobody else may write to it.
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
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from flightschool.sandbox.node.syscalls import NUMBERS

__all__ = ["SWITCH", "Helper", "compile_c", "compiler", "find_helper"]

SWITCH: Final = "FLIGHTSCHOOL_SANDBOX_HELPER"
SOURCES: Final = Path(__file__).parent / "native_helper"
PROGRAM: Final = "sandbox-init"
_COMPILERS: Final = ("cc", "gcc", "clang")
_FLAGS: Final = ("-std=gnu11", "-O2", "-Wall", "-fstack-protector-strong", "-D_FORTIFY_SOURCE=2")
_LINKING: Final = (("-static",), ())
"""Static where a static C library is installed: nothing but the kernel is needed then."""
_COMPILE_S: Final = 120.0
_NO_CONTROL: Final = 1
"""What it ends with when its standard input is no socket: the proof that this machine runs it."""


@dataclass(frozen=True)
class Helper:
    """What was found."""

    program: str
    """Path of the program; empty where there is none."""
    found: str
    """In a few words: which, or why not."""


def find_helper() -> Helper:
    """The helper, compiled on the first call. Asked again, it looks nothing up unless user or settings changed."""
    places = tuple(
        os.environ.get(name, "") for name in (SWITCH, "FLIGHTSCHOOL_CACHE", "XDG_CACHE_HOME", "HOME", "PATH")
    )
    return _found(os.geteuid(), places)


@lru_cache(maxsize=8)
def _found(user: int, settings: tuple[str, ...]) -> Helper:
    if settings[0].lower() in ("off", "0", "no"):
        return Helper("", f"switched off by {SWITCH}")
    if not NUMBERS:
        return Helper("", f"machine {platform.machine()} is not known to it")
    name = f"{PROGRAM}-{_digest()}"
    folders = _cache_folders(user)
    for folder in folders:
        if _is_ours(folder / name, user):
            return Helper(str(folder / name), f"native helper {name[-8:]}")
    program = compiler()
    if program is None:
        return Helper("", "no C compiler (cc, gcc, clang) to build the native helper with")
    said = "no folder for it"
    for folder in folders:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not _is_ours(folder, user):
                continue
            said = _build(program, folder / name)
        except OSError as error:
            said = str(error)
            continue
        if not said:
            return Helper(str(folder / name), f"native helper {name[-8:]}")
    return Helper("", f"the native helper could not be built: {said}")


def _digest() -> str:
    known = hashlib.sha256(repr((platform.machine(), _FLAGS, _LINKING)).encode())
    for path in sorted([*SOURCES.glob("*.c"), *SOURCES.glob("*.h")]):
        known.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return known.hexdigest()[:32]


def _cache_folders(user: int) -> list[Path]:
    """Best first; the last is for users without a home of their own."""
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


def compiler() -> str | None:
    """A C compiler on PATH."""
    return next((found for name in _COMPILERS if (found := shutil.which(name))), None)


def compile_c(program: str, sources: list[Path], target: Path) -> str:
    """Compile sources to ``target``, statically where that works. Returns what the compiler said if it failed."""
    said = ""
    environ = {name: os.environ[name] for name in ("PATH", "TMPDIR") if name in os.environ}
    for linking in _LINKING:
        command = [program, *_FLAGS, *linking, "-I", str(SOURCES), "-o", str(target), *map(str, sources), "-lm"]
        try:
            done = subprocess.run(
                command, env=environ, stdin=subprocess.DEVNULL, capture_output=True, timeout=_COMPILE_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        if done.returncode == 0:
            return ""
        said = done.stderr.decode(errors="replace").strip()[-500:]
    return said or "the compiler failed"


def _build(program: str, target: Path) -> str:
    """Beside its place, tried, and then moved there. Returns why not."""
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".building-") as folder:
        made = Path(folder) / PROGRAM
        said = compile_c(program, sorted(SOURCES.glob("*.c")), made)
        if said:
            return said
        made.chmod(0o700)
        try:
            tried = subprocess.run([made], stdin=subprocess.DEVNULL, env={}, timeout=10, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"it does not run here: {error}"
        if tried.returncode != _NO_CONTROL:
            return f"it does not run here: ended with {tried.returncode}"
        made.replace(target)
    return ""
