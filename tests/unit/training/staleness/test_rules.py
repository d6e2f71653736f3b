from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flightschool.errors import InputError
from flightschool.training.staleness import Accounts, AdmissionRule, DiscardRule, HoldRule

versions = st.lists(st.integers(0, 20), max_size=8)


def test_the_hold_by_hand() -> None:
    rule = HoldRule(max_staleness=1, max_inflight=4)
    assert not rule.may_step(Accounts(version=3, running=(3, 2)))
    assert rule.may_step(Accounts(version=3, running=(3,)))
    assert not rule.may_step(Accounts(version=3, waiting=(2,)))  # it must be in this step
    assert rule.may_step(Accounts(version=3))
    assert rule.num_holding(Accounts(version=3, running=(3, 2, 2))) == 2


def test_running_and_waiting_groups_fill_the_same_room() -> None:
    rule = HoldRule(max_staleness=1, max_inflight=4)
    assert rule.num_to_admit(Accounts(version=0, running=(0, 0), waiting=(0,))) == 1
    assert rule.num_to_admit(Accounts(version=0, running=(0,) * 5)) == 0


@pytest.mark.parametrize("sizes", [(0, 4), (1, 0)])
def test_a_hold_without_room_is_refused(sizes: tuple[int, int]) -> None:
    with pytest.raises(InputError, match="a hold with"):
        HoldRule(*sizes)


def test_draining_starts_nothing_while_one_group_holds_and_the_trainer_has_work() -> None:
    rule = HoldRule(max_staleness=1, max_inflight=9, reserve=2, drains=True)
    one_holds = Accounts(version=1, running=(0, 1), waiting=(1, 1))
    assert rule.num_to_admit(one_holds) == 0
    assert HoldRule(max_staleness=1, max_inflight=9, reserve=2).num_to_admit(one_holds) == 5
    assert rule.num_to_admit(Accounts(version=1, running=(0, 0), waiting=(1, 1))) == 5  # two hold: it will take a while
    assert rule.num_to_admit(Accounts(version=1, running=(0, 1), waiting=(1,))) == 6  # the trainer would run dry


@settings(max_examples=60, deadline=None)
@given(versions, versions, st.integers(1, 4))
def test_a_step_is_allowed_exactly_if_nothing_would_be_too_old_for_the_next(
    running: list[int], waiting: list[int], bound: int
) -> None:
    version = 20
    allowed = HoldRule(bound, 9).may_step(Accounts(version=version, running=running, waiting=waiting))
    assert allowed == all(version + 1 - oldest <= bound for oldest in running + waiting)


@settings(max_examples=40, deadline=None)
@given(versions, st.data())
def test_the_order_of_groups_says_nothing(running: list[int], data: st.DataObject) -> None:
    rule = HoldRule(2, 9, reserve=0, drains=True)
    one = Accounts(version=20, running=running)
    other = Accounts(version=20, running=data.draw(st.permutations(running)))
    assert (rule.may_step(one), rule.num_to_admit(one)) == (rule.may_step(other), rule.num_to_admit(other))


@pytest.mark.parametrize(("oldest", "kept"), [(5, True), (4, True), (3, False)])
def test_discarding_looks_when_it_reads(oldest: int, kept: bool) -> None:
    rule = DiscardRule(max_staleness=2, max_waiting=3)
    assert rule.keeps(Accounts(version=6), oldest) is kept
    assert rule.may_step(Accounts(version=6, running=(0,)))
    assert rule.num_to_admit(Accounts(version=6, waiting=(6, 6))) == 1


def test_admission_counts_what_was_ever_started() -> None:
    rule = AdmissionRule(max_staleness=1, groups_per_step=4, max_waiting=100)
    assert rule.num_to_admit(Accounts(version=0, num_admitted=0)) == 8
    assert rule.num_to_admit(Accounts(version=2, num_admitted=16)) == 0
    assert rule.keeps(Accounts(version=9), 0)
    assert HoldRule(1, 9).keeps(Accounts(version=9), 9)
