"""An agent function for Miles (``--custom-agent-function-path``): its session server as the model, our episode around.

Miles calls ``await agent(base_url, prompt, …, metadata=…)`` and takes back a dictionary that its reward hook reads. It
keeps the tokens itself: whatever speaks to ``base_url`` is recorded there. So the conversation is held here, in the
OpenAI format, with the tools of the task.

Three outcomes are mapped: scored and policy failures have a ``reward``; infrastructure that failed raises
``AbortedError`` if the caller gave a way to abort, else returns ``reward: None`` with ``mask_sample: True``. A hook
that reads ``metadata.get("reward", 0.0)`` would make a 0 of it: use ``reward_of`` below, which raises instead.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec

from flightschool.errors import InfrastructureError
from flightschool.records import EndReason, Json, Outcome, ToolCall
from flightschool.serving.episode import Judged, Offer, ServedEpisode
from flightschool.serving.tasks import TaskDesk
from flightschool.serving.working import Workplace

__all__ = ["AbortedError", "agent_function", "reward_of"]

Complete = Callable[[str, list[dict[str, Json]], list[dict[str, Json]]], Awaitable[Mapping[str, Any]]]
"""(base URL, messages, tools) → one assistant message in the OpenAI format."""
AgentFunction = Callable[..., Awaitable[dict[str, Json]]]


class AbortedError(RuntimeError):
    """Infrastructure failed: the sample is to be dropped and drawn again, not scored."""


def agent_function(offer: Offer, desk: TaskDesk, complete: Complete | None = None) -> AgentFunction:
    """The function that Miles is to be given.

    Args:
        offer: what is served.
        desk: its tasks; ``metadata["task_id"]`` (or ``seed``) of a sample names one.
        complete: asks the model; an HTTP request to ``base_url`` by default.
    """
    ask = complete or _ask_over_http

    async def agent(
        base_url: str, prompt: Json = None, *, metadata: Mapping[str, Json] | None = None, **_: Any
    ) -> dict[str, Json]:
        del prompt  # the opening is the task's own: the same that the built-in harness tells
        named = {key: (metadata or {})[key] for key in ("task_id", "seed") if key in (metadata or {})}
        choice, place = desk.choose(named), Workplace(at_once=offer.answers_at_once)
        try:
            episode = await place.do(lambda: offer.open(choice.task, seed=choice.seed))
            try:
                judged = await _drive(episode, place, base_url, ask)
            finally:
                place.close(episode.close)
        except InfrastructureError as error:
            raise AbortedError(str(error)) from error
        if judged.outcome is Outcome.INFRA_FAILURE:
            raise AbortedError(judged.detail)
        reward = None if judged.reward is None else judged.reward.total
        return {**judged.as_json(), "reward": reward, "task_id": choice.task.id}

    return agent


def reward_of(metadata: Mapping[str, Any] | None) -> float:
    """The reward of what an agent function returned. Raises ``AbortedError`` where there is none: it is no 0."""
    reward = None if metadata is None else metadata.get("reward")
    if reward is None:
        raise AbortedError("no verdict: infrastructure failed")
    return float(reward)


async def _drive(episode: ServedEpisode, place: Workplace, base_url: str, ask: Complete) -> Judged:
    """The built-in harness's loop in the OpenAI format."""
    messages: list[dict[str, Json]] = [{"role": m.role, "content": m.content} for m in episode.opening if m.content]
    tools: list[dict[str, Json]] = [
        {
            "type": "function",
            "function": {"name": spec.name, "description": spec.description, "parameters": spec.parameters},
        }
        for spec in episode.specs
    ]
    try:
        while episode.judged is None:
            reply = dict(await ask(base_url, messages, tools))
            calls = _calls(reply.get("tool_calls") or ())
            if not calls:
                answer = str(reply.get("content") or "")
                return await place.do(functools.partial(episode.finish, answer))
            messages.append({"role": "assistant", **reply})
            results = await place.do(functools.partial(episode.act, calls))
            messages += [{"role": "tool", "tool_call_id": r.call_id, "content": r.content} for r in results]
    except InfrastructureError:
        if episode.judged is None:
            raise
    judged = episode.judged
    return judged if judged is not None else episode.finish("", EndReason.WORLD_ERROR)


def _calls(rows: Sequence[Mapping[str, Any]]) -> list[ToolCall]:
    """Calls of a message; arguments that are no object fail at the boundary, as the policy's own doing."""
    calls = []
    for number, row in enumerate(rows):
        function = row.get("function") or {}
        try:
            arguments = msgspec.json.decode(function.get("arguments") or "{}")
        except msgspec.DecodeError:
            arguments = {"unreadable": str(function.get("arguments"))}
        if not isinstance(arguments, dict):
            arguments = {"unreadable": arguments}
        calls.append(
            ToolCall(id=str(row.get("id") or f"call_{number}"), name=str(function.get("name")), arguments=arguments)
        )
    return calls


async def _ask_over_http(
    base_url: str, messages: list[dict[str, Json]], tools: list[dict[str, Json]]
) -> Mapping[str, Any]:
    import httpx2

    body = {"model": "policy", "messages": messages, "tools": tools}
    try:
        async with httpx2.AsyncClient(timeout=600.0, trust_env=False) as client:
            response = await client.post(f"{base_url.rstrip('/')}/v1/chat/completions", json=body)
            response.raise_for_status()
            message: Mapping[str, Any] = response.json()["choices"][0]["message"]
    except (httpx2.HTTPError, ValueError, KeyError, IndexError) as error:
        raise InfrastructureError(
            f"the session server does not answer: {type(error).__name__}: {error}",
            where=base_url,
            expected="a chat completion",
            mend="see the engine's log; the sample is dropped, not scored",
        ) from error
    return message
