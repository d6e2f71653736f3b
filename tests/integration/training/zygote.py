"""Starts runs by forking, so that a run costs no imports: ``python -m tests.integration.training.zygote KIND``.

Reads a line of JSON arguments, forks, answers with the pid; the child runs and writes ``outcome.json`` into its run's
folder. ``KIND`` is ``fake`` (without torch) or ``tiny`` (a tiny model, our engine, the real trainer). The trainer
process is forked by the run, so it costs no imports either.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil

from flightschool.training.link import Launch

ROOT = Path(__file__).parents[3]
Fly = Callable[[Path, dict[str, Any], Launch], dict[str, Any]]


class ForkedChild:
    """A forked process behind the face of ``subprocess.Popen``."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None

    def poll(self) -> int | None:
        if self._code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self._code = os.waitstatus_to_exitcode(status) if pid else None
        return self._code

    def wait(self, timeout: float | None = None) -> int:
        end = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if end is not None and time.monotonic() > end:
                raise subprocess.TimeoutExpired("trainer", timeout or 0.0)
            time.sleep(0.001)
        return code

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, sig)


def forking(serve: Callable[[Connection], None]) -> Launch:
    """Launches a trainer by forking this process."""

    def launch(descriptor: int, log: Path) -> ForkedChild:
        parent = os.getpid()
        pid = os.fork()
        if pid:
            return ForkedChild(pid)
        from flightschool.training.trainer_process import die_with

        os.dup2(os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT), 2)
        os.closerange(3, descriptor)
        os.closerange(descriptor + 1, 512)
        die_with(parent)
        with contextlib.suppress(BaseException):
            serve(Connection(descriptor))
        os._exit(0)

    return launch


class Zygote:
    """The tests' end."""

    def __init__(self, kind: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.training.zygote", kind],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self, run_dir: Path, **arguments: object) -> psutil.Process:
        """Start a run, or go on with it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        (run_dir / "outcome.json").unlink(missing_ok=True)
        self._process.stdin.write(json.dumps({"run_dir": str(run_dir), **arguments}) + "\n")
        self._process.stdin.flush()
        return psutil.Process(int(self._process.stdout.readline()))

    def outcome(self, run_dir: Path, process: psutil.Process, timeout: float = 60.0) -> dict[str, Any]:
        """How a run ended by itself."""
        if psutil.wait_procs([process], timeout=timeout)[1]:
            for each in (*process.children(), process):
                each.kill()
            raise AssertionError(f"the run did not end within {timeout:g} s")
        found: dict[str, Any] = json.loads((run_dir / "outcome.json").read_text())
        return found

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process.wait(10)


def child(process: psutil.Process) -> psutil.Process | None:
    """The trainer of a run, if it lives."""
    try:
        return next(iter(process.children()), None)
    except psutil.NoSuchProcess:
        return None


def main(kind: str) -> None:
    from tests.integration.training import fake_run, tiny_run

    fly: Fly = fake_run.fly
    if kind == "tiny":
        tiny_run.prepare()
        fly = tiny_run.fly
    serve = tiny_run.serve if kind == "tiny" else fake_run.serve
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # ended runs are not waited for
    for line in sys.stdin:
        arguments = json.loads(line)
        pid = os.fork()
        if pid:
            sys.stdout.write(f"{pid}\n")
            sys.stdout.flush()
            continue
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.close(0)
        os.open(os.devnull, os.O_RDONLY)
        run_dir = Path(arguments["run_dir"])
        run_dir.mkdir(parents=True, exist_ok=True)
        try:
            outcome = fly(run_dir, arguments, forking(serve))
        except BaseException:  # noqa: BLE001  the other side of a fork: it must be told
            outcome = {"error": traceback.format_exc()}
        (run_dir / "outcome.json").write_text(json.dumps(outcome))
        os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
