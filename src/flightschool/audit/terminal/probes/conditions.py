"""Right work under other conditions: another time zone, locale and clock, a busy machine, no network."""

from __future__ import annotations

import re
from typing import Final

from flightschool.audit.terminal.clock import clock_library, with_clock
from flightschool.audit.terminal.examination import together
from flightschool.audit.terminal.trial import Trial, finding
from flightschool.records import Severity
from flightschool.rollouts.terminal import SolutionPolicy

__all__ = ["probe"]

_PLACES: Final[tuple[tuple[str, dict[str, str]], ...]] = (
    ("the time zone Asia/Tokyo", {"TZ": "Asia/Tokyo"}),
    ("the time zone America/Los_Angeles", {"TZ": "America/Los_Angeles"}),
    ("the locale C", {"LANG": "C", "LC_ALL": "C"}),
    ("no locale at all", {"LANG": "", "LC_ALL": "", "LANGUAGE": ""}),
)
_BUSY: Final = "for i in 1 2 3 4 5 6; do (while :; do :; done) >/dev/null 2>&1 </dev/null & done"
_SPEED: Final = re.compile(
    r"second|millisecond|\bms\b|fast|performan|speed|latency|time ?out|time limit|quick|efficien", re.I
)
_DATES: Final = re.compile(
    r"\bnow\b|today|current (?:date|time|day|year|month)|timestamp|tomorrow|yesterday|\bage\b|expir|recent", re.I
)
_FILE_TIMES: Final = re.compile(r"mtime|ctime|-newer|mmin|\bstat\b|\bmake\b|utime|st_mtime", re.I)
_CLOCK_SHIFTS: Final = (("400 days later", 400 * 86400), ("100 days earlier", -100 * 86400))


async def probe(trial: Trial) -> None:
    """All conditions side by side, but for the busy machine, which would disturb the others."""
    await together(_place(trial, told, variables) for told, variables in _PLACES)
    await _clock(trial)
    await _busy(trial)


async def _place(trial: Trial, told: str, variables: dict[str, str]) -> None:
    """The tests' own place: what the task sets itself is left as it is."""
    pinned = {*trial.surface.env, *trial.exam.task.verifier_env}
    changed = {name: value for name, value in variables.items() if name not in pinned}
    if not changed:
        return
    task = trial.exam.with_variables(changed)
    for plain in (False, True):
        play = await trial.exam.grade(trial.work.states, task=task, plain=plain)
        if play.passes:
            return
    both = await trial.exam.play(SolutionPolicy(), task=trial.exam.with_variables(changed, agent=True))
    whose = "tests and reference run" if not both.passes else "the tests run"
    what = f"right work is refused when {whose} under {told}"
    trial.add(finding("locale-dependence", what, play, observed=f"{changed}: {play.told}"))


async def _clock(trial: Trial) -> None:
    """The reference and its tests at another time. Work that is about the present date may age between the two."""
    library = clock_library()
    if library is None:
        trial.exam.notes.append("the clock was not shifted: no C compiler is at hand")
        return
    for told, seconds in _CLOCK_SHIFTS:
        with with_clock(trial.exam, library, seconds) as elsewhen:
            play = await elsewhen.play(SolutionPolicy())
            again = play if play.passes else await elsewhen.play(SolutionPolicy())
            trial.exam.num_episodes += elsewhen.num_episodes
            if not play.passes and not again.passes:
                what = f"the reference is refused when all of it happens {told}"
                text = trial.surface.grader_text + trial.surface.solution
                doubt = Severity.WARNING if _FILE_TIMES.search(text) else Severity.BARRING  # these stay real
                trial.add(finding("clock-dependence", what, again, severity=doubt))
                return
            fixed = await elsewhen.grade(trial.work.states)
            if not fixed.passes and not _DATES.search(trial.surface.instruction):
                what = f"work that was done now is refused when it is graded {told}"
                trial.add(finding("clock-dependence", what, fixed, severity=Severity.WARNING))
                return


async def _busy(trial: Trial) -> None:
    """The tests beside six loops on the same processors."""
    if trial.grading_cost_s > 5.0:
        return
    task = trial.exam.with_test_command(_BUSY)
    play = await trial.exam.grade(trial.work.states, task=task)
    if play.passes:
        return
    again = await trial.exam.grade(trial.work.states, task=task, plain=True)
    quiet = await trial.exam.grade(trial.work.states)
    if not again.passes and quiet.passes:
        demanded = _SPEED.search(trial.surface.instruction) is not None
        what = "right work is refused when the machine of the tests is busy"
        severity = Severity.WARNING if demanded else Severity.BARRING
        trial.add(finding("slow-refused", what, again, severity=severity))
