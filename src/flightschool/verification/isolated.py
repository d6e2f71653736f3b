"""A verifier in a fresh sandbox of its own: what it left is read only after every process in it is dead.

The sandbox that the policy had is gone by then. What the policy may have touched is the tree that this one starts from,
never a process, a mount or a descriptor of it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias

from flightschool.errors import InfrastructureError, InputError, NotFoundError
from flightschool.records import Record
from flightschool.sandbox import ExecResult, SandboxProvider, SandboxSpec

__all__ = ["AfterStop", "VerifierRun", "run_isolated"]

AfterStop: TypeAlias = Callable[[Any], Awaitable[None]]
"""Looks at the stopped sandbox. ``Any``: what can be read beyond the protocol depends on the provider."""

OUTPUT_BYTES = 1 << 20
VERDICT_BYTES = 1 << 20


class VerifierRun(Record, frozen=True, kw_only=True):
    """How a verifier ended, and the files asked for."""

    problem: str
    """Why nothing that it left may be believed (time, memory, a signal, not started); empty: it ended by itself."""
    exit_code: int | None
    stdout: bytes
    stderr: bytes
    output_truncated: bool
    files: dict[str, bytes]
    """Content by path, of those that are regular files."""
    odd_files: dict[str, str]
    """Path → why it was refused: a link, a device, too long."""
    wall_s: float
    cpu_s: float = 0.0
    """Processor time of the verifier."""


async def run_isolated(
    provider: SandboxProvider,
    spec: SandboxSpec,
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    timeout_s: float,
    read: Sequence[str],
    after_stop: AfterStop | None = None,
) -> VerifierRun:
    """Run a verifier to its end, kill everything in its sandbox, then read its verdict.

    Args:
        provider: must read after a stop.
        spec: the sandbox, which holds the end state, tests and references.
        command: words, no shell.
        env: beyond the spec's.
        timeout_s: of the verifier, in seconds of wall clock.
        read: absolute paths of the files that may hold the verdict.
        after_stop: called with the sandbox once everything in it is dead.

    Raises:
        InfrastructureError: the sandbox cannot be made or was lost.
    """
    async with provider.open(spec) as box:
        result = await box.exec(command, timeout_s=timeout_s, output_bytes=OUTPUT_BYTES, env=env, sweep_on_timeout=True)
        await box.stop()
        if after_stop is not None:
            await after_stop(box)
        files: dict[str, bytes] = {}
        odd: dict[str, str] = {}
        for path in read:
            try:
                files[path] = await box.get(path, most_bytes=VERDICT_BYTES)
            except NotFoundError:
                continue
            except InputError as error:
                odd[path] = error.what
            except OSError as error:
                raise InfrastructureError(
                    f"the verdict cannot be read: {error}", where=path, expected="a readable file", mend="retry"
                ) from error
    return VerifierRun(
        problem=_problem(result, timeout_s),
        exit_code=result.exit_code,
        stdout=result.stdout,
        stderr=result.stderr,
        output_truncated=result.stdout_truncated or result.stderr_truncated,
        files=files,
        odd_files=odd,
        wall_s=result.wall_s,
        cpu_s=result.cpu_s,
    )


def _problem(result: ExecResult, timeout_s: float) -> str:
    if result.failed_to_start:
        return f"the verifier could not be started: {result.failed_to_start}"
    if result.timed_out:
        return f"the verifier did not end within {timeout_s:g} s"
    if result.stopped:
        return f"the verifier was ended by its {result.stopped.value} limit"
    if result.signal is not None:
        return f"the verifier was killed by signal {result.signal}"
    return ""
