"""Commands under observation: exit code, output, time, and the memory of the whole tree."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time

import psutil
import pytest

from flightschool.bench import watch
from flightschool.errors import InputError

HELD_MB = 60

FAMILY = textwrap.dedent(
    f"""
    import subprocess, sys, time
    child = [sys.executable, "-c", "block = bytearray({HELD_MB} * 10**6); block[::4096] = b'x' * len(block[::4096]);"
             "print('held', flush=True); input()"]
    process = subprocess.Popen(child, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\\n"
    time.sleep(0.5)
    process.communicate("go\\n")
    print("done")
    """
)


def test_what_a_command_says_and_how_it_ends() -> None:
    watched = watch([sys.executable, "-c", "print('hello'); raise SystemExit(3)"], interval_s=0.01)
    assert watched.exit_code == 3
    assert watched.stdout == "hello\n"
    assert watched.wall_s > 0


def test_memory_of_children_counts() -> None:
    watched = watch([sys.executable, "-c", FAMILY], interval_s=0.05)
    assert watched.exit_code == 0
    assert watched.peak_bytes > HELD_MB * 10**6
    assert watched.num_samples >= 2


def test_the_peak_is_the_largest_look() -> None:
    looks = iter([5, 9, 7])
    command = [sys.executable, "-c", "import time; time.sleep(0.2)"]
    watched = watch(command, interval_s=0.01, measure=lambda pid: next(looks, 0))
    assert watched.peak_bytes == 9
    assert watched.num_samples == 3


def test_an_interrupted_watch_ends_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[psutil.Process] = []

    def note(pid: int) -> int:
        started.append(psutil.Process(pid))
        return 1

    def interrupt(process: subprocess.Popen[str]) -> None:
        while not started:
            time.sleep(0.01)
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess.Popen, "communicate", interrupt)
    with pytest.raises(KeyboardInterrupt):
        watch([sys.executable, "-c", "import time; time.sleep(60)"], interval_s=0.01, measure=note)
    assert not started[0].is_running()


def test_a_program_that_is_not_there_is_one_clear_error() -> None:
    with pytest.raises(InputError, match="cannot be started"):
        watch(["/no/such/program"])
