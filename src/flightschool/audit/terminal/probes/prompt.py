"""The whole answer, or the whole change, in the instruction, although it is to be worked out from files of the image.

A task that says what to write is no leak: there the reference reads nothing, or holds the text itself. Choices that the
instruction offers (``a or b``, ``x if …, else y``) are none either.
"""

from __future__ import annotations

import difflib
import json
import posixpath
import re
from collections.abc import Iterator
from typing import Any, Final

from flightschool.audit.terminal.outputs import Output
from flightschool.audit.terminal.surface import Surface, mentions
from flightschool.audit.terminal.trial import Trial, finding

__all__ = ["holds_answer", "holds_change", "probe"]

_HINT: Final = re.compile(
    r"answer (?:is|should be|=|:)|hint|expected (?:answer|output|result|value)|solution (?:is|:)"
    r"|should (?:be|get|obtain|come out)"
    r"|correct (?:answer|result|value)|result is|for reference|spoiler|psst|you (?:will|should) get|must equal",
    re.I,
)
_TOLD: Final = re.compile(
    r"(?:whole|complete|entire|actual|final|real|merged|only) (?:change|patch|fix|diff|commit)|(?:fix"
    r"|patch|change|solution|diff|answer)"
    r" (?:was|is|were|reads|below)\b|fixed (?:by|in|with)|for the record|notes? (?:for"
    r"|to) (?:the )?(?:review|grad|maintain|author)"
    r"|upstream (?:fix|patch|change)|merged|resolved by|^[+-]{3} |^@@",
    re.I | re.M,
)
_CHOICE: Final = re.compile(r"\bif\b|otherwise|\belse\b|\bwhen\b|unless|\beither\b|\bone of\b|\bwhich of\b", re.I)
LEAST_CHARACTERS: Final = 6
NEAR: Final = 400
"""Characters before a change in which words tell that it is one."""


def _reads(surface: Surface) -> bool:
    """Whether the reference looks at files that the image ships."""
    for one in surface.shipped:
        if one.path.startswith("/etc/") and one.path not in surface.solution:
            continue
        folder = posixpath.dirname(one.path)
        above = [folder]
        while folder not in ("", "/"):
            folder = posixpath.dirname(folder)
            above.append(folder)
        named = (place for place in above if len(place) > 1)
        if mentions(surface.solution, one.path) or any(
            re.search(rf"(?<![\w.]){re.escape(place)}(?![\w.-])", surface.solution) for place in named
        ):
            return True
    return False


def holds_answer(output: Output, surface: Surface) -> bool:
    """Whether an instruction says what a new output is to be, and the reference works it out."""
    answer, told = output.text.strip(), surface.instruction
    if not answer or output.before is not None or answer in surface.solution:
        return False
    match = re.search(rf"(?<![\w.]){re.escape(answer)}(?![\w]|\.\d)", told)
    if match is None:
        return False
    near = told[max(0, match.start() - 160) : match.end() + 80]
    if _HINT.search(near):
        return True
    if not _reads(surface):
        return False
    if re.fullmatch(r"-?[\d.,]{3,}", answer):
        return True
    around = told[max(0, match.start() - 60) : match.end() + 60]
    is_choice = _CHOICE.search(around) or re.search(rf"\bor\W+{re.escape(answer)}|{re.escape(answer)}\W+or\b", around)
    return len(answer) >= LEAST_CHARACTERS and not is_choice


def holds_change(output: Output, instruction: str) -> bool:
    """Whether an instruction quotes all that the reference changed of a file, and says that this is the change."""
    if output.before is None or output.kind == "binary":
        return False
    pieces = list(_changes(output))
    squeezed = " ".join(re.sub(r"(?m)^\s*>+ ?", "", instruction).split())
    places = [squeezed.find(piece) for piece in pieces]
    if not pieces or min(places) < 0 or sum(map(len, pieces)) < 2 * LEAST_CHARACTERS:
        return False
    before = squeezed[max(0, min(places) - NEAR) : max(places)]
    return _TOLD.search(before) is not None


def _changes(output: Output) -> Iterator[str]:
    """What is new in a file, each piece on one line."""
    before = (output.before or b"").decode(errors="replace")
    if output.kind == "json":
        try:
            yield from _members(json.loads(before), json.loads(output.text))
        except ValueError:
            return
        return
    old, new = before.splitlines(), output.text.splitlines()
    for tag, _, _, j1, j2 in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag in ("replace", "insert"):
            yield from (" ".join(line.split()) for line in new[j1:j2] if line.strip())


def _members(old: Any, new: Any) -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key, value in new.items():
            if isinstance(value, dict) and isinstance(old.get(key), dict):
                yield from _members(old[key], value)
            elif key not in old or old[key] != value:
                yield f"{json.dumps(key)}: {json.dumps(value)}"
    elif old != new:
        yield json.dumps(new)


async def probe(trial: Trial) -> None:
    """Tell it where the answer, written as the instruction has it, is rewarded."""
    outputs = trial.work.outputs
    told = trial.surface.instruction
    if not outputs:
        return
    for what, holds in (
        ("the instruction holds the whole answer", [holds_answer(one, trial.surface) for one in outputs]),
        ("the instruction quotes the whole change", [holds_change(one, told) for one in outputs]),
    ):
        if all(holds):
            body = trial.work.fill({one.path: one.data for one in outputs})
            play = await trial.shown(body)
            if play is not None:
                trial.add(finding("answer-in-prompt", what, play, body, where="instruction.md"))
                return
