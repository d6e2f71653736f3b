from __future__ import annotations

import heapq
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flightschool.records import EpisodeGroup
from flightschool.training.queue import SampleQueue
from flightschool.training.settings import TrainingSettings

MakeGroup = Callable[..., EpisodeGroup]
MakeSpans = Callable[..., object]


def queue(**fields: object) -> SampleQueue:
    base = {"groups_per_step": 2, "max_inflight_groups": 3, "num_steps": 1000}
    return SampleQueue(TrainingSettings.model_validate(base | fields), version=0)


def group(make_group: MakeGroup, make_spans: MakeSpans, version: int) -> EpisodeGroup:
    return make_group([1.0, 0.0], [make_spans(version=version)] * 2, admitted_step=version)


def test_a_step_is_held_while_an_old_group_runs(make_group: MakeGroup, make_spans: MakeSpans) -> None:
    accounts = queue(max_staleness=1)
    accounts.admit(0, 0)
    accounts.stepped(1)  # allowed at 0: the running group will be of age 1 at most
    accounts.num_gradient = 5
    assert accounts.is_held()
    assert not accounts.step_due()
    accounts.offer(0, group(make_group, make_spans, 0))
    assert not accounts.step_due()  # it waits: it must be in this step
    assert accounts.take() is not None
    assert accounts.step_due()


def test_a_step_is_held_for_attempts_whose_group_has_no_room_yet(make_group: MakeGroup, make_spans: MakeSpans) -> None:
    """After a crash the groups that wait may take all places: those half made are as old, and must not grow older."""
    accounts = queue(max_staleness=1, max_inflight_groups=2)
    accounts.stepped(4)
    accounts.expect(7, 3)
    for ordinal in (5, 6):
        accounts.offer(ordinal, group(make_group, make_spans, 4))
    assert accounts.num_to_admit() == 0
    assert accounts.take() is not None
    assert accounts.take() is not None
    accounts.num_gradient = 2
    assert not accounts.step_due()
    assert accounts.num_to_admit() == 2  # it takes a place only once it runs
    accounts.admit(7, 3)
    assert accounts.num_to_admit() == 1
    assert not accounts.step_due()
    accounts.offer(7, group(make_group, make_spans, 3))
    assert accounts.take() is not None
    assert accounts.step_due()


def test_the_oldest_group_is_consumed_first(make_group: MakeGroup, make_spans: MakeSpans) -> None:
    accounts = queue(max_staleness=2)
    for ordinal, version in ((3, 1), (1, 1), (2, 0)):
        accounts.offer(ordinal, group(make_group, make_spans, version))
    taken = [accounts.take() for _ in range(3)]
    assert [item.ordinal for item in taken if item] == [2, 1, 3]


def test_admission_is_bounded(make_group: MakeGroup, make_spans: MakeSpans) -> None:
    accounts = queue(max_staleness=1)
    assert accounts.num_to_admit() == 3
    for ordinal in range(3):
        accounts.admit(ordinal, 0)
    assert accounts.num_to_admit() == 0
    for ordinal in range(2):
        accounts.offer(ordinal, group(make_group, make_spans, 0))
    assert accounts.num_to_admit() == 0  # one runs, and two wait for the trainer already
    accounts.take()
    assert accounts.num_to_admit() == 1


def test_a_synchronous_round_is_admitted_and_consumed_as_a_whole(make_group: MakeGroup, make_spans: MakeSpans) -> None:
    accounts = queue(mode="sync")
    assert accounts.num_to_admit() == 2
    accounts.admit(0, 0)
    accounts.admit(1, 0)
    accounts.offer(1, group(make_group, make_spans, 0))
    assert accounts.take() is None
    accounts.offer(0, group(make_group, make_spans, 0))
    first = accounts.take()
    assert first is not None
    assert first.ordinal == 0
    accounts.num_gradient += 1
    accounts.take()
    accounts.num_flat += 1
    assert not accounts.step_due()
    assert accounts.num_to_admit() == 1  # one group carried no gradient


def test_flat_groups_may_fill_a_step_but_not_make_one() -> None:
    accounts = queue(count_zero_advantage=True)
    accounts.num_flat = 5
    assert not accounts.step_due()
    accounts.num_gradient = 1
    assert accounts.step_due()


def test_the_last_step_waits_for_all_that_was_admitted(make_group: MakeGroup, make_spans: MakeSpans) -> None:
    accounts = queue(num_steps=2)
    assert accounts.num_to_admit() == 3
    for ordinal in range(3):
        accounts.admit(ordinal, 0)
    for ordinal in range(2):
        accounts.offer(ordinal, group(make_group, make_spans, 0))
        accounts.take()
        accounts.num_gradient += 1
    assert accounts.num_to_admit() == 1  # two steps of two have room for four
    assert accounts.step_due()
    accounts.stepped(1)
    assert accounts.num_to_admit() == 1  # one runs, and the last step takes two
    accounts.admit(3, 1)
    accounts.admit(4, 1)
    for ordinal in (3, 4):
        accounts.offer(ordinal, group(make_group, make_spans, 1))
        accounts.take()
        accounts.num_gradient += 1
    assert not accounts.step_due()  # the slowest still runs
    assert accounts.num_to_admit() == 0
    accounts.offer(2, group(make_group, make_spans, 0))
    assert not accounts.step_due()
    accounts.take()
    accounts.num_gradient += 1
    assert accounts.step_due()


@pytest.mark.parametrize("mode", ["async", "sync"])
def test_the_last_step_waits_for_what_an_earlier_start_admitted(
    make_group: MakeGroup, make_spans: MakeSpans, mode: str
) -> None:
    accounts = queue(num_steps=1, mode=mode)
    accounts.num_gradient, accounts.num_owed = 2, 1
    assert not accounts.step_due()
    assert accounts.num_to_admit() == 1
    accounts.admit(0, 0)
    accounts.num_owed = 0
    assert not accounts.step_due()
    accounts.offer(0, group(make_group, make_spans, 0))
    accounts.take()
    assert accounts.step_due()


@pytest.mark.parametrize("bound", [1, 2, 4])
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(num_steps=st.sampled_from([3, 8, 1000]), durations=st.lists(st.floats(0.1, 30.0), min_size=30, max_size=60))
def test_no_schedule_trains_anything_too_old_and_none_gets_stuck(
    make_group: MakeGroup, make_spans: MakeSpans, bound: int, num_steps: int, durations: list[float]
) -> None:
    """Groups of any durations end in simulated time; the trainer consumes and steps whenever it may."""
    accounts = queue(max_staleness=bound, num_steps=num_steps)
    pending: list[tuple[float, int, int]] = []
    admitted = consumed = steps = 0
    ages: list[int] = []
    in_step: list[int] = []
    now = 0.0
    while consumed < len(durations) and accounts.version < num_steps:
        for _ in range(accounts.num_to_admit()):
            if admitted < len(durations):
                accounts.admit(admitted, accounts.version)
                heapq.heappush(pending, (now + durations[admitted], admitted, accounts.version))
                admitted += 1
        if accounts.step_due():
            ages += [accounts.version - oldest for oldest in in_step]
            in_step = []
            steps += 1
            accounts.stepped(accounts.version + 1)
        elif (item := accounts.take()) is not None:
            in_step.append(item.oldest)
            accounts.num_gradient += 1
            consumed += 1
        else:
            now, ordinal, version = heapq.heappop(pending)
            accounts.offer(ordinal, group(make_group, make_spans, version))
    assert max(ages, default=0) <= bound
    assert len(accounts.waiting) + len(accounts.running) <= 3
    if accounts.version == num_steps:
        assert consumed == admitted  # nothing is cancelled
