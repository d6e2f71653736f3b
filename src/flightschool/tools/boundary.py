"""The tool boundary of one attempt.

Each call goes through the same gates, in this order: known and shown → arguments → permission → call budget →
read cache → weather → world. A gate that refuses answers in words the model can act on; what the boundary knows
beyond that (the fault, who served, which rule decided) is logged in the event and never told.

Calls of one turn are executed one after the other, so that an episode is deterministic; on the virtual clock they
overlap, and the turn lasts as long as its slowest call.
"""

from __future__ import annotations

import asyncio
import difflib
import functools
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

from flightschool.digest import canonical_json
from flightschool.errors import InfrastructureError, InputError
from flightschool.protocols import PermissionDecision, Permissions, Weather, World, WorldReply
from flightschool.records import Effect, Permission, ToolCall, ToolEvent, ToolResult, ToolSpec
from flightschool.tools.clock import VirtualClock, check_latency, sample_latency_ms
from flightschool.tools.schema import validate_arguments
from flightschool.tools.wire import unusable_value, wire_safe

__all__ = ["CACHE_LATENCY_MS", "ToolBoundary", "render_reply"]

CACHE_LATENCY_MS = 1.0
"""Virtual time of an answer from the read cache."""


MOST_WAITING = 64
"""Calls that may wait for worlds elsewhere at once, over all attempts of a process."""


@functools.cache
def _waiters() -> ThreadPoolExecutor:
    """Threads for calls that wait; the event loop's own are too few for a machine with few cores."""
    return ThreadPoolExecutor(MOST_WAITING, thread_name_prefix="waiting-world")


class ToolBoundary:
    """Everything between one policy and one world, for one attempt (``protocols.ToolEndpoint``).

    The boundary does not own the world: whoever opened it takes the snapshot after ``close()`` and then closes it.

    Args:
        world: the state of this attempt.
        specs: all tools of the environment.
        permissions: decides each call; an exception in it is a denial.
        shown: names of the tools that the task shows; empty means all.
        weather: faults, or None for a clean run, which then keeps no history of states.
        max_calls: calls after which every further call is refused; refused calls count.
        clock: virtual clock shared with whoever counts generation time; a new one if None.
        seed: seed of latencies.
        cache_reads: whether equal reads are answered from memory until the next write.
        enforce: whether a denied call is refused. Without it the call runs and its event says that it was denied.

    Raises:
        InputError: two tools of one name, a shown tool that does not exist, or a latency that is no latency.
    """

    def __init__(
        self,
        world: World,
        specs: Sequence[ToolSpec],
        permissions: Permissions,
        *,
        shown: Sequence[str] = (),
        weather: Weather | None = None,
        max_calls: int = 64,
        clock: VirtualClock | None = None,
        seed: int = 0,
        cache_reads: bool = False,
        enforce: bool = True,
    ) -> None:
        self._world = world
        self._specs = _select(specs, shown)
        self._permissions = permissions
        self._weather = weather
        self._max_calls = max_calls
        self._clock = VirtualClock() if clock is None else clock
        self._seed = seed
        self._enforce = enforce
        self._cache: dict[tuple[str, bytes], ToolResult] | None = {} if cache_reads else None
        self._events: list[ToolEvent] = []
        self._history: list[World] = []
        self._turn = 0
        self._closed = False
        self._waits = bool(getattr(world, "waits", False))

    @property
    def clock(self) -> VirtualClock:
        """The virtual clock that calls advance."""
        return self._clock

    @property
    def events(self) -> tuple[ToolEvent, ...]:
        """All calls so far, refused ones included, in order of execution."""
        return tuple(self._events)

    @property
    def history(self) -> tuple[World, ...]:
        """The world before each successful write, oldest first; empty without weather."""
        return tuple(self._history)

    def specs(self) -> Sequence[ToolSpec]:
        """The tools that the task shows, in the environment's order."""
        return tuple(self._specs.values())

    async def call(self, calls: Sequence[ToolCall]) -> Sequence[ToolResult]:
        """Run the calls of one turn; results in their order. A world that waits for others does so in a thread.

        Raises:
            InfrastructureError: the world or a fault broke, or the boundary is closed. Never for what a policy did.
        """
        if self._waits:
            return await asyncio.get_running_loop().run_in_executor(_waiters(), self.run, calls)
        return self.run(calls)

    def run(self, calls: Sequence[ToolCall]) -> Sequence[ToolResult]:
        """The same without an event loop: for plain code, and for whoever brings a thread of its own.

        Raises:
            InfrastructureError: the world or a fault broke, or the boundary is closed. Never for what a policy did.
        """
        if self._closed:
            raise InfrastructureError(
                "a tool was called after the episode was over",
                where=", ".join(call.name for call in calls),
                expected="no call after ToolBoundary.close()",
                mend="end background tasks of the harness before it returns",
            )
        if not calls:
            return ()
        start_ms, slowest_ms = self._clock.now_ms, 0.0
        results: list[ToolResult] = []
        for asked in calls:
            call = wire_safe(asked)
            result, took_ms = self._one(call, problem=None if call is asked else unusable_value(asked.arguments))
            self._log(call, result, start_ms, took_ms)
            results.append(result)
            slowest_ms = max(slowest_ms, took_ms)
        self._clock.advance(slowest_ms)
        self._turn += 1
        return results

    def close(self) -> None:
        """Cut the policy off: no call is possible afterwards, and kept states are let go. Safe to repeat."""
        self._closed = True
        for world in self._history:
            world.close()
        self._history.clear()

    # -------------------------------------------------------------------------------------------- one call

    def _one(self, call: ToolCall, problem: str | None) -> tuple[ToolResult, float]:
        """The answer to one call and its virtual milliseconds; ``problem`` if its arguments cannot be carried."""
        spec = self._specs.get(call.name)
        if spec is None:
            return _refusal(call, self._unknown(call.name)), 0.0
        problem = problem or validate_arguments(spec, call.arguments)
        if problem is not None:
            return _refusal(call, f"{call.name}: {problem}"), 0.0
        permission = self._permit(call)
        if not permission.allowed and self._enforce:
            text = f"permission denied: {call.name} is not allowed with these arguments now; do not retry it unchanged"
            return _refusal(call, text, permission), 0.0
        if len(self._events) >= self._max_calls:
            text = f"call budget of {self._max_calls} calls is used up; give the final answer without further calls"
            return _refusal(call, text, permission), 0.0
        result, took_ms = self._serve(call, spec)
        return msgspec.structs.replace(result, call_id=call.id, permission=permission), took_ms

    def _unknown(self, name: str) -> str:
        # a tool that exists but is not shown gets the same answer: its existence is not told
        near = difflib.get_close_matches(name, self._specs, n=1)
        hint = f"did you mean {near[0]}?" if near else f"the tools are: {', '.join(self._specs) or 'none'}"
        return f"unknown tool {name[:60]!r}; {hint}"

    def _permit(self, call: ToolCall) -> Permission:
        try:
            decision: PermissionDecision = self._permissions.decide(call, self.events)
            return Permission(allowed=decision.allowed is True, rule=decision.rule, reason=decision.reason)
        except Exception as error:  # noqa: BLE001  default deny: whatever goes wrong in a rule is a denial
            return Permission(allowed=False, rule="error", reason=f"{type(error).__name__}: {error}")

    def _serve(self, call: ToolCall, spec: ToolSpec) -> tuple[ToolResult, float]:
        """Cache, weather and world of a call that may run."""
        key = (call.name, canonical_json(call.arguments)) if self._cache is not None else None
        if key is not None and self._cache is not None and spec.effect is Effect.READ:
            known = self._cache.get(key)
            if known is not None:
                return msgspec.structs.replace(known, served_by="cache"), CACHE_LATENCY_MS
        took_ms = sample_latency_ms(spec.latency, self._seed, len(self._events))
        strike = self._strike(call, spec)
        if strike is None:
            result = self._execute(call, spec)
        else:
            result, extra_ms = strike
            took_ms += extra_ms
        if self._cache is not None and key is not None:
            self._remember(key, spec, result)
        return result, took_ms

    def _strike(self, call: ToolCall, spec: ToolSpec) -> tuple[ToolResult, float] | None:
        """What the weather makes of the call, or None when it leaves it alone."""
        if self._weather is None:
            return None
        try:
            strike = self._weather.strike(call, spec, len(self._events), self._turn)
            if strike is None:
                return None
            return strike.apply(lambda: self._execute(call, spec), self.history, call)
        except InfrastructureError:
            raise
        except Exception as error:
            raise _broken("a fault of the weather", call, error) from error

    def _execute(self, call: ToolCall, spec: ToolSpec) -> ToolResult:
        """Run the call on the world; the state before a successful write is kept when there is weather."""
        before: World | None = None
        try:
            if spec.effect is not Effect.READ and self._weather is not None:
                before = self._world.fork()
            result = render_reply(call, self._world.execute(call))
        except InfrastructureError:
            raise
        except Exception as error:
            raise _broken("the world", call, error) from error
        if before is not None:
            if result.is_error:
                before.close()
            else:
                self._history.append(before)
        return result

    def _remember(self, key: tuple[str, bytes], spec: ToolSpec, result: ToolResult) -> None:
        if self._cache is None:
            return
        if spec.effect is not Effect.READ:
            self._cache.clear()  # any write may change any read, whether it seemed to succeed or not
        elif not result.is_error and result.fault is None:
            self._cache[key] = result

    def _log(self, call: ToolCall, result: ToolResult, start_ms: float, took_ms: float) -> None:
        spec = self._specs.get(call.name)
        self._events.append(
            ToolEvent(
                index=len(self._events),
                turn=self._turn,
                call=call,
                result=result,
                effect=Effect.READ if spec is None else spec.effect,
                start_ms=start_ms,
                end_ms=start_ms + took_ms,
            )
        )


# ------------------------------------------------------------------------------------------------ small parts


def render_reply(call: ToolCall, reply: WorldReply) -> ToolResult:
    """A world's reply as the policy sees it: JSON text, errors as ``{"error": …}``.

    Raises:
        ValueError, TypeError: the value is no JSON (NaN, foreign objects): the world is broken.
    """
    value = reply.value
    if reply.is_error and not (isinstance(value, dict) and "error" in value):
        value = {"error": value}
    content = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return ToolResult(call_id=call.id, content=content, is_error=reply.is_error, served_by=reply.served_by)


def _refusal(call: ToolCall, text: str, permission: Permission | None = None) -> ToolResult:
    content = json.dumps({"error": text}, ensure_ascii=False)
    return ToolResult(call_id=call.id, content=content, is_error=True, served_by="boundary", permission=permission)


def _broken(who: str, call: ToolCall, error: Exception) -> InfrastructureError:
    return InfrastructureError(
        f"{who} raised {type(error).__name__}: {error}",
        where=f"tool {call.name}, call {call.id}",
        expected="a reply; errors of the domain are replies, not exceptions",
        mend="mend the tool's code: the policy is not to blame, the attempt is retried",
    )


def _select(specs: Sequence[ToolSpec], shown: Sequence[str]) -> dict[str, ToolSpec]:
    by_name = {spec.name: spec for spec in specs}
    if len(by_name) < len(specs):
        names = [spec.name for spec in specs]
        twice = sorted({name for name in names if names.count(name) > 1})
        raise InputError(
            f"two tools share the name {twice[0]!r}", where="tools", expected="distinct names", mend="rename one"
        )
    unknown = [name for name in shown if name not in by_name]
    if unknown:
        raise InputError(
            f"the task shows a tool that does not exist: {unknown[0]!r}",
            where="task tools",
            expected=f"names among {', '.join(by_name)}",
            mend="correct the task's 'tools'",
        )
    wanted = set(shown)
    chosen = {name: spec for name, spec in by_name.items() if name in wanted} if wanted else by_name
    for spec in chosen.values():
        if spec.latency.sigma or spec.latency.median_ms:
            check_latency(spec.latency, spec.name)
    return chosen
