"""The environment that was built from traces, as data and as behaviour.

``TracedContent`` is everything that the digest covers and the workspace keeps; ``TracedEnvironment`` implements
``protocols.Environment`` on it, answering from recordings or from tool functions.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence

from flightschool.digest import digest as content_digest
from flightschool.environments.code_world import CodeWorld, ToolFunction
from flightschool.environments.json_state import JsonBase
from flightschool.environments.recorded import RecordedWorld
from flightschool.environments.recordings import Recording, Recordings
from flightschool.errors import NotFoundError
from flightschool.protocols import Environment, PermissionDecision, Permissions, World
from flightschool.records import Effect, Record, Reference, Task, ToolCall, ToolEvent, ToolSpec

__all__ = ["AllowInventory", "RenamedEnvironment", "TracedContent", "TracedEnvironment", "find_task"]


class TracedContent(Record, frozen=True, kw_only=True):
    """All that makes an environment from traces what it is."""

    policy_text: str
    strata: dict[str, float]
    """Stratum → share of the recorded episodes."""
    tasks: tuple[Task, ...]
    references: tuple[Reference, ...]
    tools: tuple[ToolSpec, ...]
    declines: bool
    """Whether the environment adds ``decline``, because the traces have no such tool and tasks need it."""
    recordings: tuple[Recording, ...] = ()
    """Answers; empty where code answers."""
    state_digest: str = ""
    """Digest of the initial state that code runs on or recordings started from; empty if none was given."""
    code: str = ""
    """The module whose functions answer; empty where recordings do."""
    code_digest: str = ""


class TracedEnvironment:
    """Implements ``protocols.Environment``. Immutable; worlds share recordings or the frozen initial state.

    Args:
        name: name in the workspace; not part of the digest.
        content: tasks, tools, references, recordings.
        functions: tool functions, if code answers.
        base: the initial state that the functions run on.
    """

    def __init__(
        self,
        name: str,
        content: TracedContent,
        functions: Mapping[str, ToolFunction] | None = None,
        base: JsonBase | None = None,
    ) -> None:
        self.name = name
        self.content = content
        self.digest = content_digest(content)
        self._functions = functions
        self._base = base or JsonBase({})
        self._recordings = Recordings(content.recordings)
        self._tasks = {task.id: task for task in content.tasks}
        self._references = {reference.task_id: reference for reference in content.references}
        self._writes = frozenset(spec.name for spec in content.tools if spec.effect is not Effect.READ)

    @property
    def policy_text(self) -> str:
        """The system message that most recorded episodes carry."""
        return self.content.policy_text

    @property
    def strata(self) -> Mapping[str, float]:
        """Stratum → share of the recorded episodes."""
        return self.content.strata

    def tasks(self) -> Sequence[Task]:
        """All tasks in the order of first sight."""
        return self.content.tasks

    def task(self, task_id: str) -> Task:
        """One task. Raises ``NotFoundError``."""
        return find_task(self._tasks, task_id, self.name)

    def tools(self) -> Sequence[ToolSpec]:
        """The inventory, and ``decline`` if it was added."""
        return self.content.tools

    def permissions(self, task: Task) -> Permissions:
        """Every tool of the inventory is allowed, everything else denied."""
        del task
        return AllowInventory(self.content.tools)

    def open(self, task: Task) -> World:
        """A fresh world in the task's initial state."""
        if self._functions is not None:
            return CodeWorld.fresh(self._functions, self._base, declines=self.content.declines)
        return RecordedWorld(self._recordings, task.initial_state, self._writes, declines=self.content.declines)

    def reference(self, task_id: str) -> Reference:
        """The sealed side of a task. Raises ``NotFoundError``."""
        find_task(self._tasks, task_id, self.name)
        return self._references[task_id]


class AllowInventory:
    """Default deny, with one rule for each tool that the traces show (``protocols.Permissions``)."""

    def __init__(self, tools: Sequence[ToolSpec]) -> None:
        self._tools = frozenset(spec.name for spec in tools)

    def decide(self, call: ToolCall, events: Sequence[ToolEvent]) -> PermissionDecision:
        """Allowed if the traces show the tool."""
        del events
        if call.name in self._tools:
            return PermissionDecision(allowed=True, rule=f"recorded-{call.name}", reason="the traces use this tool")
        return PermissionDecision(allowed=False, rule="default", reason="the traces do not show this tool")


class RenamedEnvironment:
    """A whole environment given by code, under another name and with traffic shares measured from traces.

    Args:
        name: name in the workspace.
        inner: the environment of the code.
        strata: stratum → share; empty keeps the environment's own.
    """

    def __init__(self, name: str, inner: Environment, strata: Mapping[str, float]) -> None:
        self.name = name
        self.inner = inner
        self.strata: Mapping[str, float] = dict(strata) or inner.strata
        self.digest = content_digest({"inner": inner.digest, "strata": dict(self.strata)})
        self.policy_text = inner.policy_text
        self.tasks = inner.tasks
        self.task = inner.task
        self.tools = inner.tools
        self.permissions = inner.permissions
        self.open = inner.open
        self.reference = inner.reference


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
