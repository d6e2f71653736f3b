"""The transcript of one attempt: messages on one side, token spans on the other.

Whatever writes completions (a session that samples, a recital that plays a recording) keeps this book. A history is
held against all that were told before, message by message, and never by its tokens: what was sampled stays as sampled.

- A history that extends a known one is *continued*: only the new messages are rendered.
- One that leaves a known one *forks* after the last completion that both share; the rest is rendered beside it.
- One that was asked before, word for word, is asked *again*: the completion gets a sibling and nothing is rendered.
- One that shares no completion is a new *root*: a sub-agent, or a history rewritten from its first answer on. A prompt
  span ends by opening the assistant's turn, so only a sampled completion may follow it; words put in the policy's mouth
  stand in a rendering of their own.

Requests may overlap: each holds its own ``Turn``, and only ``_write`` touches the forest.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import msgspec

from flightschool.protocols import Tokenizer
from flightschool.records import EndReason, Message, SpanKind, TokenSpan, ToolSpec
from flightschool.rollouts.dialect import CompactDialect, MalformedCallError
from flightschool.rollouts.harness import EpisodeEndError

__all__ = ["CutTurnError", "Sampling", "Transcript", "Turn"]

_Key: TypeAlias = Hashable


class CutTurnError(EpisodeEndError):
    """A completion met its token limit; ``text`` is what was said until then. The conversation may go on after it."""

    def __init__(self, text: str, detail: str) -> None:
        super().__init__(EndReason.TRUNCATED, detail)
        self.text = text


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """How a policy is sampled, and how fast its tokens run on the virtual clock."""

    temperature: float = 1.0
    max_new_tokens: int = 64
    prefill_tokens_per_s: float = 4000.0
    decode_tokens_per_s: float = 50.0
    shared: Literal["prompt", "opening"] = "prompt"
    """What the engine may keep in common with other sessions: the whole prompt, for the members of a group, or all of
    it before its last message, where tasks that open alike (equal tools, guidance, example) are attempted once each."""
    constrained: bool = False
    """Whether completions follow the dialect's grammar: prose, or calls of the tools shown with valid arguments."""


@dataclass
class _Point:
    """A completion with all that stands before it: where a history may go on."""

    leaf: int | None
    context_T: tuple[int, ...]
    said: Message
    ended: bool
    """Whether the stop token was sampled."""
    prefix_length: int
    lane: int
    continued: bool = False


@dataclass(frozen=True)
class _Asked:
    """A request as it was first rendered; the same words are never rendered a second time."""

    leaf: int | None
    context_T: tuple[int, ...]
    prefix_length: int


@dataclass
class _Node:
    """One message of the histories told so far: a trie over messages, by what of them is rendered."""

    children: dict[_Key, _Node] = field(default_factory=dict)
    asked: _Asked | None = None
    """The first request that ended with this message."""
    points: list[_Point] = field(default_factory=list)
    """Completions that say this message."""


@dataclass
class Turn:
    """One request under way: the context that its completion follows."""

    number: int
    """Assistant turn of the attempt, counted from 0 over all branches."""
    leaf: int | None
    """Span that the next one written here follows."""
    context_T: list[int]
    num_new: int
    """Tokens rendered for this request."""
    prefix_length: int
    """First tokens that other sessions share."""
    lane: int
    """Branch that the engine keeps a cache for, counted from 0; no two requests under way share one."""
    node: _Node


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
        self._roots: list[tuple[tuple[ToolSpec, ...], _Node]] = []
        self._num_lanes = 0
        self._turn = 0
        self.generation_ms = 0.0
        """Virtual milliseconds spent in generation so far."""

    def measure(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> int:
        """Tokens that the model would see before it completes these messages. They are written down like a request."""
        return len(self._render(list(messages), tuple(tools)).context_T)

    def spans(self) -> tuple[TokenSpan, ...]:
        """The forest as written so far."""
        return tuple(self._spans)

    def _path(self, leaf: int | None) -> list[TokenSpan]:
        """Spans from the root to a span."""
        path: list[TokenSpan] = []
        while leaf is not None:
            path.append(self._spans[leaf])
            leaf = self._spans[leaf].parent
        return path[::-1]

    def _room(self, turn: Turn) -> int:
        """Tokens that the context still holds."""
        return self._max_context - len(turn.context_T)

    # ------------------------------------------------------------------ messages to tokens

    def _render(self, messages: list[Message], tools: tuple[ToolSpec, ...]) -> Turn:
        """Find where a history goes on, and write what is new in it."""
        node, known, points = self._root(tools), 0, list[_Point]()
        for index, message in enumerate(messages, 1):
            node = node.children.setdefault(_key(message), _Node())
            if node.points:
                known, points = index, node.points
        if node.asked is not None:
            turn = self._again(node.asked, node)
        elif points:
            turn = self._continue(_choose(points, messages[known - 1]), messages[known:], node)
        else:
            turn = self._plant(messages, tools, node)
        if node.asked is None:
            node.asked = _Asked(turn.leaf, tuple(turn.context_T), turn.prefix_length)
        self._turn += 1
        return turn

    def _root(self, tools: tuple[ToolSpec, ...]) -> _Node:
        """Histories under other tools are other histories: the prompt shows the tools."""
        for known, node in self._roots:
            if known == tools:
                return node
        self._roots.append((tools, _Node()))
        return self._roots[-1][1]

    def _again(self, asked: _Asked, node: _Node) -> Turn:
        return Turn(self._turn, asked.leaf, list(asked.context_T), 0, asked.prefix_length, self._new_lane(), node)

    def _continue(self, point: _Point, new: Sequence[Message], node: _Node) -> Turn:
        lane = self._new_lane() if point.continued else point.lane
        point.continued = True
        turn = Turn(self._turn, point.leaf, list(point.context_T), 0, point.prefix_length, lane, node)
        tokens = list(self._tokenizer.close_assistant(point.ended)) + self._turns(new, ())
        return self._ask(turn, SpanKind.OBSERVATION, tokens)

    def _plant(self, messages: list[Message], tools: tuple[ToolSpec, ...], node: _Node) -> Turn:
        cut = len(messages) - (messages[-1].role != "tool")  # results of one turn are rendered together
        tokens = self._turns(messages[:cut], tools)
        turn = Turn(self._turn, None, [], 0, len(tokens), self._new_lane(), node)
        self._ask(turn, SpanKind.PROMPT, tokens + self._turns(messages[cut:], tools))
        if self._sampling.shared == "prompt":
            turn.prefix_length = turn.num_new
        return turn

    def _ask(self, turn: Turn, kind: SpanKind, tokens: list[int]) -> Turn:
        tokens += self._tokenizer.open_assistant()
        self._write(turn, kind, tuple(tokens))
        turn.num_new = len(tokens)
        return turn

    def _new_lane(self) -> int:
        self._num_lanes += 1
        return self._num_lanes - 1

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

    def _write(self, turn: Turn, kind: SpanKind, token_ids_T: tuple[int, ...], **fields: object) -> None:
        span = TokenSpan(
            id=len(self._spans),
            parent=turn.leaf,
            kind=kind,
            token_ids_T=token_ids_T,
            turn=turn.number,
            **fields,  # type: ignore[arg-type]  # the fields of a completion, typed where they are made
        )
        self._spans.append(span)
        turn.leaf = span.id
        turn.context_T += token_ids_T

    # ------------------------------------------------------------------ tokens to messages

    def _read(self, turn: Turn, token_ids_T: Sequence[int], *, ended: bool) -> Message:
        """The message that a completion means; histories may go on after it, whatever it is.

        Raises:
            CutTurnError: the completion did not end.
            MalformedCallError: it tried to call a tool and failed at it.
        """
        text = self._tokenizer.decode(token_ids_T)
        if not ended:
            self._keep_point(turn, Message(role="assistant", content=text), ended=False)
            raise CutTurnError(text, f"no end after {len(token_ids_T)} tokens")
        try:
            reply = self._dialect.parse(text, turn.number)
        except MalformedCallError as error:
            self._keep_point(turn, Message(role="assistant", content=error.text), ended=True)
            raise
        self._keep_point(turn, reply, ended=True)
        return reply

    def _keep_point(self, turn: Turn, said: Message, *, ended: bool) -> None:
        point = _Point(turn.leaf, tuple(turn.context_T), said, ended, turn.prefix_length, turn.lane)
        turn.node.children.setdefault(_key(said), _Node()).points.append(point)

    def _advance(self, num_prefilled: int, num_decoded: int) -> None:
        prefill_s = num_prefilled / self._sampling.prefill_tokens_per_s
        self.generation_ms += 1000.0 * (prefill_s + num_decoded / self._sampling.decode_tokens_per_s)


def _key(message: Message) -> _Key:
    """What of a message is rendered. Ids of calls are not.

    White space around an answer is not compared: programs strip it, and what was sampled is found again without.
    """
    content = message.content.strip() if message.role == "assistant" else message.content
    calls = tuple((call.name, json.dumps(call.arguments, sort_keys=True)) for call in message.tool_calls)
    return message.role, content, calls


def _choose(points: Sequence[_Point], told: Message) -> _Point:
    """Among completions of equal words: the one whose calls' ids were told, then one that nothing follows yet."""
    ids = [call.id for call in told.tool_calls]
    return min(points, key=lambda point: ([call.id for call in point.said.tool_calls] != ids, point.continued))
