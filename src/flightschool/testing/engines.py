"""A byte tokenizer and an engine that speaks prepared texts: sessions can be tested to the token without torch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

from flightschool.errors import InfrastructureError
from flightschool.protocols import Generation, GenerationRequest
from flightschool.records import VersionRun, WeightsVersion

__all__ = ["ByteTokenizer", "SpokenEngine"]

OPEN, CLOSE = 256, 257
ROLES = {"system": 258, "user": 259, "assistant": 260}


class ByteTokenizer:
    """Bytes as tokens; turns are ``OPEN role … CLOSE``."""

    vocab_size = 261
    stop_token_ids = (CLOSE,)

    def encode(self, text: str) -> tuple[int, ...]:
        """UTF-8 bytes."""
        return tuple(text.encode())

    def decode(self, token_ids_T: Sequence[int]) -> str:
        """Text of the bytes; control tokens are left out."""
        return bytes(t for t in token_ids_T if t < OPEN).decode(errors="replace")

    def turn(self, role: str, text: str) -> tuple[int, ...]:
        """One whole turn."""
        return (OPEN, ROLES[role], *self.encode(text), CLOSE)

    def open_assistant(self) -> tuple[int, ...]:
        """The opening of an assistant turn."""
        return (OPEN, ROLES["assistant"])

    def close_assistant(self, ended: bool) -> tuple[int, ...]:
        """Nothing if the stop token was sampled, else the stop token."""
        return () if ended else (CLOSE,)


class SpokenEngine:
    """Says the given texts one after the other, or what a function makes of the decoded context.

    Args:
        texts: completions in order of request, or a function of the context's text.
        fail_at: number of the request that dies as infrastructure, counted from 0.
    """

    def __init__(
        self, texts: Iterable[str] | Callable[[str], str], *, max_context: int = 100_000, fail_at: int | None = None
    ) -> None:
        self.version = WeightsVersion(run="spoken", incarnation=0, step=0)
        self.max_context = max_context
        self.requests: list[GenerationRequest] = []
        self.released: list[str] = []
        self._speak: Callable[[str], str]
        if callable(texts):
            self._speak = texts
        else:
            prepared = iter(texts)
            self._speak = lambda _: next(prepared)
        self._fail_at = fail_at

    async def generate(self, request: GenerationRequest) -> Generation:
        """Say the next text; log-probabilities are -0.5 a token."""
        number = len(self.requests)
        self.requests.append(request)
        await asyncio.sleep(0)
        if self._fail_at == number:
            raise InfrastructureError("the engine died", where="SpokenEngine", mend="none, it was asked to")
        tokenizer = ByteTokenizer()
        tokens = (*tokenizer.encode(self._speak(tokenizer.decode(request.token_ids_T))), CLOSE)
        tokens, finish = (tokens, "stop") if len(tokens) <= request.max_new_tokens else (tokens[:-1], "length")
        tokens = tokens[: request.max_new_tokens]
        return Generation(
            token_ids_T=tokens,
            logprobs_T=(-0.5,) * len(tokens),
            versions=(VersionRun(step=0, count=len(tokens)),),
            kv_step=0,
            finish=finish,
        )

    def release(self, session: str) -> None:
        """Remember that the session was let go."""
        self.released.append(session)
