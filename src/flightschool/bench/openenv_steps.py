"""Steps of an echo environment over the OpenEnv protocol: our server beside the reference, in the same run.

The client is the same plain one for both, so that what differs is the server; figures a CPU second count the server's
processes alone, hence hardly depend on who else uses the machine. The reference is OpenEnv's own server (installed
into an environment of its own) with its own classes: a tool over FastMCP, as its echo environment has one. Beside it
stands ``openenv init``'s template, unchanged, which echoes without any tool.
"""

from __future__ import annotations

import contextlib
import http
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil

from flightschool.bench.targets import Target, all_met, at_least
from flightschool.environments.foreign import LostSessionError
from flightschool.environments.openenv import Link
from flightschool.environments.openenv.link import ask_http
from flightschool.errors import InfrastructureError
from flightschool.records import Json, Record

__all__ = ["PEER_PACKAGE", "OpenenvBench", "bench_openenv"]

PEER_PACKAGE = "openenv==0.10.0"
LEAST_RATIO = 10.0
NUM_SESSIONS = 32
STEPS_AN_EPISODE = 50
_START_S = 120.0
_TOOL_STEP: Json = {
    "type": "step",
    "data": {"type": "call_tool", "tool_name": "echo_message", "arguments": {"message": "Hello, world"}},
}
_PLAIN_STEP: Json = {"type": "step", "data": {"message": "Hello, world"}}


class OpenenvBench(Record, frozen=True, kw_only=True):
    """What was measured."""

    steps_per_cpu_s: float
    """Steps of one session a CPU second of our server, quietest round."""
    threaded_steps_per_cpu_s: float
    """The same where the world is run as foreign code is: in a thread, with a time limit."""
    reference_steps_per_cpu_s: float | None
    """The same of OpenEnv's server with a FastMCP tool; None without the peer."""
    plain_steps_per_cpu_s: float | None
    """The same of ``openenv init``'s template, which has no tools."""
    ratio: float | None
    """Ours over the reference with a tool."""
    plain_ratio: float | None
    """Ours over the template."""
    steps_per_s_32_sessions: float
    """Wall clock, as many server processes as cores, one client process."""
    steps_per_s_32_sessions_one_process: float
    p50_ms: float
    """Latency of a step of one session on our server."""
    p99_ms: float
    num_steps: int
    """Steps a round."""
    num_rounds: int
    cores: int
    peer: str
    targets: tuple[Target, ...]

    @property
    def met(self) -> bool:
        """Whether every promise was kept; without the peer nothing was promised."""
        return all_met(self.targets)


def bench_openenv(
    *,
    quick: bool = False,
    peer: bool = True,
    folder: Path | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> OpenenvBench:
    """Measure.

    Args:
        quick: fewer steps and rounds.
        peer: whether the peer is installed and measured.
        folder: keeps the peer's environment; a temporary one otherwise.

    Raises:
        InfrastructureError: a server did not start, or the peer cannot be installed.
    """
    num_steps, num_rounds = (1_500, 2) if quick else (4_000, 5)
    cores = len(os.sched_getaffinity(0))
    tell("our server")
    with _ours(1) as (url, process):
        measured = [_round(url, process, _TOOL_STEP, num_steps) for _ in range(num_rounds)]
        single = _many(url, num_steps)
    with _ours(1, "threaded") as (url, process):
        threaded = max(_round(url, process, _TOOL_STEP, num_steps)[0] for _ in range(num_rounds))
    with _ours(cores) as (url, _):
        many = _many(url, num_steps)
    reference, plain = _peers(folder, num_steps // 2, num_rounds, tell) if peer else (None, None)
    latencies = sorted(latency for _, rows in measured for latency in rows)
    best = max(rate for rate, _ in measured)
    ratio = None if reference is None else best / reference
    return OpenenvBench(
        steps_per_cpu_s=best,
        threaded_steps_per_cpu_s=threaded,
        reference_steps_per_cpu_s=reference,
        plain_steps_per_cpu_s=plain,
        ratio=ratio,
        plain_ratio=None if plain is None else best / plain,
        steps_per_s_32_sessions=many,
        steps_per_s_32_sessions_one_process=single,
        p50_ms=statistics.median(latencies) * 1e3,
        p99_ms=latencies[int(len(latencies) * 0.99)] * 1e3,
        num_steps=num_steps,
        num_rounds=num_rounds,
        cores=cores,
        peer=PEER_PACKAGE if peer else "",
        targets=() if ratio is None else (at_least("ratio", ratio, LEAST_RATIO),),
    )


# ------------------------------------------------------------------------------------------------ measuring


def _round(url: str, process: psutil.Process, step: Json, num_steps: int) -> tuple[float, list[float]]:
    """(steps a CPU second of the server, latency of each step) of one session."""
    link = Link(url)
    try:
        _ask(link, {"type": "reset", "data": {}})
        _ask(link, step)
        before, latencies = _cpu_s(process), []
        for number in range(num_steps):
            if number % STEPS_AN_EPISODE == 0:
                _ask(link, {"type": "reset", "data": {}})
            started = time.perf_counter()
            _ask(link, step)
            latencies.append(time.perf_counter() - started)
        return num_steps / max(_cpu_s(process) - before, 1e-9), latencies
    finally:
        link.close()


def _many(url: str, num_steps: int) -> float:
    """Steps a second of 32 sessions together."""
    links = [Link(url) for _ in range(NUM_SESSIONS)]
    each = max(STEPS_AN_EPISODE, num_steps // 8)
    failures: list[BaseException] = []

    def drive(link: Link) -> None:
        try:
            for number in range(each):
                if number % STEPS_AN_EPISODE == 0:
                    _ask(link, {"type": "reset", "data": {}})
                _ask(link, _TOOL_STEP)
        except BaseException as error:  # noqa: BLE001  told by the thread that waits
            failures.append(error)

    threads = [threading.Thread(target=drive, args=(link,)) for link in links]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took_s = time.perf_counter() - started
    for link in links:
        link.close()
    if failures:
        raise InfrastructureError(f"a session failed: {failures[0]}", where=url, expected="steps") from failures[0]
    return NUM_SESSIONS * each / took_s


def _ask(link: Link, message: Json) -> None:
    link.send(message)
    answer = link.receive(60.0)
    if answer.get("type") != "observation":
        raise InfrastructureError(
            f"a step was answered by {str(answer)[:200]}", where=link.url, expected="an observation"
        )


def _cpu_s(process: psutil.Process) -> float:
    """CPU seconds of a server with its processes so far."""
    family = [process, *process.children(recursive=True)]
    return sum(times.user + times.system for one in family if (times := one.cpu_times()))


# ------------------------------------------------------------------------------------------------ servers


@contextlib.contextmanager
def _ours(processes: int, *more: str) -> Iterator[tuple[str, psutil.Process]]:
    port = _free_port()
    command = [sys.executable, "-m", "flightschool.bench.openenv_echo", str(port), str(processes), *more]
    with _running(command, port, Path.cwd()) as found:
        yield found


@contextlib.contextmanager
def _running(command: Sequence[str], port: int, where: Path, **variables: str) -> Iterator[tuple[str, psutil.Process]]:
    """A server until the end of the block."""
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(command, stdout=said, stderr=said, cwd=where, env={**os.environ, **variables})
        url = f"http://127.0.0.1:{port}"
        try:
            deadline = time.monotonic() + _START_S
            while not _is_up(url):
                if process.poll() is not None or time.monotonic() > deadline:
                    said.seek(0)
                    told = said.read()[-500:].decode("utf-8", "replace").strip()
                    raise InfrastructureError(
                        f"the server did not start: {told}", where=" ".join(command), expected="a server"
                    )
                time.sleep(0.1)
            yield url, psutil.Process(process.pid)
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _is_up(url: str) -> bool:
    try:
        return ask_http(url, "/health", timeout_s=5.0)[0] == http.HTTPStatus.OK
    except LostSessionError:
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


# ------------------------------------------------------------------------------------------------ the peer


def _peers(folder: Path | None, num_steps: int, num_rounds: int, tell: Callable[[str], None]) -> tuple[float, float]:
    """Steps a CPU second of the reference with a tool, and of the template."""
    with contextlib.ExitStack() as stack:
        home = folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="flightschool-openenv-")))
        home = home.resolve()
        python = _install(home, tell)
        tell("the reference: a tool over FastMCP")
        script = Path(__file__).with_name("openenv_reference.py")
        port = _free_port()
        with _running([str(python), str(script), str(port)], port, home) as (url, process):
            tool = max(_round(url, process, _TOOL_STEP, num_steps)[0] for _ in range(num_rounds))
        tell("the reference: the template of openenv init")
        template = _template(home, python)
        port = _free_port()
        command = [str(python), "-m", "uvicorn", "server.app:app", "--host", "127.0.0.1", "--port", str(port)]
        with _running([*command, "--log-level", "warning"], port, template) as (url, process):
            plain = max(_round(url, process, _PLAIN_STEP, num_steps)[0] for _ in range(num_rounds))
    return tool, plain


def _install(home: Path, tell: Callable[[str], None]) -> Path:
    """Python of the peer's environment, made if it is not there."""
    python = home / "bin" / "python"
    if not python.exists():
        tell(f"installing {PEER_PACKAGE} into an environment of its own")
        _do([sys.executable, "-m", "venv", str(home)], home.parent)
        _do([str(python), "-m", "pip", "install", "--quiet", PEER_PACKAGE], home)
    return python


def _template(home: Path, python: Path) -> Path:
    """Folder of the template, as ``openenv init`` writes it."""
    made = home / "reference_echo"
    if not made.is_dir():
        _do([str(python.with_name("openenv")), "init", made.name, "--output-dir", str(home)], home)
    return made


def _do(command: Sequence[str], where: Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=where)
    if done.returncode:
        raise InfrastructureError(
            f"the peer cannot be made ready: {(done.stderr or done.stdout).strip()[-300:]}",
            where=" ".join(command),
            expected="a package index that can be reached",
            mend="try again, or leave the peer out with --no-peer",
        )
