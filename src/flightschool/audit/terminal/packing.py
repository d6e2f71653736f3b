"""The reference solution as one program that is complete in itself: evidence of what is refused though it is right.

The solution's files are unpacked into a scratch folder and are gone afterwards, so that the program leaves what the
reference leaves. Where they speak of the place that they have for the reference, a link stands there meanwhile.
"""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from flightschool.audit.terminal.scripting import by_stage, put
from flightschool.environments.terminal import Placement, TaskStep, TerminalTask
from flightschool.environments.terminal.contents import EntryKind, list_contents
from flightschool.environments.terminal.rooms import host_variables
from flightschool.environments.terminal.trees.copies import read_plain
from flightschool.errors import InputError

__all__ = ["reference_body"]

SCRATCH: Final = "/tmp/.reference"
MOST_FILE_BYTES: Final = 1 << 20
MOST_BODY_BYTES: Final = 2 << 20


def reference_body(task: TerminalTask) -> str:
    """Commands that do what the reference does, step by step; empty: they cannot be told in one program."""
    try:
        bodies = {stage.name: _of_stage(task, stage) for stage in task.stages}
    except (InputError, OSError):  # too large, or no ordinary file any more
        return ""
    text = by_stage(bodies)
    return text if len(text) <= MOST_BODY_BYTES else ""


def _of_stage(task: TerminalTask, stage: TaskStep) -> str:
    if not stage.oracle:
        return ":\n"
    roots = list(dict.fromkeys("/" + one.target.strip("/").partition("/")[0] for one in stage.solution))
    lines = [command for one in stage.solution for command in _unpacked(task, one)]
    links = [root for root in roots if root not in ("/", "/tmp") and _speaks_of(lines, root)]
    lines += [f"[ -e {root} ] || ln -s {SCRATCH}{root} {root} 2>/dev/null\n" for root in map(shlex.quote, links)]
    asked = set(host_variables(task.solution_env))
    lines += [f"export {name}={shlex.quote(value)}\n" for name, value in task.solution_env.items() if not asked]
    words = [f"{SCRATCH}{word}" if any(_lies_in(word, root) for root in roots) else word for word in stage.oracle]
    lines.append(shlex.join(words) + "\n")
    for root in map(shlex.quote, links):
        lines.append(f'[ "$(readlink {root})" != {SCRATCH}{root} ] || rm -f {root}\n')
    return "".join(lines) + f"rm -rf {SCRATCH}\n"


def _speaks_of(lines: list[str], root: str) -> bool:
    """Whether the unpacked files name the place themselves. What is packed in base64 is not read, and may."""
    text = "\n".join(lines).replace(f"{SCRATCH}{root}", "")
    return root in text or "base64 -d" in text


def _lies_in(word: str, root: str) -> bool:
    return word == root or word.startswith(f"{root}/")


def _unpacked(task: TerminalTask, placement: Placement) -> Iterator[str]:
    """Commands that write what is placed below the scratch folder."""
    target = SCRATCH + placement.target
    if placement.content:
        yield put(target, placement.content.encode(), mode=0o755)
        return
    contents = list_contents(Path(task.folder))
    with contents.opened() as folder:
        if contents.is_file(placement.source):
            data, _ = read_plain(folder, placement.source, MOST_FILE_BYTES)
            yield put(target, data, mode=0o755)
            return
        for entry in contents.below(placement.source):
            path = posixpath.join(target, entry.path.removeprefix(placement.source).lstrip("/"))
            if entry.kind is EntryKind.FOLDER:
                yield f"mkdir -p {shlex.quote(path)}\n"
            elif entry.kind is EntryKind.LINK:
                yield f"ln -sfn {shlex.quote(entry.target)} {shlex.quote(path)}\n"
            else:
                data, _ = read_plain(folder, entry.path, MOST_FILE_BYTES)
                yield put(path, data, mode=0o755 if entry.executable else 0o644)
