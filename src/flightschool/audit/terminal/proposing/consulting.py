"""The second stage of an audit: models that read the task propose what to run, and a checker weighs what came of it.

The probes of the first stage know forms; what an instruction *means* they do not know. Here a proposer reads all
there is and writes programs: right work that may be refused, wrong work that may be rewarded, ways to read the answer.
The programs are run and graded as any policy's work. Only where the tests' verdict is a surprise is the checker asked,
who sees instruction, inputs and the two end states under letters, and neither the tests nor which state is the
solution's. An accusation needs all three: the program's claim, its execution, the checker's agreement.

Accusations of the first stage that hang on meaning are shown to the checker first, who may drop them to warnings. A
task that is still accused is not read further; it cannot train as it is.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from flightschool.audit.terminal.examination import Examination, NotRunError, Play, together
from flightschool.audit.terminal.outputs import Work, work_of
from flightschool.audit.terminal.proposing.answers import Proposal
from flightschool.audit.terminal.proposing.dossier import Dossier, shown_state
from flightschool.audit.terminal.proposing.looking import look_around
from flightschool.audit.terminal.proposing.questions import Tried
from flightschool.audit.terminal.proposing.readers import Readers
from flightschool.audit.terminal.proposing.weighing import (
    is_surprising,
    of_meaning,
    of_opinion,
    of_source,
    reweighed,
    reweighed_source,
)
from flightschool.audit.terminal.records import FlawFinding, FolderAudit
from flightschool.audit.terminal.static import examine_static
from flightschool.audit.terminal.surface import look_at
from flightschool.audit.terminal.trial import HANGS, finding
from flightschool.audit.terminal.verdicts import folder_verdict
from flightschool.digest import digest
from flightschool.environments.terminal import TerminalTask
from flightschool.environments.terminal.trees import ImageStore
from flightschool.records import AuditVerdict, Severity
from flightschool.rollouts.terminal import SolutionPolicy
from flightschool.sandbox import NativeProvider

__all__ = ["consult"]

ROUNDS: Final = 2
"""Of proposals: the second knows what became of the first."""
MOST_RECONSIDERED: Final = 4
_SETTLED: Final = (AuditVerdict.BROKEN_ORACLE, AuditVerdict.FLAKY, AuditVerdict.UNAUDITED)
_ORDER: Final = {Severity.BARRING: 0, Severity.WARNING: 1, Severity.INFO: 2}


@dataclass
class _Session:
    """One task before the readers."""

    exam: Examination
    readers: Readers
    dossier: Dossier
    work: Work
    notes: list[str] = field(default_factory=list)
    num_asked: int = 0


async def consult(
    task: TerminalTask,
    audit: FolderAudit,
    store: ImageStore,
    provider: NativeProvider,
    readers: Readers,
    *,
    gate: asyncio.Semaphore,
    seed: int = 0,
) -> FolderAudit:
    """The audit of a folder after the readers were asked.

    Args:
        task: the task as read.
        audit: what the first stage found.
        store: builds and keeps images.
        provider: makes the sandboxes.
        readers: who is asked.
        gate: bounds the sandboxes that are alive at one time.
        seed: of the plays.

    Raises:
        InfrastructureError: the models do not answer; nothing is known then.
    """
    if audit.verdict in _SETTLED:
        return audit
    started = time.perf_counter()
    exam = Examination(task, store, provider, gate, seed=seed)
    session, problem = await _open(exam, readers)
    if session is None:
        return replace(audit, verdict=folder_verdict(audit.findings, unaudited=True), unaudited_because=problem)
    findings = await _reconsider(session, audit.findings)
    if folder_verdict(findings, unaudited=False) is AuditVerdict.SOUND:
        findings += await _propose(session)
    findings.sort(key=lambda one: (_ORDER[one.severity], not one.confirmed))
    return replace(
        audit,
        verdict=folder_verdict(findings, unaudited=False),
        findings=tuple(findings),
        num_episodes=audit.num_episodes + exam.num_episodes,
        wall_s=audit.wall_s + time.perf_counter() - started,
        notes=(*audit.notes, *session.notes),
        readers=readers.name,
    )


async def _open(exam: Examination, readers: Readers) -> tuple[_Session | None, str]:
    """The task's image, the solution's work and what is shown of both; or why there is nothing to show."""
    try:
        await exam.prepare()
        surface = look_at(exam.task, exam.image, await exam.store.base_tree(exam.image), examine_static(exam.task))
        first = await exam.play(SolutionPolicy(), plain=True)
    except NotRunError as error:
        return None, str(error)
    if not first.passes:
        return None, f"the solution did not pass before the readers: {first.told}"
    exam.hurry(first)
    work = work_of(surface, first.states)
    dossier = Dossier.of(surface, work, await look_around(exam))
    return _Session(exam=exam, readers=readers, dossier=dossier, work=work), ""


# ------------------------------------------------------------------------------------------------ first-stage findings


async def _reconsider(session: _Session, findings: tuple[FlawFinding, ...]) -> list[FlawFinding]:
    """All findings, those of meaning weighed by the checker, until one accusation stands."""
    chosen = of_meaning(findings)
    scripts = {one.script for one in chosen}
    if any(one.severity is Severity.BARRING and one.script not in scripts for one in findings):
        return list(findings)  # accused for what needs no opinion
    weighed: dict[str, FlawFinding] = {}
    for found in chosen[:MOST_RECONSIDERED]:
        if any(one.severity is Severity.BARRING for one in weighed.values()):
            break
        weighed[found.script] = await _reweigh(session, found)
    return [_after(found, weighed.get(found.script)) for found in findings]


def _after(found: FlawFinding, weighed: FlawFinding | None) -> FlawFinding:
    """A finding after its program was weighed: others that rest on the same program bar only if that one does."""
    if weighed is None:
        return found
    if (found.flaw, found.what) == (weighed.flaw, weighed.what):
        return weighed
    if found.severity is Severity.BARRING and weighed.severity is not Severity.BARRING:
        return replace(found, severity=weighed.severity, observed=weighed.observed)
    return found


async def _reweigh(session: _Session, found: FlawFinding) -> FlawFinding:
    if found.accuses is AuditVerdict.LEAKING:
        session.num_asked += 1
        return reweighed_source(found, *await session.readers.source(session.dossier, found.script, found.what))
    play = await session.exam.run(found.script, plain=True)
    if play.passes != (found.accuses is AuditVerdict.EXPLOITABLE):
        session.notes.append(f"not shown again: {found.what}")
        return found
    session.num_asked += 1
    swapped = _is_swapped(found.script)
    return reweighed(found, await session.readers.opinion(session.dossier, shown_state(play.states), swapped=swapped))


def _is_swapped(program: str) -> bool:
    """Under which letter the program's state is shown: chance by the program, the same each time."""
    return int(digest(program.encode())[-1], 16) % 2 == 1


# ------------------------------------------------------------------------------------------------ proposals


async def _propose(session: _Session) -> list[FlawFinding]:
    """Rounds of proposals, until one shows a flaw."""
    found: list[FlawFinding] = []
    tried: list[Tried] = []
    for _ in range(ROUNDS):
        proposals = await session.readers.proposals(session.dossier, tuple(tried))
        if not proposals:
            break
        results = await together(_try(session, proposal) for proposal in proposals)
        found += [one for _, one in results if one is not None]
        tried += [one for one, _ in results]
        if any(one.severity is Severity.BARRING for one in found):
            break
    kinds = [one.proposal.kind for one in tried]
    counts = ", ".join(f"{kinds.count(kind)} {kind}" for kind in ("right", "wrong", "leak") if kind in kinds)
    session.notes.append(
        f"the readers proposed {len(tried)} programs ({counts or 'none'}), {session.num_asked} opinions"
    )
    return found


async def _try(session: _Session, proposal: Proposal) -> tuple[Tried, FlawFinding | None]:
    play = await session.exam.run(proposal.program, plain=True)
    tried = Tried(proposal=proposal, told=_told(play))
    if proposal.kind == "wrong" and play.reward is None and HANGS not in play.problem:
        what = f"no verdict, so that the attempt counts nowhere: {proposal.what}"
        return tried, finding("ungraded-escape", what, play, proposal.program)
    if not is_surprising(proposal, play):
        return tried, None
    session.num_asked += 1
    if proposal.kind == "leak":
        source, why = await session.readers.source(session.dossier, proposal.program, proposal.what)
        return tried, of_source(proposal, play, source, why)
    if proposal.kind == "wrong" and session.work.is_same(play.states):
        return tried, None  # the very work of the solution
    state = shown_state(play.states)
    opinion = await session.readers.opinion(session.dossier, state, swapped=_is_swapped(proposal.program))
    return tried, of_opinion(proposal, play, opinion)


def _told(play: Play) -> str:
    ended = "" if not play.detail else f" ({play.detail[:200]})"
    return play.told[:600] + ended
