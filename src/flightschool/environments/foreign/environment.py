"""Imported environments as environments of ours, and who opens their episodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from flightschool.environments.foreign.content import ForeignContent
from flightschool.environments.foreign.world import ForeignSession, ForeignWorld
from flightschool.environments.traced import AllowInventory, find_task
from flightschool.errors import StoreError
from flightschool.protocols import Permissions, World
from flightschool.records import Reference, Task, ToolSpec

__all__ = ["ForeignEnvironment", "connector"]

Connect: TypeAlias = Callable[[ForeignContent, Task], ForeignSession]


class ForeignEnvironment:
    """Implements ``protocols.Environment``. Immutable; nothing is opened before a call needs it.

    Args:
        name: name in the workspace; not part of the digest.
        content: what is known of it here.
        connect: opens an episode; by default what the ecosystem's own code does.
    """

    def __init__(self, name: str, content: ForeignContent, connect: Connect | None = None) -> None:
        self.name = name
        self.content = content
        self.digest = content.digest
        self._connect = connect or connector(content.ecosystem)
        self._tasks = {task.id: task for task in content.tasks}
        self._references = {reference.task_id: reference for reference in content.references}

    @property
    def policy_text(self) -> str:
        """What the environment says about itself."""
        return self.content.policy_text

    @property
    def strata(self) -> Mapping[str, float]:
        """Stratum → share."""
        return self.content.strata

    def tasks(self) -> Sequence[Task]:
        """All imported tasks."""
        return self.content.tasks

    def task(self, task_id: str) -> Task:
        """One task. Raises ``NotFoundError``."""
        return find_task(self._tasks, task_id, self.name)

    def tools(self) -> Sequence[ToolSpec]:
        """The tools as they were when it was imported."""
        return self.content.tools

    def permissions(self, task: Task) -> Permissions:
        """Tools whose effects are known are allowed, everything else denied."""
        del task
        allowed = set(self.content.allowed)
        return AllowInventory([spec for spec in self.content.tools if spec.name in allowed])

    def open(self, task: Task) -> World:
        """A fresh world; its session is opened at the first call."""
        return ForeignWorld(self.content, task, lambda: self._connect(self.content, task))

    def reference(self, task_id: str) -> Reference:
        """The sealed side of a task. Raises ``NotFoundError``."""
        find_task(self._tasks, task_id, self.name)
        return self._references[task_id]


def connector(ecosystem: str) -> Connect:
    """Who opens episodes of an ecosystem.

    Raises:
        StoreError: a later version imported it.
    """
    if ecosystem == "openenv":
        from flightschool.environments.openenv.session import connect_openenv

        return connect_openenv
    if ecosystem == "mcp":
        from flightschool.environments.mcp.importing import connect_mcp

        return connect_mcp
    if ecosystem == "nemo-gym":
        from flightschool.environments.nemo_gym.session import connect_nemo_gym

        return connect_nemo_gym
    from flightschool.environments.peers.process import ECOSYSTEMS, connect_peer

    if ecosystem in ECOSYSTEMS:
        return connect_peer
    raise StoreError(
        f"environments of {ecosystem!r} cannot be opened",
        where="the imported environment",
        expected=", ".join(("openenv", "mcp", "nemo-gym", *ECOSYSTEMS)),
        mend="use the flightschool version that imported it",
    )
