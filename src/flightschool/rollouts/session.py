"""The session: the only writer of token spans.

It stands between a harness, which speaks messages, and an engine, which speaks token ids. What was sampled is
kept exactly as sampled: a history that extends the sampled one is *continued* (only the new messages are
rendered); a history that was edited starts a new tree of the forest, since re-rendering what was sampled would
train on tokens that no one drew. The HTTP gateway wraps this same object.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import msgspec

from flightschool.errors import InfrastructureError, TokenContractError
from flightschool.protocols import Engine, Generation, GenerationRequest, Tokenizer
from flightschool.records import EndReason, Message, SpanKind, TokenSpan, ToolSpec
from flightschool.rollouts.dialect import CompactDialect, MalformedCallError
from flightschool.rollouts.harness import EpisodeEndError

__all__ = ["Sampling", "Session"]


LEAST_TOKENS_NEVER_ALL_CERTAIN = 8
"""A converged policy may be certain of a short turn to the last bit; of more tokens than these, zeros are a fill."""


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """How a policy is sampled, and how fast its tokens run on the virtual clock."""

    temperature: float = 1.0
    max_new_tokens: int = 64
    prefill_tokens_per_s: float = 4000.0
    decode_tokens_per_s: float = 50.0
    shared: Literal["prompt", "opening"] = "prompt"
    """What the engine may keep in common with other sessions: the whole prompt, for the members of a group, or all of
    it before its last message, where tasks that open alike (equal tools, guidance, example) are attempted once each."""


class Session:
    """One attempt's conversation with an engine. Implements ``ModelEndpoint``.

    Args:
        key: session key given to the engine; unique among running attempts.
        engine: token-exact generation.
        tokenizer: text to ids with chat roles.
        sampling: temperature, limits, virtual speed.
        seed: the attempt's sampling seed; each turn derives its own.
    """

    def __init__(self, key: str, engine: Engine, tokenizer: Tokenizer, sampling: Sampling, seed: int) -> None:
        self._key = key
        self._engine = engine
        self._tokenizer = tokenizer
        self._sampling = sampling
        self._seed = seed
        self._dialect = CompactDialect()
        self._spans: list[TokenSpan] = []
        self._seen: list[Message] = []
        self._tools: tuple[ToolSpec, ...] = ()
        self._leaf: int | None = None
        self._context_T: list[int] = []
        self._prefix_length = 0
        self._turn = 0
        self._ended_turn = True
        self.generation_ms = 0.0
        """Virtual milliseconds spent in generation so far."""

    def spans(self) -> tuple[TokenSpan, ...]:
        """The forest as written so far."""
        return tuple(self._spans)

    def close(self) -> None:
        """Free the engine's cache for this session."""
        self._engine.release(self._key)

    async def complete(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Message:
        """Sample the next assistant message.

        Raises:
            EpisodeEndError: the context is full, the completion was cut, or the engine died.
            MalformedCallError: the completion tried to call a tool and failed at it.
        """
        num_new = self._render(list(messages), tuple(tools))
        room = self._engine.max_context - len(self._context_T)
        if room < 1:
            raise EpisodeEndError(EndReason.CONTEXT_FULL, f"{len(self._context_T)} tokens")
        generation = await self._generate(min(room, self._sampling.max_new_tokens))
        self._write_completion(generation)
        self._advance(num_new, len(generation.token_ids_T))
        return self._read(generation, list(messages))

    # ------------------------------------------------------------------ messages to tokens

    def _render(self, messages: list[Message], tools: tuple[ToolSpec, ...]) -> int:
        """Append the tokens of what is new in ``messages``; returns how many tokens that were."""
        known = len(self._seen)
        if self._leaf is not None and tools == self._tools and messages[:known] == self._seen:
            tokens = list(self._tokenizer.close_assistant(self._ended_turn))
            tokens += self._turns(messages[known:], ())
            kind = SpanKind.OBSERVATION
        else:
            self._leaf, self._context_T = None, []
            cut = len(messages) - (messages[-1].role != "tool")  # results of one turn are rendered together
            tokens = self._turns(messages[:cut], tools)
            self._prefix_length = len(tokens)
            tokens += self._turns(messages[cut:], tools)
            kind = SpanKind.PROMPT
        tokens += self._tokenizer.open_assistant()
        self._write(kind, tuple(tokens))
        if kind is SpanKind.PROMPT and self._sampling.shared == "prompt":
            self._prefix_length = len(tokens)
        self._seen, self._tools = messages, tools
        return len(tokens)

    def _turns(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> list[int]:
        tokens: list[int] = []
        pending: list[str] = []
        for message in messages:
            if message.role == "tool":
                pending.append(self._dialect.result(message.content))
                continue
            if pending:
                tokens += self._tokenizer.turn("user", "\n".join(pending))
                pending = []
            tokens += self._tokenizer.turn(message.role, self._text(message, tools))
        if pending:
            tokens += self._tokenizer.turn("user", "\n".join(pending))
        return tokens

    def _text(self, message: Message, tools: Sequence[ToolSpec]) -> str:
        if message.role == "system":
            return self._dialect.system(message.content, tools)
        return self._dialect.assistant(message) if message.role == "assistant" else message.content

    # ------------------------------------------------------------------ tokens to spans

    async def _generate(self, max_new_tokens: int) -> Generation:
        request = GenerationRequest(
            session=self._key,
            token_ids_T=tuple(self._context_T),
            max_new_tokens=max_new_tokens,
            stop_token_ids=self._tokenizer.stop_token_ids,
            temperature=self._sampling.temperature,
            seed=self._seed + self._turn,
            prefix_length=self._prefix_length,
        )
        try:
            generation = await self._engine.generate(request)
        except InfrastructureError as error:
            raise EpisodeEndError(EndReason.ENGINE_ERROR, str(error)) from error
        check_generation(generation)
        return generation

    def _write_completion(self, generation: Generation) -> None:
        self._write(
            SpanKind.COMPLETION,
            generation.token_ids_T,
            logprobs_T=generation.logprobs_T,
            versions=generation.versions,
            kv_step=generation.kv_step,
            temperature=self._sampling.temperature,
        )

    def _write(self, kind: SpanKind, token_ids_T: tuple[int, ...], **fields: object) -> None:
        span = TokenSpan(
            id=len(self._spans),
            parent=self._leaf,
            kind=kind,
            token_ids_T=token_ids_T,
            turn=self._turn,
            **fields,  # type: ignore[arg-type]  # the fields of a completion, typed where they are made
        )
        self._spans.append(span)
        self._leaf = span.id
        self._context_T += token_ids_T

    # ------------------------------------------------------------------ tokens to messages

    def _read(self, generation: Generation, messages: list[Message]) -> Message:
        turn, self._turn = self._turn, self._turn + 1
        self._ended_turn = generation.finish == "stop"
        text = self._tokenizer.decode(generation.token_ids_T)
        if not self._ended_turn:
            raise EpisodeEndError(EndReason.TRUNCATED, f"no end after {len(generation.token_ids_T)} tokens")
        try:
            reply = self._dialect.parse(text, turn)
        except MalformedCallError as error:
            self._seen = [*messages, Message(role="assistant", content=error.text)]
            raise
        self._seen = [*messages, reply]
        return reply

    def _advance(self, num_prefilled: int, num_decoded: int) -> None:
        prefill_s = num_prefilled / self._sampling.prefill_tokens_per_s
        self.generation_ms += 1000.0 * (prefill_s + num_decoded / self._sampling.decode_tokens_per_s)


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
