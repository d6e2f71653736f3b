"""A seat: one attempt at the gateway, with its key, its endpoints and what has happened at it."""

from __future__ import annotations

import asyncio
import secrets
import time
from typing import Protocol, runtime_checkable

from flightschool.errors import InputError, TokenContractError
from flightschool.protocols import ModelEndpoint, ToolEndpoint
from flightschool.records import INFRA_REASONS, EndReason, Message, Task, TokenSpan, ToolCall, ToolResult
from flightschool.rollouts.dialect import MalformedCallError
from flightschool.rollouts.gateway.chat import Ask, Said, said_of
from flightschool.rollouts.gateway.messages import ApiError
from flightschool.rollouts.harness import EpisodeEndError
from flightschool.rollouts.transcript import CutTurnError

__all__ = ["Seat"]

_KEY_BYTES = 32


@runtime_checkable
class _WritesSpans(Protocol):
    def spans(self) -> tuple[TokenSpan, ...]: ...


class Seat:
    """One attempt at the gateway.

    Args:
        task: what is attempted.
        model: the attempt's model endpoint; a session behind it writes the spans.
        tools: its tool endpoint.
        max_completions: completions after which further requests are refused.
        decline_tool: name of the tool that ends the attempt when it succeeds.
    """

    def __init__(
        self,
        task: Task,
        model: ModelEndpoint,
        tools: ToolEndpoint,
        *,
        max_completions: int = 256,
        decline_tool: str = "decline",
    ) -> None:
        self.key = f"fs-{secrets.token_urlsafe(_KEY_BYTES)}"
        self.task = task
        self.tools = tools
        self.failed = asyncio.Event()
        """Set when the attempt cannot go on, through no fault of the policy."""
        self.end: EpisodeEndError | None = None
        """The last end that model or tools spoke of; infrastructure never gives way to another."""
        self.declined = False
        self.num_completions = 0
        self.under_way: set[asyncio.Task[object]] = set()
        """Requests being answered."""
        self._model = model
        self._max_completions = max_completions
        self._decline_tool = decline_tool
        self._num_asked = 0
        self._num_calls = 0
        self._num_waiting = 0
        self._waiting_since = 0.0
        self._waited_s = 0.0

    @property
    def waited_s(self) -> float:
        """Real seconds in which the program had at least one completion outstanding: our time, not the program's."""
        return self._waited_s + (time.monotonic() - self._waiting_since if self._num_waiting else 0.0)

    async def complete(self, ask: Ask) -> Said:
        """Sample the next message of one conversation.

        Raises:
            ApiError: the attempt is over, out of turns or of context, or failed.
        """
        self._admit()
        if self._num_asked >= self._max_completions:
            self._keep_end(EpisodeEndError(EndReason.MAX_TURNS, f"{self._max_completions} completions"))
            raise ApiError(400, f"this attempt's {self._max_completions} completions are used up", code="turn_limit")
        number = self._num_asked
        self._num_asked += 1
        self._wait(+1)
        cut = False
        try:
            message = await self._model.complete(ask.messages, ask.tools)
        except MalformedCallError as error:
            message = Message(role="assistant", content=error.text)  # as servers do whose parser finds no call
        except CutTurnError as error:
            message, cut = Message(role="assistant", content=error.text), True
        except EpisodeEndError as end:
            raise self._told(end) from end
        except UnicodeError:
            raise ApiError(400, "messages: expected valid Unicode text", code="invalid_value") from None
        except (InputError, TokenContractError) as error:
            raise self._told(EpisodeEndError(EndReason.ENGINE_ERROR, str(error))) from error
        finally:
            self._wait(-1)
        self.num_completions += 1
        spans = self._model.spans() if isinstance(self._model, _WritesSpans) else ()
        return said_of(number, message, spans, cut=cut)

    async def call(self, calls: list[ToolCall]) -> list[ToolResult]:
        """Run calls on the attempt's world, as one turn.

        Raises:
            ApiError: the attempt is over or failed.
        """
        self._admit()
        named = []
        for call in calls:
            self._num_calls += 1
            identity = call.id or f"program_{self._num_calls}"
            named.append(ToolCall(id=identity, name=call.name, arguments=call.arguments))
        try:
            results = list(await self.tools.call(named))
        except EpisodeEndError as end:
            raise self._told(end) from end
        pairs = zip(named, results, strict=True)
        self.declined = any(call.name == self._decline_tool and not r.is_error for call, r in pairs) or self.declined
        return results

    def fault(self, error: Exception) -> None:
        """The gateway itself failed at a request: neither policy nor program could have caused it."""
        self._told(EpisodeEndError(EndReason.HARNESS_ERROR, f"{type(error).__name__}: {error}"))

    def _admit(self) -> None:
        if self.declined or self.failed.is_set():
            raise ApiError(400, "this attempt is over", code="attempt_over")

    def _told(self, end: EpisodeEndError) -> ApiError:
        """What the program is told of an end; what the policy did not cause ends the attempt at once."""
        self._keep_end(end)
        if end.reason in INFRA_REASONS:
            self.failed.set()
            return ApiError(503, "the attempt failed and is over", code=str(end.reason))
        if end.reason is EndReason.CONTEXT_FULL:
            return ApiError(400, f"the context is full: {end.detail}", code="context_length_exceeded", param="messages")
        return ApiError(400, str(end), code=str(end.reason))

    def _keep_end(self, end: EpisodeEndError) -> None:
        if not self.failed.is_set():
            self.end = end

    def _wait(self, change: int) -> None:
        now = time.monotonic()
        if self._num_waiting:
            self._waited_s += now - self._waiting_since
        self._waiting_since = now
        self._num_waiting += change
