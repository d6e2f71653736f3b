"""Panels judged by a separate process."""

from __future__ import annotations

import pytest

from flightschool.records import AnswerCheck, CheckKind, CheckSpec, Evidence, PanelCheck, PanelMember
from flightschool.verification import CheckVerifier, SeparateGrader, agree

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("answer", ["alpha beta", "alpha beta gamma"])
def test_a_separate_process_judges_panels_alike(answer: str) -> None:
    members = tuple(PanelMember(name=w, rule=AnswerCheck(contains=(w,))) for w in ("alpha", "beta", "gamma"))
    spec = CheckSpec(id="p", kind=CheckKind.FUNCTIONAL, rule=PanelCheck(members=members))
    evidence = Evidence(initial_state=b"{}", end_state=b"{}", answer=answer)
    here = CheckVerifier([spec]).verify(evidence)
    with SeparateGrader() as grader:
        there = grader.judge([spec], evidence)
    assert agree(here, there)
    assert there == here
    assert here.disagreement is (answer == "alpha beta")
