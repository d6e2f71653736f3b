"""Looking early: what is said of the whole suite holds, and nothing is decided by looking often."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from flightschool.digest import derive_random
from flightschool.errors import InputError
from flightschool.evaluation import EvaluationRun, Exposure, compare_early, exposure
from flightschool.records import StratumShare, Suite

FAMILIES = 12


def suite_of(size: int, weights: dict[str, float]) -> Suite:
    strata = list(weights)
    names = [f"t{n}" for n in range(size)]
    home = {name: strata[n % FAMILIES % len(strata)] for n, name in enumerate(names)}
    shares = tuple(
        StratumShare(
            name=stratum,
            weight=weights[stratum],
            num_tasks=sum(home[name] == stratum for name in names),
            families=tuple(f"f{n}" for n in range(FAMILIES) if strata[n % len(strata)] == stratum),
            trained=False,
        )
        for stratum in strata
    )
    return Suite(
        name="s", environment="e", environment_digest="ed", task_digests=dict.fromkeys(names, "d"), strata=shares
    )


class Both:
    """Two policies whose outcomes are known beforehand."""

    def __init__(self, run_of: Any, before: Sequence[bool | None], after: Sequence[bool | None], **more: Any) -> None:
        kept = {"families": FAMILIES, **more}
        self.before = run_of(before, policy="before", **kept)
        self.after = run_of(after, policy="after", **kept)
        self.asked: list[str] = []

    def __call__(self, tasks: Sequence[str]) -> tuple[EvaluationRun, EvaluationRun]:
        self.asked += tasks
        return self._part(self.before, tasks), self._part(self.after, tasks)

    def _part(self, run: EvaluationRun, tasks: Sequence[str]) -> EvaluationRun:
        return msgspec.structs.replace(run, items=tuple(item for item in run.items if item.task in tasks))


def test_it_ends_when_it_is_decided_and_names_what_a_full_run_would(run_of: Any) -> None:
    random = derive_random("early-clear")
    before = [random.random() < 0.2 for _ in range(96)]
    after = [b or random.random() < 0.8 for b in before]
    both = Both(run_of, before, after)
    found = compare_early(suite_of(96, {"a": 1.0}), both, comparison_id="early-0001")
    assert found.ended_early
    assert found.comparison.winner == "candidate"
    last = found.looks[-1]
    assert last.num_tasks == len(both.asked) == len(set(both.asked)) < 96
    assert last.e_value >= 40
    whole = (sum(after) - sum(before)) / 96
    for look in found.looks:
        assert look.low - 1e-9 <= whole <= look.high + 1e-9
    assert last.low > 0
    assert [item.task for item in found.before.items] == sorted(both.asked, key=lambda t: int(t[1:]))
    again = compare_early(suite_of(96, {"a": 1.0}), Both(run_of, before, after), comparison_id="other")
    assert again.digest == found.digest  # the order is made of suite and seed


def test_the_headline_is_weighted_by_traffic(run_of: Any) -> None:
    weights = {"a": 0.9, "b": 0.1}
    before = [False] * 48
    after = [n % FAMILIES % 2 == 0 for n in range(48)]  # all of "a", nothing of "b"
    both = Both(run_of, before, after, strata=("a", "b"), weights=weights)
    found = compare_early(suite_of(48, weights), both, comparison_id="e", batch=48)
    assert not found.ended_early  # one look, at the end
    (look,) = found.looks
    assert [look.low, look.high] == pytest.approx([0.9, 0.9])
    assert found.comparison.diff == pytest.approx(0.9)


def test_a_missing_grade_is_taken_as_the_worst_for_each_bound(run_of: Any) -> None:
    before: list[bool | None] = [False] * 60
    after: list[bool | None] = [True] * 59 + [None]
    found = compare_early(suite_of(60, {"a": 1.0}), Both(run_of, before, after), comparison_id="e", batch=60)
    (look,) = found.looks
    assert [look.low, look.high] == pytest.approx([58 / 60, 1.0])


@pytest.mark.long
def test_nothing_is_decided_by_looking_often(run_of: Any) -> None:
    """Two equal policies, a look after every fourth task: the share that names a winner early stays below alpha."""
    named = 0
    for trial in range(25):
        random = derive_random("early-null", trial)
        before = [random.random() < 0.5 for _ in range(48)]
        after = [random.random() < 0.5 for _ in range(48)]
        found = compare_early(
            suite_of(48, {"a": 1.0}), Both(run_of, before, after), comparison_id="e", seed=trial, batch=12
        )
        named += found.ended_early
    assert named == 0


def test_too_little_to_look_at(run_of: Any) -> None:
    both = Both(run_of, [True], [True])
    with pytest.raises(InputError):
        compare_early(suite_of(1, {"a": 1.0}), both, comparison_id="e")
    with pytest.raises(InputError):
        compare_early(suite_of(24, {"a": 1.0}), both, comparison_id="e", batch=0)


def test_exposure_by_hand(run_of: Any) -> None:
    suite = msgspec.structs.replace(suite_of(3, {"a": 1.0}))
    one = run_of([True, True, False], policy="p", suite_digest=suite.digest)
    twice = run_of([True, True], policy="q", repeats=2, suite_digest=suite.digest)
    retried = msgspec.structs.replace(one.items[0], num_retries=2)
    one = msgspec.structs.replace(one, items=(retried, *one.items[1:]))
    judged = msgspec.structs.replace(one, id="again", regraded="p")
    elsewhere = run_of([True] * 3, policy="r", suite_digest="other")
    found = exposure(suite, [one, twice, judged, elsewhere])
    assert found == (
        Exposure(task="t0", family="f0", shown=5, candidates={"p": 3, "q": 2}),
        Exposure(task="t1", family="f1", shown=1, candidates={"p": 1}),
        Exposure(task="t2", family="f2", shown=1, candidates={"p": 1}),
    )
