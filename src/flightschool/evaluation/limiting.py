"""A policy under limits: what it may still use is looked at before and after every turn."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from flightschool.evaluation.rules import Limits, Prices, cost_usd, use_of_spans
from flightschool.records import EndReason, Message, Task, TokenSpan, TokenUse, ToolSpec
from flightschool.rollouts import EpisodeEndError, Policy, PolicyEndpoint

__all__ = ["LimitedPolicy"]


class LimitedPolicy:
    """Another policy, whose attempts end as its own failures when they go beyond a limit.

    Args:
        policy: what is limited; its name stays.
        limits: of one attempt.
        prices: turn tokens into money; needed where cost is limited.
    """

    def __init__(self, policy: Policy, limits: Limits, prices: Prices | None) -> None:
        self.name = policy.name
        self._policy = policy
        self._limits = limits
        self._prices = prices

    def endpoint(self, task: Task, seed: int, group: str) -> PolicyEndpoint:
        """The policy's own endpoint, watched."""
        return _Watched(self._policy.endpoint(task, seed, group), self._limits, self._prices)


class _Watched:
    """One attempt's endpoint with a meter on it."""

    def __init__(self, inner: PolicyEndpoint, limits: Limits, prices: Prices | None) -> None:
        self.generation_ms = inner.generation_ms
        self._inner = inner
        self._limits = limits
        self._prices = prices
        self._num_calls = 0
        self._waited_s = 0.0

    @property
    def usage(self) -> TokenUse | None:
        return getattr(self._inner, "usage", None)

    async def complete(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Message:
        """The next message. Raises ``EpisodeEndError`` when a limit is passed."""
        started = time.monotonic()
        left_s = None if self._limits.max_s is None else max(0.0, self._limits.max_s - self._waited_s)
        try:
            reply = await asyncio.wait_for(self._inner.complete(messages, tools), left_s)
        except TimeoutError as error:
            raise EpisodeEndError(EndReason.TIME_LIMIT, f"more than {self._limits.max_s or 0:g} s") from error
        finally:
            self.generation_ms = self._inner.generation_ms
        self._waited_s += time.monotonic() - started
        self._num_calls += len(reply.tool_calls)
        passed = self._passed()
        if passed:
            raise EpisodeEndError(EndReason.RESOURCE_LIMIT, passed)
        return reply

    def _passed(self) -> str:
        """Which limit is passed, in words; empty for none."""
        limits = self._limits
        if limits.max_calls is not None and self._num_calls > limits.max_calls:
            return f"{self._num_calls} calls, {limits.max_calls} are allowed"
        if limits.max_tokens is None and limits.max_cost_usd is None:
            return ""
        use = self.usage or use_of_spans(self._inner.spans())
        if limits.max_tokens is not None and use.num_completion_tokens > limits.max_tokens:
            return f"{use.num_completion_tokens} tokens, {limits.max_tokens} are allowed"
        if limits.max_cost_usd is not None and self._prices is not None:
            cost = cost_usd(use, self._prices)
            if cost > limits.max_cost_usd:
                return f"${cost:.4f}, ${limits.max_cost_usd:g} is allowed"
        return ""

    def spans(self) -> tuple[TokenSpan, ...]:
        return self._inner.spans()

    def close(self) -> None:
        self._inner.close()
