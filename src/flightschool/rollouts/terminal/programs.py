"""Which files of a task's folder a policy and the tests run, as text: to see what they would fetch, and to tell it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from flightschool.environments.terminal import Placement, TerminalTask
from flightschool.environments.terminal.keystrokes import SOLUTION_KEYS, typed_text
from flightschool.errors import InputError
from flightschool.rollouts.terminal.policies import Move, TerminalPolicy

__all__ = ["UNTYPED", "is_typed", "scripts_of", "source_of", "text_of"]

UNTYPED: Final = "its keystrokes are typed by a program in Python, and the image has none"


def text_of(task: TerminalTask, move: Move) -> bytes:
    """The program of a move: the policy's own, or the file of the task's folder that its command runs."""
    if move.program or not move.command:
        return move.program
    source = source_of(task, move.placements, move.command[-1])
    try:
        found = Path(task.folder, source).read_bytes() if source else b""
        return typed_text(found.decode()).encode() if source == SOLUTION_KEYS else found
    except (OSError, ValueError, InputError):
        return b""


def is_typed(task: TerminalTask, policy: TerminalPolicy) -> bool:
    """Whether the policy is a solution that is given as keystrokes."""
    return policy.name == "oracle" and any(placement.content for placement in task.solution)


def scripts_of(task: TerminalTask, policy: TerminalPolicy) -> tuple[str, ...]:
    """Scripts that will run and that would fetch in vain: the tests', and the solution's when it is the policy."""
    found: list[str] = []
    for stage in task.stages:
        found += [source_of(task, stage.tests, stage.test_command[-1])] if stage.test_command else []
        if policy.name == "oracle" and stage.oracle:
            found.append(source_of(task, stage.solution, stage.oracle[-1]))
    return tuple(dict.fromkeys(path for path in found if path))


def source_of(task: TerminalTask, placements: tuple[Placement, ...], target: str) -> str:
    """The path in the task's folder of what lies at ``target`` once everything is placed."""
    for placement in reversed(placements):
        if target == placement.target:
            return placement.source
        below = target.removeprefix(f"{placement.target}/")
        path = f"{placement.source}/{below}"
        if below != target and Path(task.folder, path).is_file():
            return path
    return ""
