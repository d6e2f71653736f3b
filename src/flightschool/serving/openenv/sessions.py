"""All sessions of one server process: how many there may be, and which have been forgotten."""

from __future__ import annotations

import time
from collections.abc import Iterator

from flightschool.serving.episode import Offer
from flightschool.serving.openenv.passing import Passage
from flightschool.serving.openenv.session import Session, SessionLimits
from flightschool.serving.tasks import TaskDesk

__all__ = ["FullError", "Sessions"]


class FullError(Exception):
    """No further session fits."""

    def __init__(self, active: int, most: int) -> None:
        super().__init__(f"all {most} sessions are taken; close one, or try later")
        self.active = active
        self.most = most


class Sessions:
    """The sessions of one process.

    Args:
        offer: what is served.
        desk: which task a reset means.
        limits: times of each session.
        most: sessions at once, over all processes of the server.
        passage: to the sibling processes: ids begin with the number of their process.
    """

    def __init__(self, offer: Offer, desk: TaskDesk, limits: SessionLimits, *, most: int, passage: Passage) -> None:
        self.name = offer.environment.name
        self.most = most
        self.num_stuck = 0
        """Threads that never came back."""
        self._offer = offer
        self._desk = desk
        self._limits = limits
        self._passage = passage
        self._open: dict[str, Session] = {}

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Session]:
        return iter(tuple(self._open.values()))

    def create(self, *, starts_itself: bool = False) -> Session:
        """A new session. Raises ``FullError``."""
        active = len(self._open) + self._passage.num_elsewhere()
        if active >= self.most:
            raise FullError(active, self.most)
        session = Session(self._offer, self._desk, self._limits, starts_itself=starts_itself)
        session.id = self._passage.prefix + session.id
        self._open[session.id] = session
        self._passage.tell(len(self._open))
        return session

    def find(self, session_id: str) -> Session | None:
        """The session of an id, if it is open."""
        return self._open.get(session_id)

    async def end(self, session: Session) -> None:
        """Close a session; doing it again does nothing."""
        if self._open.pop(session.id, None) is not None:
            self._passage.tell(len(self._open))
            self.num_stuck += session.stuck
            await session.close()

    def forgotten(self) -> list[Session]:
        """Sessions that have had no request for longer than is allowed."""
        before = time.monotonic() - self._limits.idle_timeout_s
        return [session for session in self._open.values() if session.last_active < before and not session.busy]

    async def close(self) -> None:
        """End all."""
        for session in list(self._open.values()):
            await self.end(session)
