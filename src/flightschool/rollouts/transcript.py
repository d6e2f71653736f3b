"""The transcript of one attempt: messages on one side, token spans on the other.

Whatever writes completions (a session that samples, a recital that plays a recording) keeps this book: a history that
extends the one already written is *continued*, only the new messages are rendered; a history that was edited starts a
new tree of the forest, since re-rendering what was written would train on tokens that no one drew.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from flightschool.protocols import Tokenizer
from flightschool.records import EndReason, Message, SpanKind, TokenSpan, ToolSpec
from flightschool.rollouts.dialect import CompactDialect, MalformedCallError
from flightschool.rollouts.harness import EpisodeEndError

__all__ = ["Sampling", "Transcript"]


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """How a policy is sampled, and how fast its tokens run on the virtual clock."""

    temperature: float = 1.0
    max_new_tokens: int = 64
    prefill_tokens_per_s: float = 4000.0
    decode_tokens_per_s: float = 50.0
    shared: Literal["prompt", "opening"] = "prompt"
    """What the engine may keep in common with other sessions: the whole prompt, for the members of a group, or all of
    it before its last message, where tasks that open alike (equal tools, guidance, example) are attempted once each."""


class Transcript:
    """Spans of one attempt, as they grow.

    Args:
        tokenizer: text to ids with chat roles.
        sampling: virtual speed of tokens, and what of the prompt is shared.
        max_context: longest sequence, in tokens.
    """

    def __init__(self, tokenizer: Tokenizer, sampling: Sampling, max_context: int) -> None:
        self._tokenizer = tokenizer
        self._sampling = sampling
        self._max_context = max_context
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

    @property
    def _room(self) -> int:
        """Tokens that the context still holds."""
        return self._max_context - len(self._context_T)

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

    def _read(self, token_ids_T: Sequence[int], messages: list[Message], *, ended: bool) -> Message:
        """The message that a completion means; the next turn continues after it.

        Raises:
            EpisodeEndError: the completion did not end.
            MalformedCallError: it tried to call a tool and failed at it.
        """
        turn, self._turn = self._turn, self._turn + 1
        self._ended_turn = ended
        text = self._tokenizer.decode(token_ids_T)
        if not ended:
            raise EpisodeEndError(EndReason.TRUNCATED, f"no end after {len(token_ids_T)} tokens")
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
