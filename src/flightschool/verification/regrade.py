"""Judging again, in a process that shares nothing with the policy's.

The first verdict of an attempt is made in the process that ran it, behind the tool boundary. Audit and acceptance do
not rest on that: they hand the stored evidence to a grader process started for the purpose and compare. A grader that
dies, hangs, or answers with anything but a verdict on exactly the checks it was given is infrastructure, never a 0 and
never a 1.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, cast

import flightschool
from flightschool.errors import InfrastructureError
from flightschool.records import CheckSpec, CommandCheck, Evidence, JudgeCheck, Verdict
from flightschool.verification.frames import GradeItem, GradeReply, read_frame, write_frame
from flightschool.verification.verifier import CheckVerifier, rules_in

__all__ = ["GradeItem", "SeparateGrader", "agree", "regrade"]

_SANDBOX_S, _BACK_OFF_S = 30.0, 60.0
_WORKER = (sys.executable, "-P", "-m", "flightschool.verification.worker")


class SeparateGrader:
    """A grader process, started at the first item and used for all; a context manager.

    One item at a time; not to be shared by threads. After an error the process is replaced at the next item.

    Args:
        timeout_s: real seconds that one item may take, beside what its commands and judges are allowed themselves.
        command: the program, for graders of another build.
        pass_env: environment variables that the process gets beside the few that it needs: keys of judges.
        more_env: variables with their values: another time zone, another locale.
    """

    def __init__(
        self,
        *,
        timeout_s: float = 30.0,
        command: Sequence[str] = _WORKER,
        pass_env: Sequence[str] = (),
        more_env: Mapping[str, str] | None = None,
    ) -> None:
        self._timeout_s = timeout_s
        self._pass_env = tuple(pass_env)
        self._more_env = dict(more_env or {})
        self._command = tuple(command)
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> SeparateGrader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def judge(self, checks: Sequence[CheckSpec], evidence: Evidence) -> Verdict:
        """The separate process's verdict.

        Raises:
            InputError: the checks are not usable (see ``CheckVerifier``).
            InfrastructureError: no verdict, too late, or malformed.
        """
        expected = CheckVerifier(checks)
        reply = self._exchange(GradeItem(checks=tuple(checks), evidence=evidence))
        if reply.error is not None:
            fields = {key: reply.error.get(key, "") for key in ("where", "expected", "mend")}
            raise InfrastructureError(reply.error.get("what", "the grader failed"), **fields)
        if reply.verdict is None or not _fits(reply.verdict, expected):
            self._kill()
            raise _no_verdict("its verdict is not about the checks it was given")
        return reply.verdict

    def close(self) -> None:
        """End the process. Safe to repeat."""
        process, self._process = self._process, None
        if process is None:
            return
        _close_pipes(process)
        try:
            process.wait(timeout=2.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _exchange(self, item: GradeItem) -> GradeReply:
        process = self._running()
        timed_out = threading.Event()

        def stop() -> None:
            timed_out.set()
            process.kill()

        # killing the process ends a blocked read and a blocked write alike
        timer = threading.Timer(self._timeout_s + _allowed_s(item.checks), stop)
        timer.daemon = True
        timer.start()
        try:
            write_frame(cast(BinaryIO, process.stdin), item)
            reply = read_frame(cast(BinaryIO, process.stdout), GradeReply)
        except (OSError, EOFError, ValueError) as error:
            self._kill()
            raise _no_verdict(self._why(timed_out, str(error))) from error
        finally:
            timer.cancel()
        if reply is None:
            self._kill()
            raise _no_verdict(self._why(timed_out, "it ended"))
        return reply

    def _why(self, timed_out: threading.Event, otherwise: str) -> str:
        return f"it took more than {self._timeout_s:g} s" if timed_out.is_set() else otherwise

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self._kill()
            try:
                self._process = subprocess.Popen(
                    self._command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    env=_environment(self._pass_env) | self._more_env,
                    cwd=tempfile.gettempdir(),
                )
            except OSError as error:
                raise _no_verdict(f"it cannot be started: {error}") from error
        return self._process

    def _kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            _close_pipes(process)


def regrade(items: Iterable[GradeItem], *, timeout_s: float = 30.0) -> tuple[Verdict, ...]:
    """Verdicts of many items, all from one grader process, in their order.

    Raises:
        InfrastructureError: for the first item that got no verdict. To go on after one, use ``SeparateGrader``.
    """
    with SeparateGrader(timeout_s=timeout_s) as grader:
        return tuple(grader.judge(item.checks, item.evidence) for item in items)


def agree(in_process: Verdict, separate: Verdict) -> bool:
    """Whether two verdicts say the same of the same checks; the words of their evidence may differ."""
    left, right = (
        [(check.id, check.kind, check.weight, check.passed) for check in verdict.checks]
        for verdict in (in_process, separate)
    )
    return left == right and in_process.verifier_digest == separate.verifier_digest


def _allowed_s(checks: Sequence[CheckSpec]) -> float:
    """Seconds that commands (and their control on the initial state) and judges (with their retries) may take."""
    allowed = 0.0
    for rule in (rule for check in checks for rule in rules_in(check.rule)):
        if isinstance(rule, CommandCheck):
            allowed += 2 * (rule.timeout_s + _SANDBOX_S)
        elif isinstance(rule, JudgeCheck):
            allowed += rule.votes * rule.timeout_s + _BACK_OFF_S
    return allowed


def _fits(verdict: Verdict, verifier: CheckVerifier) -> bool:
    asked = [(check.id, check.kind, check.weight, check.author) for check in verifier.checks]
    given = [(check.id, check.kind, check.weight, check.author) for check in verdict.checks]
    return asked == given and verdict.verifier_digest == verifier.digest


def _environment(more: Sequence[str]) -> dict[str, str]:
    """As little as possible: no settings, this very package, and of keys only those named."""
    package_root = str(Path(flightschool.__file__).resolve().parent.parent)
    kept = {name: os.environ[name] for name in ("PATH", "SYSTEMROOT", *more) if name in os.environ}
    return {**kept, "PYTHONPATH": package_root, "PYTHONHASHSEED": "0", "PYTHONUTF8": "1"}


def _close_pipes(process: subprocess.Popen[bytes]) -> None:
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            try:
                stream.close()
            except OSError:
                continue  # the process is gone, and with it what was not yet flushed


def _no_verdict(why: str) -> InfrastructureError:
    return InfrastructureError(
        f"the separate grader gave no verdict: {why}",
        where="flightschool.verification.worker",
        expected="one verdict on exactly the checks asked for, within the time limit",
        mend="judge the stored evidence again; raise timeout_s if the state is large",
    )
