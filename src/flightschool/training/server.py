"""The trainer's side of the conversation: commands in, replies out, until told to stop. Imports no torch."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Protocol, TextIO

from flightschool.errors import FlightschoolError
from flightschool.records import WeightsVersion
from flightschool.training.messages import (
    Accumulate,
    Accumulated,
    Command,
    Done,
    Export,
    Failed,
    Manifest,
    Ready,
    Reply,
    Save,
    Start,
    Step,
    Stepped,
    Stop,
    TrainerSpec,
    TrainGroup,
    decode_command,
    encode,
)

__all__ = ["Server", "TrainerCore", "serve"]


class TrainerCore(Protocol):
    """What is driven: the torch trainer, or anything that keeps its promises."""

    @property
    def num_parameters(self) -> int:
        """Size of the model."""
        ...

    def publish(self) -> WeightsVersion:
        """Make the present weights visible."""
        ...

    def accumulate(self, *groups: TrainGroup) -> Accumulated:
        """Add the gradient of groups."""
        ...

    def step(self, *, num_flat_members: int = 0) -> Stepped:
        """Apply or skip what was accumulated, and publish; the argument as in ``Step``."""
        ...

    def save(self, directory: Path, manifest: Manifest) -> None:
        """A checkpoint, whole or not at all."""
        ...

    def export(self, directory: Path) -> str:
        """The model folder; returns its digest."""
        ...


class Server:
    """Carries out commands on a core that ``build`` makes when ``Start`` arrives.

    Args:
        build: makes the core.
        log: takes the stack of what is no error of ours; None: it is told in one line alone.
    """

    def __init__(self, build: Callable[[TrainerSpec], TrainerCore], log: TextIO | None = None) -> None:
        self._build, self._log = build, log
        self._core: TrainerCore | None = None

    def handle(self, command: Command) -> Reply:
        """One answer to one command; an error of ours becomes ``Failed``."""
        try:
            return self._carry_out(command)
        except FlightschoolError as error:
            return Failed(kind=type(error).__name__, **error.as_dict())
        except Exception as error:  # noqa: BLE001  a process border: the other side must learn what happened
            if self._log is not None:
                traceback.print_exc(file=self._log)
            told = f"the trainer raised {type(error).__name__} at {type(command).__name__.lower()!r}: {error}"
            return Failed(kind="InfrastructureError", what=told)

    def _carry_out(self, command: Command) -> Reply:
        match command:
            case Start(spec=spec):
                self._core = self._build(spec)
                return Ready(version=self._core.publish(), num_parameters=self._core.num_parameters)
            case Accumulate(groups=groups):
                return self._started().accumulate(*groups)
            case Step(num_flat_members=num_flat_members):
                return self._started().step(num_flat_members=num_flat_members)
            case Save(directory=directory, manifest=manifest):
                self._started().save(Path(directory), manifest)
                return Done()
            case Export(directory=directory):
                return Done(digest=self._started().export(Path(directory)))
            case Stop():
                return Done()

    def _started(self) -> TrainerCore:
        if self._core is None:
            raise FlightschoolError("the trainer was not started", expected="Start before any other command")
        return self._core


def serve(connection: Connection, build: Callable[[TrainerSpec], TrainerCore]) -> None:
    """Answer commands until ``Stop``, which is not answered, or until the other end is gone."""
    server = Server(build, log=sys.stderr)
    while True:
        try:
            command = decode_command(connection.recv_bytes())
            if isinstance(command, Stop):
                return
            connection.send_bytes(encode(server.handle(command)))
        except (EOFError, BrokenPipeError, ConnectionResetError):
            return
