"""What every engine knows of itself and refuses alike, whatever computes the tokens. Imports no torch."""

from __future__ import annotations

from flightschool.engines.requests import check_request
from flightschool.errors import InfrastructureError, InputError
from flightschool.protocols import GenerationRequest
from flightschool.records import WeightsVersion

__all__ = ["EngineBase"]


class EngineBase:
    """Version, limits and end of an engine, and the sessions that it must not go on with.

    Args:
        version: weights that it begins with.
        vocab: rows of the model's output.
        max_context: longest sequence, prompt and completion together.
    """

    def __init__(self, version: WeightsVersion, *, vocab: int, max_context: int) -> None:
        self._version, self._vocab, self._max_context = version, vocab, max_context
        self._orphans: set[str] = set()
        """Sessions whose weights' incarnation ended while they were under way."""
        self._dead = ""
        self._num_cut = 0

    def take_cut_tokens(self) -> int:
        """See ``protocols.TrainedEngine``."""
        taken, self._num_cut = self._num_cut, 0
        return taken

    @property
    def version(self) -> WeightsVersion:
        """Weights in use."""
        return self._version

    @property
    def died(self) -> str:
        """What the engine died of; empty while it lives."""
        return self._dead

    @property
    def max_context(self) -> int:
        """Longest sequence, prompt and completion together."""
        return self._max_context

    async def check_health(self) -> None:
        """Raises ``InfrastructureError`` once the engine is dead."""
        self._refuse_dead()

    def _validate(self, request: GenerationRequest, *, busy: bool) -> None:
        """Refuse what cannot be served, now or ever.

        Args:
            request: to look at.
            busy: whether a request of its session runs.

        Raises:
            InfrastructureError: the engine is dead, or the session's weights are.
            InputError: the request is out of range, or the second of its session.
        """
        self._refuse_dead()
        self._refuse_orphan(request.session)
        check_request(request, vocab=self._vocab, max_context=self._max_context)
        if busy:
            raise InputError(
                "two requests of one session at a time", where=f"session {request.session}", mend="await the first"
            )

    def _refuse_dead(self) -> None:
        if self._dead:
            raise InfrastructureError(self._dead, where="engine", mend="start a new engine")

    def _refuse_orphan(self, session: str) -> None:
        if session in self._orphans:
            raise InfrastructureError(
                "the weights that this session began with belong to a dead incarnation",
                where=f"session {session}",
                mend="retry the attempt",
            )

    def _is_successor(self, version: WeightsVersion) -> bool:
        """Whether steps of another version can be compared with the present one by number."""
        return (version.run, version.incarnation) == (self._version.run, self._version.incarnation)
