"""One session of an OpenEnv server: an episode at a time, requests one after the other, never two at once.

Worlds that only look things up answer in the event loop. Everything else (a team's tool code, graders that run
programs or ask models) runs in a thread of the session, with a time limit; what does not come back in time is lost as
infrastructure, and the thread is left to end by itself: the session takes no further step.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import msgspec

from flightschool.errors import InfrastructureError, InputError
from flightschool.records import EndReason, Json, Outcome, ToolCall, ToolResult
from flightschool.serving.episode import Judged, Offer, ServedEpisode
from flightschool.serving.openenv.words import (
    FINAL_ANSWER,
    Code,
    InvalidError,
    error_message,
    final_answer_spec,
    read_action,
    shown_tool,
    wrong,
)
from flightschool.serving.tasks import TaskDesk
from flightschool.serving.working import Workplace
from flightschool.tools import validate_arguments

__all__ = ["FailedError", "Session", "SessionLimits"]


class Socket(Protocol):
    """What the housekeeping needs of a WebSocket."""

    async def close(self, code: int, reason: str) -> None:
        """Say goodbye."""
        ...

    def drop(self) -> None:
        """End the connection."""
        ...


_FINAL = final_answer_spec()
_MOST_ID = 255


@dataclass(frozen=True)
class SessionLimits:
    """Times of one session, in real seconds."""

    step_timeout_s: float = 60.0
    """Longest time of one tool call, or of opening a world."""
    grade_timeout_s: float = 600.0
    """Longest time of judging an episode."""
    idle_timeout_s: float = 1800.0
    """A session without a request for so long is closed."""


class FailedError(Exception):
    """A request that is answered by an error frame."""

    def __init__(self, code: Code, message: str, **more: Json) -> None:
        super().__init__(message)
        self.frame = error_message(code, message, **more)


class Session:
    """One client's place at the server.

    Args:
        offer: what is served.
        desk: which task a reset means.
        limits: see there.
        starts_itself: whether a tool call before any reset starts an episode (sessions over MCP, which has no reset).
    """

    def __init__(self, offer: Offer, desk: TaskDesk, limits: SessionLimits, *, starts_itself: bool = False) -> None:
        self.id = str(uuid.uuid4())
        self.attached = False
        """Whether a WebSocket holds this session, which was made over HTTP."""
        self.closing = False
        """Whether it ends with that WebSocket."""
        self.socket: Socket | None = None
        """The WebSocket that its requests come through now."""
        self.last_active = time.monotonic()
        self.episode: ServedEpisode | None = None
        self.episode_id: str | None = None
        self.num_steps = 0
        self._offer = offer
        self._desk = desk
        self._limits = limits
        self._starts_itself = starts_itself
        self._turn = asyncio.Lock()
        self._place = Workplace(at_once=offer.answers_at_once)
        self._failure = ""
        self.stuck = False
        """Whether a thread of this session did not come back in time."""

    # -------------------------------------------------------------------------------------------- requests

    async def reset(self, asked: Mapping[str, Json]) -> dict[str, Json]:
        """Begin a new episode; the payload of its observation.

        Raises:
            InvalidError: seed, task or episode id of the wrong shape.
            FailedError: the world could not be opened.
        """
        async with self._turn:
            return await self._reset(asked)

    async def step(self, action: Json) -> dict[str, Json]:
        """One action; the payload of its observation.

        Raises:
            InvalidError: no action.
            FailedError: there is no episode, or it was lost to infrastructure.
        """
        asked = read_action(action)
        async with self._turn:
            self.touch()
            if asked is None:
                tools = [shown_tool(spec, "input_schema") for spec in self.specs()]
                return {"observation": {"metadata": {}, "tools": tools}, "reward": None, "done": self.done}
            name, arguments = asked
            result, judged = await self._call(name, arguments)
            return _observation(name, result, judged, self._facts(judged), self._problem(name, result))

    async def call(self, name: str, arguments: dict[str, Json]) -> dict[str, Json]:
        """A tool call over MCP: its result, which says nothing about rewards.

        Raises:
            FailedError: as ``step``.
        """
        async with self._turn:
            self.touch()
            if self.episode is None and self._starts_itself:
                await self._reset({})
            result, _ = await self._call(name, arguments)
            return _mcp_result(result)

    def state(self) -> dict[str, Json]:
        """Where the episode stands; the judgement once there is one. Nothing of the sealed side."""
        self.touch()
        known: dict[str, Json] = {"episode_id": self.episode_id, "step_count": self.num_steps, "done": self.done}
        if self.episode is not None:
            known["task_id"] = self.episode.task.id
            judged = self.episode.judged
            if judged is not None:
                known["reward"] = None if judged.reward is None else judged.reward.total
                known["result"] = judged.as_json()
        return known

    def specs(self) -> list[Json]:
        """The tools: those of the task once there is an episode, else all; and the one that ends it."""
        specs = self._offer.specs if self.episode is None else self.episode.specs
        return [*specs, _FINAL]

    def hurry(self, limit_s: float) -> None:
        """Allow calls no more time than this."""
        self._limits = replace(self._limits, step_timeout_s=min(limit_s, self._limits.step_timeout_s))

    def touch(self) -> None:
        """Somebody still uses this session."""
        self.last_active = time.monotonic()

    @property
    def busy(self) -> bool:
        """Whether a request is being answered."""
        return self._turn.locked()

    @property
    def done(self) -> bool:
        """Whether the episode is over."""
        return self.episode is not None and (self.episode.judged is not None or bool(self._failure))

    async def close(self) -> None:
        """Let the episode go; a stuck thread is not waited for."""
        episode = self.episode
        open_ = episode is not None and episode.judged is None and not self.stuck
        self._place.close(episode.close if episode is not None and open_ else None)

    # -------------------------------------------------------------------------------------------- parts

    async def _reset(self, asked: Mapping[str, Json]) -> dict[str, Json]:
        self.touch()
        episode_id = asked.get("episode_id")
        if episode_id is not None and not (isinstance(episode_id, str) and 0 < len(episode_id) <= _MOST_ID):
            raise InvalidError(
                wrong("string_type", ("episode_id",), f"Input should be a text of 1 to {_MOST_ID}", episode_id)
            )
        try:
            choice = self._desk.choose(asked)
        except InputError as error:
            raise InvalidError(wrong("value_error", ("data",), str(error), None)) from None
        if self.stuck:
            raise FailedError(
                Code.SESSION_ERROR, "a tool of this session never came back; connect anew", infrastructure=True
            )
        old = self.episode
        if old is not None:
            self.episode = None
            await self._place.do(old.close, self._limits.step_timeout_s)
        try:
            self.episode = await self._place.do(
                lambda: self._offer.open(choice.task, seed=choice.seed), self._limits.step_timeout_s
            )
        except (InfrastructureError, TimeoutError) as error:
            self.stuck = isinstance(error, TimeoutError)
            self._failure = str(error) or "it did not open in time"
            raise FailedError(
                Code.EXECUTION_ERROR, f"no world: {self._failure}", infrastructure=True, cause="world"
            ) from error
        self._failure, self.num_steps = "", 0
        self.episode_id = episode_id or str(uuid.uuid4())
        return self._opening(self.episode)

    def _opening(self, episode: ServedEpisode) -> dict[str, Json]:
        task = episode.task
        metadata = {
            **self._offer.identity,
            "task_digest": task.digest,
            "family": task.family,
            "stratum": task.stratum,
            "seed": episode.seed,
            "episode_id": self.episode_id,
            "max_turns": episode.max_turns,
        }
        # some clients show the whole observation to the policy: what it must not know stands beside it, not in it
        observation = {
            "metadata": {},
            "task_id": task.id,
            "instruction": task.instruction,
            "guidance": task.guidance,
            "messages": [{"role": message.role, "content": message.content} for message in episode.opening],
            "tools": [shown_tool(spec, "input_schema") for spec in self.specs()],
        }
        return {"observation": observation, "reward": None, "done": False, "metadata": metadata}

    async def _call(self, name: str, arguments: dict[str, Json]) -> tuple[ToolResult, Judged | None]:
        """Run one call, or end the episode; the judgement if it is over with it."""
        episode = self.episode
        if episode is None or self._failure:
            lost = f"the episode was lost: {self._failure}" if self._failure else "there is no episode"
            raise FailedError(
                Code.EXECUTION_ERROR, f"{lost}; reset first", infrastructure=bool(self._failure), cause="world"
            )
        if episode.judged is not None:
            raise FailedError(Code.EXECUTION_ERROR, "the episode is over; reset first", infrastructure=False)
        self.num_steps += 1
        call = ToolCall(id=f"call_{self.num_steps}", name=name, arguments=arguments)
        try:
            if name == FINAL_ANSWER:
                return await self._finish(episode, call)
            # the call that ends an episode is judged in the same breath
            limit_s = self._limits.step_timeout_s
            if episode.num_turns + 1 >= episode.max_turns or name == "decline":
                limit_s += self._limits.grade_timeout_s
            (result,) = await self._place.do(lambda: episode.act((call,)), limit_s)
        except TimeoutError:
            self.stuck = True
            raise self._lost(episode, f"{name} did not come back in time") from None
        except InfrastructureError as error:
            raise self._lost(episode, str(error)) from error
        return result, self._judgement(episode)

    async def _finish(self, episode: ServedEpisode, call: ToolCall) -> tuple[ToolResult, Judged | None]:
        problem = validate_arguments(_FINAL, call.arguments)
        if problem is not None:
            content = msgspec.json.encode({"error": f"{FINAL_ANSWER}: {problem}"}).decode()
            return ToolResult(call_id=call.id, content=content, is_error=True, served_by="boundary"), None
        answer = str(call.arguments["answer"]).encode("utf-8", "replace").decode()
        await self._place.do(lambda: episode.finish(answer), self._limits.grade_timeout_s)
        return ToolResult(call_id=call.id, content='{"accepted": true}'), self._judgement(episode)

    def _judgement(self, episode: ServedEpisode) -> Judged | None:
        judged = episode.judged
        if judged is not None and judged.outcome is Outcome.INFRA_FAILURE:
            raise self._lost(episode, judged.detail, cause=judged.cause)
        return judged

    def _lost(self, episode: ServedEpisode, detail: str, *, cause: str = "world") -> FailedError:
        """No reward, and no further step: what the policy did not cause is never a 0."""
        self._failure = detail or "infrastructure"
        if episode.judged is None:
            episode.judged = Judged(
                Outcome.INFRA_FAILURE, EndReason.WORLD_ERROR, "world", verdict=None, reward=None, detail=detail
            )
        return FailedError(Code.EXECUTION_ERROR, f"infrastructure failed: {detail}", infrastructure=True, cause=cause)

    def _facts(self, judged: Judged | None) -> dict[str, Json]:
        episode = self.episode
        if judged is None or episode is None:
            return {}
        verifier = "" if judged.verdict is None else judged.verdict.verifier_digest
        return {
            **judged.as_json(),
            **self._offer.identity,
            "task": episode.task.id,
            "task_digest": episode.task.digest,
            "verifier_digest": verifier,
            "seed": episode.seed,
            "episode_id": self.episode_id,
            "num_steps": self.num_steps,
        }

    def _problem(self, name: str, result: ToolResult) -> dict[str, Json] | None:
        """What OpenEnv calls a framework error: refused before the tool ran. Errors of the tool are results."""
        if result.served_by != "boundary":
            return None
        if name not in {spec.name for spec in self.specs()}:
            kind = "tool_not_found"
        else:
            kind = "invalid_args" if result.permission is None else "execution_error"
        return {"error_type": kind, "message": str(msgspec.json.decode(result.content)["error"])}


def _observation(
    name: str, result: ToolResult, judged: Judged | None, facts: dict[str, Json], problem: dict[str, Json] | None
) -> dict[str, Json]:
    observation = {"metadata": facts, "tool_name": name, "result": _mcp_result(result), "error": problem}
    reward = None if judged is None or judged.reward is None else judged.reward.total
    payload: dict[str, Json] = {"observation": observation, "reward": reward, "done": judged is not None}
    if facts:
        payload["metadata"] = facts
    return payload


def _mcp_result(result: ToolResult) -> dict[str, Json]:
    """A tool result of MCP; ``data`` is the value, as clients of OpenEnv look for it."""
    return {
        "content": [{"type": "text", "text": result.content}],
        "structured_content": None,
        "data": _value(result),
        "is_error": result.is_error,
        "meta": None,
    }


def _value(result: ToolResult) -> Json:
    """The answer as JSON. A world's is JSON as it stands; what a fault made of it may be a text cut in half."""
    if result.fault is None:
        return msgspec.Raw(result.content.encode())
    try:
        return msgspec.json.decode(result.content)
    except msgspec.DecodeError:
        return result.content
