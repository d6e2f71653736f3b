"""Wrong variants of the reference's work: each must fail, and what passes is played again as a program of its own."""

from __future__ import annotations

import posixpath
import re
from dataclasses import replace
from itertools import chain, zip_longest
from typing import Final

from flightschool.audit.terminal.examination import together
from flightschool.audit.terminal.mutating import Mutant, mutants_of
from flightschool.audit.terminal.outputs import Output, Work, canonical
from flightschool.audit.terminal.surface import mentions
from flightschool.audit.terminal.trial import Trial, finding
from flightschool.records import Severity

__all__ = ["is_run", "probe", "without_by_products"]

_INTERPRETERS: Final = re.compile(r"(?<![\w.])(?:sed|jq|[gm]?awk|sqlite3?|psql|mysql|bc|dc|m4|perl|execute\w*)\b")
MOST: Final = 40
LEAST: Final = 12
BUDGET_S: Final = 8.0
"""Seconds of gradings; the most telling mutants come first."""


async def without_by_products(trial: Trial) -> Work:
    """The work without files that nobody speaks of and that are not missed; of the others, what is not missed is told.

    A file that the instruction asks for and whose absence is rewarded is a finding: a part of the work is not checked.
    """
    work = trial.work
    if len(work.outputs) + len(work.removed) < 2:
        return work
    plays = await together(trial.exam.grade(work.changed(one.path, None)) for one in work.outputs)
    kept: list[Output] = []
    for output, play in zip(work.outputs, plays, strict=True):
        if not play.passes:
            unasked = _is_unasked(trial, output)
            kept.append(replace(output, asked=not unasked))
            if unasked:
                await _tell_unasked(trial, output)
        elif output.named and _is_asked_for(trial, output):
            kept.append(output)
            await _confirm(
                trial, Mutant(path=output.path, data=None, what=f"{output.path}: left out", flaw="empty-criteria")
            )
    return replace(work, outputs=tuple(kept)) if kept else work


def _is_asked_for(trial: Trial, output: Output) -> bool:
    """Whether the instruction names the file itself, not only a folder above it."""
    return mentions(trial.surface.instruction, output.path) and output.before is None


def _is_unasked(trial: Trial, output: Output) -> bool:
    """Whether the tests alone speak of a file: the instruction names others and no word of this one.

    Data only, and only what no other output speaks of: what the work itself needs is part of it, asked for or not.
    """
    others = [one for one in trial.work.outputs if one is not output]
    if output.before is not None or output.kind == "code" or not output.graded or output.named:
        return False
    told = trial.surface.instruction
    if not any(one.before is None and one.named for one in others):
        return False  # an instruction that names nothing leaves it to the reader
    stem = posixpath.splitext(posixpath.basename(output.path).lstrip("."))[0]
    words = [word for word in re.split(r"[^A-Za-z0-9]+", stem) if len(word) > 2]
    spoken = any(word.lower() in told.lower() for word in words) or any(
        mentions(one.text, output.path) for one in others
    )
    read = (one.text for one in trial.surface.shipped if one.readable and one.path != output.path)
    return bool(words) and not spoken and not any(mentions(text, output.path) for text in read)


def is_run(output: Output, grader: str) -> bool:
    """Whether the tests give a file to an interpreter of a small language, in a line that names both."""
    name = posixpath.basename(output.path)
    return output.kind in ("text", "table") and any(
        name in line and _INTERPRETERS.search(line.replace(name, "")) for line in grader.splitlines()
    )


async def _tell_unasked(trial: Trial, output: Output) -> None:
    body = trial.work.body(trial.work.changed(output.path, None))
    play = await trial.exam.run(body, plain=True) if body else None
    if play is not None and not play.passes:
        what = f"right work is refused without {output.path}, of which the instruction does not speak"
        trial.add(finding("unasked-requirement", what, play, body))


async def probe(trial: Trial) -> None:
    """Grade all mutants; confirm those that pass. No content is wrong of what the task does not ask for."""
    asked = [output for output in trial.work.outputs if output.asked]
    told, grader = trial.surface.instruction, trial.surface.grader_text
    every = [mutants_of(output, told, is_run=is_run(output, grader)) for output in asked]
    rounds = chain.from_iterable(zip_longest(*every))
    chosen = [mutant for mutant in rounds if mutant is not None][: trial.affordable(BUDGET_S, LEAST, MOST)]
    kinds = {output.path: output for output in trial.work.outputs}

    async def one(mutant: Mutant) -> None:
        output = kinds[mutant.path]
        if mutant.data is not None and canonical(output.kind, mutant.data) == canonical(output.kind, output.data):
            trial.exam.equivalent_mutants.append(mutant.what)
            return
        play = await trial.exam.grade(trial.work.changed(mutant.path, mutant.data))
        if play.passes:
            await _confirm(trial, mutant)

    await together(one(mutant) for mutant in chosen)


async def _confirm(trial: Trial, mutant: Mutant) -> None:
    key = f"mutant {mutant.flaw} {mutant.bars}"
    if key in trial.confirmed:
        return
    body = trial.work.body(trial.work.changed(mutant.path, mutant.data))
    if not body:
        what = f"wrong work passes: {mutant.what}"
        trial.add(finding(mutant.flaw, what, severity=Severity.WARNING, observed="too large for a program to replay"))
        return
    play = await trial.exam.run(body, plain=True)
    if not play.passes or key in trial.confirmed:
        return
    trial.confirmed.add(key)
    severity = Severity.BARRING if mutant.bars else Severity.WARNING
    doubt = "" if mutant.bars else "; whether that matters is for the task's author to say"
    trial.add(finding(mutant.flaw, f"wrong work passes: {mutant.what}{doubt}", play, body, severity=severity))
