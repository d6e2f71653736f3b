"""The agent where only standard streams reach the sandbox: pumps them into a socket that the agent serves."""

from __future__ import annotations

import os
import selectors
import socket

from flightschool.sandbox.node import inside

__all__ = ["main"]

_CHUNK = 1 << 16


def main(fd: int) -> None:
    """Fork the agent; pump between standard streams (``fd`` in, 1 out) and its socket until either side ends."""
    mine, theirs = socket.socketpair()
    if os.fork() == 0:
        mine.close()
        inside.main(theirs.fileno())
        os._exit(1)
    theirs.close()
    with selectors.DefaultSelector() as selector:
        selector.register(fd, selectors.EVENT_READ)
        selector.register(mine, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fd == fd:
                    data = os.read(fd, _CHUNK)
                    mine.sendall(data)
                else:
                    data = mine.recv(_CHUNK)
                    at = 0
                    while at < len(data):
                        at += os.write(1, data[at:])
                if not data:
                    return
