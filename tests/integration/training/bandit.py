"""A world of one turn, for runs of tiny models."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

import msgspec
from tests.trained import reward_of, scored_attempt

from flightschool.errors import InfrastructureError
from flightschool.perturbation import FaultProfile
from flightschool.records import (
    Attempt,
    EndReason,
    EpisodeGroup,
    Message,
    SpanKind,
    Task,
    ToolSpec,
)
from flightschool.rollouts import EpisodeEndError, MalformedCallError, Policy


class BanditRunner:
    """One turn; the outcome is the share of sampled tokens with an even id.

    Args:
        die_after: groups after which the world breaks.
        bonus: is added to every outcome (1: everyone succeeds).
        tools: that the policy is shown.
    """

    def __init__(self, die_after: int = 1 << 30, bonus: float = 0.0, tools: Sequence[ToolSpec] = ()) -> None:
        self.num_groups = 0
        self._die_after = die_after
        self._bonus = bonus
        self._tools = tuple(tools)

    async def group(
        self,
        task: Task,
        policy: Policy,
        *,
        size: int,
        group: str,
        admitted_step: int,
        seed: int,
        weather_profile: FaultProfile | None = None,
        known: Mapping[int, Attempt] | None = None,
        keep: Callable[[Attempt], None] | None = None,
    ) -> EpisodeGroup:
        self.num_groups += 1
        if self.num_groups > self._die_after:
            raise InfrastructureError("the world broke", where="test")

        async def member(index: int) -> Attempt:
            if known is not None and index in known:
                return known[index]
            attempt = await self._attempt(task, policy, group, index, seed)
            if keep is not None:
                keep(attempt)
            return attempt

        members = await asyncio.gather(*(member(index) for index in range(size)))
        return EpisodeGroup(id=group, task=task.id, size=size, members=tuple(members), admitted_step=admitted_step)

    async def _attempt(self, task: Task, policy: Policy, group: str, index: int, seed: int) -> Attempt:
        endpoint = policy.endpoint(task, seed + index, group)
        try:
            await endpoint.complete([Message(role="user", content=task.instruction)], self._tools)
        except EpisodeEndError as end:  # cut at the token limit, as a random model mostly is
            if end.reason is EndReason.ENGINE_ERROR:
                raise InfrastructureError(end.detail) from end
        except MalformedCallError:
            pass  # random tokens are seldom a call
        spans = endpoint.spans()
        endpoint.close()
        sampled = [token for span in spans if span.kind is SpanKind.COMPLETION for token in span.token_ids_T]
        share = sum(token % 2 == 0 for token in sampled) / len(sampled) + self._bonus
        return scored_attempt(
            group,
            index,
            spans,
            reward_of(share),
            environment="bandit",
            task=task.id,
            policy=policy.name,
            seed=seed,
            grammars=getattr(endpoint, "grammars", None) or msgspec.UNSET,
        )
