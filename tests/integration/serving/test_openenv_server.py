"""The OpenEnv server over real sockets: episodes, judgements, sessions, errors, tokens, time limits."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from flightschool.environments.openenv import import_openenv
from flightschool.environments.openenv.frames import Opcode, frame
from flightschool.environments.openenv.link import ask_http
from flightschool.errors import InfrastructureError, InputError
from flightschool.protocols import World, WorldReply
from flightschool.records import Task, ToolCall, ToolSpec
from flightschool.serving import Offer, TaskDesk
from flightschool.serving.openenv import OpenEnvServer, ServerSettings, SessionLimits
from flightschool.testing.miniature import MiniatureEnvironment, MiniatureWorld

pytestmark = pytest.mark.integration
MINIATURE = MiniatureEnvironment()
COPY = MINIATURE.tasks()[0]


def rpc(url: str, method: str, params: dict[str, Any] | None = None, **more: Any) -> Any:
    body = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params or {}, **more}
    return ask_http(url, "/mcp", body)[1]


class Sabotaged(MiniatureEnvironment):
    """Worlds whose tools break, hang, or whose end cannot be read."""

    def __init__(self, how: Callable[[], None]) -> None:
        super().__init__()
        self.how = how

    def open(self, task: Task) -> World:
        how = self.how

        class Broken(MiniatureWorld):
            def execute(self, call: ToolCall) -> WorldReply:
                how()
                return super().execute(call)

        return Broken()


# ---------------------------------------------------------------------------------------------- episodes


def test_an_episode_is_played_and_judged_as_the_runner_judges_it(serve: Any, hand: Any) -> None:
    server = serve(MINIATURE)
    one = hand(server.url)
    opened = one.reset(task_id=COPY.id, episode_id="mine")
    assert opened["type"] == "observation"
    shown = opened["data"]["observation"]
    assert shown["instruction"] == COPY.instruction
    assert {tool["name"] for tool in shown["tools"]} == {"get_price", "set_price", "decline", "final_answer"}
    assert opened["data"]["reward"] is None
    assert opened["data"]["done"] is False
    for call in MINIATURE.reference(COPY.id).oracle:
        step = one.call(call.name, **call.arguments)["data"]
        assert step["reward"] is None
        assert step["done"] is False
    ended = one.call("final_answer", answer="Done.")["data"]
    assert ended["done"] is True
    assert ended["reward"] == pytest.approx(ended["metadata"]["reward_components"]["total"])
    assert ended["metadata"]["reward_components"]["outcome"] == 1.0
    assert ended["metadata"]["success"] is True
    assert ended["metadata"]["outcome"] == "scored"
    assert ended["metadata"]["mask_sample"] is False
    assert one.state()["episode_id"] == "mine"
    assert one.state()["step_count"] == 3


def test_an_answer_without_work_is_worth_nothing(serve: Any, hand: Any) -> None:
    one = hand(serve(MINIATURE).url)
    one.reset(task_id=COPY.id)
    ended = one.call("final_answer", answer="Done.")["data"]
    assert ended["reward"] == 0.0
    assert ended["metadata"]["success"] is False


def test_an_accepted_decline_ends_the_episode(serve: Any, hand: Any) -> None:
    locked = next(task for task in MINIATURE.tasks() if task.stratum == "locked")
    one = hand(serve(MINIATURE).url)
    one.reset(task_id=locked.id)
    for call in MINIATURE.reference(locked.id).oracle:
        ended = one.call(call.name, **call.arguments)["data"]
    assert ended["done"] is True
    assert ended["metadata"]["reason"] == "declined"
    assert ended["metadata"]["success"] is True


def test_the_last_turn_ends_the_episode_as_a_policy_failure(serve: Any, hand: Any) -> None:
    one = hand(serve(MINIATURE).url)
    one.reset(task_id=COPY.id)
    steps = [one.call("get_price", item="bolt")["data"] for _ in range(COPY.max_turns)]
    assert [step["done"] for step in steps] == [False] * (COPY.max_turns - 1) + [True]
    assert steps[-1]["metadata"]["outcome"] == "policy_failure"
    assert steps[-1]["reward"] == 0.0


def test_equal_seeds_give_equal_episodes_and_seeds_walk_through_the_tasks(serve: Any, hand: Any) -> None:
    one = hand(serve(MINIATURE).url)
    named = [one.reset(seed=seed)["data"]["observation"]["task_id"] for seed in (0, 1, 2, 0)]
    assert named[0] == named[3]
    assert len(set(named)) == 3


def test_refusals_are_observations_in_openenvs_words(serve: Any, hand: Any) -> None:
    one = hand(serve(MINIATURE).url)
    one.reset(task_id=COPY.id)
    for tool, arguments, kind in (
        ("nonsense", {}, "tool_not_found"),
        ("get_price", {"thing": 1}, "invalid_args"),
        ("set_price", {"item": "pump", "price": 1}, "execution_error"),
    ):
        observation = one.call(tool, **arguments)["data"]["observation"]
        assert observation["error"]["error_type"] == kind
        assert observation["result"]["is_error"] is True
    domain = one.call("get_price", item="nothing")["data"]["observation"]
    assert domain["error"] is None
    assert domain["result"]["is_error"] is True


def test_nothing_sealed_is_on_the_wire(serve: Any, hand: Any) -> None:
    url = serve(MINIATURE).url
    one = hand(url)
    told = [one.reset(task_id=COPY.id), one.state(), one.call("get_price", item="bolt"), one.state()]
    told += [ask_http(url, path)[1] for path in ("/metadata", "/schema", "/state", "/openapi.json")]
    told.append(ask_http(url, "/miniature/tasks", {"split": "all"})[1])
    text = str(told)
    assert "select" not in text.lower()
    assert "oracle" not in text
    assert "checks" not in text


# ---------------------------------------------------------------------------------------------- what breaks


def test_a_broken_world_is_infrastructure_and_never_a_reward(serve: Any, hand: Any) -> None:
    def broken() -> None:
        raise RuntimeError("disk gone")

    one = hand(serve(Sabotaged(broken)).url)
    one.reset(task_id=COPY.id)
    lost = one.call("get_price", item="bolt")
    assert lost["type"] == "error"
    assert lost["data"]["code"] == "EXECUTION_ERROR"
    assert lost["data"]["infrastructure"] is True
    assert "reward" not in lost["data"]
    after = one.call("final_answer", answer="Done.")
    assert after["type"] == "error"
    state = one.state()
    assert state["reward"] is None
    assert state["result"]["mask_sample"] is True
    assert one.reset(task_id=COPY.id)["type"] == "observation"


def test_a_tool_that_hangs_is_cut_and_others_go_on(serve: Any, hand: Any) -> None:
    waiting = threading.Event()

    def hang() -> None:
        waiting.wait(20)

    server = serve(Sabotaged(hang), ServerSettings(limits=SessionLimits(step_timeout_s=0.3)))
    stuck, other = hand(server.url), hand(server.url)
    stuck.reset(task_id=COPY.id)
    other.reset(task_id=COPY.id)
    started = time.monotonic()
    lost = stuck.call("get_price", item="bolt")
    assert time.monotonic() - started < 5
    assert lost["data"]["infrastructure"] is True
    assert "in time" in lost["data"]["message"]
    again = stuck.reset(task_id=COPY.id)
    assert again["data"]["code"] == "SESSION_ERROR"
    waiting.set()
    assert other.call("get_price", item="bolt")["data"]["observation"]["result"]["data"]["price"] == 3


def test_a_grader_that_breaks_gives_no_reward(serve: Any, hand: Any) -> None:
    class Unreadable(MiniatureEnvironment):
        def open(self, task: Task) -> World:
            class Lost(MiniatureWorld):
                first = True

                def snapshot(self) -> bytes:
                    if self.first:
                        self.first = False
                        return super().snapshot()
                    raise InfrastructureError("lost")

            return Lost()

    one = hand(serve(Unreadable()).url)
    one.reset(task_id=COPY.id)
    ended = one.call("final_answer", answer="x")
    assert ended["type"] == "error"
    assert ended["data"]["infrastructure"] is True


def test_steps_need_an_episode(serve: Any, hand: Any) -> None:
    one = hand(serve(MINIATURE).url)
    assert "reset first" in one.call("get_price", item="bolt")["data"]["message"]
    listed = one.ask({"type": "step", "data": {"type": "list_tools"}})["data"]["observation"]["tools"]
    assert {"name", "description", "input_schema"} <= set(listed[0])
    one.reset(task_id=COPY.id)
    one.call("final_answer", answer="x")
    assert "over" in one.call("get_price", item="bolt")["data"]["message"]


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ({"type": "dance"}, "UNKNOWN_TYPE"),
        ({"type": ["reset"]}, "UNKNOWN_TYPE"),
        ([1], "VALIDATION_ERROR"),
        ({"type": "reset", "data": {}, "id": 1}, "VALIDATION_ERROR"),
        ({"type": "reset", "data": []}, "VALIDATION_ERROR"),
        ({"type": "reset", "data": {"seed": -1}}, "VALIDATION_ERROR"),
        ({"type": "reset", "data": {"seed": True}}, "VALIDATION_ERROR"),
        ({"type": "reset", "data": {"task_id": "nobody"}}, "VALIDATION_ERROR"),
        ({"type": "reset", "data": {"episode_id": 3}}, "VALIDATION_ERROR"),
        ({"type": "step"}, "VALIDATION_ERROR"),
        ({"type": "step", "data": {"type": "fly"}}, "VALIDATION_ERROR"),
        ({"type": "step", "data": {"tool_name": 3}}, "VALIDATION_ERROR"),
        ({"type": "step", "data": {"tool_name": "a", "extra": 3}}, "VALIDATION_ERROR"),
    ],
)
def test_bad_messages_get_one_error_and_the_session_lives(serve: Any, hand: Any, message: Any, code: str) -> None:
    one = hand(serve(MINIATURE).url)
    answer = one.ask(message)
    assert answer["type"] == "error"
    assert answer["data"]["code"] == code
    assert one.reset(seed=1)["type"] == "observation"


def test_broken_text_and_broken_frames(serve: Any, hand: Any) -> None:
    server = serve(MINIATURE, ServerSettings(most_message_bytes=5_000))
    one = hand(server.url)
    for text in (b"{", b"\xff\xfe", b""):
        one.link._write(frame(Opcode.TEXT, text, masked=True))
        assert one.link.receive(5)["data"]["code"] == "INVALID_JSON"
    one.link._write(frame(Opcode.TEXT, b"x" * 6_000, masked=True))
    with pytest.raises(InfrastructureError, match="1009"):
        one.link.receive(5)
    unmasked = hand(server.url)
    unmasked.link._write(frame(Opcode.TEXT, b"{}", masked=False))
    with pytest.raises(InfrastructureError, match="1002"):
        unmasked.link.receive(5)
    deep = hand(server.url)
    assert deep.ask({"type": "reset", "data": {"x": [[[[1]]]]}})["type"] == "observation"


# ---------------------------------------------------------------------------------------------- sessions


def test_places_are_counted_and_given_back(serve: Any, hand: Any) -> None:
    server = serve(MINIATURE, ServerSettings(most_sessions=2))
    first, second = hand(server.url), hand(server.url)
    first.reset()
    second.reset()
    full = hand(server.url)
    refused = full.link.receive(5)
    assert refused["data"] == {
        "message": "all 2 sessions are taken; close one, or try later",
        "code": "CAPACITY_REACHED",
        "active_sessions": 2,
        "max_sessions": 2,
    }
    first.link.close()
    deadline = time.monotonic() + 5
    while len(server.sessions) > 1 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert hand(server.url).reset()["type"] == "observation"


def test_forgotten_sessions_are_reaped(serve: Any, hand: Any) -> None:
    server = serve(MINIATURE, ServerSettings(limits=SessionLimits(idle_timeout_s=0.2)))
    one = hand(server.url)
    one.reset()
    over_http = rpc(server.url, "openenv/session/create")["result"]["session_id"]
    deadline = time.monotonic() + 5
    while len(server.sessions) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert len(server.sessions) == 0
    with pytest.raises(InfrastructureError, match="1001"):
        one.link.receive(5)
    assert "Unknown session_id" in rpc(server.url, "tools/list", {"session_id": over_http})["error"]["message"]


def test_sessions_share_nothing(serve: Any, hand: Any) -> None:
    server = serve(MINIATURE)
    one, other = hand(server.url), hand(server.url)
    for each in (one, other):
        each.reset(task_id=COPY.id)
    one.call("set_price", item="bolt", price=99)
    assert other.call("get_price", item="bolt")["data"]["observation"]["result"]["data"]["price"] == 3
    one.reset(task_id=COPY.id)
    assert one.call("get_price", item="bolt")["data"]["observation"]["result"]["data"]["price"] == 3


def test_a_client_that_vanishes_leaves_no_session(serve: Any, hand: Any) -> None:
    server = serve(MINIATURE)
    one = hand(server.url)
    one.reset()
    one.link._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    one.link._socket.close()
    deadline = time.monotonic() + 5
    while len(server.sessions) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(server.sessions) == 0


# ---------------------------------------------------------------------------------------------- MCP and HTTP


def test_an_mcp_session_and_its_websocket_are_one_episode(serve: Any, hand: Any) -> None:
    server = serve(MINIATURE)
    session = rpc(server.url, "openenv/session/create")["result"]["session_id"]
    one = hand(f"{server.url}")
    one.link.close()
    attached = hand(server.url, query=f"session_id={session}")
    attached.reset(task_id=COPY.id)
    for call in MINIATURE.reference(COPY.id).oracle:
        named = {"session_id": session, "name": call.name, "arguments": call.arguments}
        result = rpc(server.url, "tools/call", named)["result"]
        assert result["is_error"] is False
        assert "reward" not in str(result)
    ended = attached.call("final_answer", answer="Done.")["data"]
    assert ended["metadata"]["success"] is True
    closed = rpc(server.url, "openenv/session/close", {"session_id": session})["result"]
    assert closed == {"session_id": session, "closed": False, "closing": True}
    attached.link.close()
    deadline = time.monotonic() + 5
    while len(server.sessions) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(server.sessions) == 0


def test_json_rpc_errors_have_their_codes(serve: Any) -> None:
    url = serve(MINIATURE).url
    assert ask_http(url, "/mcp", {})[1]["error"]["code"] == -32600
    assert ask_http(url, "/mcp", [1])[1]["error"]["code"] == -32600
    assert rpc(url, "dance")["error"]["code"] == -32601
    assert rpc(url, "tools/call")["error"]["code"] == -32602
    assert rpc(url, "tools/call", {"name": "nonsense"})["error"]["code"] == -32602
    assert rpc(url, "tools/list", {"session_id": "x"})["error"]["code"] == -32602
    listed = rpc(url, "tools/list")
    assert listed["id"] == 7
    assert {"name", "description", "inputSchema"} == set(listed["result"]["tools"][0])


def test_plain_mcp_clients_are_served_too(serve: Any) -> None:
    url = serve(MINIATURE).url
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}}
    started = rpc(url, "initialize", hello)
    assert started["result"]["protocolVersion"] == "2025-06-18"
    assert "tools" in started["result"]["capabilities"]
    assert ask_http(url, "/mcp", {"jsonrpc": "2.0", "method": "notifications/initialized"})[0] == 202


def test_http_is_stateless_and_says_what_the_server_is(serve: Any) -> None:
    url = serve(MINIATURE).url
    assert ask_http(url, "/health") == (200, {"status": "healthy"})
    status, metadata = ask_http(url, "/metadata")
    assert status == 200
    assert metadata["name"] == "miniature"
    schema = ask_http(url, "/schema")[1]
    assert {"action", "observation", "state", "reset_observation"} == set(schema)
    assert schema["action"]["title"] == "CallToolAction"
    assert ask_http(url, "/openapi.json")[1]["info"]["version"] == "1.0.0"
    status, opened = ask_http(url, "/reset", {"seed": 3})
    assert status == 200
    assert opened["observation"]["task_id"]
    status, step = ask_http(url, "/step", {"action": {"tool_name": "get_price", "arguments": {"item": "bolt"}}})
    assert status == 200
    assert step["observation"]["result"]["data"] == {"item": "bolt", "price": 3}
    assert ask_http(url, "/step", {"action": {"tool_name": 1}})[0] == 422
    assert ask_http(url, "/step", {})[0] == 422
    assert ask_http(url, "/state")[1]["step_count"] == 0
    assert ask_http(url, "/nothing")[0] == 404
    assert ask_http(url, "/reset")[0] == 405


def test_the_task_api(serve: Any) -> None:
    url = serve(MINIATURE).url
    assert ask_http(url, "/list_environments") == (200, ["miniature"])
    assert ask_http(url, "/Miniature/splits")[1] == [{"name": "all", "type": "validation"}]
    total = len(MINIATURE.tasks())
    assert ask_http(url, "/miniature/num_tasks", {"split": "all"})[1] == {"num_tasks": total}
    second = ask_http(url, "/miniature/task", {"split": "all", "index": 1})[1]["task"]
    assert second["id"] == MINIATURE.tasks()[1].id
    part = ask_http(url, "/miniature/task_range", {"split": "all", "start": 1, "stop": 3})[1]["tasks"]
    assert [row["index"] for row in part] == [1, 2]
    assert len(ask_http(url, "/miniature/tasks", {"split": "all"})[1]["tasks"]) == total
    assert ask_http(url, "/miniature/task", {"split": "all", "index": total})[0] == 400
    assert ask_http(url, "/miniature/task", {"split": "all", "index": -1})[0] == 400
    assert ask_http(url, "/other/splits")[0] == 404
    assert ask_http(url, "/miniature/num_tasks", {"split": "x"})[0] == 400


def test_production_has_no_steering_over_http(serve: Any) -> None:
    url = serve(MINIATURE, ServerSettings(mode="production")).url
    assert ask_http(url, "/reset", {})[0] == 404
    assert ask_http(url, "/state")[0] == 404
    assert "/reset" not in ask_http(url, "/openapi.json")[1]["paths"]
    assert ask_http(url, "/health")[0] == 200


# ---------------------------------------------------------------------------------------------- who may come in


def test_a_token_is_asked_of_everybody(serve: Any, hand: Any) -> None:
    url = serve(MINIATURE, ServerSettings(token="s3cret")).url
    assert ask_http(url, "/health")[0] == 200
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic s3cret"}):
        assert ask_http(url, "/metadata", headers=headers)[0] == 401
        with pytest.raises(InfrastructureError, match="401"):
            hand(url, headers=headers)
    right = {"Authorization": "Bearer s3cret"}
    assert ask_http(url, "/metadata", headers=right)[0] == 200
    assert hand(url, headers=right).reset()["type"] == "observation"


@pytest.mark.parametrize("headers", [{"Origin": "https://evil.example"}, {"Host": "evil.example"}])
def test_web_pages_cannot_use_a_server_of_this_machine(serve: Any, headers: dict[str, str]) -> None:
    assert ask_http(serve(MINIATURE).url, "/metadata", headers=headers)[0] == 403


def test_noise_reaches_the_policy_and_is_named_in_the_result(serve: Any, hand: Any) -> None:
    from flightschool.perturbation import profile

    one = hand(serve(MINIATURE, weather=profile("storm")).url)
    seen = set()
    for seed in range(12):
        opened = one.reset(task_id=COPY.id, seed=seed)["data"]
        assert "storm" not in str(opened["observation"])
        assert "storm" in opened["metadata"]["noise"]
        seen.add(str(one.call("get_price", item="bolt")["data"]["observation"]["result"]["data"]))
    assert len(seen) > 1
    ended = one.call("final_answer", answer="x")["data"]["metadata"]
    assert ended["noise"] != "clean"


def test_tools_may_not_have_names_that_are_taken() -> None:
    for name in ("close", "final_answer"):

        class Taken(MiniatureEnvironment):
            tool = ToolSpec(name=name, description="", parameters={})

            def tools(self) -> tuple[ToolSpec, ...]:
                return (self.tool,)

        with pytest.raises(InputError, match=name):
            OpenEnvServer(Offer(Taken()), TaskDesk(Taken()))


def test_names_of_environments_may_have_blanks(serve: Any) -> None:
    class Named(MiniatureEnvironment):
        name = "my miniature"

    url = serve(Named()).url
    assert ask_http(url, "/my%20miniature/splits")[0] == 200
    assert [task.id for task in import_openenv(url).content.tasks][:2] == [task.id for task in MINIATURE.tasks()[:2]]
