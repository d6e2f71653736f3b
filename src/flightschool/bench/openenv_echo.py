"""Our side of ``bench openenv``: an echo environment of ours behind our server.

``python -m flightschool.bench.openenv_echo PORT PROCESSES [threaded]``. ``threaded``: as a team's own tool code is
run, in a thread of each session with a time limit.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from flightschool.digest import canonical_json
from flightschool.environments import AllowInventory
from flightschool.protocols import Permissions, World, WorldReply
from flightschool.records import CallCheck, CheckKind, CheckSpec, Reference, Task, ToolCall, ToolSpec

__all__ = ["EchoEnvironment", "main"]

TOOL = ToolSpec(
    name="echo_message",
    description="Say it again.",
    parameters={"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]},
)
TASK = Task(
    id="echo", family="echo", stratum="echo", instruction="Echo something.", initial_state="", max_turns=1_000_000
)


class EchoWorld:
    """Says again what it is told."""

    bounded = True

    def __init__(self) -> None:
        self._num = 0

    def execute(self, call: ToolCall) -> WorldReply:
        """The message."""
        self._num += 1
        return WorldReply(value=call.arguments["message"])

    def snapshot(self) -> bytes:
        """How often it was asked."""
        return canonical_json({"num": self._num})

    def fork(self) -> World:
        """A copy."""
        copy = type(self)()
        copy._num = self._num
        return copy

    def close(self) -> None:
        """Nothing to let go."""


class ThreadedEchoWorld(EchoWorld):
    """The same, as foreign code is run."""

    bounded = False


class EchoEnvironment:
    """Implements ``protocols.Environment`` with one task and one tool."""

    name = "echo"
    digest = "sha256:echo"
    policy_text = ""
    strata: Mapping[str, float] = {"echo": 1.0}

    def __init__(self, *, threaded: bool = False) -> None:
        self._world = ThreadedEchoWorld if threaded else EchoWorld

    def tasks(self) -> Sequence[Task]:
        """The one task."""
        return (TASK,)

    def task(self, task_id: str) -> Task:
        """The one task."""
        del task_id
        return TASK

    def tools(self) -> Sequence[ToolSpec]:
        """The one tool."""
        return (TOOL,)

    def permissions(self, task: Task) -> Permissions:
        """It may be called."""
        del task
        return AllowInventory((TOOL,))

    def open(self, task: Task) -> World:
        """A fresh world."""
        del task
        return self._world()

    def reference(self, task_id: str) -> Reference:
        """Solved when something was echoed."""
        rule = CallCheck(tool=TOOL.name)
        return Reference(task_id=task_id, checks=(CheckSpec(id="echoed", kind=CheckKind.FUNCTIONAL, rule=rule),))


def main(port: int, processes: int, *, threaded: bool) -> None:
    """Serve until ended."""
    from flightschool.serving import Offer, TaskDesk
    from flightschool.serving.openenv import ServerSettings, listen, serve_forever

    environment = EchoEnvironment(threaded=threaded)
    offer = Offer(environment, max_calls=1_000_000)
    serve_forever(listen("127.0.0.1", port), offer, TaskDesk(environment), ServerSettings(), num_processes=processes)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), threaded="threaded" in sys.argv[3:])
