"""What the models are shown of a task: its texts and files as data, bounded, each line marked as such.

Everything here was written by somebody else and may speak to its reader. Each line of it begins with ``| `` between
two lines that hold a random fence, so that nothing inside can end the block or pass for the question. What a model
says is run or only weighed, never followed.
"""

from __future__ import annotations

import re
import secrets
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from flightschool.audit.terminal.outputs import Work
from flightschool.audit.terminal.shipped import Shipped
from flightschool.audit.terminal.surface import Surface
from flightschool.environments.terminal.building import build_files
from flightschool.environments.terminal.contents import list_contents
from flightschool.environments.terminal.end_state import EndState
from flightschool.errors import InputError
from flightschool.sandbox.written import Written, WrittenKind

__all__ = ["Dossier", "block", "new_fence", "shown_state"]

FILE_CHARS: Final = 12_000
"""Characters of one file that are shown; the middle is left out."""
PART_CHARS: Final = 64_000
"""Characters of all files of one part."""
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]")


@dataclass(frozen=True, kw_only=True)
class Dossier:
    """One task in text, for a model that may know everything of it (the proposer) or only what a client knows."""

    instruction: str
    setting: str
    """Who acts where, with which limits and steps."""
    build: str
    """The Dockerfile."""
    inputs: str
    """Files of the image, with what the policy may do with them."""
    view: str
    """What a look around in the sandbox shows: variables, folders, history."""
    tests: str
    solution: str
    result: str
    """What the solution left."""

    @classmethod
    def of(cls, surface: Surface, work: Work, view: str) -> Dossier:
        """The dossier of a task whose solution was played."""
        return cls(
            instruction=_instructions(surface),
            setting=_setting(surface),
            build=_build_text(surface),
            inputs=_files((_titled(one), one.data) for one in surface.shipped if not _is_inner(one.path)),
            view=_cut(view, FILE_CHARS),
            tests=_files((path, text.encode()) for path, text in surface.tests.items()),
            solution=_cut(surface.solution, FILE_CHARS),
            result=shown_state(work.states),
        )


def new_fence() -> str:
    """128 random bits for one request."""
    return secrets.token_hex(16)


def block(title: str, text: str, fence: str) -> str:
    """Text as data: a title, and each line marked, between two lines with the fence."""
    plain = text.encode("utf-8", "backslashreplace").decode()
    lines = _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", plain).split("\n")
    return "\n".join([f"## {title}", f"----- {fence}", *(f"| {line}" for line in lines), f"----- {fence}"])


def shown_state(states: Sequence[EndState]) -> str:
    """What was written and removed over the image, at the end of the last step."""
    if not states:
        return "(nothing)"
    entries = [entry for entry in states[-1].entries if not _is_inner(entry.path)]
    told = [_told(entry) for entry in entries if entry.kind is not WrittenKind.FILE]
    files = (
        (f"{one.path} (mode {one.mode:o}, {len(one.data)} bytes)", one.data)
        for one in entries
        if one.kind is WrittenKind.FILE
    )
    return "\n".join([*told, _files(files)] if told else [_files(files)])


def _is_inner(path: str) -> bool:
    """Whether it is a tool's own record, whose bytes say nothing to a reader; the look around shows what it holds."""
    return "/.git/" in path or "/__pycache__/" in path


def _told(entry: Written) -> str:
    if entry.kind is WrittenKind.LINK:
        return f"{entry.path}: a link to {entry.target}"
    return f"{entry.path}: {'removed' if entry.kind is WrittenKind.GONE else entry.kind.value}"


def _instructions(surface: Surface) -> str:
    stages = surface.task.stages
    if len(stages) == 1:
        return surface.instruction.strip()
    return "\n\n".join(f"Step {stage.name!r}:\n{stage.instruction.strip()}" for stage in stages)


def _setting(surface: Surface) -> str:
    image, stages = surface.image, surface.task.stages
    lines = [
        f"The policy acts as {stages[0].agent_user or image.account.name or image.account.uid} in {image.workdir}.",
        f"Tests: {', '.join(' '.join(stage.test_command) for stage in stages)}.",
        f"Variables of the image: {' '.join(f'{key}={value}' for key, value in surface.env.items())}",
    ]
    if len(stages) > 1:
        lines.append(f"Steps, one after the other in one sandbox: {', '.join(repr(stage.name) for stage in stages)}.")
    return "\n".join(lines)


def _titled(one: Shipped) -> str:
    may = "may be read" if one.readable else "may NOT be read"
    may += ", may be replaced" if one.writable else ", may NOT be replaced"
    step = f", laid out in step {one.step!r}" if one.step else ""
    return f"{one.path} ({stat.filemode(one.mode)[-9:]}, {one.size} bytes, {may} by the policy{step})"


def _files(files: Iterable[tuple[str, bytes]]) -> str:
    parts: list[str] = []
    left = PART_CHARS
    for title, data in files:
        text = _text(data)
        text = _cut(text, min(FILE_CHARS, max(left, 200)))
        left -= len(text)
        parts.append(f"=== {title}\n{text}")
    return "\n".join(parts) or "(none)"


def _text(data: bytes) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return f"(no text; its first bytes are {data[:64]!r})"
    return text if "\0" not in text else f"(no text; its first bytes are {data[:64]!r})"


def _cut(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    return f"{text[: most * 2 // 3]}\n… ({len(text) - most} characters are left out)\n{text[-most // 3 :]}"


def _build_text(surface: Surface) -> str:
    contents = list_contents(Path(surface.task.folder))
    path, _ = build_files(surface.task)
    try:
        return contents.read_text(path) if contents.is_file(path) else "(none)"
    except InputError as error:
        return f"({error.what})"
