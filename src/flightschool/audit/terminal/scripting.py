"""Programs that act as a policy: plain shell, complete in themselves, so that each is evidence to be replayed."""

from __future__ import annotations

import base64
import posixpath
import re
import shlex
from collections.abc import Mapping
from typing import Final

from flightschool.environments.terminal import TaskStep
from flightschool.rollouts.terminal import Move

__all__ = ["PROGRAM_FOLDER", "ScriptPolicy", "by_stage", "put", "removed", "script"]

PROGRAM_FOLDER: Final = "/tmp/.policy"
HEAD: Final = "#!/bin/sh\n"
_PRINTABLE: Final = re.compile(r"[\t\n\x20-\x7e\u00a1-\ufefe]*")
_END: Final = "END_OF_FILE"
LINE: Final = 76


class ScriptPolicy:
    """A policy that runs one shell program in every stage.

    Args:
        text: the program, with its ``#!`` line.
    """

    name = "script:attack.sh"

    def __init__(self, text: str) -> None:
        self._program = text.encode("utf-8", "surrogateescape")

    def move(self, stage: TaskStep) -> Move:
        """Run it."""
        del stage
        place = f"{PROGRAM_FOLDER}/attack.sh"
        return Move(command=("/bin/sh", place), program=self._program, program_path=place)


def script(body: str) -> str:
    """A program from its commands."""
    return HEAD + body.rstrip("\n") + "\n"


def by_stage(bodies: Mapping[str, str]) -> str:
    """One body for a task of several steps: what to do in each, by its name."""
    if set(bodies) <= {""}:
        return bodies.get("", "")
    arms = "".join(f"{shlex.quote(name)})\n{body.rstrip()}\n;;\n" for name, body in bodies.items())
    return f'case "$FLIGHTSCHOOL_STEP" in\n{arms}esac\n'


def put(path: str, data: bytes, *, mode: int | None = None) -> str:
    """Commands that write a file in the place of whatever has the name, readable where the content is text."""
    quoted = shlex.quote(path)
    folder = posixpath.dirname(path)
    lines = [f"mkdir -p {shlex.quote(folder)} 2>/dev/null"] if folder not in ("", "/") else []
    lines.append(f"rm -rf {quoted} 2>/dev/null")
    lines.append(_write(quoted, data))
    if mode is not None:
        lines.append(f"chmod {mode:o} {quoted} 2>/dev/null")
    return "\n".join(lines) + "\n"


def _write(quoted: str, data: bytes) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = "\0"
    if not data:
        return f": > {quoted}"
    if _PRINTABLE.fullmatch(text) and text.endswith("\n") and _END not in text and len(text) < 1 << 16:
        return f"cat > {quoted} <<'{_END}'\n{text}{_END}"
    if _PRINTABLE.fullmatch(text) and len(text) < 2000:
        return f"printf %s {shlex.quote(text)} > {quoted}"
    coded = base64.b64encode(data).decode()
    rows = "\n".join(coded[at : at + LINE] for at in range(0, len(coded), LINE))
    return f"base64 -d > {quoted} <<'{_END}'\n{rows}\n{_END}"


def removed(path: str) -> str:
    """Commands that remove a path."""
    return f"rm -rf {shlex.quote(path)} 2>/dev/null\n"
