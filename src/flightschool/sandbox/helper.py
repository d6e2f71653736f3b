"""The native helper: launcher and agent in C, compiled once into the user's cache where a compiler is there.

It does what ``node`` does, several times as fast; without it ``node`` does it, and ``FLIGHTSCHOOL_SANDBOX_HELPER=off``
keeps to that (see ``compiling`` for how a build is named, kept and trusted).
"""

from __future__ import annotations

import os
import platform
import subprocess
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from flightschool.compiling import compilers, digest_of_sources, find_build, run_compiler
from flightschool.sandbox.node.syscalls import NUMBERS

__all__ = ["SWITCH", "Helper", "compile_c", "compiler", "find_helper"]

SWITCH: Final = "FLIGHTSCHOOL_SANDBOX_HELPER"
SOURCES: Final = Path(__file__).parent / "native_helper"
PROGRAM: Final = "sandbox-init"
_FLAGS: Final = ("-std=gnu11", "-O2", "-Wall", "-fstack-protector-strong", "-D_FORTIFY_SOURCE=2")
_LINKING: Final = (("-static",), ())
"""Static where a static C library is installed: nothing but the kernel is needed then."""
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
    digest = digest_of_sources([*SOURCES.glob("*.c"), *SOURCES.glob("*.h")], _FLAGS, _LINKING)
    program, said = find_build(f"{PROGRAM}-{digest}", user, _build)
    if program is not None:
        return Helper(str(program), f"native helper {digest[-8:]}")
    return Helper("", f"the native helper could not be built: {said}")


def compiler() -> str | None:
    """A C compiler on PATH."""
    return next(iter(compilers()), None)


def compile_c(program: str, sources: list[Path], target: Path) -> str:
    """Compile sources to ``target``, statically where that works. Returns what the compiler said if it failed."""
    said = ""
    for linking in _LINKING:
        said = run_compiler(
            [program, *_FLAGS, *linking, "-I", str(SOURCES), "-o", str(target), *map(str, sources), "-lm"]
        )
        if not said:
            return ""
    return said


def _build(target: Path) -> str:
    """Compiled, and tried. Returns why not."""
    said = compile_c(compilers()[0], sorted(SOURCES.glob("*.c")), target)
    if said:
        return said
    target.chmod(0o700)
    try:
        tried = subprocess.run([target], stdin=subprocess.DEVNULL, env={}, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"it does not run here: {error}"
    if tried.returncode != _NO_CONTROL:
        return f"it does not run here: ended with {tried.returncode}"
    return ""
