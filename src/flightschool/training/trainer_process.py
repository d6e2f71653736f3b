"""The trainer as a process: ``python -m flightschool.training.trainer_process FD PARENT``.

``FD`` is one end of a socket pair inherited from the parent. The process ends when it is told to, when the other end is
closed, and, even in the middle of a long computation, when the parent is gone.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

from flightschool.training.folders import remove_published
from flightschool.training.link import HANG_SIGNAL
from flightschool.training.messages import TrainerSpec
from flightschool.training.server import TrainerCore, serve
from flightschool.training.settings import TrainingSettings

__all__ = ["ORPHANED", "build_torch_trainer", "die_with", "main"]

ORPHANED = 3
"""Exit code of a trainer whose parent is gone."""
_POLL_S = 0.5


def die_with(parent: int, last_will: Callable[[], None] | None = None) -> None:
    """End this process soon after ``parent`` ends, whatever the main thread is doing.

    Args:
        parent: process to outlive by a moment only.
        last_will: is called before the end.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_POLL_S)
        if last_will is not None:
            last_will()
        os._exit(ORPHANED)

    threading.Thread(target=watch, name="die-with-parent", daemon=True).start()


def build_torch_trainer(spec: TrainerSpec) -> TrainerCore:
    """The real trainer; torch is imported here, after the number of threads was set by the environment."""
    if TrainingSettings.model_validate_json(spec.settings).num_trainers > 1:
        from flightschool.training.sharded_lead import ShardedTrainer

        return ShardedTrainer(spec)
    from flightschool.training.trainers import make_trainer

    return make_trainer(spec)


def main(arguments: list[str]) -> None:
    """Serve on the inherited descriptor; published weights are removed at the end, however it comes."""
    descriptor, parent = (int(argument) for argument in arguments)
    published: list[Path] = []

    def build(spec: TrainerSpec) -> TrainerCore:
        if spec.weights:
            published.append(Path(spec.weights))
        return build_torch_trainer(spec)

    def remove() -> None:
        for path in published:
            remove_published(path)

    die_with(parent, remove)
    faulthandler.register(HANG_SIGNAL, all_threads=True)
    try:
        serve(Connection(descriptor), build)
    finally:
        remove()


if __name__ == "__main__":
    main(sys.argv[1:])
