"""One episode at an OpenEnv server, with every answer accounted for.

The protocol has no request ids: answers belong to requests by their order alone. A client that reads one frame too few
or too many gives every later answer to the wrong step, silently. Here that cannot happen unseen:

- one request is under way at a time, and a connection on which an answer was late is never used again;
- before each request nothing may have arrived;
- *no two requests in a row expect the same kind of answer*: each step is followed by a request for the state, so an
  answer too many or too few turns up as one of the wrong kind before the step's answer is handed on;
- the state must name the same episode, and count exactly one step more (where the server counts at all).

What is found wrong ends the attempt as an infrastructure failure. This costs a second round trip a step.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from flightschool.environments.foreign.content import ForeignContent
from flightschool.environments.foreign.world import LostSessionError, Observed
from flightschool.environments.openenv.link import Link
from flightschool.errors import InfrastructureError, InputError
from flightschool.records import Json, Task, ToolCall

__all__ = ["ACT", "Accounted", "AnsweredError", "OpenEnvSession", "bearer", "connect_openenv", "shown"]

_POLICY_CODES = frozenset({"VALIDATION_ERROR"})
_HIDDEN = frozenset({"metadata", "reward", "done"})
_FULL_WAIT_S = 30.0
_FULL_PAUSE_S = 0.5
ACT = "act"
"""Tool of environments that have none: its arguments are the action."""


def bearer(variable: str) -> dict[str, str]:
    """The header that shows a token, from an environment variable.

    Raises:
        InputError: the variable is not set.
    """
    if not variable:
        return {}
    token = os.environ.get(variable, "")
    if not token:
        raise InputError(
            f"{variable} is not set", where="token", expected="the server's token in it", mend=f"export {variable}"
        )
    return {"Authorization": f"Bearer {token}"}


class AnsweredError(Exception):
    """The server answered a request by an error frame."""

    def __init__(self, code: str, message: str, infrastructure: bool) -> None:
        super().__init__(message)
        self.code = code
        self.infrastructure = infrastructure


class Accounted:
    """A link on which requests and answers are counted.

    Args:
        link: the connection, fresh.
        timeout_s: longest time for an answer.
    """

    def __init__(self, link: Link, timeout_s: float) -> None:
        self._link = link
        self._timeout_s = timeout_s
        self._episode: Json = None
        self._first_count: int | None = None
        self._counts: bool | None = None
        self._num_steps = 0

    def reset(self, start: dict[str, Json]) -> dict[str, Json]:
        """Begin an episode; the payload of its observation."""
        payload = self._ask({"type": "reset", "data": start}, "observation")
        state = self._state()
        # servers may take the id that was asked for, or name episodes themselves: what counts is that it stays
        self._episode, self._first_count = state.get("episode_id"), _count(state)
        self._num_steps, self._counts = 0, None
        return payload

    def step(self, action: dict[str, Json]) -> dict[str, Json]:
        """One action; its payload, handed on only when the state has confirmed it.

        Raises:
            AnsweredError: the server refused the action, and the episode stands where it stood.
            LostSessionError: the account does not balance.
        """
        refused: AnsweredError | None = None
        payload: dict[str, Json] = {}
        try:
            payload = self._ask({"type": "step", "data": action}, "observation")
        except AnsweredError as error:
            if error.infrastructure:
                raise
            refused = error
        state = self._state()
        if state.get("episode_id") != self._episode:
            raise self._off(f"the state is of episode {state.get('episode_id')!r}, not of {self._episode!r}")
        self._balance(_count(state), refused is not None)
        if refused is not None:
            raise refused
        return payload

    def list_tools(self) -> list[dict[str, Json]]:
        """The tools that the server has; asked before an episode has begun."""
        payload = self._ask({"type": "step", "data": {"type": "list_tools"}}, "observation")
        observation = payload.get("observation")
        rows = observation.get("tools") if isinstance(observation, dict) else None
        if not isinstance(rows, list) or not all(isinstance(row, dict) and row.get("name") for row in rows):
            raise self._off("list_tools was answered without tools")
        return rows

    def close(self) -> None:
        """Hang up."""
        self._link.close()

    def _state(self) -> dict[str, Json]:
        return self._ask({"type": "state"}, "state")

    def _balance(self, count: int | None, refused: bool) -> None:
        """Compare the server's count of steps with ours."""
        first = self._first_count
        if count is None or first is None:
            return
        expected = first + self._num_steps + 1
        if refused and count == expected - 1:
            return  # refused before it was counted
        if self._counts is None and not refused:
            self._counts = count != first  # some servers never count
        if self._counts is False and count == first:
            return
        if count != expected:
            raise self._off(f"the server counts {count - first} steps, {self._num_steps + 1} were asked for")
        self._num_steps += 1

    def _ask(self, message: dict[str, Json], kind: str) -> dict[str, Json]:
        """One request and its answer."""
        if not self._link.nothing_waits():
            raise self._off("an answer arrived that nobody asked for")
        self._link.send(message)
        answer = self._link.receive(self._timeout_s)
        found = answer.get("type") if isinstance(answer, dict) else None
        data = answer.get("data") if isinstance(answer, dict) else None
        if not isinstance(data, dict) or found not in (kind, "error"):
            raise self._off(f"{message['type']} was answered by {str(found)[:40]!r}, not by {kind!r}")
        if found == "error":
            raise AnsweredError(
                str(data.get("code", "UNKNOWN")), str(data.get("message", "")), data.get("infrastructure") is True
            )
        return data

    def _off(self, what: str) -> LostSessionError:
        self._link.close()
        return LostSessionError(
            f"answers cannot be told apart any more: {what}",
            where=self._link.url,
            expected="one answer to each request, in order",
            mend="the server or something between breaks the protocol; the attempt is lost, not failed",
        )


class OpenEnvSession:
    """Implements ``ForeignSession``.

    Args:
        connect: opens a link.
        start: what the episode is begun with.
        has_tools: whether actions are tool calls; else they are the arguments of ``act``.
        timeout_s: longest time for an answer.
    """

    def __init__(
        self, connect: Callable[[], Link], start: dict[str, Json], *, has_tools: bool, timeout_s: float = 60.0
    ) -> None:
        self._connect = connect
        self._start = start
        self._has_tools = has_tools
        self._timeout_s = timeout_s
        self._account: Accounted | None = None

    def reset(self) -> Observed:
        """Begin the episode; waits a while where all places are taken."""
        deadline = time.monotonic() + _FULL_WAIT_S
        while True:
            account = Accounted(self._connect(), self._timeout_s)
            try:
                payload = account.reset(self._start)
            except AnsweredError as error:
                account.close()
                if error.code == "CAPACITY_REACHED" and time.monotonic() < deadline:
                    time.sleep(_FULL_PAUSE_S)
                    continue
                raise InfrastructureError(
                    f"the episode does not begin: {error} ({error.code})",
                    where="reset",
                    expected="a first observation",
                    mend="see the server's log",
                ) from error
            except BaseException:
                account.close()
                raise
            self._account = account
            return Observed(value=shown(payload, has_tools=False), reward=None, done=payload.get("done") is True)

    def act(self, call: ToolCall) -> Observed:
        """One action."""
        account = self._account
        if account is None:
            raise LostSessionError("the episode was not begun", where="act", mend="reset first")
        action: dict[str, Json] = call.arguments
        if self._has_tools:
            action = {"type": "call_tool", "tool_name": call.name, "arguments": call.arguments}
        try:
            payload = account.step(action)
        except AnsweredError as error:
            if error.code in _POLICY_CODES or (error.code == "EXECUTION_ERROR" and not error.infrastructure):
                # the account balances and the episode stands: what the environment raised is its answer
                return Observed(value={"error": str(error)}, is_error=True)
            raise InfrastructureError(
                f"{error} ({error.code})", where="step", expected="an observation", mend="see the server's log"
            ) from error
        reward = payload.get("reward")
        if reward is not None and not isinstance(reward, int | float):
            raise InfrastructureError(
                f"a reward of {reward!r}", where="step", expected="a number or null", mend="mend the environment"
            )
        done = payload.get("done") is True
        return Observed(
            value=shown(payload, has_tools=self._has_tools),
            reward=None if reward is None else float(reward),
            done=done,
            is_error=_failed(payload) if self._has_tools else False,
        )

    def close(self) -> None:
        """Let the session go."""
        if self._account is not None:
            self._account.close()
            self._account = None


def connect_openenv(content: ForeignContent, task: Task) -> OpenEnvSession:
    """Open a task of an imported environment."""
    headers = bearer(content.key_env)
    return OpenEnvSession(
        lambda: Link(content.address, headers=headers),
        content.starts[task.id].start,
        has_tools=bool(content.source["has_tools"]),
    )


def shown(payload: dict[str, Json], *, has_tools: bool) -> Json:
    """What a policy sees of an observation: nothing of rewards and metadata."""
    observation = payload.get("observation")
    if not isinstance(observation, dict):
        return observation
    if has_tools and "tool_name" in observation:
        error, result = observation.get("error"), observation.get("result")
        if error is not None and result is None:
            return {"error": error.get("message", error) if isinstance(error, dict) else error}
        if isinstance(result, dict) and "data" in result and "content" in result:
            return result["data"] if result["data"] is not None else _texts(result["content"])
        return result
    kept = {key: value for key, value in observation.items() if key not in _HIDDEN}
    return {**kept, "done": True} if payload.get("done") is True else kept


def _failed(payload: dict[str, Json]) -> bool:
    observation = payload.get("observation")
    if not isinstance(observation, dict):
        return False
    result = observation.get("result")
    return observation.get("error") is not None or (isinstance(result, dict) and result.get("is_error") is True)


def _texts(content: Json) -> Json:
    if not isinstance(content, list):
        return content
    texts = [part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str)]
    return "\n".join(texts) if texts else content


def _count(state: dict[str, Json]) -> int | None:
    count = state.get("step_count")
    return count if isinstance(count, int) and not isinstance(count, bool) else None
