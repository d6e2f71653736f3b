"""Reliability before validity: the gate on decisions, diagnostics, and predictive validity."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from flightschool.digest import derive_random
from flightschool.errors import GateError, InputError
from flightschool.evaluation import (
    DeploymentOutcome,
    EvaluationRun,
    compare,
    read_deployment,
    reliability,
    validity,
)
from flightschool.statistics import icc_oneway


def alternating(rate: float, seed: str, num: int, repeats: int) -> list[bool]:
    random = derive_random("runs", seed)
    return [random.random() < rate for _ in range(num * repeats)]


# ------------------------------------------------------------------------------------------------ the gate


def test_a_difference_that_is_mostly_luck_names_no_winner(run_of: Any) -> None:
    # 20 families of one task: 9 gained, 2 lost. The interval leaves out 0; one run more may well say otherwise.
    before = [False] * 9 + [True] * 2 + [True] * 4 + [False] * 5
    after = [True] * 9 + [False] * 2 + [True] * 4 + [False] * 5
    result = compare(run_of(before, families=20), run_of(after, families=20))
    assert result.low > 0
    assert result.sign_agreement < 0.95
    assert (result.reliable, result.winner) == (False, None)
    assert any("same sign" in doubt for doubt in result.doubts)


def test_repeats_show_that_the_difference_is_none_of_luck(run_of: Any) -> None:
    # The same twenty tasks, four repeats each that agree: a re-run of these tasks would say the same.
    before = [x for x in [False] * 9 + [True] * 2 + [True] * 4 + [False] * 5 for _ in range(4)]
    after = [x for x in [True] * 9 + [False] * 2 + [True] * 4 + [False] * 5 for _ in range(4)]
    result = compare(run_of(before, families=20, repeats=4), run_of(after, families=20, repeats=4))
    assert result.sign_agreement == 1.0
    assert (result.reliable, result.winner, result.doubts) == (True, "candidate", ())


def test_doubts_name_families_and_missed_differences(run_of: Any) -> None:
    few = compare(run_of([False] * 40, families=2), run_of([True] * 40, families=2))
    assert few.winner is None
    assert few.doubts[0] == "2 families, fewer than 5"
    small = compare(run_of([True, False] * 8), run_of([True, False] * 8))
    assert any("would be missed" in doubt for doubt in small.doubts)


@pytest.mark.parametrize(("alpha", "reliable"), [(0.9, True), (0.667, True), (0.5, False), (float("nan"), False)])
def test_a_judge_that_disagrees_with_people_decides_nothing(run_of: Any, alpha: float, reliable: bool) -> None:
    result = compare(run_of([False] * 40), run_of([True] * 40), judge_alpha=alpha)
    assert (result.reliable, result.winner) == (reliable, "candidate" if reliable else None)


def test_the_e_value_counts_discordant_pairs(run_of: Any) -> None:
    result = compare(run_of([False] * 40), run_of([True] * 8 + [False] * 32))
    assert result.e_value == pytest.approx(2**8 / 9)
    assert compare(run_of([True] * 8), run_of([True] * 8)).e_value == 1.0


# ------------------------------------------------------------------------------------------------ diagnostics


def test_one_system_over_repeats(run_of: Any) -> None:
    found = reliability([run_of([True, True, False, False, True, False] * 4, repeats=2)])
    (system,) = found.systems
    rows = [[1.0, 1.0], [0.0, 0.0], [1.0, 0.0]] * 4
    assert system.icc == icc_oneway(rows)
    assert system.pass_at == {"1": 0.5, "2": pytest.approx(2 / 3)}
    assert system.pass_hat == {"1": 0.5, "2": pytest.approx(1 / 3)}
    assert found.components is None
    assert any("one system" in note for note in found.notes)


def test_all_equal_items_are_handled(run_of: Any) -> None:
    found = reliability([run_of([True] * 24, repeats=2)])
    (system,) = found.systems
    assert system.icc is not None
    assert system.icc.degenerate
    assert (system.repeats_wanted, system.success) == (None, 1.0)


def test_several_systems_give_a_study_an_order_and_a_plan(run_of: Any) -> None:
    runs = [
        run_of(alternating(rate, str(rate), 60, 4), repeats=4, policy=f"p{rate}", families=20)
        for rate in (0.2, 0.5, 0.8, 0.9)
    ]
    found = reliability(runs, cost_of_a_task=2.0)
    assert found.components is not None
    assert found.coefficient is not None
    assert 0.8 < found.coefficient <= 1
    assert found.ranking is not None
    assert found.ranking.order[-1] == "p0.2"
    assert found.plan is not None
    assert found.plan.num_tasks < 60  # this suite is larger than it need be to tell these apart
    assert found.least_agreement is not None
    assert found.least_agreement < 1


def test_the_first_of_several_is_named_only_where_the_order_would_hold(run_of: Any) -> None:
    def among(*rates: float) -> str | None:
        runs = [
            run_of(alternating(rate, str(n), 60, 4), repeats=4, policy=f"p{rate}", families=20)
            for n, rate in enumerate(rates)
        ]
        return reliability(runs).winner

    assert among(0.1, 0.5, 0.9) == "p0.9"
    assert among(0.1, 0.69, 0.7) is None
    assert reliability([run_of([True, False] * 10, repeats=2)]).winner is None


def test_what_was_not_graded_everywhere_is_left_out_and_counted(run_of: Any) -> None:
    before = run_of([True, False] * 10, repeats=2)
    after = run_of([None, False] + [True, False] * 9, repeats=2, policy="q")
    found = reliability([before, after])
    assert (found.num_tasks, found.num_left_out) == (9, 1)
    assert any("1 tasks were not graded" in note for note in found.notes)


def test_other_suites_seeds_and_doubles_are_refused(run_of: Any) -> None:
    run = run_of([True] * 8)
    with pytest.raises(InputError, match="named twice"):
        reliability([run, run])
    with pytest.raises(GateError, match="seed"):
        reliability([run, run_of([True] * 8, policy="q", seed=3)])
    with pytest.raises(InputError, match="no runs"):
        reliability([])


# ------------------------------------------------------------------------------------------------ validity

STRATA = ("a", "b", "c", "d")


def measured(run_of: Any, rates: dict[str, float], policy: str) -> EvaluationRun:
    """200 tasks a stratum; exactly the given share succeeds."""
    order = [s for _ in range(200) for s in STRATA]
    seen = dict.fromkeys(STRATA, 0)
    successes = []
    for stratum in order:
        seen[stratum] += 1
        successes.append(seen[stratum] <= 200 * rates[stratum])
    run: EvaluationRun = run_of(successes, families=len(STRATA) * 10, strata=STRATA, policy=policy)
    return run


def test_a_suite_that_predicts(run_of: Any) -> None:
    first, second = {"a": 0.9, "b": 0.7, "c": 0.4, "d": 0.2}, {"a": 0.95, "b": 0.8, "c": 0.6, "d": 0.3}
    runs = [measured(run_of, first, "v1"), measured(run_of, second, "v2")]
    outcomes = [
        DeploymentOutcome(version=version, stratum=s, successes=round(1000 * rates[s]), total=1000)
        for version, rates in (("v1", first), ("v2", second))
        for s in STRATA
    ]
    found = validity(runs, outcomes)
    assert found.claimed
    assert found.pearson.value == pytest.approx(1.0, abs=1e-6)
    assert found.corrected == pytest.approx(1.0, abs=0.02)
    assert found.calibration.slope == pytest.approx(1.0, abs=1e-3)
    assert [round(t.residual, 6) for t in found.transported] == [0.0, 0.0]
    assert (found.num_cells, found.num_versions) == (8, 2)


def test_a_suite_that_flatters_shows_it_in_calibration_and_residuals(run_of: Any) -> None:
    rates = {"a": 0.9, "b": 0.8, "c": 0.7, "d": 0.4}
    outcomes = [
        DeploymentOutcome(version="v1", stratum=s, successes=round(1000 * (rates[s] - 0.3)), total=1000) for s in STRATA
    ]
    found = validity([measured(run_of, rates, "v1")], outcomes)
    assert found.transported[0].residual == pytest.approx(-0.3)
    assert found.calibration.ece == pytest.approx(0.3)
    assert any("fewer than three versions" in note for note in found.notes)


def test_no_validity_without_reliability(run_of: Any) -> None:
    run = run_of([True, False] * 8, strata=STRATA, families=8, policy="v1")
    outcomes = [
        DeploymentOutcome(version="v1", stratum=s, successes=n, total=2)
        for n, s in zip((1, 2, 1, 0), STRATA, strict=True)
    ]
    found = validity([run], outcomes)
    assert not found.claimed
    assert found.corrected is None
    assert any("not reliable" in note for note in found.notes)


def test_too_few_cells_and_several_suites(run_of: Any) -> None:
    run = run_of([True] * 8, policy="v1")
    outcome = DeploymentOutcome(version="v2", stratum="a", successes=1, total=2)
    with pytest.raises(InputError, match="evaluated versions: v1"):
        validity([run], [outcome])
    with pytest.raises(GateError, match="differ in suite"):
        validity([run, run_of([True] * 8, suite_digest="other")], [outcome])
    with pytest.raises(GateError, match="no evaluations"):
        validity([], [outcome])


ROWS = [
    {"version": "v1", "stratum": "a", "successes": 3, "total": 4},
    {"version": "v1", "stratum": "b", "successes": 0, "total": 9},
]


@pytest.mark.parametrize("suffix", [".json", ".jsonl", ".csv"])
def test_outcomes_are_read_from_three_formats(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"outcomes{suffix}"
    if suffix == ".csv":
        lines = ["version,stratum,successes,total", *(",".join(map(str, row.values())) for row in ROWS)]
        path.write_text("\ufeff" + "\n".join(lines))
    else:
        path.write_text(json.dumps(ROWS) if suffix == ".json" else "\n".join(map(json.dumps, ROWS)))
    assert [msgspec.to_builtins(one) for one in read_deployment(path)] == ROWS


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{}",
        "not json",
        "[" * 100_000,
        json.dumps([{**ROWS[0], "successes": 9}]),
        json.dumps([ROWS[0], ROWS[0]]),
        json.dumps([{"version": "v1"}]),
    ],
)
def test_outcomes_that_are_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "outcomes.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"outcomes\.json"):
        read_deployment(path)
