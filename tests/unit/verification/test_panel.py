"""Several verifiers: votes, vetoes, and disagreement that is kept for review."""

from __future__ import annotations

import itertools
import json

import msgspec
import pytest

from flightschool.errors import InfrastructureError, InputError
from flightschool.records import (
    AnswerCheck,
    CheckKind,
    CheckSpec,
    Evidence,
    JudgeCheck,
    Milestone,
    MilestoneCheck,
    PanelCheck,
    PanelMember,
    SqlCheck,
    Verdict,
)
from flightschool.verification import (
    CheckVerifier,
    OutcomeReward,
    Panel,
    RewardSettings,
    Seat,
    all_votes,
    verifier,
    vote_agreement,
)
from flightschool.verification.voting import Decision

WORDS = ("alpha", "beta", "gamma")


def seen(answer: str) -> Evidence:
    return Evidence(initial_state=b"{}", end_state=b"{}", answer=answer)


def says(word: str, kind: CheckKind = CheckKind.FUNCTIONAL) -> CheckVerifier:
    return CheckVerifier([CheckSpec(id=word, kind=kind, rule=AnswerCheck(contains=(word,)))])


def panel_rule(decision: Decision, veto: tuple[str, ...] = ()) -> PanelCheck:
    members = tuple(PanelMember(name=word, rule=AnswerCheck(contains=(word,))) for word in WORDS)
    return PanelCheck(members=members, decision=decision, veto=veto)


def by_hand(decision: Decision, votes: dict[str, bool]) -> bool:
    if decision == "all":
        return all(votes.values())
    return sum(votes.values()) >= 2 and (decision == "majority" or votes["alpha"])


@pytest.mark.parametrize("decision", ["majority", "all", "veto"])
@pytest.mark.parametrize("votes", list(itertools.product([True, False], repeat=3)))
def test_every_combination_as_a_rule_and_as_verifiers(decision: Decision, votes: tuple[bool, ...]) -> None:
    said = dict(zip(WORDS, votes, strict=True))
    answer = " ".join(word for word, passed in said.items() if passed)
    veto = ("alpha",) if decision == "veto" else ()
    spec = CheckSpec(id="p", kind=CheckKind.FUNCTIONAL, rule=panel_rule(decision, veto))
    as_rule = CheckVerifier([spec]).verify(seen(answer))
    as_verifiers = Panel([Seat(w, says(w), w in veto) for w in WORDS], decision).verify(seen(answer))
    for verdict in (as_rule, as_verifiers):
        (check,) = verdict.checks
        assert check.passed is by_hand(decision, said)
        assert {vote.voter: vote.passed for vote in check.votes} == said
        assert verdict.disagreement is (len(set(votes)) > 1)
    assert [m.name for m in as_verifiers.members] == list(WORDS)
    assert [m.verdict.checks[0].passed for m in as_verifiers.members] == list(votes)
    assert msgspec.json.decode(msgspec.json.encode(as_verifiers), type=Verdict) == as_verifiers


def test_constraints_are_voted_on_apart_and_those_without_abstain() -> None:
    guard = CheckVerifier(
        [
            CheckSpec(id="ok", kind=CheckKind.FUNCTIONAL, rule=AnswerCheck(contains=("alpha",))),
            CheckSpec(id="polite", kind=CheckKind.CONSTRAINT, rule=AnswerCheck(contains=("please",))),
            CheckSpec(id="step", kind=CheckKind.PROCESS, rule=AnswerCheck(contains=("step",))),
        ]
    )
    verdict = Panel([Seat("guard", guard), Seat("other", says("alpha"))]).verify(seen("alpha"))
    assert [(c.id, c.passed) for c in verdict.checks] == [
        ("panel", True),
        ("panel-constraints", False),
        ("guard/step", False),
    ]
    assert verdict.violations == ("panel-constraints",)
    reward = OutcomeReward(RewardSettings()).compose(verdict, 0.0)
    assert (reward.outcome, reward.gate, reward.total) == (1.0, 0.0, 0.0)


def test_a_tie_does_not_pass() -> None:
    seats = [Seat("a", says("alpha")), Seat("b", says("beta"))]
    assert not Panel(seats, "majority").verify(seen("alpha")).checks[0].passed


def test_a_member_that_cannot_judge_leaves_no_verdict() -> None:
    broken = CheckVerifier(
        [CheckSpec(id="q", kind=CheckKind.FUNCTIONAL, rule=SqlCheck(query="select from", expected=((1,),)))]
    )
    with pytest.raises(InfrastructureError):
        Panel([Seat("a", says("alpha")), Seat("b", broken)]).verify(seen("alpha"))


@pytest.mark.parametrize(
    ("names", "decision", "veto"),
    [
        (("a",), "majority", ()),
        (("a", "a"), "majority", ()),
        (("a", ""), "majority", ()),
        (("a", "b"), "veto", ()),
        (("a", "b"), "majority", ("a",)),
        (("a", "b"), "veto", ("c",)),
    ],
)
def test_panels_that_could_not_decide_are_refused(
    names: tuple[str, ...], decision: Decision, veto: tuple[str, ...]
) -> None:
    members = tuple(PanelMember(name=name, rule=AnswerCheck(contains=("x",))) for name in names)
    rule = PanelCheck(members=members, decision=decision, veto=veto)
    with pytest.raises(InputError):
        CheckVerifier([CheckSpec(id="p", kind=CheckKind.FUNCTIONAL, rule=rule)])
    if veto != ("c",):
        with pytest.raises(InputError):
            Panel([Seat(name, says("x"), name in veto) for name in names], decision)


def test_a_members_unusable_rule_is_told_by_name() -> None:
    member = PanelMember(name="odd", rule=AnswerCheck(contains=()))
    rule = PanelCheck(members=(member, PanelMember(name="b", rule=AnswerCheck(contains=("x",)))))
    with pytest.raises(InputError, match="member 'odd'"):
        CheckVerifier([CheckSpec(id="p", kind=CheckKind.FUNCTIONAL, rule=rule)])


def test_the_digest_follows_members_and_decision() -> None:
    seats = [Seat("a", says("alpha")), Seat("b", says("beta"))]
    digests = {Panel(seats, "all").digest, Panel(seats).digest, Panel([*seats, Seat("c", says("x"))]).digest}
    assert len(digests) == 3
    assert Panel(seats).digest == Panel(list(seats)).digest


def test_agreement_of_voters_over_attempts() -> None:
    spec = CheckSpec(id="p", kind=CheckKind.FUNCTIONAL, rule=panel_rule("majority"))
    answers = ["alpha beta gamma", "", "alpha beta", "alpha beta gamma"]
    found = vote_agreement([CheckVerifier([spec]).verify(seen(answer)) for answer in answers], "p")
    assert (found.num_attempts, found.unanimous.value) == (4, 0.75)
    assert found.unanimous.low < 0.75 < found.unanimous.high
    assert all_votes(CheckVerifier([spec]).verify(seen(answer)) for answer in answers) == (found,)
    assert all_votes([says("alpha").verify(seen("alpha"))]) == ()
    # by hand: 8 of 12 votes are for; pairs that differ 1/6 of all, by chance 2·8·4/(12·11)
    assert found.alpha == pytest.approx(1 - (2 * 2 / 2 / 12) / (2 * 8 * 4 / (12 * 11)))
    assert found.fleiss == pytest.approx((5 / 6 - (4 / 9 + 1 / 9)) / (1 - 5 / 9))
    assert vote_agreement([CheckVerifier([spec]).verify(seen("alpha beta gamma"))] * 2, "p").alpha is None
    with pytest.raises(InputError):
        vote_agreement([], "p")


def test_the_words_that_a_judge_is_asked_are_part_of_the_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = JudgeCheck(criterion="c", endpoint="openai:http://h/v1#m")
    inside = PanelCheck(members=(PanelMember(name="a", rule=asked), *panel_rule("all").members))
    late = MilestoneCheck(milestones=(Milestone(id="end", state=asked),))
    for rule, differs in ((asked, True), (inside, True), (late, True), (panel_rule("all"), False)):
        spec = CheckSpec(id="p", kind=CheckKind.FUNCTIONAL, rule=rule)
        before = CheckVerifier([spec]).digest
        with monkeypatch.context() as patch:
            patch.setattr(verifier, "PROMPT_VERSION", "other")
            assert (CheckVerifier([spec]).digest != before) is differs


def test_verdicts_without_votes_keep_the_bytes_they_had() -> None:
    encoded = json.loads(msgspec.json.encode(says("alpha").verify(seen("alpha"))))
    assert encoded.keys() == {"checks", "verifier_digest"}
    assert encoded["checks"][0].keys() == {"id", "kind", "weight", "passed", "evidence", "author"}
