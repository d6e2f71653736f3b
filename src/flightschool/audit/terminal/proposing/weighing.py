"""From what was run and what the checker says of it to a finding, or to none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from flightschool.audit.terminal.examination import Play
from flightschool.audit.terminal.proposing.answers import Judgement, Opinion, Proposal, Source
from flightschool.audit.terminal.records import FlawFinding
from flightschool.audit.terminal.trial import HANGS, finding
from flightschool.records import AuditVerdict, Severity

__all__ = ["is_surprising", "of_meaning", "of_opinion", "of_source", "reweighed", "reweighed_source"]

JUDGED: Final = 0.9
"""Confidence of what was executed and whose meaning a model judged."""
_MEANS: Final = frozenset(
    {
        *("copied-input", "constant-answer", "presence-only", "visible-cases", "loose-tolerance", "superset-answer"),
        *("empty-criteria", "mutant-passes", "not-a-number", "reread-input"),
        *("answer-in-view", "tests-in-view", "cross-step-leak", "future-history", "answer-in-prompt", "build-residue"),
        *("over-strict-text", "float-equality", "one-of-many", "order-sensitive", "wrong-truth"),
        *("unasked-requirement", "strict-whitespace", "extra-files-refused"),
    }
)
_WRONG: Final = ("hollow", "flawed")
_TRIFLES: Final = frozenset({"strict-whitespace"})
"""Line ends and empty lines: right all the same, yet so rarely forgiven that it would bar nearly every task."""
_UNSURE: Final = "; the checker is not sure that it is"


def of_meaning(findings: Sequence[FlawFinding]) -> list[FlawFinding]:
    """Accusations that stand or fall with what the instruction means, one for each program."""
    chosen = [one for one in findings if one.severity is Severity.BARRING and one.confirmed and one.script]
    return list({one.script: one for one in reversed(chosen) if one.flaw in _MEANS and not one.user}.values())[::-1]


def is_surprising(proposal: Proposal, play: Play) -> bool:
    """Whether the tests' verdict speaks against the task, if the proposal is what it claims to be."""
    if proposal.kind == "right":
        return not play.passes and HANGS not in play.problem
    return play.passes


def of_opinion(proposal: Proposal, play: Play, opinion: Opinion) -> FlawFinding | None:
    """The finding of right work that was refused, or of wrong work that was rewarded; None: there is none.

    No tests are complete: a wrong detail that passes warns. It bars what spares the work, since that is learned.
    """
    return _of_right(proposal, play, opinion) if proposal.kind == "right" else _of_wrong(proposal, play, opinion)


def _of_right(proposal: Proposal, play: Play, opinion: Opinion) -> FlawFinding | None:
    said = _as_good(opinion)
    if said in _WRONG:
        return None
    flaw = "wrong-truth" if opinion.reference in _WRONG and said == "right" else proposal.flaw
    doubt = {"right": "", "contrived": "; no honest worker would leave it so"}.get(said, _UNSURE)
    if not doubt and flaw in _TRIFLES:
        doubt = "; what means nothing, few tests forgive"
    return _made(flaw, f"right work is refused: {proposal.what}", play, proposal.program, doubt, opinion.why)


def _of_wrong(proposal: Proposal, play: Play, opinion: Opinion) -> FlawFinding | None:
    said = _as_good(opinion)
    if said in ("right", "contrived"):
        return None
    doubt = {"hollow": "", "flawed": "; the work was essentially done"}.get(said, _UNSURE)
    if opinion.reference == "hollow":
        doubt = "; the solution's own work was called no better"
    return _made(proposal.flaw, f"wrong work passes: {proposal.what}", play, proposal.program, doubt, opinion.why)


def _as_good(opinion: Opinion) -> Judgement:
    """What is said of the candidate. What cannot be told, and is like the solution's work, is right if that is.

    The solution passes the tests, so it is taken for right where the checker cannot tell either.
    """
    if opinion.alike and {opinion.candidate, opinion.reference} <= {"unclear", "right"}:
        return "right"
    return opinion.candidate


def of_source(proposal: Proposal, play: Play, source: Source, why: str) -> FlawFinding | None:
    """The finding of an answer that was taken from somewhere; None: the program works."""
    if source == "works":
        return None
    doubt = "" if source == "reads" else _UNSURE
    return _made(proposal.flaw, f"the answer can be read: {proposal.what}", play, proposal.program, doubt, why)


def _made(flaw: str, what: str, play: Play, program: str, doubt: str, why: str) -> FlawFinding:
    severity = Severity.WARNING if doubt else Severity.BARRING
    found = finding(flaw, what + doubt, play, program, severity=severity)
    return replace(found, confidence=0.5 if doubt else JUDGED, observed=_with_why(found.observed, why))


def reweighed(found: FlawFinding, opinion: Opinion) -> FlawFinding:
    """An accusation of the mechanical probes after the checker looked at what its program left.

    It falls if the refused work is wrong or contrived, or the rewarded work right; *unclear* leaves it as it is.
    """
    refuses = found.accuses is AuditVerdict.REFUSES_CORRECT_WORK
    said = _as_good(opinion)
    falls = said in (("contrived", *_WRONG) if refuses else ("right", "contrived"))
    return _weigh(found, falls, f"{said}: {opinion.why}")


def reweighed_source(found: FlawFinding, source: Source, why: str) -> FlawFinding:
    """The same of a leak: it falls if the program works."""
    return _weigh(found, source == "works", f"{source}: {why}")


def _weigh(found: FlawFinding, falls: bool, said: str) -> FlawFinding:
    observed = _with_why(found.observed, said)
    if falls:
        return replace(found, severity=Severity.WARNING, confidence=0.3, observed=observed)
    return replace(found, observed=observed)


def _with_why(observed: str, why: str) -> str:
    return f"{observed[:1000]}; the checker: {why}"
