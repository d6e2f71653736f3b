"""Attacks on one task: played, stopped early within a class, and told as findings only when they were rewarded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from flightschool.audit.terminal.advice import MENDS
from flightschool.audit.terminal.examination import Examination, Play, together
from flightschool.audit.terminal.flaws import FLAWS
from flightschool.audit.terminal.outputs import Work
from flightschool.audit.terminal.records import FlawFinding
from flightschool.audit.terminal.scripting import script
from flightschool.audit.terminal.surface import Surface
from flightschool.environments.terminal import TerminalTask
from flightschool.records import AuditVerdict, Severity

__all__ = ["HANGS", "SURE", "Attack", "Trial", "bundle", "finding"]

HANGS: Final = "did not end within"
"""A grader that is held up is tried by itself (``probes/hanging.py``), with the time limit that it really has."""
RACES: Final = 3
"""Plays in which an attack that was rewarded once must be rewarded again. A process that outlives the tests may lose a
race against their end on a busy machine, and a reward that comes one time in three is learned all the same."""
SURE: Final = 5
"""Further rewards that an attack needs where the same work is not always graded alike."""


@dataclass(frozen=True, kw_only=True)
class Attack:
    """A program that knows nothing of the right answer and must not be rewarded."""

    flaw: str
    what: str
    body: str
    """Shell commands; complete in themselves."""
    parts: tuple[str, ...] = ()
    """Bodies that ``body`` consists of; once it is rewarded, the single one that suffices is looked for."""
    where: str = ""
    escapes: bool = False
    """Whether leaving the grader without a verdict counts against the task too."""
    mend: str = ""
    """What its author should change, if that is not what the class as a whole says."""
    doubt: str = ""
    """Why it may be right work after all; then its passing only warns."""


@dataclass
class Trial:
    """One task with its reference played, open to attacks."""

    exam: Examination
    surface: Surface
    work: Work
    oracle: Play
    grading_cost_s: float = 0.0
    """Seconds of one grading on a quiet machine."""
    findings: list[FlawFinding] = field(default_factory=list)
    confirmed: set[str] = field(default_factory=set)
    """Classes shown so far; nothing more of them is tried."""
    doubtful: bool = False
    """Whether the same work is not always graded alike: then one reward shows nothing, only many do."""
    escapes: list[Attack] = field(default_factory=list)
    """Attacks that left the grader without a verdict."""

    def affordable(self, budget_s: float, least: int, most: int) -> int:
        """How many gradings fit into so many seconds of one processor, within bounds."""
        return max(least, min(most, int(budget_s / max(self.grading_cost_s, 1e-3))))

    def add(self, found: FlawFinding) -> None:
        """Keep a finding; one of the same class and sentence is kept once."""
        if all((one.flaw, one.what) != (found.flaw, found.what) for one in self.findings):
            self.findings.append(found)

    async def attack(self, attacks: Iterable[Attack], *, user: str = "") -> None:
        """Play attacks, side by side; those of a class that was shown meanwhile are left out.

        Args:
            attacks: what to play.
            user: another account than the task's own; what it shows then only warns.
        """
        task = self.exam.as_user(user) if user else None

        async def one(attack: Attack) -> None:
            key = f"{user}{attack.flaw}" + (" perhaps" if attack.doubt else "")
            if key in self.confirmed:
                return
            play = await self.exam.run(attack.body, task=task)
            if play.reward is None and attack.escapes and not user and HANGS not in play.problem:
                self.escapes.append(attack)
            if not play.passes or self.work.is_same(play.states) or key in self.confirmed:
                return
            if self.doubtful and not await self._passes_always(attack, user):
                return
            self.confirmed.add(key)
            body = await self._smallest(attack, user)
            play = await self._again(body, task)
            if not play.passes:
                self.confirmed.discard(key)
                self.exam.notes.append(f"{attack.what} passed once and in none of {RACES} further plays")
                return
            severity = Severity.WARNING if user or attack.doubt else Severity.BARRING
            passes = f"{attack.what} passes" + (f"; {attack.doubt}" if attack.doubt else "")
            what = passes + (f" when it runs as {user}, who is not this task's policy" if user else "")
            told = finding(attack.flaw, what, play, body, severity=severity, user=user, where=attack.where)
            self.add(msgspec.structs.replace(told, mend=attack.mend) if attack.mend else told)

        await together(one(attack) for attack in attacks)

    async def _again(self, body: str, task: TerminalTask | None) -> Play:
        """What was rewarded, played once more and graded plainly; a race that it may lose gets a few goes."""
        play = await self.exam.run(body, task=task, plain=True)
        for _ in range(RACES - 1):
            if play.passes:
                break
            play = await self.exam.run(body, task=task, plain=True)
        return play

    async def shown(self, body: str) -> Play | None:
        """The play of a program that passes, graded plainly; None: it does not."""
        if not (await self.exam.run(body)).passes:
            return None
        play = await self.exam.run(body, plain=True)
        return play if play.passes else None

    async def _passes_always(self, attack: Attack, user: str) -> bool:
        task = self.exam.as_user(user) if user else None
        for _ in range(SURE):
            if not (await self.exam.run(attack.body, task=task)).passes:
                return False
        return True

    async def _smallest(self, attack: Attack, user: str) -> str:
        task = self.exam.as_user(user) if user else None
        for part in attack.parts:
            if (await self.exam.run(part, task=task)).passes:
                return part
        return attack.body

    async def tell_escapes(self) -> None:
        """The simplest attack that leaves no verdict, if it does so again."""
        for attack in self.escapes[:3] if self.oracle.passes else ():
            play = await self.exam.run(attack.body, plain=True)
            if play.reward is None and HANGS not in play.problem:
                what = f"{attack.what} leaves the grader without a verdict, so that the attempt counts nowhere"
                self.add(finding("ungraded-escape", what, play, attack.body, where=attack.where))
                self.confirmed.add("ungraded-escape")
                return


def finding(
    flaw: str,
    what: str,
    play: Play | None = None,
    body: str = "",
    *,
    severity: Severity = Severity.BARRING,
    accuses: AuditVerdict | None = None,
    user: str = "",
    where: str = "",
    condition: str = "",
    observed: str = "",
) -> FlawFinding:
    """A finding that was executed (``play``), or one that was only observed."""
    return FlawFinding(
        flaw=flaw,
        severity=severity,
        accuses=accuses or FLAWS[flaw].accuses,
        what=what[0].upper() + what[1:] if what else what,
        where=where,
        confirmed=play is not None,
        script=script(body) if body else "",
        user=user,
        condition=condition,
        observed=(observed or (play.told if play else ""))[:1000],
        confidence=1.0 if play is not None else 0.5,
        mend=MENDS.get(flaw, ""),
    )


def bundle(flaw: str, what: str, parts: Sequence[str], *, where: str = "") -> list[Attack]:
    """Many attacks of one class that do not stand in each other's way, as one; none where there are no parts."""
    if not parts:
        return []
    return [
        Attack(flaw=flaw, what=what, body="\n".join(parts), parts=tuple(parts) if len(parts) > 1 else (), where=where)
    ]
