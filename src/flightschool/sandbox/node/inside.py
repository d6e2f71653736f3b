"""The agent as a program of its own, for mechanisms that make the walls themselves (bubblewrap, Docker).

What such a mechanism leaves open is closed here: descriptors, limits, privileges, the system-call filter.
"""

from __future__ import annotations

import array  # noqa: F401 - send_fds imports it late
import contextlib
import json
import os
import socket
from pathlib import Path

from flightschool.sandbox.node import agent, confine, roots, syscalls
from flightschool.sandbox.node.frames import pack
from flightschool.sandbox.node.plan import Plan

__all__ = ["main"]


def main(fd: int) -> None:
    """Read the plan (a length in 8 bytes, JSON), renounce what is left, serve."""
    syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)  # not the init under a relay: orphans come here too
    channel = socket.socket(fileno=os.dup(fd))
    length = int.from_bytes(channel.recv(8, socket.MSG_WAITALL), "little")
    plan = Plan.of(json.loads(channel.recv(length, socket.MSG_WAITALL)))
    try:
        null = os.open("/dev/null", os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        syscalls.close_all_but([0, 1, 2, channel.fileno()])
        os.umask(0o022)
        with contextlib.suppress(OSError):  # an image may have its own, read-only
            roots.write_accounts(plan, Path("/etc"))
        confine.limit(plan)
        confine.renounce(plan)
        root = os.open("/", os.O_PATH | os.O_DIRECTORY)
        with contextlib.suppress(OSError):  # a relay that carries bytes only cannot carry it
            socket.send_fds(channel, [pack({"ready": True})], [root])
        os.close(root)
    except OSError as error:
        channel.sendall(pack({"failed": str(error), "errno": error.errno}))
        return
    agent.main(channel, plan)
