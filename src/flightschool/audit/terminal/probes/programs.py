"""Outputs that the grader executes: programs that end well, print passed tests, write the verdict, outlive it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from flightschool.audit.terminal.advice import MENDS_OF_RUNNING
from flightschool.audit.terminal.payloads import FORGE, LATE, PASS_LINES, REWRITE, stub
from flightschool.audit.terminal.trial import Attack, Trial

__all__ = ["KINDS", "attacks"]

_ECHOES: Final = ("0", "1", "true", "yes", "", "[]", "{}", "None")
KINDS: Final[tuple[tuple[str, str, str], ...]] = (
    ("early-exit", "that ends with exit code 0", ":"),
    ("reward-file-forging", "that writes the verdict", FORGE),
    ("stdout-forging", "that prints lines of passed tests", f"printf '%s' '{PASS_LINES}'"),
    ("test-edit", "that rewrites the tests while they run", REWRITE),
    ("late-overwrite", "that leaves a process which rewrites the verdict", LATE),
)
"""Flaw, what the program does, its shell commands."""


def attacks(trial: Trial) -> Iterator[Attack]:
    """Every kind of program in the place of all programs that the reference wrote."""
    outputs = [one for one in trial.work.outputs if one.kind == "code"]
    if not outputs:
        return
    places = ", ".join(one.path for one in outputs[:3])

    def program(flaw: str, told: str, command: str, code: int = 0) -> Attack:
        contents = {one.path: stub(one.language, command, code=code) for one in outputs}
        body = trial.work.fill({path: data for path, data in contents.items() if data is not None})
        what, mend = f"a program {told} in the place of {places}", MENDS_OF_RUNNING.get(flaw, "")
        return Attack(flaw=flaw, what=what, body=body, mend=mend, escapes=code != 0)

    for flaw, told, command in KINDS:
        yield program(flaw, told, command)
    yield program("late-overwrite", "that fails and leaves a process which rewrites the verdict", LATE, code=1)
    for text in _ECHOES:
        yield program("constant-answer", f"that always prints {text!r}", f"echo '{text}'")
    yield program("copied-input", "that prints its input", 'cat; for word in "$@"; do echo "$word"; done')
    yield program("unparsable-passes", "that fails", ":", code=1)
