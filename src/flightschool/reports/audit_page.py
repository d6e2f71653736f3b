"""The audit of a pool as one page: verdicts, flaws that tasks share, each finding with evidence that replays."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Final

from flightschool.records import Record
from flightschool.reports.render import template, write_page

__all__ = ["AuditPage", "AuditedFolder", "SharedFlaw", "ShownFinding", "ShownWaiver", "render_audit", "write_audit"]

MOST_TASKS: Final = 400
"""Tasks that are shown with their findings; what is left out is counted."""
MOST_EVIDENCE: Final = 6000
"""Characters of one evidence that are shown."""
_ORDER: Final = ("broken-oracle", "leaking", "exploitable", "refuses-correct-work", "flaky", "unaudited", "sound")


class ShownFinding(Record, frozen=True, kw_only=True):
    """One finding as people read it."""

    flaw: str
    severity: str
    confirmed: bool
    what: str
    where: str = ""
    """File and line; empty where there is none."""
    observed: str = ""
    evidence: str = ""
    """A program, or actions as JSON; empty where nothing was played."""
    replay: str = ""
    """Command line that plays the evidence again."""
    mend: str = ""


class AuditedFolder(Record, frozen=True, kw_only=True):
    """One task: a folder, or one of an environment."""

    id: str
    path: str
    verdict: str
    because: str = ""
    """Why it could not be examined as a whole."""
    findings: tuple[ShownFinding, ...] = ()
    equivalent_mutants: tuple[str, ...] = ()
    """Wrong variants that turned out to be right."""
    num_repeats: int = 0
    flake_bound: float = 1.0
    waived: bool = False
    """Whether somebody let it pass against the audit's advice."""


class SharedFlaw(Record, frozen=True, kw_only=True):
    """A flaw that several tasks have from one source."""

    flaw: str
    line: str
    members: tuple[str, ...]
    share: float
    """Of the pool."""
    num_confirmed: int


class ShownWaiver(Record, frozen=True, kw_only=True):
    """Somebody's word that tasks may train against the audit's advice."""

    name: str
    reason: str
    at: str
    """ISO 8601 UTC."""
    tasks: tuple[str, ...]


class AuditPage(Record, frozen=True, kw_only=True):
    """All that the page says."""

    pool: str
    created_at: str
    """ISO 8601 UTC."""
    was_run: bool
    """False: only text was read, and nothing can be sound."""
    tasks: tuple[AuditedFolder, ...]
    families: tuple[SharedFlaw, ...] = ()
    readers: tuple[str, ...] = ()
    """Models that read some of the tasks; empty: none did."""
    waivers: tuple[ShownWaiver, ...] = ()
    """Of the tasks as they are now."""

    @property
    def counts(self) -> list[tuple[str, int]]:
        """(verdict, tasks), the gravest first."""
        found = Counter(task.verdict for task in self.tasks)
        return [(verdict, found[verdict]) for verdict in _ORDER if found[verdict]]

    @property
    def told(self) -> list[AuditedFolder]:
        """Tasks with something to tell, the gravest first."""
        found = [task for task in self.tasks if task.verdict != "sound" or task.findings]
        return sorted(found, key=lambda task: _ORDER.index(task.verdict))

    @property
    def shown(self) -> list[AuditedFolder]:
        """Those of them that the page has room for."""
        return self.told[:MOST_TASKS]

    @property
    def quiet(self) -> list[AuditedFolder]:
        """Sound tasks without a finding."""
        return [task for task in self.tasks if task.verdict == "sound" and not task.findings]

    @property
    def with_equivalents(self) -> list[AuditedFolder]:
        """Tasks of which mutants turned out to be the same work."""
        return [task for task in self.tasks if task.equivalent_mutants][:MOST_TASKS]

    def cut(self, text: str) -> str:
        """Evidence, shortened where it is long."""
        left = len(text) - MOST_EVIDENCE
        return text if left <= 0 else f"{text[:MOST_EVIDENCE]}\n… {left} more characters (--json has all of it)"


def render_audit(page: AuditPage) -> str:
    """The page as text. Equal pages give equal text; all text in it is escaped."""
    return template("audit.html.j2")(page=page)


def write_audit(page: AuditPage, out: Path) -> None:
    """Write the page to ``out``, whole or not at all. Raises ``OSError``."""
    write_page(render_audit(page), out)
