"""A model behind somebody else's server, as a policy to be measured: ``openai:URL#MODEL``, ``anthropic:URL#MODEL``.

Only for evaluation: what such a server samples is not known token by token, so nothing of it trains. Who could have
caused an end?

* No answer after all retries (429, 5xx, time-outs, garbage instead of an answer): the engine. Never a 0.
* A request that the server refuses: on the first turn the engine (the policy has said nothing yet), later the policy,
  which filled its context or ran into a filter by what it wrote.
* A completion cut at its limit, or a call whose arguments are no JSON object: the policy.
"""

from __future__ import annotations

import asyncio
import json
import time
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from flightschool.errors import InfrastructureError
from flightschool.models import (
    ANTHROPIC,
    OPENAI,
    CallCompletion,
    ChatClient,
    RefusedRequestError,
    Retries,
    client_of,
    usual_key_env,
)
from flightschool.records import EndReason, Message, Task, TokenSpan, TokenUse, ToolCall, ToolSpec
from flightschool.rollouts.dialect import MalformedCallError
from flightschool.rollouts.harness import EpisodeEndError
from flightschool.rollouts.policies import PolicyEndpoint
from flightschool.rollouts.transcript import Sampling

__all__ = ["EndpointPolicy"]

_MOST_REQUESTS = 64
_LEAST_TOKENS = {OPENAI: 256, ANTHROPIC: 4096}
"""Foreign models speak longer than those trained here (and in the second format thoughts count): below this many tokens
an answer would be cut."""


class EndpointPolicy:
    """A model on a server of the OpenAI chat format or of Anthropic's Messages format, with tools.

    Args:
        text: ``openai:URL#MODEL`` or ``anthropic:URL#MODEL``; the key comes from the environment (``OPENAI_API_KEY``,
            ``ANTHROPIC_API_KEY``).
        sampling: temperature and the most tokens of a turn.
        retries: of each request.

    Raises:
        InputError: no such address, or no key in the environment.
    """

    def __init__(self, text: str, sampling: Sampling | None = None, retries: Retries | None = None) -> None:
        self.name = text
        self._client = client_of(text, key_env=usual_key_env(text), retries=retries)
        self._sampling = sampling or Sampling()
        self._threads = ThreadPoolExecutor(max_workers=_MOST_REQUESTS, thread_name_prefix="endpoint")
        weakref.finalize(self, _shut, self._client, self._threads)

    def endpoint(self, task: Task, seed: int, group: str) -> PolicyEndpoint:  # noqa: ARG002
        """A conversation of its own."""
        return _Conversation(self._client, self._threads, self._sampling, seed)


class _Conversation:
    """One attempt's conversation."""

    def __init__(self, client: ChatClient, threads: ThreadPoolExecutor, sampling: Sampling, seed: int) -> None:
        self.generation_ms = 0.0
        self.usage = TokenUse(num_prompt_tokens=0, num_completion_tokens=0)
        self._client = client
        self._threads = threads
        self._sampling = sampling
        self._seed = seed
        self._turn = 0

    async def complete(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Message:
        """The next message.

        Raises:
            EpisodeEndError: no answer, a refused request, or a completion that was cut.
            MalformedCallError: arguments that are no JSON object.
        """
        started = time.monotonic()
        answer = await asyncio.get_running_loop().run_in_executor(
            self._threads, self._ask, list(messages), tuple(tools)
        )
        self.generation_ms += 1e3 * (time.monotonic() - started)
        self._turn += 1
        said = answer.said
        self.usage = TokenUse(
            num_prompt_tokens=self.usage.num_prompt_tokens + said.num_prompt_tokens,
            num_completion_tokens=self.usage.num_completion_tokens + said.num_completion_tokens,
        )
        if said.finish == "length":
            raise EpisodeEndError(EndReason.TRUNCATED, f"turn {self._turn} was cut at its limit of tokens")
        return Message(role="assistant", content=said.text, tool_calls=_calls(answer, self._turn))

    def _ask(self, messages: list[Message], tools: tuple[ToolSpec, ...]) -> CallCompletion:
        try:
            return self._client.call(
                [message for message in messages if message.content or message.role != "system"],
                tools,
                max_tokens=max(_LEAST_TOKENS[self._client.endpoint.dialect], self._sampling.max_new_tokens),
                temperature=self._sampling.temperature,
                seed=(self._seed + self._turn) % 2**31,
            )
        except RefusedRequestError as error:
            reason = EndReason.CONTEXT_FULL if self._turn else EndReason.ENGINE_ERROR
            raise EpisodeEndError(reason, str(error)) from error
        except InfrastructureError as error:
            raise EpisodeEndError(EndReason.ENGINE_ERROR, str(error)) from error

    def spans(self) -> tuple[TokenSpan, ...]:
        """None: the server's tokens are not known."""
        return ()

    def close(self) -> None:
        """Connections belong to the policy."""


def _shut(client: ChatClient, threads: ThreadPoolExecutor) -> None:
    """Nobody holds the policy any more: no request is under way."""
    threads.shutdown(wait=False)
    client.close()


def _calls(answer: CallCompletion, turn: int) -> tuple[ToolCall, ...]:
    calls = []
    for number, raw in enumerate(answer.calls):
        try:
            arguments = json.loads(raw.arguments or "{}")
        except (ValueError, RecursionError):
            arguments = None
        if not isinstance(arguments, dict):
            raise MalformedCallError(f"{raw.name}({raw.arguments[:200]})", "the arguments are no JSON object")
        calls.append(ToolCall(id=raw.id or f"call_{turn}_{number}", name=raw.name, arguments=arguments))
    return tuple(calls)
