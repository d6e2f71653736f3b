"""Right work under other conditions: another time zone, locale and clock, a busy machine, no network."""

from __future__ import annotations

import re
from typing import Final

from flightschool.audit.terminal.examination import Play, together
from flightschool.audit.terminal.packing import reference_body
from flightschool.audit.terminal.scripting import ScriptPolicy, script
from flightschool.audit.terminal.trial import Trial, finding
from flightschool.records import Severity
from flightschool.rollouts.terminal import CONDITIONS, GradingCondition, SolutionPolicy

__all__ = ["probe"]

_PLACES: Final = ("time-zone-tokyo", "time-zone-los-angeles", "locale-c", "no-locale")
_CLOCKS: Final = (("later", "graded-later"), ("earlier", "graded-earlier"))
"""Conditions in which all of it happens at another time, and those in which it is only graded then."""
_SPEED: Final = re.compile(
    r"second|millisecond|\bms\b|fast|performan|speed|latency|time ?out|time limit|quick|efficien", re.I
)
_DATES: Final = re.compile(
    r"\bnow\b|today|current (?:date|time|day|year|month)|timestamp|tomorrow|yesterday|\bage\b|expir|recent", re.I
)
_FILE_TIMES: Final = re.compile(r"mtime|ctime|-newer|mmin|\bstat\b|\bmake\b|utime|st_mtime", re.I)


async def probe(trial: Trial) -> None:
    """All conditions side by side, but for the busy machine, which would disturb the others."""
    await together(_place(trial, CONDITIONS[name]) for name in _PLACES)
    await _clock(trial)
    await _busy(trial, CONDITIONS["busy"])


async def _place(trial: Trial, place: GradingCondition) -> None:
    """The tests' own place: what the task sets itself is left as it is."""
    changed = place.changed(trial.exam.task)
    if not changed:
        return
    task = place.of_task(trial.exam.task)
    for plain in (False, True):
        play = await trial.exam.grade(trial.work.states, task=task, plain=plain)
        if play.passes:
            return
    both = await trial.exam.play(SolutionPolicy(), task=trial.exam.with_variables(changed, agent=True))
    whose = "tests and reference run" if not both.passes else "the tests run"
    await _tell(trial, place, "locale-dependence", f"right work is refused when {whose} under {place.told}", play)


async def _clock(trial: Trial) -> None:
    """The reference and its tests at another time. Work that is about the present date may age between the two."""
    if not CONDITIONS["later"].is_possible:
        trial.exam.notes.append("the clock was not shifted: no C compiler is at hand")
        return
    for names in _CLOCKS:
        elsewhen, graded = (CONDITIONS[name] for name in names)
        play = await _reference_under(trial, elsewhen)
        again = play if play.passes else await _reference_under(trial, elsewhen)
        if not play.passes and not again.passes:
            text = trial.surface.grader_text + trial.surface.solution
            doubt = Severity.WARNING if _FILE_TIMES.search(text) else Severity.BARRING  # these stay real
            what = f"the reference is refused when {elsewhen.told}"
            await _tell(trial, elsewhen, "clock-dependence", what, again, severity=doubt)
            return
        fixed = await trial.exam.grade(trial.work.states, task=graded.of_task(trial.exam.task))
        if not fixed.passes and not _DATES.search(trial.surface.instruction):
            what = f"work that was done now is refused when {graded.told}"
            await _tell(trial, graded, "clock-dependence", what, fixed, severity=Severity.WARNING)
            return


async def _reference_under(trial: Trial, condition: GradingCondition) -> Play:
    task = condition.of_task(trial.exam.task)
    return await trial.exam.play(condition.of_policy(SolutionPolicy()), task=task)


async def _busy(trial: Trial, busy: GradingCondition) -> None:
    """The tests beside six loops on the same processors."""
    if trial.grading_cost_s > 5.0:
        return
    task = busy.of_task(trial.exam.task)
    play = await trial.exam.grade(trial.work.states, task=task)
    if play.passes:
        return
    again = await trial.exam.grade(trial.work.states, task=task, plain=True)
    quiet = await trial.exam.grade(trial.work.states)
    if not again.passes and quiet.passes:
        demanded = _SPEED.search(trial.surface.instruction) is not None
        severity = Severity.WARNING if demanded else Severity.BARRING
        await _tell(trial, busy, "slow-refused", f"right work is refused when {busy.told}", again, severity=severity)


async def _tell(
    trial: Trial,
    condition: GradingCondition,
    flaw: str,
    what: str,
    play: Play,
    *,
    severity: Severity = Severity.BARRING,
) -> None:
    """Tell what was refused, with a program that was refused so: the reference itself, or what it left."""
    task = condition.of_task(trial.exam.task)
    under = (
        f"graded when {condition.told}" if condition.shift_s or condition.before else f"graded under {condition.told}"
    )
    see = f"see it again: flightschool rollout TASK --policy script:evidence.sh --grading-condition {condition.name}"
    bodies = [one for one in (reference_body(trial.exam.task), trial.work.body(trial.work.states)) if one]
    for body in bodies:
        again = await trial.exam.play(condition.of_policy(ScriptPolicy(script(body))), task=task, plain=True)
        if not again.passes:
            told = f"{under}: {again.told[:600]}; {see}"
            trial.add(finding(flaw, what, again, body, severity=severity, condition=condition.name, observed=told))
            return
    why = "a program that does the same was taken" if bodies else "it is too large for a program to replay"
    severity = Severity.WARNING if bodies else severity
    trial.add(finding(flaw, what, play, severity=severity, observed=f"{under}: {play.told[:600]}; {why}"))
