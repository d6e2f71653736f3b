"""Right work in other forms: each must pass. What is refused is played once more as a program of its own."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path, PurePosixPath
from typing import Final

from flightschool.audit.terminal.examination import together
from flightschool.audit.terminal.in_view import in_view
from flightschool.audit.terminal.outputs import Work
from flightschool.audit.terminal.rewriting import Rewrite, rewrites_of
from flightschool.audit.terminal.surface import mentions
from flightschool.audit.terminal.trial import Trial, finding
from flightschool.environments.terminal import Placement, TaskStep
from flightschool.environments.terminal.end_state import EndState
from flightschool.records import Severity
from flightschool.rollouts.terminal import Move

__all__ = ["probe"]

MOST: Final = 24
LEAST: Final = 10
BUDGET_S: Final = 5.0
"""Seconds of gradings; forms that bar come first."""
MOST_ALTERNATIVES: Final = 6
MOST_LEFT_OVERS: Final = 4
SCRATCH: Final = ("/tmp/", "/var/", "/run/")


async def probe(trial: Trial) -> None:
    """Grade rewrites of every output; then other solutions that the task ships."""
    surface = trial.surface
    made = (output.path for output in trial.work.outputs)
    view = in_view(surface.instruction, surface.shipped, made, trial.exam.image.workdir)
    every = [
        one
        for output in trial.work.outputs
        if output.stable and output.asked
        for one in rewrites_of(output, surface.instruction, view)
    ]
    chosen = list({(one.path, one.data, one.mode): one for one in every}.values())
    chosen.sort(key=lambda one: not one.bars)

    async def one(rewrite: Rewrite) -> None:
        play = await trial.exam.grade(_states(trial.work, rewrite))
        if not play.passes:
            await _confirm(trial, rewrite)

    chosen = [*_left_overs(trial), *chosen]
    await together(one(rewrite) for rewrite in chosen[: trial.affordable(BUDGET_S, LEAST, MOST)])
    await _alternatives(trial)


def _left_overs(trial: Trial) -> list[Rewrite]:
    """Empty files that a tool may leave in scratch places and of which only the tests speak."""
    told = trial.surface.instruction
    known = {one.path for one in trial.surface.shipped} | {one.path for one in trial.work.outputs}
    paths = [path for path in trial.surface.paths if path.startswith(SCRATCH) and path not in known]
    return [
        Rewrite(
            path=path,
            data=b"",
            what=f"an empty file is left at {path}, of which the instruction does not speak",
            flaw="extra-files-refused",
            bars=True,
            extra=True,
        )
        for path in paths[:MOST_LEFT_OVERS]
        if not mentions(told, path) and (posixpath.splitext(path)[1] or _is_asked_for(trial.surface.test_text, path))
    ]


def _is_asked_for(tests: str, path: str) -> bool:
    """Whether the tests ask if a path is there, so that it is a file's and no folder's."""
    return re.search(rf"-[ef] [\"']?{re.escape(path)}(?![\w./])", tests) is not None


def _states(work: Work, rewrite: Rewrite) -> tuple[EndState, ...]:
    if rewrite.extra:
        return work.with_file(rewrite.path, rewrite.data)
    return work.changed(rewrite.path, rewrite.data, **({} if rewrite.mode is None else {"mode": rewrite.mode}))


async def _confirm(trial: Trial, rewrite: Rewrite) -> None:
    key = f"rewrite {rewrite.flaw} {rewrite.bars}"
    if key in trial.confirmed:
        return
    body = trial.work.body(_states(trial.work, rewrite))
    if not body:
        return
    play = await trial.exam.run(body, plain=True)
    if play.passes or key in trial.confirmed:
        return
    trial.confirmed.add(key)
    severity = Severity.BARRING if rewrite.bars else Severity.WARNING
    doubt = "" if rewrite.bars else "; the instruction does not say that this form is as good"
    trial.add(finding(rewrite.flaw, f"right work is refused: {rewrite.what}{doubt}", play, body, severity=severity))


class _Alternative:
    """A further solution that the task ships beside its reference."""

    def __init__(self, path: str) -> None:
        self.name = f"script:{path}"
        self._path = path

    def move(self, stage: TaskStep) -> Move:
        """Run it in place of the reference."""
        target = f"{stage.solution[0].target}/{PurePosixPath(self._path).name}"
        return Move(command=("bash", target), placements=(*stage.solution, Placement(source=self._path, target=target)))


async def _alternatives(trial: Trial) -> None:
    """Other solutions beside the reference: scripts that nothing there speaks of and that do the same job.

    A script does the same job if it leaves every file that the reference leaves; what it is called says nothing.
    """
    task = trial.exam.task
    if not task.solution_dir or task.steps:
        return
    folder = Path(task.folder, task.solution_dir)
    if not folder.is_dir():
        return
    entry = PurePosixPath(task.oracle[-1]).name if task.oracle else ""
    places = [place for place in sorted(folder.rglob("*.sh")) if place.is_file() and not place.is_symlink()]
    wanted = {output.path for output in trial.work.outputs}
    for place in places[:MOST_ALTERNATIVES]:
        if place.name == entry or mentions(trial.surface.solution, place.name):
            continue
        relative = place.relative_to(task.folder).as_posix()
        play = await trial.exam.play(_Alternative(relative), plain=True)
        left = {one.path for one in play.states[-1].entries} if play.states else set()
        if not play.passes and wanted and wanted <= left:
            body = place.read_text(errors="replace")
            what = f"another solution that the task ships ({relative}) is refused"
            trial.add(finding("one-of-many", what, play, body, where=relative))
