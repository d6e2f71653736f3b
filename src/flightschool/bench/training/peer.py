"""Running either side in a process of its own, and TRL's environment in the user's cache."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import psutil

from flightschool.bench.training import trl_loop
from flightschool.bench.training.workload import Side, Workload
from flightschool.errors import InfrastructureError
from flightschool.records import Record

__all__ = ["MEASURING", "PACKAGES", "Answered", "ask", "fly_ours", "fly_peer", "peer_python"]

PACKAGES = ("trl==1.16.0", "transformers==5.24.0", "datasets==5.2.0", "jmespath==1.1.0", "torch==2.13.0")
"""Exactly these: what is compared must stay the same from one measurement to the next."""
MEASURING = (sys.executable, "-m", "flightschool.bench.training.processes")
"""Begins the command of a measuring process of ours."""
_INSTALLED = "installed"
_INSTALL_LIMIT_S = 1800.0


class Answered(Record, frozen=True, kw_only=True):
    """What a measuring process said, and how much others computed meanwhile."""

    answer: bytes
    others: float
    """Mean cores that other processes used; above .1 the machine was not quiet."""


def peer_python(tell: Callable[[str], None], folder: Path | None = None) -> Path:
    """TRL's Python, installed at the first call.

    Args:
        tell: is called with a line before what takes long.
        folder: where environments of peers are kept; ``flightschool/peers`` in the user's cache by default.

    Raises:
        InfrastructureError: it cannot be installed.
    """
    base = os.environ.get("XDG_CACHE_HOME")
    cache = (Path(base) if base else Path.home() / ".cache") / "flightschool" / "peers"
    home = (folder or cache) / "trl"
    python = home / "bin" / "python"
    if (home / _INSTALLED).is_file() and (home / _INSTALLED).read_text(encoding="utf-8") == " ".join(PACKAGES):
        return python
    tell(f"installing {PACKAGES[0]} into {home}")
    shutil.rmtree(home, ignore_errors=True)
    _install([sys.executable, "-m", "venv", str(home)])
    _install([str(python), "-m", "pip", "install", "--quiet", *PACKAGES])
    (home / _INSTALLED).write_text(" ".join(PACKAGES), encoding="utf-8")  # last: a cut installation begins anew
    return python


def _install(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_LIMIT_S, check=False)
        said = "" if done.returncode == 0 else (done.stderr or done.stdout).strip()[-300:] or "it said nothing"
    except subprocess.TimeoutExpired:
        said = f"no end after {_INSTALL_LIMIT_S:.0f} s"
    if said:
        raise InfrastructureError(
            f"the peer cannot be installed: {said}",
            where=" ".join(command[:5]),
            expected="a package index that can be reached, and 2 GB of disk",
            mend="try again with a network, or measure ours alone with --no-peer",
        )


def fly_ours(work: Workload, scratch: Path) -> tuple[Side, float]:
    """Our side of a workload, and how much others computed meanwhile."""
    return _fly(
        work, scratch, [sys.executable, "-m", "flightschool.bench.training.processes", "ours"], with_folder=True
    )


def fly_peer(work: Workload, scratch: Path, python: Path) -> tuple[Side, float]:
    """The peer's side of a workload, and how much others computed meanwhile."""
    return _fly(work, scratch, [str(python), "-P", str(trl_loop.__file__)], with_folder=False)


def _fly(work: Workload, scratch: Path, command: Sequence[str], *, with_folder: bool) -> tuple[Side, float]:
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        path = Path(folder) / "workload.json"
        path.write_bytes(msgspec.json.encode(work))
        words = [*command, str(path), *([str(Path(folder) / "run")] if with_folder else [])]
        answered = ask(words)
    side = msgspec.json.decode(answered.answer, type=Side)
    if not side.steps:
        raise InfrastructureError(
            "no optimizer step was made",
            where=" ".join(words[:4]),
            expected="at least one step",
            mend="raise the limit of time",
        )
    return side, answered.others


def ask(command: Sequence[str]) -> Answered:
    """Run a measuring process; its stderr is ours, its last line of stdout the answer.

    Raises:
        InfrastructureError: it died.
    """
    busy, own = _busy_s(), _children_s()
    done = subprocess.run(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, check=False, env=_environ())
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        raise InfrastructureError(
            f"a measuring process ended with {done.returncode}",
            where=" ".join(command[:4]),
            expected="one JSON object",
            mend="see what it said above",
        )
    wall_s = max(1e-9, _busy_s()[1] - busy[1])
    others = (_busy_s()[0] - busy[0] - (_children_s() - own)) / wall_s
    return Answered(answer=lines[-1], others=max(0.0, others))


def _environ() -> dict[str, str]:
    """Threads are set by each side itself; limits of the caller's would hold for one of them only."""
    return {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}


def _busy_s() -> tuple[float, float]:
    """Busy seconds of all cores since the machine started, and seconds of one core since then."""
    times = psutil.cpu_times()
    idle = times.idle + getattr(times, "iowait", 0.0)
    total = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
    return total - idle, total / (psutil.cpu_count() or 1)


def _children_s() -> float:
    times = os.times()
    return times.children_user + times.children_system + times.user + times.system
