"""An OpenEnv server of ours in a thread, and a hand that speaks to it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from flightschool.environments.openenv import Link
from flightschool.protocols import Environment
from flightschool.serving import Offer, TaskDesk
from flightschool.serving.openenv import OpenEnvServer, ServerSettings

Serve = Callable[..., OpenEnvServer]


class Hand:
    """One WebSocket, without any account."""

    def __init__(self, url: str, **options: Any) -> None:
        self.link = Link(url, **options)

    def ask(self, message: Any) -> Any:
        self.link.send(message)
        return self.link.receive(5.0)

    def reset(self, **asked: Any) -> Any:
        return self.ask({"type": "reset", "data": asked})

    def call(self, tool: str, **arguments: Any) -> Any:
        return self.ask({"type": "step", "data": {"type": "call_tool", "tool_name": tool, "arguments": arguments}})

    def state(self) -> Any:
        return self.ask({"type": "state"})["data"]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts servers, each in a thread of its own; all end with the test."""
    ends: list[Callable[[], None]] = []

    def start(environment: Environment, settings: ServerSettings | None = None, **offer: Any) -> OpenEnvServer:
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever)
        thread.start()

        async def open_() -> OpenEnvServer:
            server = OpenEnvServer(Offer(environment, **offer), TaskDesk(environment), settings)
            await server.start()
            return server

        server = asyncio.run_coroutine_threadsafe(open_(), loop).result(10)

        def end() -> None:
            asyncio.run_coroutine_threadsafe(server.close(), loop).result(10)
            loop.call_soon_threadsafe(loop.stop)
            thread.join(10)
            loop.close()

        ends.append(end)
        return server

    yield start
    for end in ends:
        end()


@pytest.fixture
def hand() -> Iterator[Callable[..., Hand]]:
    """Opens hands, and lets them go at the end."""
    hands: list[Hand] = []

    def take(url: str, **options: Any) -> Hand:
        hands.append(Hand(url, **options))
        return hands[-1]

    yield take
    for one in hands:
        one.link.close()
