"""The simulated comparison as a user meets it: JSON of the verb, targets, and what each rule is known for."""

from __future__ import annotations

import json

import pytest

from flightschool.bench import StalenessBench, bench_staleness
from flightschool.cli import main


@pytest.fixture(scope="module")
def measured() -> StalenessBench:
    return bench_staleness(quick=True)


def test_ours_keeps_its_targets_and_the_others_their_faults(measured: StalenessBench) -> None:
    assert measured.met
    assert all(target.met for target in measured.targets)
    assert measured.ours.max_staleness_excess == 0
    assert measured.discard.max_staleness_excess == 0
    assert measured.discard.length_bias > 0.2
    assert measured.discard.waste > 0.3
    assert measured.admission.max_staleness_excess > 0
    assert measured.admission.expired_token_share > 0.02


def test_a_figure_is_the_worst_of_its_rows(measured: StalenessBench) -> None:
    rows = [row for row in measured.rows if row.rule == "ours"]
    assert {(row.max_staleness, row.law) for row in rows} == {
        (bound, law) for bound in (1, 2, 4) for law in ("lognormal", "heavy", "bimodal")
    }
    assert measured.ours.batch_inflation == max(row.measured.batch_inflation for row in rows)
    assert measured.ours.throughput_share_of_best == min(row.throughput_share_of_best for row in rows)
    assert max(row.throughput_share_of_best for row in measured.rows) == 1.0


def test_draining_makes_steps_smaller(measured: StalenessBench) -> None:
    assert measured.ours_draining.max_staleness_excess == 0
    assert measured.ours_draining.waste == pytest.approx(0.0, abs=1e-9)


def test_the_verb_prints_the_four_objects(capsys: pytest.CaptureFixture[str], measured: StalenessBench) -> None:
    assert main(["bench", "staleness", "--quick", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    asked = {
        *("throughput", "throughput_share_of_best", "length_bias", "waste", "expired_token_share"),
        *("max_staleness_excess", "batch_inflation", "inflation_over_bound"),
    }
    for name in ("discard", "admission", "ours", "ours_draining"):
        assert asked <= set(said[name])
    assert said["met"] is True
    assert said["ours"]["batch_inflation"] == measured.ours.batch_inflation  # the seed decides everything
    assert len(said["rows"]) == 4 * 9
