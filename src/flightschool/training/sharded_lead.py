"""The sharded trainer as the run sees it: rank 0 in this process, and a process for every other rank.

Rank 0 tells every command on, carries it out itself, and hears the others' replies; the conversation with the run stays
that of one trainer. A rank that dies breaks the gathering of all others, which then end: the run sees a lost trainer.
``python -m flightschool.training.sharded_lead FD PARENT RANK MEETING`` is one of the other ranks.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

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
LOST_RANK = 4
"""Exit code of a trainer of which a rank died: what is left of it cannot gather weights any more."""
_POLL_S = 0.2


class _Rank(NamedTuple):
    """One of the other processes."""

    process: subprocess.Popen[bytes]
    connection: Connection


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
        threading.Thread(target=self._watch, name="watch-ranks", daemon=True).start()
        with self._all_alive():
            self._tell(Start(spec=spec))
            self._core: TrainerCore = join(spec, 0, meeting)
        self._started = False

    @property
    def num_parameters(self) -> int:
        """Size of the model."""
        return self._core.num_parameters

    def publish(self) -> WeightsVersion:
        """The others publish, that is gather, as part of their start; afterwards with every step."""
        with self._all_alive():
            version = self._core.publish()
            if not self._started:
                self._hear()
                self._started = True
        return version

    def accumulate(self, *groups: TrainGroup) -> Accumulated:
        """See ``TrainerCore``."""
        with self._all_alive():
            self._tell(Accumulate(groups=groups))
            try:
                done = self._core.accumulate(*groups)
            except TokenContractError as error:
                for rank, reply in self._replies():
                    if (
                        isinstance(reply, Failed)
                        and ANOTHER_REFUSES in error.what
                        and ANOTHER_REFUSES not in reply.what
                    ):
                        raise _told(rank, reply) from error
                raise
            self._hear()
        return done

    def step(self, *, num_flat_members: int = 0) -> Stepped:
        """See ``TrainerCore``."""
        with self._all_alive():
            self._tell(Step(num_flat_members=num_flat_members))
            done = self._core.step(num_flat_members=num_flat_members)
            self._hear()
        return done

    def save(self, directory: Path, manifest: Manifest) -> None:
        """See ``TrainerCore``."""
        with self._all_alive():
            self._tell(Save(directory=str(directory), manifest=manifest))
            self._core.save(directory, manifest)
            self._hear()

    def export(self, directory: Path) -> str:
        """See ``TrainerCore``."""
        with self._all_alive():
            self._tell(Export(directory=str(directory)))
            digest = self._core.export(directory)
            self._hear()
        return digest

    # ------------------------------------------------------------------ the other ranks

    def _watch(self) -> None:
        """A rank may die while this one waits for it in a gathering that has no end."""
        while True:
            self._end_if_one_died()
            time.sleep(_POLL_S)

    def _end_if_one_died(self) -> None:
        for number, rank in enumerate(self._others, start=1):
            code = rank.process.poll()
            if code is not None:
                sys.stderr.write(f"rank {number} of the trainer died with exit code {code}\n")
                sys.stderr.flush()
                os._exit(LOST_RANK)

    @contextlib.contextmanager
    def _all_alive(self) -> Iterator[None]:
        """What a gathering or a pipe raises since a rank is gone ends this process by the name of the rank."""
        try:
            yield
        except (RuntimeError, OSError, EOFError):
            time.sleep(_POLL_S)  # the kernel closes a dead process's ends before it can be waited for
            self._end_if_one_died()
            raise

    def _tell(self, command: Command) -> None:
        data = encode(command)
        for rank in self._others:
            rank.connection.send_bytes(data)

    def _hear(self) -> None:
        for rank, reply in self._replies():
            if isinstance(reply, Failed):
                raise _told(rank, reply)

    def _replies(self) -> list[tuple[int, Reply]]:
        """(rank, reply) of all others."""
        return [
            (number, decode_reply(rank.connection.recv_bytes())) for number, rank in enumerate(self._others, start=1)
        ]


def _told(rank: int, reply: Failed) -> FlightschoolError:
    kind = TokenContractError if reply.kind == TokenContractError.__name__ else InfrastructureError
    return kind(f"rank {rank}: {reply.what}", where=reply.where, expected=reply.expected, mend=reply.mend)


def _start(rank: int, meeting: Path) -> _Rank:
    ours, theirs = Pipe(duplex=True)
    command = [sys.executable, "-m", __name__, str(theirs.fileno()), str(os.getpid()), str(rank), str(meeting)]
    process = subprocess.Popen(command, pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL)
    theirs.close()
    return _Rank(process, ours)


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
