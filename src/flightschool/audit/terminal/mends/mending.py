"""From findings to a repaired copy of a task."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from flightschool.audit.terminal.mends.accounts import give_account
from flightschool.audit.terminal.mends.counting import require_executed
from flightschool.audit.terminal.mends.draft import Draft, patch_path, write_draft
from flightschool.audit.terminal.mends.moves import forget_history, judge_from_tests, remove_from_image
from flightschool.audit.terminal.mends.records import AppliedMend, LeftFlaw, MendReport
from flightschool.audit.terminal.mends.shell_edits import end_with_verdict, pin_starts, propagate_status
from flightschool.audit.terminal.records import FlawFinding
from flightschool.environments.terminal import TerminalTask

__all__ = ["mend"]

# Rules that look at lines by their numbers come first; `pin_starts` moves lines down, so it comes last of the shell's.
RULES: Final[tuple[Callable[[Draft], list[AppliedMend]], ...]] = (
    require_executed,
    end_with_verdict,
    propagate_status,
    judge_from_tests,
    pin_starts,
    remove_from_image,
    forget_history,
    give_account,
)


def mend(task: TerminalTask, findings: Iterable[FlawFinding], into: Path) -> MendReport:
    """Write a repaired copy of a task's folder to ``into`` and a unified diff beside it (``NAME.patch``).

    The original is not touched. Nothing is written when no rule applies. Whether the copy is sound, and its reference
    still passes, is for a new audit to say: a rewrite is safe in that it leaves the folder readable and adds no way to
    pass.

    Args:
        task: a task as read.
        findings: what an audit found; those of the static pass will do.
        into: the new folder.

    Raises:
        InputError: something lies at ``into`` or at the patch's place, or a file to be rewritten is no text.
    """
    draft = Draft(task, tuple(findings))
    applied = [made for rule in RULES for made in rule(draft)]
    mended = {flaw for made in applied for flaw in made.flaws}
    left = tuple(
        LeftFlaw(flaw=f.flaw, where=f.where, why="no safe rewrite is known for this text; see the finding's own advice")
        for f in draft.findings
        if f.flaw not in mended
    )
    if not draft.changed:
        return MendReport(task=task.id, folder="", patch="", left=left)
    write_draft(draft, into)
    return MendReport(task=task.id, folder=str(into), patch=str(patch_path(into)), applied=tuple(applied), left=left)
