"""Running a command under observation: wall time, and the memory of its whole process tree.

Memory is the *proportional* set size summed over the tree: a page that two processes share counts half in each, so
weights that trainer and engine both map are counted once. Sums of plain resident sizes would count them twice.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence

import psutil

from flightschool.errors import InputError
from flightschool.records import Record

__all__ = ["INTERVAL_S", "Watched", "tree_bytes", "watch"]

INTERVAL_S = 0.5
REST = 30.0
"""A look at gigabytes takes tens of milliseconds (each page is visited, and what runs waits): between two looks pass at
least so many times the last one, so that watching takes 3 % of a core at most."""
GRACE_S = 10.0
"""Between asking a command to end, and ending it."""


class Watched(Record, frozen=True, kw_only=True):
    """A command that has ended."""

    exit_code: int
    """Negative: killed by this signal."""
    stdout: str
    wall_s: float
    peak_bytes: int
    """Largest summed proportional set size of the process tree; 0 if it ended before the first look."""
    num_samples: int


def watch(
    command: Sequence[str],
    *,
    environ: Mapping[str, str] | None = None,
    interval_s: float = INTERVAL_S,
    measure: Callable[[int], int] | None = None,
) -> Watched:
    """Run a command to its end; its stderr is ours.

    Args:
        command: program and arguments.
        environ: environment variables; those of this process by default.
        interval_s: least seconds between two looks at the memory; more where a look takes long (``REST``).
        measure: process id → bytes; ``tree_bytes`` by default.

    Raises:
        InputError: the program cannot be started.
    """
    started = time.perf_counter()
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, env=environ, text=True)
    except OSError as error:
        raise InputError(
            f"the command cannot be started: {error}", where=command[0], expected="a program", mend="check the path"
        ) from error
    over = threading.Event()
    seen: list[int] = []
    look = (process.pid, over, seen, interval_s, measure or tree_bytes)
    watcher = threading.Thread(target=_sample, args=look, daemon=True)
    with process:
        watcher.start()
        try:
            stdout, _ = process.communicate()
        except BaseException:
            _end(process)
            raise
        finally:
            wall_s = time.perf_counter() - started
            over.set()
            watcher.join()
    return Watched(
        exit_code=process.returncode,
        stdout=stdout,
        wall_s=wall_s,
        peak_bytes=max(seen, default=0),
        num_samples=len(seen),
    )


def tree_bytes(pid: int) -> int:
    """Summed proportional set size of a process and all below it; 0 when it is gone.

    Where the system knows no proportional size (it is Linux's), the unique set size is summed instead.
    """
    try:
        root = psutil.Process(pid)
        members = [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0
    return sum(_bytes_of(member) for member in members)


def _bytes_of(process: psutil.Process) -> int:
    try:
        memory = process.memory_full_info()
    except (psutil.NoSuchProcess, psutil.AccessDenied):  # ended meanwhile, or a zombie
        return 0
    return int(getattr(memory, "pss", memory.uss))


def _sample(pid: int, over: threading.Event, seen: list[int], interval_s: float, measure: Callable[[int], int]) -> None:
    while not over.is_set():
        began = time.perf_counter()
        found = measure(pid)
        if found:
            seen.append(found)
        over.wait(max(interval_s, REST * (time.perf_counter() - began)))


def _end(process: subprocess.Popen[str]) -> None:
    """Interrupted: the command is asked to end, and then made to."""
    process.terminate()
    try:
        process.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
