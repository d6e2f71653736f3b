"""The session: the only writer of sampled spans.

It stands between a harness, which speaks messages, and an engine, which speaks token ids. What was sampled is kept
exactly as sampled (see ``transcript`` for how histories are continued). The HTTP gateway wraps this same object.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from flightschool.errors import InfrastructureError, TokenContractError
from flightschool.protocols import Engine, Generation, GenerationRequest, Tokenizer
from flightschool.records import EndReason, Message, SpanKind, ToolSpec
from flightschool.rollouts.harness import EpisodeEndError
from flightschool.rollouts.transcript import Sampling, Transcript, Turn

__all__ = ["Session"]


LEAST_TOKENS_NEVER_ALL_CERTAIN = 8
"""A converged policy may be certain of a short turn to the last bit; of more tokens than these, zeros are a fill."""


class Session(Transcript):
    """One attempt's conversation with an engine. Implements ``ModelEndpoint``.

    Args:
        key: session key given to the engine; unique among running attempts.
        engine: token-exact generation.
        tokenizer: text to ids with chat roles.
        sampling: temperature, limits, virtual speed.
        seed: the attempt's sampling seed; each turn derives its own.
    """

    def __init__(self, key: str, engine: Engine, tokenizer: Tokenizer, sampling: Sampling, seed: int) -> None:
        super().__init__(tokenizer, sampling, engine.max_context)
        self._key = key
        self._engine = engine
        self._seed = seed

    def close(self) -> None:
        """Free the engine's caches for this session."""
        for lane in range(max(self._num_lanes, 1)):
            self._engine.release(self._engine_key(lane))

    def _engine_key(self, lane: int) -> str:
        """Branches under way at the same time need caches of their own."""
        return f"{self._key}#{lane}" if lane else self._key

    async def complete(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Message:
        """Sample the next assistant message. Requests of one attempt may overlap; a cancelled one leaves no completion.

        Raises:
            EpisodeEndError: the context is full, the completion was cut, or the engine died.
            MalformedCallError: the completion tried to call a tool and failed at it.
        """
        turn = self._render(list(messages), tuple(tools))
        room = self._room(turn)
        if room < 1:
            raise EpisodeEndError(EndReason.CONTEXT_FULL, f"{len(turn.context_T)} tokens")
        generation = await self._generate(turn, min(room, self._sampling.max_new_tokens))
        self._write_completion(turn, generation)
        self._advance(turn.num_new, len(generation.token_ids_T))
        return self._read(turn, generation.token_ids_T, ended=generation.finish == "stop")

    async def _generate(self, turn: Turn, max_new_tokens: int) -> Generation:
        request = GenerationRequest(
            session=self._engine_key(turn.lane),
            token_ids_T=tuple(turn.context_T),
            max_new_tokens=max_new_tokens,
            stop_token_ids=self._tokenizer.stop_token_ids,
            temperature=self._sampling.temperature,
            seed=self._seed + turn.number,
            prefix_length=turn.prefix_length,
        )
        try:
            generation = await self._engine.generate(request)
        except InfrastructureError as error:
            raise EpisodeEndError(EndReason.ENGINE_ERROR, str(error)) from error
        check_generation(generation)
        return generation

    def _write_completion(self, turn: Turn, generation: Generation) -> None:
        self._write(
            turn,
            SpanKind.COMPLETION,
            generation.token_ids_T,
            logprobs_T=generation.logprobs_T,
            versions=generation.versions,
            kv_step=generation.kv_step,
            temperature=self._sampling.temperature,
        )


def check_generation(generation: Generation) -> None:
    """Refuse what is not token-exact.

    Raises:
        TokenContractError: log-probabilities missing, of another length, NaN, positive or all 0.0; versions that do
            not cover the tokens.
    """
    num_tokens = len(generation.token_ids_T)
    logprobs_T = generation.logprobs_T
    if num_tokens == 0:
        raise TokenContractError("an engine returned no tokens", expected="at least one token", mend="check the engine")
    if len(logprobs_T) != num_tokens:
        raise TokenContractError(
            f"{len(logprobs_T)} log-probabilities for {num_tokens} tokens",
            expected="one log-probability a token",
            mend="ask the engine for log-probabilities of sampled tokens",
        )
    if any(math.isnan(value) or value > 0.0 for value in logprobs_T):
        raise TokenContractError("a log-probability is NaN or above 0", expected="values ≤ 0", mend="check the engine")
    if num_tokens > LEAST_TOKENS_NEVER_ALL_CERTAIN and not any(logprobs_T):
        raise TokenContractError(
            "every log-probability is 0.0, as if certain",
            expected="behaviour log-probabilities",
            mend="the engine fills in zeros where it should report; enable its log-probabilities",
        )
    if sum(run.count for run in generation.versions) != num_tokens:
        raise TokenContractError(
            "weights versions do not cover the tokens", expected=f"{num_tokens} tokens covered", mend="check the engine"
        )
