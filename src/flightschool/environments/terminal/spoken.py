"""Words that a task's author wrote: which verdict the tests mean to leave, and whether the task is about something.

The tests may run what the policy wrote, as the same user, and that can leave files beside the verdict. A file that
nothing of the task speaks of is not the tests'.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final

from flightschool.environments.terminal.contents import EntryKind, list_contents
from flightschool.environments.terminal.records import TerminalTask
from flightschool.environments.terminal.reward import JSON_NAME, TEXT_NAME

__all__ = ["own_verdicts", "speaks_of"]

_MOST_BYTES: Final = 4 << 20
"""Of one file; a longer one is data, and its beginning is looked at."""
_MOST_TOGETHER: Final = 64 << 20


def own_verdicts(task: TerminalTask, files: Mapping[str, object]) -> tuple[set[str], set[str]]:
    """Of the verdicts that lie there, by plain file name: those of the tests, and those that nothing speaks of.

    Where the task speaks of neither name, both may be its own.
    """
    named = {name for name in (JSON_NAME, TEXT_NAME) if speaks_of(task, name)}
    there = set(files)
    return (there & named, there - named) if named else (there, set())


def speaks_of(task: TerminalTask, word: str) -> bool:
    """Whether a word stands in a file that the task ships, its solution and instruction apart."""
    apart = {placement.source for stage in task.stages for placement in stage.solution}
    return _speaks(task.folder, task.digest, tuple(sorted(apart)), word.encode())


@lru_cache(maxsize=512)
def _speaks(folder: str, digest: str, apart: tuple[str, ...], word: bytes) -> bool:
    del digest  # an edited folder is another task
    contents = list_contents(Path(folder))
    left = _MOST_TOGETHER
    for path, entry in contents.entries.items():
        if entry.kind is not EntryKind.FILE or path.endswith("instruction.md"):
            continue
        if any(path == one or path.startswith(f"{one}/") for one in apart):
            continue
        data = contents.read_head(path, min(_MOST_BYTES, left))
        if word in data:
            return True
        left -= len(data)
        if left <= 0:
            return True  # too much to say that it does not
    return False
