"""An accusation needs the claim, its execution and the checker's agreement."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from flightschool.audit.terminal.examination import Play
from flightschool.audit.terminal.proposing.answers import Judgement, Opinion, Proposal
from flightschool.audit.terminal.proposing.weighing import (
    is_surprising,
    of_meaning,
    of_opinion,
    of_source,
    reweighed,
    reweighed_source,
)
from flightschool.audit.terminal.records import FlawFinding
from flightschool.audit.terminal.trial import HANGS, finding
from flightschool.records import Severity

PASSED, FAILED, NO_VERDICT = Play(reward=1.0), Play(reward=0.0), Play(reward=None, problem="no file")
HELD_UP = Play(reward=None, problem=f"it {HANGS} 15 s")


def proposed(kind: Literal["right", "wrong", "leak"], flaw: str) -> Proposal:
    return Proposal(kind=kind, flaw=flaw, what="it does so", why="", program="true\n")


def opinion(candidate: Judgement, reference: Judgement = "right", *, alike: bool = False) -> Opinion:
    return Opinion(reference=reference, candidate=candidate, alike=alike, why="by the words")


def test_only_what_the_tests_judge_otherwise_than_claimed_is_weighed() -> None:
    right, wrong = proposed("right", "one-of-many"), proposed("wrong", "mutant-passes")
    assert [is_surprising(right, play) for play in (PASSED, FAILED, NO_VERDICT, HELD_UP)] == [
        *(False, True, True, False)
    ]
    assert [is_surprising(wrong, play) for play in (PASSED, FAILED, NO_VERDICT)] == [True, False, False]


@pytest.mark.parametrize(
    ("kind", "candidate", "reference", "expected"),
    [
        ("right", "right", "right", ("one-of-many", Severity.BARRING)),
        ("right", "right", "flawed", ("wrong-truth", Severity.BARRING)),
        ("right", "right", "hollow", ("wrong-truth", Severity.BARRING)),
        ("right", "unclear", "right", ("one-of-many", Severity.WARNING)),
        ("right", "contrived", "right", ("one-of-many", Severity.WARNING)),
        ("right", "flawed", "right", None),
        ("right", "hollow", "right", None),
        ("wrong", "hollow", "right", ("mutant-passes", Severity.BARRING)),
        ("wrong", "hollow", "flawed", ("mutant-passes", Severity.BARRING)),
        ("wrong", "hollow", "hollow", ("mutant-passes", Severity.WARNING)),  # it calls the solution no better
        ("wrong", "flawed", "right", ("mutant-passes", Severity.WARNING)),  # no tests are complete
        ("wrong", "unclear", "right", ("mutant-passes", Severity.WARNING)),
        ("wrong", "right", "right", None),
        ("wrong", "contrived", "right", None),
    ],
)
def test_opinions(kind: Any, candidate: Judgement, reference: Judgement, expected: Any) -> None:
    flaw = "one-of-many" if kind == "right" else "mutant-passes"
    play = FAILED if kind == "right" else PASSED
    found = of_opinion(proposed(kind, flaw), play, opinion(candidate, reference))
    assert (None if found is None else (found.flaw, found.severity)) == expected
    if found is not None:
        assert found.confirmed
        assert found.script == "#!/bin/sh\ntrue\n"
        assert found.confidence == (0.9 if found.severity is Severity.BARRING else 0.5)
        assert "the checker: by the words" in found.observed


def test_what_is_like_the_solutions_work_is_as_right_as_that() -> None:
    """Tests that pass one and refuse the other are told, though inputs that are not shown leave both unclear."""
    right, wrong = proposed("right", "order-sensitive"), proposed("wrong", "mutant-passes")
    refused = of_opinion(right, FAILED, opinion("unclear", "unclear", alike=True))
    assert refused is not None
    assert refused.severity is Severity.BARRING
    assert of_opinion(wrong, PASSED, opinion("unclear", "unclear", alike=True)) is None
    assert of_opinion(right, FAILED, opinion("flawed", "flawed", alike=True)) is None, "a word that is clear holds"
    accused = found_by_probe("mutant-passes")
    assert reweighed(accused, opinion("unclear", "unclear", alike=True)).severity is Severity.WARNING
    assert reweighed(accused, opinion("unclear", "unclear")).severity is Severity.BARRING


def test_line_ends_alone_bar_nothing() -> None:
    found = of_opinion(proposed("right", "strict-whitespace"), FAILED, opinion("right"))
    assert found is not None
    assert found.severity is Severity.WARNING


def test_sources() -> None:
    leak = proposed("leak", "build-residue")
    reads, unclear = of_source(leak, PASSED, "reads", "a cache"), of_source(leak, PASSED, "unclear", "perhaps")
    assert reads is not None
    assert unclear is not None
    assert (reads.severity, unclear.severity) == (Severity.BARRING, Severity.WARNING)
    assert of_source(leak, PASSED, "works", "an input") is None


def found_by_probe(flaw: str, severity: Severity = Severity.BARRING, body: str = "true", user: str = "") -> FlawFinding:
    return finding(flaw, "it is so", PASSED, body, severity=severity, user=user)


def test_an_accusation_falls_only_on_a_clear_word() -> None:
    refused, passed = found_by_probe("over-strict-text"), found_by_probe("mutant-passes")
    words: tuple[Judgement, ...] = ("right", "contrived", "hollow", "flawed", "unclear")
    bars, warns = Severity.BARRING, Severity.WARNING
    assert [reweighed(refused, opinion(word)).severity for word in words] == [bars, warns, warns, warns, bars]
    assert [reweighed(passed, opinion(word)).severity for word in words] == [warns, warns, bars, bars, bars]
    leak = found_by_probe("answer-in-view")
    assert [reweighed_source(leak, word, "").severity for word in ("reads", "works", "unclear")] == [bars, warns, bars]
    assert "the checker: flawed: by the words" in reweighed(refused, opinion("flawed")).observed


def test_only_accusations_of_meaning_are_shown_to_the_checker_each_program_once() -> None:
    forged = found_by_probe("reward-file-forging")
    as_root = found_by_probe("mutant-passes", user="root")
    read_only = finding("answer-in-view", "it was read")
    doubt = found_by_probe("order-sensitive", Severity.WARNING, "sort")
    sure, same = found_by_probe("mutant-passes", body="echo"), found_by_probe("loose-tolerance", body="echo")
    other = found_by_probe("superset-answer", body="cat")
    assert of_meaning([forged, as_root, read_only, doubt, sure, same, other]) == [sure, other]
