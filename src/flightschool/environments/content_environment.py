"""What environments that are kept as data have in common: tasks, tools and references stand in their content."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from flightschool.errors import NotFoundError
from flightschool.records import Reference, Task, ToolSpec

__all__ = ["Content", "ContentEnvironment", "find_task"]


class Content(Protocol):
    """What an environment of this kind is made of; a frozen record."""

    @property
    def policy_text(self) -> str:
        """System message of its episodes."""
        ...

    @property
    def strata(self) -> Mapping[str, float]:
        """Stratum → share."""
        ...

    @property
    def tasks(self) -> tuple[Task, ...]:
        """In their order."""
        ...

    @property
    def references(self) -> tuple[Reference, ...]:
        """One a task."""
        ...

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """What policies may be shown."""
        ...


_Content = TypeVar("_Content", bound=Content)


class ContentEnvironment(Generic[_Content]):
    """The part of ``protocols.Environment`` that content alone answers; immutable.

    Args:
        name: name in the workspace; not part of any digest.
        content: what is kept.
    """

    def __init__(self, name: str, content: _Content) -> None:
        self.name = name
        self.content = content
        self._tasks = {task.id: task for task in content.tasks}
        self._references = {reference.task_id: reference for reference in content.references}

    @property
    def policy_text(self) -> str:
        """The system message that episodes open with."""
        return self.content.policy_text

    @property
    def strata(self) -> Mapping[str, float]:
        """Stratum → share."""
        return self.content.strata

    def tasks(self) -> Sequence[Task]:
        """All tasks, in the order of the content."""
        return self.content.tasks

    def task(self, task_id: str) -> Task:
        """One task. Raises ``NotFoundError``."""
        return find_task(self._tasks, task_id, self.name)

    def tools(self) -> Sequence[ToolSpec]:
        """All tools of the content."""
        return self.content.tools

    def reference(self, task_id: str) -> Reference:
        """The sealed side of a task. Raises ``NotFoundError``."""
        find_task(self._tasks, task_id, self.name)
        return self._references[task_id]


def find_task(tasks: Mapping[str, Task], task_id: str, environment: str) -> Task:
    """One task by id.

    Raises:
        NotFoundError: with the nearest known id.
    """
    if task_id in tasks:
        return tasks[task_id]
    near = difflib.get_close_matches(task_id, tasks, n=1)
    raise NotFoundError(
        f"there is no task {task_id!r}",
        where=f"environment {environment!r}",
        expected=f"one of {len(tasks)} task ids",
        mend=f"did you mean {near[0]!r}?" if near else "list them with: flightschool env show",
    )
