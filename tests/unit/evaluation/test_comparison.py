from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flightschool.errors import GateError, NotFoundError
from flightschool.evaluation import METRICS, EvaluationRun, compare, summarise
from flightschool.records import Measurement, Reward
from flightschool.statistics import Interval


def test_summary_weighs_strata_by_traffic(run_of: Any) -> None:
    run = run_of([True, False] * 8, strata=("a", "b"), weights={"a": 0.9, "b": 0.1})
    summary = summarise(run)
    assert summary.measurement("success/weighted").value == pytest.approx(0.9)
    assert summary.measurement("success/all").value == pytest.approx(0.5)
    assert summary.measurement("success/stratum:b").value == 0.0
    assert summary.measurement("success/trained").value == 1.0
    assert summary.measurement("violations/weighted").value == pytest.approx(0.1)
    assert summary.measurement("virtual_ms/all").value == 100.0
    names = {m.name.split("/")[0] for m in summary.measurements}
    assert names == {metric.name for metric in METRICS} - {"cost_usd"}  # no prices were stated
    with pytest.raises(NotFoundError, match="success/weighted"):
        summary.measurement("succes")


def test_a_stratum_of_one_task_has_a_note_and_no_interval(run_of: Any) -> None:
    run = run_of([True] * 9, families=9, strata=("a",) * 8 + ("b",), weights={"a": 0.9, "b": 0.1})
    summary = summarise(run)
    assert not [m for m in summary.measurements if m.name == "success/stratum:b"]
    assert "a single task each, which no interval can be given for: untrained, b" in summary.notes
    assert summary.measurement("success/weighted").value == 1.0
    assert summary.measurement("success/weighted").low < 1.0


def test_intervals_hold_the_value_and_rest_on_tasks_not_on_repeats(run_of: Any) -> None:
    run = run_of([True, True, False, False] * 10, repeats=2)
    measured = summarise(run).measurement("success/all")
    assert measured.num_items == 20
    assert measured.low <= measured.value <= measured.high
    assert measured.value == 0.5


def test_difference_is_candidate_minus_baseline(run_of: Any) -> None:
    before, after = run_of([False] * 40, policy="base"), run_of([True] * 30 + [False] * 10, policy="tuned")
    result = compare(before, after)
    assert (result.baseline, result.candidate) == ("base", "tuned")
    assert result.diff == pytest.approx(0.75)
    assert result.low > 0
    assert result.reliable
    assert result.winner == "candidate"
    assert (result.mcnemar.gained, result.mcnemar.lost) == (30, 0)
    worse = compare(after, before)
    assert worse.diff == pytest.approx(-0.75)
    assert worse.winner == "baseline"


def test_fewer_violations_and_less_time_win(run_of: Any) -> None:
    before = run_of([False] * 40, virtual_ms=200.0)
    result = compare(before, run_of([True] * 40, virtual_ms=150.0))
    violations, latency = result.difference("violations/all"), result.difference("virtual_ms/all")
    assert (violations.diff, violations.winner) == (-1.0, "candidate")
    assert (latency.before, latency.after, latency.diff, latency.winner) == (200.0, 150.0, -50.0, "candidate")
    assert result.difference("tokens/all").winner is None


@settings(max_examples=15, deadline=None)
@given(pairs=st.lists(st.tuples(st.booleans(), st.booleans()), min_size=16, max_size=40))
def test_swapping_the_runs_turns_the_sign(run_of: Any, pairs: list[tuple[bool, bool]]) -> None:
    before, after = run_of([a for a, _ in pairs]), run_of([b for _, b in pairs])
    there, back = compare(before, after), compare(after, before)
    assert there.diff == pytest.approx(-back.diff)
    assert there.mde >= 0
    assert there.low <= there.diff <= there.high


def test_no_difference_is_a_finding_only_when_one_would_have_been_seen(run_of: Any) -> None:
    few = run_of([True, False] * 8)
    many = run_of([True, False] * 200, families=100)
    assert (compare(few, few).winner, compare(few, few).reliable) == (None, False)
    assert (compare(many, many).winner, compare(many, many).reliable) == (None, True)


def test_a_gain_in_two_families_is_not_reliable(run_of: Any) -> None:
    result = compare(run_of([False] * 40, families=2), run_of([True] * 40, families=2))
    assert not result.reliable


def test_a_gain_confined_to_one_family_does_not_win(run_of: Any) -> None:
    gained = [index % 8 == 0 for index in range(80)]
    result = compare(run_of([False] * 80), run_of(gained))
    assert result.diff == pytest.approx(0.125)
    assert result.winner is None  # ten tasks gained, but all of them are one family's


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("suite_digest", "x"),
        ("environment_digest", "x"),
        ("composition_digest", "x"),
        ("noise_digest", "x"),
        ("seed", 1),
    ],
)
def test_unlike_runs_are_not_compared(run_of: Any, field: str, value: Any) -> None:
    with pytest.raises(GateError, match=field):
        compare(run_of([True] * 8), run_of([True] * 8, **{field: value}))


def test_a_few_missing_items_leave_the_pair_and_are_shown_many_are_refused(run_of: Any) -> None:
    before = run_of([True] * 100)
    result = compare(before, run_of([None] + [True] * 99))
    assert (result.num_missing_before, result.num_missing_after) == (0, 1)
    assert result.difference("success/all").num_pairs == 99
    with pytest.raises(GateError, match="3 of 100 items have no grade"):
        compare(before, run_of([None] * 3 + [True] * 97))


def test_a_run_without_a_grade_says_nothing(run_of: Any) -> None:
    with pytest.raises(GateError, match="no item of the run was graded"):
        summarise(run_of([None] * 4))


def test_runs_have_digests_that_ids_do_not_change(run_of: Any) -> None:
    run: EvaluationRun = run_of([True, False])
    assert run.digest == run_of([True, False], id="another").digest
    assert run.digest != run_of([True, True]).digest


def test_a_measurement_is_no_reward_and_nothing_turns_one_into_the_other() -> None:
    reward_fields, measurement_fields = set(Reward.__struct_fields__), set(Measurement.__struct_fields__)
    assert not reward_fields & measurement_fields
    measured = Measurement(name="success/all", value=1.0, low=0.9, high=1.0, num_items=10)
    with pytest.raises(TypeError):
        float(measured)  # type: ignore[arg-type]
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(msgspec.to_builtins(measured), Reward)
    assert not {"reward", "total"} & set(EvaluationRun.__struct_fields__)


def rate(value: float) -> Interval:
    return Interval(value=value, low=max(0.0, value - 0.05), high=value + 0.05, num_items=60, method="reviews")


def test_success_is_corrected_beside_the_raw_figure(run_of: Any) -> None:
    run = run_of([True] * 20 + [False] * 20)
    summary = summarise(run, error=(rate(0.1), rate(0.2)))
    raw, right = summary.measurement("success/all"), summary.measurement("success_corrected/all")
    assert raw.value == 0.5
    assert right.value == pytest.approx((0.5 - 0.1) / 0.7)
    assert right.low < raw.low < right.value < right.high
    assert "ρ0 0.100" in right.method
    assert {m.name for m in summarise(run).measurements} == {
        m.name for m in summary.measurements if not m.name.startswith("success_corrected")
    }


def test_a_verifier_that_is_a_coin_corrects_nothing_and_it_is_said(run_of: Any) -> None:
    summary = summarise(run_of([True] * 20 + [False] * 20), error=(rate(0.6), rate(0.5)))
    assert not any(m.name.startswith("success_corrected") for m in summary.measurements)
    assert any("no more than a coin" in note for note in summary.notes)


def test_a_difference_is_freed_of_the_verifiers_errors_beside_the_raw_one(run_of: Any) -> None:
    """Seen 0.5 to 0.7; with ρ0 = .1 and ρ1 = .2 the work went from .571 to .857 right."""
    before, after = run_of([True] * 20 + [False] * 20), run_of([True] * 28 + [False] * 12)
    found = compare(before, after, error=(rate(0.1), rate(0.2)))
    raw, right = found.difference("success/all"), found.difference("success_corrected/all")
    assert [raw.diff, found.diff] == pytest.approx([0.2, 0.2]), "the headline is what was seen"
    assert right.diff == pytest.approx(0.2 / 0.7)
    assert [right.before, right.after] == pytest.approx([0.4 / 0.7, 0.6 / 0.7])
    assert raw.low < right.low < right.diff < right.high
    assert right.high - right.low > raw.high - raw.low
    assert (right.winner, right.sign_agreement) == (raw.winner, raw.sign_agreement)
    assert {one.name for one in compare(before, after).differences} == {
        one.name for one in found.differences if not one.name.startswith("success_corrected")
    }


def test_no_difference_is_corrected_by_a_coin(run_of: Any) -> None:
    found = compare(run_of([False] * 40), run_of([True] * 40), error=(rate(0.6), rate(0.5)))
    assert not any(one.name.startswith("success_corrected") for one in found.differences)


def test_few_pairs_that_differ_must_stand_in_the_exact_test(run_of: Any) -> None:
    """Five of forty tasks gained, each of its own family: the bootstrap excludes 0, the exact test does not."""
    before = run_of([False] * 40, families=40)
    after = run_of([True] * 5 + [False] * 35, families=40, policy="q")
    found = compare(before, after)
    assert found.mcnemar.p_value == pytest.approx(0.0625)
    assert found.low > 0
    assert (found.winner, found.reliable) == (None, False)
    assert any("the exact test calls that chance" in doubt for doubt in found.doubts)
    many = compare(before, run_of([True] * 12 + [False] * 28, families=40, policy="q"))
    assert many.winner == "candidate"


def test_what_never_varies_and_is_no_rate_has_no_made_up_width(run_of: Any) -> None:
    run = run_of([True, False] * 8, families=16)
    run = msgspec.structs.replace(run, items=tuple(msgspec.structs.replace(i, num_tokens=0) for i in run.items))
    tokens = summarise(run).measurement("tokens/weighted")
    assert (tokens.value, tokens.low, tokens.high) == (0.0, 0.0, 0.0)
    difference = compare(run, msgspec.structs.replace(run, id="q")).difference("tokens/weighted")
    assert (difference.low, difference.high) == (0.0, 0.0)
