"""The audit of one task folder: what is read, then what is run, then one verdict.

Order: the image is built once; the reference is played, repeated, and graded again; attacks follow, those that most
often succeed first; then wrong variants of the reference's work, right work in other forms, other conditions, and
what can be read. A task that rewards doing nothing is not attacked further: everything would pass.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial
from typing import Final

from flightschool.audit.terminal.examination import Examination, NotRunError, Play
from flightschool.audit.terminal.merging import merged
from flightschool.audit.terminal.outputs import Work, canonical, guessed_work, work_of
from flightschool.audit.terminal.probes import ATTACKS, conditions, equivalents, hanging, leak, mutants, unrounded
from flightschool.audit.terminal.probes.reference import Repeats, play_reference, repeat, why_broken
from flightschool.audit.terminal.records import FlawFinding, FolderAudit
from flightschool.audit.terminal.static import StaticPass, examine_static
from flightschool.audit.terminal.surface import Surface, look_at
from flightschool.audit.terminal.trial import Trial
from flightschool.audit.terminal.verdicts import folder_verdict
from flightschool.environments.terminal import TerminalTask
from flightschool.environments.terminal.trees import ImageStore
from flightschool.errors import FlightschoolError
from flightschool.records import Severity
from flightschool.sandbox import NativeProvider
from flightschool.sandbox.written import WrittenKind

__all__ = ["MOST_S", "REPEATS", "examine_folder"]

REPEATS: Final = 20
"""Plays of the reference: without a failure they exclude a flake rate above 13.9 % (95 %)."""
MOST_S: Final = 1200.0
"""Seconds after which an audit of one folder is given up."""


async def examine_folder(
    task: TerminalTask,
    store: ImageStore,
    provider: NativeProvider,
    *,
    gate: asyncio.Semaphore | None = None,
    static: StaticPass | None = None,
    repeats: int = REPEATS,
    however_slow: bool = False,
    seed: int = 0,
) -> FolderAudit:
    """Audit one task folder by running it. Nothing that the task does raises: it becomes a finding or a reason.

    Args:
        task: the task as read.
        store: builds and keeps images.
        provider: makes the sandboxes; the one of ``store``.
        gate: bounds the sandboxes that are alive at one time, over all audits; one for each processor by default.
        static: what the static pass found; None: it is made here.
        repeats: plays of the reference.
        however_slow: make them all, even of a slow reference.
        seed: of the plays.
    """
    started = time.perf_counter()
    static = static or examine_static(task)
    exam = Examination(task, store, provider, gate or asyncio.Semaphore(os.cpu_count() or 1), seed=seed)
    found: list[FlawFinding] = []
    because, done = "", None
    try:
        with exam.bench:
            async with asyncio.timeout(MOST_S):
                done = await _examine(exam, static, found, partial(repeat, num=repeats, however_slow=however_slow))
    except NotRunError as error:
        because = str(error)
    except TimeoutError:
        because = f"the audit took longer than {MOST_S:.0f} s"
    except (FlightschoolError, OSError) as error:
        because = f"it could not be examined: {error}"
    except Exception as error:  # noqa: BLE001  what other people's tasks hold may break a probe; that acquits no one
        because = f"a probe broke off: {type(error).__name__}: {error}"
    findings = merged(static.findings, found, was_run=done is not None and not because)
    order = {Severity.BARRING: 0, Severity.WARNING: 1, Severity.INFO: 2}
    findings.sort(key=lambda one: (order[one.severity], not one.confirmed))
    if done is not None and done.because:
        because = done.because
    return FolderAudit(
        id=task.id,
        path=task.folder,
        digest=task.digest,
        verdict=folder_verdict(findings, unaudited=bool(because)),
        findings=tuple(findings),
        unaudited_because=because,
        num_episodes=exam.num_episodes,
        wall_s=time.perf_counter() - started,
        num_repeats=done.repeats.num if done is not None and done.repeats else 0,
        flake_bound=done.repeats.bound if done is not None and done.repeats else 1.0,
        not_applicable=tuple(dict.fromkeys(exam.not_applicable)),
        notes=tuple(exam.notes[:50]),
        equivalent_mutants=tuple(exam.equivalent_mutants),
    )


class _Done:
    """How far an examination came."""

    def __init__(self, repeats: Repeats | None = None, because: str = "") -> None:
        self.repeats = repeats
        self.because = because


async def _examine(
    exam: Examination,
    static: StaticPass,
    found: list[FlawFinding],
    again: Callable[[Examination, Play], Coroutine[None, None, tuple[Repeats, list[FlawFinding]]]],
) -> _Done:
    await exam.prepare()
    surface = look_at(exam.task, exam.image, await exam.store.base_tree(exam.image), static)
    if not any(stage.oracle for stage in exam.task.stages):
        await _attack_unsolved(exam, surface, found)
        return _Done(because="the task ships no solution, so neither it nor anything made from it could be tried")
    exam.bench.warms = True  # the reference is the author's own, as the tests are
    first = await play_reference(exam)
    exam.bench.warms = False
    if not first.passes:
        found.append(await why_broken(exam, first, surface.grader_text))
        return _Done()
    exam.hurry(first)
    repeated, flakes = await again(exam, first)
    found += flakes
    exam.bench.remembers = not flakes
    work = _with_stability(work_of(surface, first.states), repeated)
    trial = Trial(
        exam=exam,
        surface=surface,
        work=work,
        oracle=first,
        grading_cost_s=repeated.grading_cost_s,
        findings=found,
        doubtful=bool(flakes),
    )
    repeated = replace(repeated, plays=())  # their end states are not needed any more
    await _try(trial)
    return _Done(repeats=repeated)


async def _try(trial: Trial) -> None:
    """All probes that need the reference's work."""
    await _attacks(trial)
    if "noop-passes" in trial.confirmed:
        return
    if not trial.confirmed & {"presence-only", "unparsable-passes"}:  # where junk passes, an answer shows nothing
        await leak.probe(trial)
    if trial.doubtful:
        trial.exam.notes.append("wrong and right variants were not tried: the same work is not always graded alike")
        return
    if not trial.confirmed & {"presence-only", "unparsable-passes"}:
        trial.work = await mutants.without_by_products(trial)
        await mutants.probe(trial)
    await equivalents.probe(trial)
    await unrounded.probe(trial)
    await conditions.probe(trial)
    if trial.exam.image.account.uid != 0 or _agent_user(trial) not in ("", "root", "0"):
        await _attacks_as_root(trial)


async def _attacks(trial: Trial) -> None:
    for probe in ATTACKS:
        if "noop-passes" in trial.confirmed:
            return
        shown = trial.confirmed & {"presence-only", "unparsable-passes", "constant-answer"}
        if probe.of_content and len(shown) > 1:
            continue
        why_not = probe.needs(trial.surface) if probe.needs is not None else ""
        if why_not:
            trial.exam.not_applicable.append(f"{probe.name}: {why_not}")
            continue
        await trial.attack(probe.attacks(trial))
    await trial.tell_escapes()
    await hanging.probe(trial)


async def _attacks_as_root(trial: Trial) -> None:
    for probe in ATTACKS:
        if probe.as_root:
            await trial.attack(probe.attacks(trial), user="root")


async def _attack_unsolved(exam: Examination, surface: Surface, found: list[FlawFinding]) -> None:
    """A task without a solution: it is never sound, but it may be exploitable."""
    none = Play(reward=None)
    trial = Trial(exam=exam, surface=surface, work=guessed_work(surface), oracle=none, findings=found)
    await _attacks(trial)


def _agent_user(trial: Trial) -> str:
    return trial.exam.task.stages[0].agent_user


def _with_stability(work: Work, repeated: Repeats) -> Work:
    """Which outputs repeats of the reference wrote alike."""
    volatile: set[str] = set()
    for play in repeated.plays[1:]:
        if not play.states:
            continue
        last = {entry.path: entry for entry in play.states[-1].entries if entry.kind is WrittenKind.FILE}
        for output in work.outputs:
            entry = last.get(output.path)
            if entry is None or canonical(output.kind, entry.data) != canonical(output.kind, output.data):
                volatile.add(output.path)
    return replace(work, outputs=tuple(replace(one, stable=one.path not in volatile) for one in work.outputs))
