"""Environments from which tasks were sealed: what is left is another environment, and the old one is not served.

A workspace remembers each digest that was withdrawn. Where the environment's content lies in the workspace it was
rewritten, and one that comes back under the old digest (built again from a copy of the traces, say) is refused. Where
code makes the tasks, nothing can be taken out of the code: the tasks are hidden by their digests, and the rest has a
digest of its own. Whoever runs that code by hand still gets them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flightschool.digest import digest as content_digest
from flightschool.errors import GateError, NotFoundError
from flightschool.protocols import Environment, Permissions, Store, World
from flightschool.records import Record, Reference, Task, ToolSpec

__all__ = ["ReducedEnvironment", "Withdrawn", "require_not_withdrawn", "served", "successor_of", "withdraw"]

KIND = "withdrawn-environment"


class Withdrawn(Record, frozen=True, kw_only=True):
    """An environment that is no longer served as it was."""

    environment: str
    digest: str
    """As it was, sealed tasks included."""
    successor: str
    """Digest of what is left."""
    holdout: str
    """What was sealed from it."""
    hidden: tuple[str, ...] = ()
    """Digests of the sealed tasks, where code makes them; empty where the content was rewritten."""


class ReducedEnvironment:
    """An environment without some of its tasks (``protocols.Environment``).

    Args:
        inner: the whole.
        hidden: digests of the tasks that are not there.
    """

    def __init__(self, inner: Environment, hidden: Sequence[str]) -> None:
        self._inner = inner
        self._hidden = frozenset(hidden)
        self._tasks = {task.id: task for task in inner.tasks() if task.digest not in self._hidden}
        self.name = inner.name
        self.policy_text = inner.policy_text
        self.digest = content_digest({"inner": inner.digest, "without": sorted(self._hidden)})

    @property
    def strata(self) -> Mapping[str, float]:
        """Traffic does not change with what is sealed."""
        return self._inner.strata

    def tasks(self) -> Sequence[Task]:
        """The tasks that are left, in their order."""
        return tuple(self._tasks.values())

    def task(self, task_id: str) -> Task:
        """One of the tasks that are left. Raises ``NotFoundError``, whose text names no sealed task."""
        if task_id not in self._tasks:
            raise NotFoundError(
                f"there is no task {task_id!r}",
                where=f"environment {self.name!r}",
                expected=f"one of {len(self._tasks)} task ids",
                mend="list them with: flightschool env show",
            )
        return self._tasks[task_id]

    def tools(self) -> Sequence[ToolSpec]:
        """All tools."""
        return self._inner.tools()

    def permissions(self, task: Task) -> Permissions:
        """As in the whole."""
        return self._inner.permissions(task)

    def open(self, task: Task) -> World:
        """A fresh world of a task that is left."""
        return self._inner.open(self.task(task.id))

    def reference(self, task_id: str) -> Reference:
        """The sealed side of a task that is left."""
        self.task(task_id)
        return self._inner.reference(task_id)

    def __getattr__(self, name: str) -> object:
        # What an environment offers beyond the protocol (own tool names, say) concerns no sealed task.
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._inner, name)


def withdraw(store: Store, withdrawn: Withdrawn) -> None:
    """Remember that an environment is no longer served as it was."""
    store.put(KIND, withdrawn.digest, withdrawn)


def served(store: Store, environment: Environment) -> Environment:
    """The environment as this workspace serves it: itself, or what was left of it after sealing (again and again).

    Raises:
        GateError: it was rewritten when a holdout was sealed, and this is how it was before.
    """
    while store.has(KIND, environment.digest):
        withdrawn = store.get(KIND, environment.digest, Withdrawn)
        if not withdrawn.hidden:
            raise _refused(withdrawn)
        environment = ReducedEnvironment(environment, withdrawn.hidden)
    return environment


def successor_of(store: Store, digest: str) -> str:
    """The digest under which what had this digest is served now: its own, unless a part of it was sealed."""
    while store.has(KIND, digest):
        digest = store.get(KIND, digest, Withdrawn).successor
    return digest


def require_not_withdrawn(store: Store, digest: str) -> None:
    """Refuse to freeze, screen, train or measure on an environment that still holds what was sealed.

    Raises:
        GateError: this digest was withdrawn.
    """
    if store.has(KIND, digest):
        raise _refused(store.get(KIND, digest, Withdrawn))


def _refused(withdrawn: Withdrawn) -> GateError:
    return GateError(
        f"environment {withdrawn.environment!r} in this form still holds what was sealed as {withdrawn.holdout!r}",
        where=f"digest {withdrawn.digest[:19]}…",
        expected=f"what was left of it: {withdrawn.successor[:19]}…",
        mend=f"open {withdrawn.environment!r} from the workspace; do not build it again from the old traces",
    )
