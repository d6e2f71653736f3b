"""The client against a real HTTP server on the loopback: answers, retries, refusals, recording."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from flightschool.errors import InfrastructureError, InputError
from flightschool.models import (
    Cassette,
    ChatClient,
    LoopbackServer,
    RefusedRequestError,
    Reply,
    Retries,
    chat_reply,
    parse_endpoint,
)
from flightschool.records import Json, Message

pytestmark = pytest.mark.integration
ASK = (Message(role="system", content="be brief"), Message(role="user", content="héllo \ud800"))
QUICK = Retries(most_tries=4, first_pause_s=0.01, longest_pause_s=0.05)


def client(server: LoopbackServer, **more: object) -> ChatClient:
    return ChatClient(parse_endpoint(server.reference("m"), key_env=""), retries=QUICK, **more)  # type: ignore[arg-type]


def test_one_answer() -> None:
    seen: list[dict[str, Json]] = []

    def respond(request: dict[str, Json]) -> Reply:
        seen.append(request)
        return chat_reply("hello you", model="m-1")

    with LoopbackServer(respond) as server, client(server) as model:
        answer = model.complete(ASK, max_tokens=7, temperature=0.5, seed=3)
        again = asyncio.run(model.complete_async(ASK))
    assert (answer.text, answer.finish, answer.model, answer.num_tries) == ("hello you", "stop", "m-1", 1)
    assert answer.num_completion_tokens == 2
    assert again.text == "hello you"
    assert seen[0] == {
        "model": "m",
        "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "héllo \\ud800"}],
        "max_tokens": 7,
        "temperature": 0.5,
        "seed": 3,
    }


def test_what_passes_by_itself_is_tried_again_and_the_server_may_say_when() -> None:
    replies = [
        Reply({"error": "busy"}, status=429, headers={"Retry-After": "0.02"}),
        Reply({"error": "down"}, status=503),
        Reply(b"not json"),
        chat_reply("at last"),
    ]
    pauses: list[float] = []
    with LoopbackServer(lambda _: replies.pop(0)) as server, client(server, sleep=pauses.append) as model:
        answer = model.complete(ASK)
    assert (answer.text, answer.num_tries) == ("at last", 4)
    assert pauses[0] == 0.02
    assert len(pauses) == 3
    assert max(pauses) <= 0.05


@pytest.mark.parametrize(
    "reply",
    [
        Reply({"error": "down"}, status=500),
        Reply({"choices": []}),
        Reply({"choices": [{"message": {"content": 3}}]}),
        Reply([]),
        Reply(b"[" * 100_000),
        Reply(b""),
        Reply(b'"' + b"x" * (9 << 20) + b'"'),
    ],
)
def test_no_answer_after_all_tries_is_infrastructure(reply: Reply) -> None:
    tries = pytest.raises(InfrastructureError, match="in 4 tries")
    with LoopbackServer(lambda _: reply) as server, client(server) as model, tries as caught:
        model.complete(ASK)
    assert not isinstance(caught.value, RefusedRequestError)


@pytest.mark.parametrize(("status", "refused"), [(400, True), (413, True), (422, True), (401, False), (404, False)])
def test_what_cannot_pass_is_asked_once(status: int, refused: bool) -> None:
    asked: list[int] = []

    def respond(_: dict[str, Json]) -> Reply:
        asked.append(1)
        return Reply({"error": {"message": "because"}}, status=status)

    told = pytest.raises(InfrastructureError, match="because")
    with LoopbackServer(respond) as server, client(server) as model, told as caught:
        model.complete(ASK)
    assert isinstance(caught.value, RefusedRequestError) is refused
    assert len(asked) == 1


def test_the_key_is_sent_to_the_server_and_told_to_no_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOP_KEY", "sk-very-secret")
    moved = Reply({}, status=307, headers={"Location": "http://127.0.0.1:1/v1/chat/completions"})
    told = pytest.raises(InfrastructureError, match="HTTP 307")  # not followed: it could carry the key
    with LoopbackServer(lambda _: moved) as server:
        endpoint = parse_endpoint(server.reference(), key_env="LOOP_KEY")
        with ChatClient(endpoint, retries=QUICK) as model, told as caught:
            model.complete(ASK)
    assert "sk-very-secret" not in str(caught.value)


def test_a_server_that_hangs_or_is_gone_is_infrastructure() -> None:
    wait = threading.Event()

    def respond(_: dict[str, Json]) -> Reply:
        wait.wait(5.0)
        return chat_reply("late")

    started = time.monotonic()
    with LoopbackServer(respond) as server:
        with client(server, timeout_s=0.2) as model, pytest.raises(InfrastructureError, match="Timeout"):
            model.complete(ASK)
        wait.set()
    assert time.monotonic() - started < 5.0
    with client(server) as model, pytest.raises(InfrastructureError, match="ConnectError"):
        model.complete(ASK)


def test_a_proxy_of_the_environment_is_not_asked_for_the_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with LoopbackServer(lambda _: chat_reply("direct")) as server, client(server) as model:
        assert model.complete(ASK).text == "direct"


def test_one_client_serves_many_threads() -> None:
    echo = LoopbackServer(lambda request: chat_reply(str(request["seed"])))
    with echo as server, client(server) as model, ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda seed: model.complete(ASK, seed=seed).text, range(40)))
    assert found == [str(seed) for seed in range(40)]


def test_a_cassette_records_once_and_replays_without_the_server(tmp_path: Path) -> None:
    path = tmp_path / "tape.jsonl"
    asked: list[int] = []

    def respond(request: dict[str, Json]) -> Reply:
        asked.append(1)
        text = str(request["messages"][-1]["content"])
        return chat_reply(f"{len(asked)}: {text}") if "bad" not in text else Reply({"error": "no"}, status=400)

    fence = "ab" * 16
    with LoopbackServer(respond) as real:
        cassette = Cassette(path, upstream=parse_endpoint(real.reference("m"), key_env=""))
        with LoopbackServer(cassette) as server, client(server) as model:
            first = model.complete([Message(role="user", content=f"fence {fence}")]).text
            second = model.complete([Message(role="user", content=f"fence {fence}")]).text
            with pytest.raises(RefusedRequestError):
                model.complete([Message(role="user", content="bad")])
        cassette.close()
    assert (first, second) == (f"1: fence {fence}", f"2: fence {fence}")
    other = "cd" * 16
    with LoopbackServer(Cassette(path)) as server, client(server) as model:
        replayed = [model.complete([Message(role="user", content=f"fence {other}")]).text for _ in range(3)]
        with pytest.raises(RefusedRequestError):
            model.complete([Message(role="user", content="bad")])
        with pytest.raises(InfrastructureError, match="never recorded"):
            model.complete([Message(role="user", content="new")])
    assert replayed == [f"1: fence {other}", f"2: fence {other}", f"2: fence {other}"]
    assert len(asked) == 3
    assert all(json.loads(line).keys() == {"key", "status", "body"} for line in path.read_text().splitlines())


def test_a_broken_cassette_is_told(tmp_path: Path) -> None:
    path = tmp_path / "tape.jsonl"
    path.write_text('{"key": "x"}\n')
    with pytest.raises(InputError, match="no line of a cassette"):
        Cassette(path)
