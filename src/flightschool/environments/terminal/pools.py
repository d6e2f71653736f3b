"""The tasks of several folders that were named together: each real folder once, under an id that no other one has.

An id is the path below what was named, as everywhere. Where several tasks would have the same, and only there, each
gets as much of its path in front as tells it from the others: ``pool/good`` and ``p2/good``. So an id depends on where
folders lie and not on the order in which they were named.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from flightschool.environments.terminal.folders import find_folders, read_found, task_id
from flightschool.environments.terminal.records import TerminalTask, UnreadableTask

__all__ = ["TaskPool"]


class TaskPool:
    """What was named, looked through by names; the tasks are read one by one while they are iterated over.

    Args:
        named: task folders, or folders that hold tasks, in any number.

    Raises:
        InputError: one of them cannot be looked into, or holds no task.
    """

    def __init__(self, named: Sequence[Path]) -> None:
        self._found: dict[Path, tuple[Path, OSError | None]] = {}
        """Real folder → folder as it was found first, and why it cannot be looked into."""
        ids: dict[Path, str] = {}
        for parent in named:
            for folder, problem in find_folders(parent):
                real = folder.resolve()
                if real not in self._found:
                    self._found[real] = folder, problem
                    ids[real] = task_id(folder, parent)
        self._ids = _told_apart(ids)

    def __len__(self) -> int:
        """Number of tasks, unreadable ones among them."""
        return len(self._found)

    def __iter__(self) -> Iterator[TerminalTask | UnreadableTask]:
        """The tasks in the order of what was named, one in memory at a time."""
        for real, (folder, problem) in self._found.items():
            yield read_found(folder, self._ids[real], problem)


def _told_apart(ids: dict[Path, str]) -> dict[Path, str]:
    """Ids of which no two are equal: equal ones get parts of the folders' paths in front, as few as will do."""
    alike: dict[str, list[Path]] = defaultdict(list)
    for real, id_ in ids.items():
        alike[id_].append(real)
    told = {reals[0]: id_ for id_, reals in alike.items() if len(reals) == 1}
    for id_, reals in sorted(alike.items()):
        if len(reals) > 1:
            told |= _prefixed(reals, id_.count("/") + 1, set(alike) | set(told.values()))
    return told


def _prefixed(reals: Sequence[Path], num_parts: int, taken: set[str]) -> dict[Path, str]:
    most = max(len(real.parts) for real in reals)
    for more in range(1, most):
        longer = {real: "/".join(real.parts[1:][-num_parts - more :]) for real in reals}
        if len(set(longer.values())) == len(reals) and not taken & set(longer.values()):
            break
    return longer
