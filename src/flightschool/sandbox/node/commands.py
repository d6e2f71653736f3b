"""One running command of the agent."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import time
from dataclasses import dataclass, field
from typing import Any

from flightschool.sandbox.node import powers
from flightschool.sandbox.node.plan import Plan

__all__ = ["Command", "start"]


@dataclass
class Command:
    """A child of the agent, the leader of its own session."""

    id: int
    pid: int
    started: float
    deadline: float
    """Monotonic time at which it is killed."""
    most: int
    """Bytes of each stream that are handed on; what comes after is read and dropped, so that the command goes on."""
    sweep: bool
    """On time-out kill everything in the sandbox, not only this command's session and descendants."""
    stdin: memoryview
    stdin_fd: int | None
    outputs: dict[int, int]
    seen: dict[int, int] = field(default_factory=lambda: {1: 0, 2: 0})
    stopped: str = ""

    def take(self, stream: int, data: bytes) -> bytes:
        """Count ``data`` and return the part of it that is handed on."""
        room = max(0, self.most - self.seen[stream])
        self.seen[stream] += len(data)
        return data[:room]


def start(header: dict[str, Any], stdin: bytes, plan: Plan) -> Command:
    """Start one command.

    Raises:
        OSError: it cannot be started: no such program or folder, no process left.
    """
    process = subprocess.Popen(
        header["argv"],
        stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=header["cwd"],
        env=header["env"],
        start_new_session=True,
        close_fds=plan.has("close_descriptors"),
        preexec_fn=(lambda: powers.narrow(plan)) if plan.file_powers else None,  # noqa: PLW1509 - one thread
    )
    started = time.monotonic()
    seconds = max(1, int(plan.cpu_s) + 1)
    with contextlib.suppress(OSError, ValueError):  # dead already; the watcher counts the sandbox's time in any case
        resource.prlimit(process.pid, resource.RLIMIT_CPU, (seconds, seconds))
    outputs = {}
    for stream, pipe in ((1, process.stdout), (2, process.stderr)):
        if pipe is not None:
            outputs[stream] = os.dup(pipe.fileno())
            os.set_blocking(outputs[stream], False)
            pipe.close()
    stdin_fd = None
    if process.stdin is not None:
        stdin_fd = os.dup(process.stdin.fileno())
        os.set_blocking(stdin_fd, False)
        process.stdin.close()
    process.returncode = 0  # the agent reaps all children itself: this object is not asked again
    return Command(
        id=header["id"],
        pid=process.pid,
        started=started,
        deadline=started + header["timeout_s"],
        most=header["most"],
        sweep=bool(header.get("sweep")),
        stdin=memoryview(stdin),
        stdin_fd=stdin_fd,
        outputs=outputs,
    )
