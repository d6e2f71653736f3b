"""Scorers: log-probabilities of given tokens, from a server or from a folder in this process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from flightschool.engines.opening import server_key
from flightschool.engines.scoring.settings import TeacherSettings
from flightschool.engines.served import SglangWire, VllmWire, Wire
from flightschool.engines.served.wire import Http

if TYPE_CHECKING:
    import httpx2

__all__ = ["Scorer", "ServedScorer", "open_scorer"]


class Scorer(Protocol):
    """A model that scores."""

    name: str
    """For errors: kind and place."""

    async def logprobs(self, token_ids_T: tuple[int, ...], start: int) -> tuple[float, ...]:
        """Log-probabilities of the tokens from ``start`` ≥ 1 on, each given all before it, at temperature 1, in nats.

        Raises:
            InputError: the sequence cannot be scored.
            InfrastructureError: nobody answered.
            TokenContractError: what came is not one possible number a token.
        """
        ...

    async def aclose(self) -> None:
        """Free what it holds; a server goes on."""
        ...


class ServedScorer:
    """Implements ``Scorer`` over a server. Lives on one event loop.

    Args:
        settings: which server.
        transport: what carries requests; the network by default.

    Raises:
        ConfigError: the server's key is not in the environment.
    """

    def __init__(self, settings: TeacherSettings, transport: httpx2.AsyncBaseTransport | None = None) -> None:
        url = settings.url or ""
        self.wire: Wire = VllmWire(url, settings.model) if settings.kind == "vllm" else SglangWire(url)
        key = server_key(settings.key_env, "teacher")
        self.http = Http(self.wire.kind, self.wire.url, key, settings.timeout_s, transport, setting="teacher.url")
        self.name = f"{self.wire.kind} {self.wire.url}"

    async def logprobs(self, token_ids_T: tuple[int, ...], start: int) -> tuple[float, ...]:
        """See ``Scorer``."""
        return await self.wire.score(self.http, token_ids_T, start)

    async def aclose(self) -> None:
        """Close the connections."""
        await self.http.aclose()


def open_scorer(
    settings: TeacherSettings, *, device: str = "cpu", dtype: str = "float32", num_threads: int | None = None
) -> Scorer:
    """The teacher that a configuration names.

    Args:
        settings: which.
        device: of a folder.
        dtype: of its weights, as torch names it.
        num_threads: threads of its passes; left alone if not given.

    Raises:
        ModelFolderError: the folder cannot be loaded.
        ConfigError: the server's key is not in the environment.
    """
    if settings.is_served:
        return ServedScorer(settings)
    from flightschool.engines.scoring.local import FolderScorer

    return FolderScorer(Path(settings.model), device=device, dtype=dtype, num_threads=num_threads)
