"""The OpenEnv client against servers that lie, lag, break off and restart: no answer goes to the wrong step.

The hostile server speaks the real protocol over real sockets; what it does wrong is a script.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from flightschool.environments.foreign import (
    ForeignContent,
    ForeignEnvironment,
    ForeignTask,
    LostSessionError,
    reward_checks,
)
from flightschool.environments.openenv import Accounted, Link, import_openenv
from flightschool.environments.openenv.frames import FrameReader, Opcode, accept_key, frame
from flightschool.environments.openenv.importing import ImportSettings
from flightschool.environments.openenv.session import OpenEnvSession
from flightschool.errors import InfrastructureError, InputError
from flightschool.records import Effect, Outcome, Reference, Task, ToolCall, ToolSpec
from flightschool.rollouts import ConstantPolicy, EpisodeRunner, NoopPolicy, run_attempts
from flightschool.serving import Offer, TaskDesk
from flightschool.serving.openenv import OpenEnvServer
from flightschool.testing.miniature import MiniatureEnvironment
from flightschool.verification import OutcomeReward

pytestmark = pytest.mark.integration


class Talk:
    """One connection of the hostile server: what it was asked, and what it may say."""

    def __init__(self, server: Hostile, writer: asyncio.StreamWriter, number: int) -> None:
        self.server = server
        self.number = number
        self.steps = 0
        self.episode: Any = None
        self._writer = writer

    def say(self, kind: str, data: Any) -> None:
        self._writer.write(frame(Opcode.TEXT, json.dumps({"type": kind, "data": data}).encode()))

    def observation(self, value: Any, reward: float | None = None, done: bool = False) -> None:
        self.say("observation", {"observation": {"value": value, "metadata": {}}, "reward": reward, "done": done})

    def state(self) -> None:
        self.say("state", {"episode_id": self.episode, "step_count": self.steps})

    def hang_up(self) -> None:
        self._writer.transport.abort()


class Hostile:
    """A server whose steps do what the script says; all else is honest.

    Args:
        on_step: gets the talk and the action.
    """

    def __init__(self, on_step: Callable[[Talk, Any], None]) -> None:
        self.on_step = on_step
        self.num_talks = 0
        self.url = ""

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self.serve(reader, writer)
        except (asyncio.CancelledError, OSError):
            pass  # the test is over, or the client hung up
        finally:
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        key = next(line.split(": ")[1] for line in head.split("\r\n") if line.lower().startswith("sec-websocket-key"))
        words = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        writer.write(f"{words}Sec-WebSocket-Accept: {accept_key(key)}\r\n\r\n".encode())
        talk, frames = Talk(self, writer, self.num_talks), FrameReader(masked=True)
        self.num_talks += 1
        while data := await reader.read(65536):
            for one in frames.feed(data):
                if one.opcode is Opcode.CLOSE:
                    return
                self.answer(talk, json.loads(one.data))

    def answer(self, talk: Talk, message: Any) -> None:
        if message["type"] == "reset":
            talk.episode = message["data"].get("episode_id", "e")
            talk.observation("begin")
        elif message["type"] == "state":
            talk.state()
        elif message["type"] == "step":
            self.on_step(talk, message["data"])


@pytest.fixture
def hostile() -> Iterator[Callable[[Callable[[Talk, Any], None]], Hostile]]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    servers: list[asyncio.Server] = []

    def start(on_step: Callable[[Talk, Any], None]) -> Hostile:
        made = Hostile(on_step)

        async def open_() -> asyncio.Server:
            return await asyncio.start_server(made.connected, "127.0.0.1", 0)

        server = asyncio.run_coroutine_threadsafe(open_(), loop).result(5)
        servers.append(server)
        made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        return made

    yield start

    async def end() -> None:
        for server in servers:
            server.close()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await asyncio.sleep(0)

    asyncio.run_coroutine_threadsafe(end(), loop).result(5)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(5)
    loop.close()


def honest(talk: Talk, action: Any) -> None:
    talk.steps += 1
    talk.observation({"echo": action["n"]}, reward=float(action["n"]))


def accounted(server: Hostile, timeout_s: float = 5.0) -> Accounted:
    made = Accounted(Link(server.url), timeout_s)
    made.reset({"episode_id": "mine"})
    return made


def echoes(account: Accounted, *numbers: int) -> list[int]:
    return [account.step({"n": number})["observation"]["value"]["echo"] for number in numbers]


def test_an_honest_server_balances(hostile: Any) -> None:
    account = accounted(hostile(honest))
    assert echoes(account, 1, 2, 3) == [1, 2, 3]
    account.close()


def doubled(talk: Talk, action: Any) -> None:
    honest(talk, action)
    if action["n"] == 2:
        talk.observation({"echo": 2}, reward=2.0)  # once more: a naive client gives this to step 3


def swallowed(talk: Talk, action: Any) -> None:
    talk.steps += 1
    if action["n"] != 2:
        talk.observation({"echo": action["n"]})


def late(talk: Talk, action: Any) -> None:
    """The answer to step 2 comes when step 3 is asked: everything is shifted by one."""
    talk.steps += 1
    if action["n"] == 3:
        talk.observation({"echo": 2})
    if action["n"] != 2:
        talk.observation({"echo": action["n"]})


def counted_twice(talk: Talk, action: Any) -> None:
    talk.steps += 1 + (action["n"] == 2)
    talk.observation({"echo": action["n"]})


def other_episode(talk: Talk, action: Any) -> None:
    honest(talk, action)
    if action["n"] == 2:
        talk.episode = "somebody else's"


def state_first(talk: Talk, action: Any) -> None:
    if action["n"] == 2:
        talk.state()
    honest(talk, action)


@pytest.mark.parametrize("script", [doubled, swallowed, late, counted_twice, other_episode, state_first])
def test_no_answer_is_given_to_the_wrong_step(hostile: Any, script: Callable[[Talk, Any], None]) -> None:
    account = accounted(hostile(script), timeout_s=0.3)
    seen: list[int] = []

    def ask_all() -> None:
        for number in (1, 2, 3, 4):
            seen.extend(echoes(account, number))

    with pytest.raises(LostSessionError):
        ask_all()
    assert seen == list(range(1, len(seen) + 1)), "an answer was handed on that belongs to another step"
    with pytest.raises(LostSessionError):
        account.step({"n": 5})  # nothing is asked on a link that cannot be trusted


def test_servers_that_never_count_are_believed_by_kind_alone(hostile: Any) -> None:
    def uncounted(talk: Talk, action: Any) -> None:
        talk.observation({"echo": action["n"]})

    account = accounted(hostile(uncounted))
    assert echoes(account, 1, 2, 3) == [1, 2, 3]
    account.close()


# ---------------------------------------------------------------------------------------------- worlds


def environment(server: Hostile, *, steps: int = 3) -> ForeignEnvironment:
    act = ToolSpec(
        name="act",
        description="act",
        parameters={"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
        effect=Effect.WRITE,
    )
    task = Task(id="t", family="f", stratum="s", instruction="act", initial_state="", max_turns=steps + 2)
    content = ForeignContent(
        ecosystem="openenv",
        address=server.url,
        source={"has_tools": False},
        policy_text="",
        strata={"s": 1.0},
        tasks=(task,),
        starts={"t": ForeignTask(start={"episode_id": "mine"})},
        references=(Reference(task_id="t", checks=reward_checks()),),
        tools=(act,),
        allowed=("act",),
        threshold=6.0,
    )
    return ForeignEnvironment(
        "far",
        content,
        lambda made, made_task: OpenEnvSession(
            lambda: Link(made.address), made.starts[made_task.id].start, has_tools=False, timeout_s=0.5
        ),
    )


def fly(world: ForeignEnvironment, *numbers: int) -> Any:
    calls = [ToolCall(id=f"c{n}", name="act", arguments={"n": n}) for n in numbers]
    runner = EpisodeRunner(world, OutcomeReward(), run="r")
    (attempt,) = run_attempts(runner, world.tasks(), ConstantPolicy(calls), seed=0)
    return attempt


def test_rewards_of_the_server_decide(hostile: Any) -> None:
    world = environment(hostile(honest))
    solved = fly(world, 1, 2, 3)
    assert solved.outcome is Outcome.SCORED
    assert solved.reward is not None
    assert solved.reward.success
    partly = fly(world, 1, 2)  # 3 of 6: quarter and half are reached
    assert partly.reward is not None
    assert 0.0 < partly.reward.outcome < 1.0
    (idle,) = run_attempts(EpisodeRunner(world, OutcomeReward(), run="r"), world.tasks(), NoopPolicy(), seed=0)
    assert idle.reward is not None
    assert idle.reward.outcome == 0.0


def test_a_broken_connection_is_mended_by_playing_again(hostile: Any) -> None:
    def breaks_once(talk: Talk, action: Any) -> None:
        if talk.number == 0 and action["n"] == 2:
            talk.hang_up()
        else:
            honest(talk, action)

    server = hostile(breaks_once)
    attempt = fly(environment(server), 1, 2, 3)
    assert server.num_talks == 2
    assert attempt.outcome is Outcome.SCORED
    assert attempt.reward is not None
    assert attempt.reward.success
    assert [json.loads(event.result.content)["value"]["echo"] for event in attempt.events] == [1, 2, 3]
    assert attempt.digest == fly(environment(hostile(honest)), 1, 2, 3).digest


def test_a_world_that_cannot_be_brought_back_is_infrastructure(hostile: Any) -> None:
    def forgets(talk: Talk, action: Any) -> None:
        if talk.number == 0 and action["n"] == 2:
            talk.hang_up()
        else:
            talk.steps += 1
            talk.observation({"echo": action["n"], "since": talk.number})

    attempt = fly(environment(hostile(forgets)), 1, 2, 3)
    assert attempt.outcome is Outcome.INFRA_FAILURE
    assert attempt.reward is None
    assert attempt.cause == "world"
    assert "played again" in attempt.detail


def test_a_server_that_is_gone_is_infrastructure_and_not_a_zero(hostile: Any) -> None:
    world = environment(hostile(lambda talk, _: talk.hang_up()))
    attempt = fly(world, 1)
    assert attempt.outcome is Outcome.INFRA_FAILURE
    assert attempt.reward is None


def test_errors_of_the_environment_are_answers_and_those_of_the_server_are_not(hostile: Any) -> None:
    def raises(talk: Talk, action: Any) -> None:
        if action["n"] == 1:
            talk.say("error", {"message": "bad move", "code": "EXECUTION_ERROR"})
        else:
            honest(talk, action)

    attempt = fly(environment(hostile(raises)), 1, 2)
    assert attempt.outcome is Outcome.SCORED
    assert attempt.events[0].result.is_error
    assert "bad move" in attempt.events[0].result.content

    def broken(talk: Talk, action: Any) -> None:
        del action
        talk.say("error", {"message": "disk full", "code": "EXECUTION_ERROR", "infrastructure": True})

    lost = fly(environment(hostile(broken)), 1)
    assert lost.outcome is Outcome.INFRA_FAILURE
    assert "disk full" in lost.detail


@pytest.mark.parametrize("reward", ["1.0", [1], {"a": 1}])
def test_rewards_that_are_no_numbers_are_infrastructure(hostile: Any, reward: Any) -> None:
    def odd(talk: Talk, action: Any) -> None:
        del action
        talk.steps += 1
        talk.say("observation", {"observation": {}, "reward": reward, "done": False})

    assert fly(environment(hostile(odd)), 1).outcome is Outcome.INFRA_FAILURE


# ---------------------------------------------------------------------------------------------- importing


def test_a_server_of_ours_becomes_an_environment_with_equal_verdicts() -> None:
    miniature = MiniatureEnvironment()

    async def served() -> None:
        async with OpenEnvServer(Offer(miniature), TaskDesk(miniature)) as server:
            imported = await asyncio.to_thread(import_openenv, server.url, ImportSettings(num_tasks=5, threshold=0.99))
            world = ForeignEnvironment("far", imported.content)
            assert [task.id for task in world.tasks()] == [task.id for task in miniature.tasks()[:5]]
            assert world.tasks()[0].instruction == miniature.tasks()[0].instruction
            assert {spec.name for spec in world.tools()} == {"get_price", "set_price", "decline", "final_answer"}
            task = world.tasks()[0]
            far = world.open(task)
            for call in miniature.reference(task.id).oracle:
                await asyncio.to_thread(far.execute, call)
            assert json.loads(far.snapshot())["solved"] is False
            last = ToolCall(id="z", name="final_answer", arguments={"answer": "Done."})
            await asyncio.to_thread(far.execute, last)
            assert json.loads(far.snapshot())["solved"] is True
            copy = far.fork()
            assert copy.snapshot() == far.snapshot()
            far.close()
            copy.close()

    asyncio.run(served())


def test_addresses_and_servers_that_are_none() -> None:
    for url in ("", "ftp://x", "http://", "http://u:p@h", "http://h?x=1", "h:1"):
        with pytest.raises(InputError):
            import_openenv(url)
    with pytest.raises(InfrastructureError, match="not answered"):
        import_openenv("http://127.0.0.1:9")
