"""The policy grammar of the command line, for terminals."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from flightschool.rollouts import references
from flightschool.rollouts.terminal.policies import NothingPolicy, ProgramPolicy, SolutionPolicy, TerminalPolicy
from flightschool.rollouts.terminal.shell import ShellPolicy
from flightschool.rollouts.transcript import Sampling

__all__ = ["GRAMMAR", "parse_policy"]

GRAMMAR: Final = references.GRAMMAR
"""As everywhere; ``script:FILE`` is a program that is run inside, ``constant:FILE`` holds calls of ``shell``."""


def parse_policy(
    text: str, *, sampling: Sampling | None = None, resolve_run: Callable[[str], Path] | None = None
) -> TerminalPolicy:
    """The policy that ``text`` names, to act in terminals.

    Args:
        text: as on the command line.
        sampling: of a model.
        resolve_run: finds the model folder of ``RUN[@STEP]``.

    Raises:
        InputError: the text is no policy, or what it names does not exist.
    """
    kind, _, argument = text.partition(":")
    if kind == "script" and argument:
        return ProgramPolicy(Path(argument))
    if text == "oracle":
        return SolutionPolicy()
    if text == "noop":
        return NothingPolicy()
    return ShellPolicy(references.parse_policy(text, None, sampling=sampling, resolve_run=resolve_run))
