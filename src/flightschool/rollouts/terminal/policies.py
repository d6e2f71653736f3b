"""Who acts in a terminal: the task's own solution, nothing at all, a program that a user brings, or a model.

``oracle``, ``noop`` and ``script:FILE`` are programs here; every other policy of the grammar is asked for messages and
acts through a shell (``rollouts.terminal.shell``).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, Protocol, TypeAlias

from flightschool.environments.terminal import Placement, TaskStep
from flightschool.environments.terminal.harbor import interpreter_of
from flightschool.errors import InputError
from flightschool.records import EndReason, Record
from flightschool.sandbox import ExecResult

__all__ = ["Act", "Move", "NothingPolicy", "ProgramPolicy", "SolutionPolicy", "TerminalPolicy"]

PROGRAM_FOLDER: Final = "/tmp/.policy"
MOST_PROGRAM_BYTES: Final = 64 << 20


Act: TypeAlias = Callable[[Callable[[str, float], Awaitable[ExecResult]], float], Awaitable[tuple[EndReason, str]]]
"""Acts by commands: given what runs one (line, seconds at most) and the seconds for all; says how that ended."""


class Move(Record, frozen=True, kw_only=True):
    """What a policy does in one stage."""

    command: tuple[str, ...] = ()
    """Words that no shell sees; empty: nothing is run."""
    placements: tuple[Placement, ...] = ()
    """Files of the task's folder that are put in place before, and only for this policy."""
    program: bytes = b""
    """Written to ``program_path`` before."""
    program_path: str = ""
    with_solution_env: bool = False
    act: Act | None = None
    """Instead of a command: acts by many, one after the other."""


class TerminalPolicy(Protocol):
    """A policy that acts by programs inside the sandbox."""

    @property
    def name(self) -> str:
        """As on the command line."""
        ...

    def move(self, stage: TaskStep) -> Move:
        """What to do in a stage.

        Raises:
            InputError: nothing can be done, for instance since the task ships no solution.
        """
        ...


class SolutionPolicy:
    """Runs the reference solution, as the agent's user and with nothing that another policy would not have."""

    name = "oracle"

    def move(self, stage: TaskStep) -> Move:
        """The stage's solution."""
        if not stage.oracle:
            raise InputError(
                "the task ships no solution",
                where=stage.name or "solution",
                expected="solution/solve.sh",
                mend="add one, or roll out another policy",
            )
        return Move(command=stage.oracle, placements=stage.solution, with_solution_env=True)


class NothingPolicy:
    """Does nothing: what the tests say then is what they say of no work."""

    name = "noop"

    def move(self, stage: TaskStep) -> Move:
        """Nothing."""
        del stage
        return Move()


class ProgramPolicy:
    """Runs a file of the user's in every stage: by its ``#!`` line, as a binary, or else with bash.

    Raises:
        InputError: the file cannot be read.
    """

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise InputError("no such script", where=str(path), expected="a file to run inside", mend="check the path")
        if path.stat().st_size > MOST_PROGRAM_BYTES:
            raise InputError(
                "the script is too long", where=str(path), expected=f"{MOST_PROGRAM_BYTES} bytes", mend="shorten it"
            )
        self._program = path.read_bytes()
        self._place = f"{PROGRAM_FOLDER}/{path.name}"
        self.name = f"script:{path.name}"

    def move(self, stage: TaskStep) -> Move:
        """The program."""
        del stage
        words = (*_interpreter(self._program), self._place)
        return Move(command=words, program=self._program, program_path=self._place)


def _interpreter(program: bytes) -> tuple[str, ...]:
    return () if program.startswith(b"\x7fELF") else interpreter_of(program[:512])
