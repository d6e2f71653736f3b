"""Imported environments as environments of ours, and who opens their episodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from flightschool.environments.content_environment import ContentEnvironment
from flightschool.environments.foreign.content import ForeignContent
from flightschool.environments.foreign.world import ForeignSession, ForeignWorld
from flightschool.environments.traced import AllowInventory
from flightschool.errors import StoreError
from flightschool.protocols import Permissions, World
from flightschool.records import Task

__all__ = ["ForeignEnvironment", "connector"]

Connect: TypeAlias = Callable[[ForeignContent, Task], ForeignSession]


class ForeignEnvironment(ContentEnvironment[ForeignContent]):
    """Implements ``protocols.Environment``. Immutable; nothing is opened before a call needs it.

    Args:
        name: name in the workspace; not part of the digest.
        content: what is known of it here.
        connect: opens an episode; by default what the ecosystem's own code does.
    """

    def __init__(self, name: str, content: ForeignContent, connect: Connect | None = None) -> None:
        super().__init__(name, content)
        self.digest = content.digest
        self._connect = connect or connector(content.ecosystem)

    def permissions(self, task: Task) -> Permissions:
        """Tools whose effects are known are allowed, everything else denied."""
        del task
        allowed = set(self.content.allowed)
        return AllowInventory([spec for spec in self.content.tools if spec.name in allowed])

    def open(self, task: Task) -> World:
        """A fresh world; its session is opened at the first call."""
        return ForeignWorld(self.content, task, lambda: self._connect(self.content, task))


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
