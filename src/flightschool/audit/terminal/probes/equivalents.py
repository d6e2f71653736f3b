"""Right work in other forms: each must pass. What is refused is played once more as a program of its own."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Final

from flightschool.audit.terminal.examination import together
from flightschool.audit.terminal.outputs import Work
from flightschool.audit.terminal.rewriting import Rewrite, rewrites_of
from flightschool.audit.terminal.trial import Trial, finding
from flightschool.environments.terminal import Placement, TaskStep
from flightschool.environments.terminal.end_state import EndState
from flightschool.records import Severity
from flightschool.rollouts.terminal import Move

__all__ = ["probe"]

MOST: Final = 24


async def probe(trial: Trial) -> None:
    """Grade rewrites of every output; then other solutions that the task ships."""
    every = [
        one for output in trial.work.outputs if output.stable for one in rewrites_of(output, trial.surface.instruction)
    ]
    chosen = list({(one.path, one.data, one.mode): one for one in every}.values())
    chosen.sort(key=lambda one: not one.bars)

    async def one(rewrite: Rewrite) -> None:
        play = await trial.exam.grade(_states(trial.work, rewrite))
        if not play.passes:
            await _confirm(trial, rewrite)

    await together(one(rewrite) for rewrite in chosen[:MOST])
    await _alternatives(trial)


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
    play = await trial.exam.run(body)
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
    """Other solutions beside the reference: ``alt*.sh``, ``other*.sh``, ``second*.sh``, ``solve?*.sh``."""
    task = trial.exam.task
    if not task.solution_dir or task.steps:
        return
    folder = Path(task.folder, task.solution_dir)
    if not folder.is_dir():
        return
    for place in sorted(folder.rglob("*.sh")):
        name = place.name.lower()
        is_other = name.startswith(("alt", "other", "second")) or (name.startswith("solve") and name != "solve.sh")
        if not is_other or not place.is_file() or place.is_symlink():
            continue
        relative = place.relative_to(task.folder).as_posix()
        play = await trial.exam.play(_Alternative(relative))
        if not play.passes:
            body = place.read_text(errors="replace")
            what = f"another solution that the task ships ({relative}) is refused"
            trial.add(finding("one-of-many", what, play, body, where=relative))
