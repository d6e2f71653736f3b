"""The reference without its rounding: where no number of digits is asked for, more digits are as right."""

from __future__ import annotations

import re
from typing import Final

from flightschool.audit.terminal.rewriting import DIGITS
from flightschool.audit.terminal.scripting import PROGRAM_FOLDER
from flightschool.audit.terminal.trial import Trial, finding
from flightschool.environments.terminal import TaskStep
from flightschool.records import Severity
from flightschool.rollouts.terminal import Move
from flightschool.sandbox.written import WrittenKind

__all__ = ["probe", "unrounded"]

MORE: Final = 9
"""Digits more than the reference gives."""
_ROUND: Final = re.compile(r"\b(round\(.{1,200}?,\s*)(\d)(\s*\))")
_FORMAT: Final = re.compile(r"(%-?\d*\.|:[<>^+]?\d*\.)(\d)([fg])")
_SCALE: Final = re.compile(r"\b(scale\s*=\s*)(\d)(\b)")
_NUMBER: Final = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")


def unrounded(solution: str) -> str:
    """A program with more digits in every rounding; empty: it has none."""
    text = solution
    for pattern in (_ROUND, _FORMAT, _SCALE):
        text = pattern.sub(lambda match: f"{match.group(1)}{min(int(match.group(2)) + MORE, 15)}{match.group(3)}", text)
    return "" if text == solution else text


def close(ours: str, other: str) -> bool:
    """Whether two texts differ in the digits of their numbers only, each within half a unit of the last one given."""
    if _NUMBER.sub("#", ours) != _NUMBER.sub("#", other):
        return False
    pairs = list(zip(_NUMBER.findall(ours), _NUMBER.findall(other), strict=True))
    return any(a != b for a, b in pairs) and all(
        abs(float(a) - float(b)) <= 0.5000001 * 10.0 ** -len(a.partition(".")[2]) for a, b in pairs
    )


class _Unrounded:
    """The reference's own program, changed."""

    name = "script:unrounded.sh"

    def __init__(self, text: str) -> None:
        self._program = text.encode()

    def move(self, stage: TaskStep) -> Move:
        """Run it beside the files of the solution."""
        place = f"{PROGRAM_FOLDER}/unrounded.sh"
        return Move(
            command=("bash", place), program=self._program, program_path=place, placements=tuple(stage.solution)
        )


async def probe(trial: Trial) -> None:
    """Play the reference with more digits; where its numbers are the same but for these, it must pass."""
    if trial.exam.task.steps or DIGITS.search(trial.surface.instruction):
        return
    text = unrounded(trial.surface.solution)
    numeric = [one for one in trial.work.outputs if one.kind in ("json", "jsonl", "table", "text") and "." in one.text]
    if not text or not numeric or not trial.surface.solution.startswith("#!"):
        return
    play = await trial.exam.play(_Unrounded(text), plain=True)
    if play.passes or not play.states:
        return
    left = {one.path: one.data for one in play.states[-1].entries if one.kind is WrittenKind.FILE}
    changed = [one for one in numeric if one.path in left and close(one.text, left[one.path].decode(errors="replace"))]
    same = all(left.get(one.path) == one.data for one in trial.work.outputs if one not in changed)
    if not changed or not same:
        return
    body = trial.work.body(play.states)
    again = await trial.exam.run(body, plain=True) if body else play
    if not again.passes:
        what = f"right work is refused: {changed[0].path} with more digits, no number of which was asked for"
        trial.add(finding("float-equality", what, again, body, severity=Severity.BARRING))
