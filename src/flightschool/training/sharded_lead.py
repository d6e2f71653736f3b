"""The sharded trainer as the run sees it: rank 0 in this process, and a process for every other rank.

Rank 0 tells every command on, carries it out itself, and hears the others' replies; the conversation with the run stays
that of one trainer. A rank that dies breaks the gathering of all others, which then end: the run sees a lost trainer.
``python -m flightschool.training.sharded_lead FD PARENT RANK MEETING`` is one of the other ranks.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

from flightschool.errors import FlightschoolError, InfrastructureError, TokenContractError
from flightschool.records import WeightsVersion
from flightschool.training.messages import (
    Accumulate,
    Accumulated,
    Command,
    Export,
    Failed,
    Manifest,
    Reply,
    Save,
    Start,
    Step,
    Stepped,
    TrainerSpec,
    TrainGroup,
    decode_reply,
    encode,
)
from flightschool.training.server import TrainerCore, serve
from flightschool.training.settings import TrainingSettings
from flightschool.training.trainer_process import die_with

__all__ = ["ANOTHER_REFUSES", "ShardedTrainer", "main"]

ANOTHER_REFUSES = "another rank refuses its tokens"


class ShardedTrainer:
    """A ``TrainerCore`` over several processes.

    Args:
        spec: of the trainer.
    """

    def __init__(self, spec: TrainerSpec) -> None:
        from flightschool.training.sharded import join

        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # ranks of one machine
        self._folder = tempfile.TemporaryDirectory(prefix="flightschool-ranks-")
        meeting = Path(self._folder.name) / "meeting"
        settings = TrainingSettings.model_validate_json(spec.settings)
        self._others = [_start(rank, meeting) for rank in range(1, settings.num_trainers)]
        self._tell(Start(spec=spec))
        self._core: TrainerCore = join(spec, 0, meeting)
        self._started = False

    @property
    def num_parameters(self) -> int:
        """Size of the model."""
        return self._core.num_parameters

    def publish(self) -> WeightsVersion:
        """The others publish, that is gather, as part of their start; afterwards with every step."""
        version = self._core.publish()
        if not self._started:
            self._hear()
            self._started = True
        return version

    def accumulate(self, group: TrainGroup) -> Accumulated:
        """See ``TrainerCore``."""
        self._tell(Accumulate(group=group))
        try:
            done = self._core.accumulate(group)
        except TokenContractError as error:
            for rank, reply in self._replies():
                if isinstance(reply, Failed) and ANOTHER_REFUSES in error.what and ANOTHER_REFUSES not in reply.what:
                    raise _told(rank, reply) from error
            raise
        self._hear()
        return done

    def step(self) -> Stepped:
        """See ``TrainerCore``."""
        self._tell(Step())
        done = self._core.step()
        self._hear()
        return done

    def save(self, directory: Path, manifest: Manifest) -> None:
        """See ``TrainerCore``."""
        self._tell(Save(directory=str(directory), manifest=manifest))
        self._core.save(directory, manifest)
        self._hear()

    def export(self, directory: Path) -> str:
        """See ``TrainerCore``."""
        self._tell(Export(directory=str(directory)))
        digest = self._core.export(directory)
        self._hear()
        return digest

    def _tell(self, command: Command) -> None:
        data = encode(command)
        for connection in self._others:
            connection.send_bytes(data)

    def _hear(self) -> None:
        for rank, reply in self._replies():
            if isinstance(reply, Failed):
                raise _told(rank, reply)

    def _replies(self) -> list[tuple[int, Reply]]:
        """(rank, reply) of all others."""
        replies = []
        for rank, connection in enumerate(self._others, start=1):
            try:
                replies.append((rank, decode_reply(connection.recv_bytes())))
            except (EOFError, OSError) as error:
                raise InfrastructureError(f"rank {rank} of the trainer died", mend="see trainer.log") from error
        return replies


def _told(rank: int, reply: Failed) -> FlightschoolError:
    kind = TokenContractError if reply.kind == TokenContractError.__name__ else InfrastructureError
    return kind(f"rank {rank}: {reply.what}", where=reply.where, expected=reply.expected, mend=reply.mend)


def _start(rank: int, meeting: Path) -> Connection:
    ours, theirs = Pipe(duplex=True)
    command = [sys.executable, "-m", __name__, str(theirs.fileno()), str(os.getpid()), str(rank), str(meeting)]
    subprocess.Popen(command, pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL)
    theirs.close()
    return ours


def main(arguments: list[str]) -> None:
    """One of the other ranks."""
    descriptor, parent, rank = (int(argument) for argument in arguments[:3])
    meeting = Path(arguments[3])
    die_with(parent)

    def build(spec: TrainerSpec) -> TrainerCore:
        from flightschool.training.sharded import join

        return join(spec, rank, meeting)

    serve(Connection(descriptor), build)


if __name__ == "__main__":
    main(sys.argv[1:])
