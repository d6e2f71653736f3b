"""Requests under way, and what arrived of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from flightschool.engines.served.wire import Delta, Http
from flightschool.protocols import Generation, GenerationRequest
from flightschool.records import VersionRun

__all__ = ["Line", "Running", "ended", "generation"]


@dataclass(frozen=True)
class Line:
    """Connections and gate of one event loop."""

    http: Http
    gate: asyncio.Lock


class Running:
    """One request under way."""

    def __init__(self) -> None:
        self.deltas: list[Delta] = []
        self.num_arrived = 0
        """Tokens of all pieces so far."""
        self.stream: asyncio.Future[None] | None = None
        self.interrupted = False
        """Whether its caller wants what there is; else it goes on by itself once the gate is open."""
        self.closed = False
        self.released = False
        self.told = False
        """Whether the tokens came with the label of their weights."""
        self.lost = False
        """Whether the server was found to serve other weights while it ran."""

    def close(self) -> None:
        """Close the stream, keeping what has arrived."""
        if self.stream is not None and not self.stream.done():
            self.closed = True
            self.stream.cancel()

    def take(self) -> list[Delta]:
        """What has arrived since it was last taken."""
        deltas, self.deltas = self.deltas, []
        return deltas


def generation(deltas: Sequence[Delta], step: int, salt: int) -> Generation:
    """A piece as a generation.

    Args:
        deltas: what arrived.
        step: of the weights that sampled it.
        salt: step of the oldest weights under its cache.
    """
    tokens = tuple(token for delta in deltas for token in delta.token_ids_T)
    finish = next((delta.finish for delta in deltas if delta.finish), "interrupted")
    return Generation(
        token_ids_T=tokens,
        logprobs_T=tuple(value for delta in deltas for value in delta.logprobs_T),
        versions=(VersionRun(step=step, count=len(tokens)),) if tokens else (),
        kv_step=salt,
        finish=finish,
    )


def ended(request: GenerationRequest, whole: Generation, max_context: int) -> Generation:
    """A stream that was closed after its last token, before the server said so, is an end and no interruption."""
    if whole.finish != "interrupted" or not whole.token_ids_T:
        return whole
    room = min(request.max_new_tokens, max_context - len(request.token_ids_T))
    stopped = whole.token_ids_T[-1] in request.stop_token_ids
    if stopped or len(whole.token_ids_T) == room:
        return msgspec.structs.replace(whole, finish="stop" if stopped else "length")
    return whole
