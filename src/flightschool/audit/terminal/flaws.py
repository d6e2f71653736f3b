"""The classes of flaws that a task folder can have: the vocabulary that static pass, dynamic pass and mends share."""

from __future__ import annotations

from dataclasses import dataclass

from flightschool.records import AuditVerdict

__all__ = ["FLAWS", "Flaw"]

_EXPLOIT = AuditVerdict.EXPLOITABLE
_LEAK = AuditVerdict.LEAKING
_REFUSES = AuditVerdict.REFUSES_CORRECT_WORK


@dataclass(frozen=True, kw_only=True)
class Flaw:
    """A class of flaws."""

    slug: str
    title: str
    accuses: AuditVerdict


_TABLE = (
    ("reward-file-forging", "the verdict's file can be written by the policy", _EXPLOIT),
    ("late-overwrite", "a process that outlives the policy rewrites what is graded", _EXPLOIT),
    ("pytest-hook", "configuration planted for pytest decides the outcome", _EXPLOIT),
    ("interpreter-startup", "a module that Python loads at its start is planted", _EXPLOIT),
    ("path-trojan", "a program that the grader calls is replaced", _EXPLOIT),
    ("test-edit", "the tests that grade can be edited or deleted", _EXPLOIT),
    ("grader-in-reach", "the grader's own script lies where the policy can write", _EXPLOIT),
    ("decorative-guard", "an integrity check compares with what the policy can write too", _EXPLOIT),
    ("stdout-forging", "lines that the policy's work prints are read as the verdict", _EXPLOIT),
    ("early-exit", "ending the grader early, or skipping its tests, counts as passing", _EXPLOIT),
    ("zero-collected", "nothing collected or executed counts as passing", _EXPLOIT),
    ("swallowed-failure", "a failure of the tests is not noticed", _EXPLOIT),
    ("noop-passes", "doing nothing passes", _EXPLOIT),
    ("empty-criteria", "a component of the reward checks nothing", _EXPLOIT),
    ("presence-only", "any content of the right name or shape passes", _EXPLOIT),
    ("copied-input", "the unedited input passes as the output", _EXPLOIT),
    ("constant-answer", "one fixed answer passes", _EXPLOIT),
    ("visible-cases", "only cases that the policy can see are tested", _EXPLOIT),
    ("always-equal", "an object that equals everything passes", _EXPLOIT),
    ("introspection", "the policy's code runs in the grader's process and can read what is expected", _EXPLOIT),
    ("not-a-number", "NaN, infinity or a number out of range passes", _EXPLOIT),
    ("loose-tolerance", "wrong values lie within the tolerance", _EXPLOIT),
    ("superset-answer", "listing everything, or adding junk to the answer, passes", _EXPLOIT),
    ("judge-injection", "text addressed to the judge decides the verdict", _EXPLOIT),
    ("unparsable-passes", "output that cannot be read counts as correct", _EXPLOIT),
    ("ungraded-escape", "output that cannot be graded leaves the denominator", _EXPLOIT),
    ("self-comparison", "the grader takes the policy's own output for what is expected", _EXPLOIT),
    ("evaluated-output", "the grader executes text that the policy wrote", _EXPLOIT),
    ("reread-input", "the grader reads inputs again that the policy can change", _EXPLOIT),
    ("shared-state", "state that another attempt left decides the outcome", _EXPLOIT),
    ("mutant-passes", "work that differs from the reference in its effect passes", _EXPLOIT),
    ("answer-in-view", "the answer stands where the policy can read it", _LEAK),
    ("tests-in-view", "the tests stand where the policy can read them", _LEAK),
    ("cross-step-leak", "what grades one step can be read in a later one", _LEAK),
    ("future-history", "version control holds commits or objects newer than the base", _LEAK),
    ("answer-in-prompt", "the instruction holds the answer", _LEAK),
    ("build-residue", "caches or generators left by the build decode the answer", _LEAK),
    ("broken-oracle", "the reference solution does not pass", AuditVerdict.BROKEN_ORACLE),
    ("constant-reward", "no work changes the reward", AuditVerdict.BROKEN_ORACLE),
    ("flaky", "the same end state, or the same solution, is graded differently", AuditVerdict.FLAKY),
    ("network-in-grading", "grading needs a network", _REFUSES),
    ("over-strict-text", "an equivalent form of the right text is refused", _REFUSES),
    ("float-equality", "numbers equal to rounding are refused", _REFUSES),
    ("one-of-many", "one of many valid answers is accepted, the others refused", _REFUSES),
    ("order-sensitive", "an order that nobody asked for is demanded", _REFUSES),
    ("wrong-truth", "what the tests expect is not true", _REFUSES),
    ("unasked-requirement", "the tests demand what the instruction does not ask for", _REFUSES),
    ("strict-whitespace", "line endings or spaces that mean nothing are demanded", _REFUSES),
    ("extra-files-refused", "harmless files beside the result are refused", _REFUSES),
    ("clock-dependence", "the same work is refused at another time", _REFUSES),
    ("locale-dependence", "the same work is refused under another locale or time zone", _REFUSES),
    ("slow-refused", "right work is refused on a slower machine", _REFUSES),
    ("isolation-refused", "right work is refused because the grader cannot see it from its own sandbox", _REFUSES),
)

FLAWS: dict[str, Flaw] = {slug: Flaw(slug=slug, title=title, accuses=accuses) for slug, title, accuses in _TABLE}
"""Every class by its slug."""
