"""The adapters for other trainers, spoken to as those trainers do; their real trainers are run in slow tests."""

from __future__ import annotations

import asyncio
import http.client
import inspect
import json
from collections.abc import Mapping
from typing import Any, get_type_hints

import pytest

from flightschool.errors import InputError
from flightschool.protocols import World, WorldReply
from flightschool.records import Task, ToolCall, ToolSpec
from flightschool.serving import Offer, TaskDesk
from flightschool.serving.miles import AbortedError, agent_function, reward_of
from flightschool.serving.nemo_gym import NemoGymServer, rows
from flightschool.serving.trl import environment_class, training_rows
from flightschool.testing.miniature import MiniatureEnvironment, MiniatureWorld

MINIATURE = MiniatureEnvironment()
COPY = MINIATURE.tasks()[0]
ORACLE = MINIATURE.reference(COPY.id).oracle


class Broken(MiniatureEnvironment):
    """Every tool breaks."""

    def open(self, task: Task) -> World:
        class Lost(MiniatureWorld):
            def execute(self, call: ToolCall) -> WorldReply:
                raise OSError("gone")

        return Lost()


# ---------------------------------------------------------------------------------------------- TRL


def trl(environment: MiniatureEnvironment) -> Any:
    return environment_class(Offer(environment), TaskDesk(environment))


def test_tools_are_methods_that_trl_can_read() -> None:
    made = trl(MINIATURE)
    public = [n for n, _ in inspect.getmembers(made, inspect.isfunction) if not n.startswith("_")]
    assert public == ["decline", "final_answer", "get_price", "get_reward", "reset", "set_price"]
    method = made().set_price
    assert str(inspect.signature(method)) == "(item: str, price: int) -> str"
    assert "Args:" in (inspect.getdoc(method) or "")
    assert get_type_hints(method) == {"item": str, "price": int, "return": str}
    assert get_type_hints(made().final_answer) == {"answer": str, "return": str}


def test_a_rollout_is_judged_when_it_is_over() -> None:
    one = trl(MINIATURE)()
    one.reset(task_id=COPY.id, prompt="ignored")
    for call in ORACLE:
        answer = getattr(one, call.name)(**call.arguments)
    assert json.loads(answer) == {"ok": True}
    assert json.loads(one.final_answer("Done.")) == {"accepted": True}
    assert json.loads(one.get_price(item="bolt")) == {"error": "the episode is over"}
    assert one.get_reward() > 0.9
    one.reset(task_id=COPY.id)
    assert one.get_reward() == 0.0


def test_infrastructure_is_none_for_trl_and_not_zero() -> None:
    one = trl(Broken())()
    one.reset(task_id=COPY.id)
    one.get_price(item="bolt")
    assert one.get_reward() is None


def test_rows_for_trl_name_their_tasks() -> None:
    made = training_rows(TaskDesk(MINIATURE))
    assert made[0]["task_id"] == COPY.id
    assert made[0]["prompt"][-1] == {"role": "user", "content": COPY.instruction}


def test_tools_that_are_no_methods_are_refused() -> None:
    class Odd(MiniatureEnvironment):
        def tools(self) -> tuple[ToolSpec, ...]:
            return (ToolSpec(name="not-a-name", description="", parameters={}),)

    class Taken(MiniatureEnvironment):
        def tools(self) -> tuple[ToolSpec, ...]:
            return (ToolSpec(name="reset", description="", parameters={}),)

    for kind in (Odd, Taken):
        with pytest.raises(InputError):
            environment_class(Offer(MINIATURE), TaskDesk(MINIATURE)) and trl(kind())


# ---------------------------------------------------------------------------------------------- Miles


def scripted(*replies: dict[str, Any]) -> Any:
    left = list(replies)

    async def complete(_: str, messages: list[Any], tools: list[Any]) -> Mapping[str, Any]:
        assert messages[-1]["role"] in ("user", "tool")
        assert tools[0]["type"] == "function"
        return left.pop(0)

    return complete


def says(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": json.dumps(call.arguments)}
    return {"content": None, "tool_calls": [{"id": call.id, "type": "function", "function": function}]}


def fly(environment: MiniatureEnvironment, *replies: dict[str, Any]) -> Any:
    agent = agent_function(Offer(environment), TaskDesk(environment), scripted(*replies))

    async def once() -> Any:
        return await agent("http://session", metadata={"task_id": COPY.id})

    return asyncio.run(once())


def test_an_agent_function_returns_the_judgement() -> None:
    told = fly(MINIATURE, *(says(call) for call in ORACLE), {"content": "Done."})
    assert told["success"] is True
    assert reward_of(told) > 0.9
    idle = fly(MINIATURE, {"content": "Done."})
    assert reward_of(idle) == 0.0
    assert idle["outcome"] == "scored"


def test_calls_that_cannot_be_read_are_the_policys_failure() -> None:
    odd = {"content": None, "tool_calls": [{"id": "1", "function": {"name": "get_price", "arguments": "{"}}]}
    assert fly(MINIATURE, odd, {"content": "Done."})["outcome"] == "scored"


def test_infrastructure_aborts_the_sample() -> None:
    with pytest.raises(AbortedError):
        fly(Broken(), says(ORACLE[0]))
    for nothing in (None, {}, {"reward": None}):
        with pytest.raises(AbortedError):
            reward_of(nothing)


# ---------------------------------------------------------------------------------------------- NeMo Gym


def post(url: str, path: str, body: Any, cookie: str = "") -> tuple[int, Any, str]:
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=5)
    connection.request("POST", path, json.dumps(body), {"Cookie": cookie} if cookie else {})
    answer = connection.getresponse()
    data = json.loads(answer.read())
    connection.close()
    return answer.status, data, (answer.getheader("Set-Cookie") or "").split(";")[0]


def nemo(environment: MiniatureEnvironment, talk: Any, *, masks: bool = True) -> None:
    async def served() -> None:
        async with NemoGymServer(Offer(environment), TaskDesk(environment), masks=masks) as server:
            await asyncio.to_thread(talk, server.url)

    asyncio.run(served())


def response(text: str) -> dict[str, Any]:
    return {"response": {"output": [{"type": "message", "content": [{"type": "output_text", "text": text}]}]}}


def test_a_resources_server_seeds_acts_and_verifies() -> None:
    row = rows(TaskDesk(MINIATURE))[0]
    assert {tool["name"] for tool in row["responses_create_params"]["tools"]} == {"get_price", "set_price", "decline"}

    def talk(url: str) -> None:
        status, _, cookie = post(url, "/seed_session", row)
        assert status == 200
        for call in ORACLE:
            status, _, _ = post(url, f"/{call.name}", call.arguments, cookie)
            assert status == 200
        _, verified, _ = post(url, "/verify", {**row, **response("Done.")}, cookie)
        assert verified["reward"] > 0.9
        assert verified["mask_sample"] is False
        assert verified["reward_components"]["outcome"] == 1.0
        assert verified["task_id"] == COPY.id
        _, again, _ = post(url, "/verify", row, cookie)
        assert again["mask_sample"] is True
        assert post(url, "/get_price", {"item": "bolt"}, cookie)[0] == 409
        assert post(url, "/seed_session", {"task_id": "nobody"})[0] == 422

    nemo(MINIATURE, talk)


def test_infrastructure_is_masked() -> None:
    def talk(url: str) -> None:
        _, _, cookie = post(url, "/seed_session", {"task_id": COPY.id})
        assert post(url, "/get_price", {"item": "bolt"}, cookie)[0] == 500
        _, verified, _ = post(url, "/verify", response("Done."), cookie)
        assert verified["mask_sample"] is True
        assert verified["failure_kind"] == "world_error"

    nemo(Broken(), talk)


def test_clients_that_read_no_mask_get_an_error_instead_of_a_number() -> None:
    def talk(url: str) -> None:
        _, _, cookie = post(url, "/seed_session", {"task_id": COPY.id})
        post(url, "/get_price", {"item": "bolt"}, cookie)
        status, told, _ = post(url, "/verify", response("Done."), cookie)
        assert status == 500
        assert "reward" not in told

    nemo(Broken(), talk, masks=False)
