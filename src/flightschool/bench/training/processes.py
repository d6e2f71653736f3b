"""The measuring processes of this package: each measures one thing and prints it as one JSON object.

``python -m flightschool.bench.training.processes ours WORKLOAD.json FOLDER``, ``kernels MODEL THREADS``,
``overlap MODE STEPS FOLDER`` or ``killed FOLDER``. Processes of their own, so that threads, memory and
caches are nobody else's.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from flightschool.bench.training import kills
from flightschool.bench.training.kernels import measure_kernels
from flightschool.bench.training.ours import train_ours
from flightschool.bench.training.overlap import Mode, fly
from flightschool.bench.training.workload import Workload
from flightschool.errors import InputError
from flightschool.records import Record

__all__ = ["main"]


def main(words: Sequence[str]) -> Record:
    """Measure what the words say."""
    match words:
        case ["ours", path, folder]:
            return train_ours(msgspec.json.decode(Path(path).read_bytes(), type=Workload), Path(folder))
        case ["kernels", model, threads]:
            return measure_kernels(Path(model), int(threads))
        case ["overlap", mode, steps, folder]:
            return fly(msgspec.convert(mode, Mode), int(steps), Path(folder))
        case ["killed", folder]:
            return kills.fly(Path(folder))
    raise InputError(
        f"{list(words)!r}", where="processes", expected="ours, kernels, overlap or killed", mend="see the module"
    )


if __name__ == "__main__":
    sys.stdout.write(msgspec.json.encode(main(sys.argv[1:])).decode() + "\n")
