"""Recitals: recorded episodes played again, as the tokens that the policy would have had to sample.

An operator's words have no behaviour log-probabilities, so they are spans of a kind of their own: a trainer may imitate
them and nothing else. A recital goes through the very session and harness that rollouts use. What is imitated is
therefore what will be sampled: the same prompt, the same dialect, the same results of the same tools.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from flightschool.protocols import Tokenizer
from flightschool.records import EndReason, Message, SpanKind, Task, ToolSpec
from flightschool.rollouts.harness import EpisodeEndError
from flightschool.rollouts.transcript import Sampling, Transcript

__all__ = ["RecitalPolicy"]


class RecitalPolicy:
    """Plays recorded assistant messages task by task and writes demonstration spans.

    Args:
        turns: task id → assistant messages of one recorded episode, in order.
        tokenizer: of the model that shall imitate them.
        max_context: longest sequence in tokens; an episode that would grow beyond it ends as one with a full context.
        name: what attempts record.
    """

    def __init__(
        self, turns: Mapping[str, Sequence[Message]], tokenizer: Tokenizer, max_context: int, name: str = "recital"
    ) -> None:
        self.name = name
        self._turns = turns
        self._tokenizer = tokenizer
        self._max_context = max_context

    def endpoint(self, task: Task, seed: int, group: str) -> Recital:  # noqa: ARG002
        """The messages of this task; an episode without any ends at once, as truncated."""
        return Recital(self._turns.get(task.id, ()), self._tokenizer, self._max_context)


class Recital(Transcript):
    """A transcript whose completions are given. Implements ``ModelEndpoint``."""

    def __init__(self, turns: Sequence[Message], tokenizer: Tokenizer, max_context: int) -> None:
        super().__init__(tokenizer, Sampling(), max_context)
        self._left = iter(turns)

    def close(self) -> None:
        """Nothing more is said."""
        self._left = iter(())

    async def complete(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Message:
        """The next recorded message, read back from its tokens: what cannot be read back cannot be imitated.

        Raises:
            EpisodeEndError: the recording is over, or the context is full.
            MalformedCallError: the dialect cannot say what was recorded.
        """
        turn = self._render(list(messages), tuple(tools))
        said = next(self._left, None)
        if said is None:
            raise EpisodeEndError(EndReason.TRUNCATED, "the recording ends here")
        text = self._dialect.assistant(_as_shown(said, tools))
        token_ids_T = (*self._tokenizer.encode(text), self._tokenizer.stop_token_ids[0])
        if len(token_ids_T) > self._room(turn):
            raise EpisodeEndError(EndReason.CONTEXT_FULL, f"{len(turn.context_T)} tokens")
        self._write(turn, SpanKind.DEMONSTRATION, token_ids_T)
        self._advance(turn.num_new, len(token_ids_T))
        return self._read(turn, token_ids_T, ended=True)


def _as_shown(said: Message, tools: Sequence[ToolSpec]) -> Message:
    """The message with arguments in the order in which the prompt shows them.

    Formats and stores sort keys as they like. To imitate that order would teach against the signatures and examples in
    the prompt, and to write an argument before what it depends on.
    """
    shown = {tool.name: list(tool.parameters.get("properties", {})) for tool in tools}
    calls = []
    for call in said.tool_calls:
        places = {name: place for place, name in enumerate(shown.get(call.name, ()))}
        names = sorted(call.arguments, key=lambda name: places.get(name, len(places)))
        calls.append(msgspec.structs.replace(call, arguments={name: call.arguments[name] for name in names}))
    return msgspec.structs.replace(said, tool_calls=tuple(calls))
