"""The instrument's bench: the parts that measure are themselves held to what is known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flightschool.bench import EvaluationBench, Target
from flightschool.bench.coverage import clustered_coverage, exact_coverage, sequential_errors, weighted_coverage
from flightschool.bench.evaluation_load import main as load
from flightschool.bench.evaluation_load import make_summary
from flightschool.cli import main
from flightschool.digest import derive_random
from flightschool.errors import InputError
from flightschool.statistics import SequentialPlan, plan_sequential


@pytest.mark.long
def test_exact_coverage_meets_its_targets() -> None:
    found = exact_coverage()
    assert len(found) == 9
    assert min(found) >= 0.95
    assert max(found) <= 0.985


def test_sequential_errors_by_hand() -> None:
    # Four pairs, all discordant, no effect: leaving (-2, 2) within two steps 1/2, within four 3/4.
    plan = SequentialPlan(num_pairs=4, most_discordant=4, boundary=2, alpha=0.8)
    probability, mean = sequential_errors(plan, 0.0, 1.0)
    assert probability == pytest.approx(0.75)
    assert mean == pytest.approx(2 + 2 * 0.5)
    # All wins: decided after two.
    assert sequential_errors(plan, 1.0, 1.0) == pytest.approx((1.0, 2.0))


def test_the_planned_comparison_keeps_its_word_exactly() -> None:
    plan = plan_sequential(0.1, 0.3)
    type1, _ = sequential_errors(plan, 0.0, 0.3)
    power, mean = sequential_errors(plan, 0.1, 0.3)
    assert 0.03 < type1 <= 0.05
    assert power >= 0.8
    assert mean < plan.num_pairs


def test_exact_errors_agree_with_simulation() -> None:
    plan = plan_sequential(0.2, 0.4)
    expected, _ = sequential_errors(plan, 0.2, 0.4)
    found, trials = 0, 1500
    for trial in range(trials):
        random, wins, losses, pairs = derive_random("bench", trial), 0, 0, 0
        while not plan.is_over(pairs, wins, losses):
            pairs += 1
            draw = random.random()
            wins, losses = wins + (draw < 0.3), losses + (0.3 <= draw < 0.4)
        found += plan.decide(wins, losses) == "candidate"
    assert found / trials == pytest.approx(expected, abs=0.035)


def test_the_headline_of_small_strata_covers() -> None:
    assert 0.88 <= weighted_coverage((0.7, 0.7, 0.7, 0.7, 0.7), 60) <= 1.0


def test_clustered_coverage_and_the_warning_where_few_families_fail() -> None:
    assert 0.9 <= clustered_coverage(0.1, 0.9, 60).coverage <= 1.0
    rare = clustered_coverage(0.3, 0.97, 60)
    assert rare.coverage >= 0.9
    assert rare.warned == 1.0


def test_our_load_is_kept_and_read_back(tmp_path: Path) -> None:
    ran = load("run", 60, str(tmp_path))
    assert ran["success"] == 1.0
    assert ran["cpu_ms"] > 0
    read = load("read", 0, str(tmp_path))
    assert read["attempts"] == read["samples"] == ran["samples"]
    make_summary(tmp_path, 4000)
    assert load("summary", 0, str(tmp_path))["items"] == 4000
    with pytest.raises(InputError):
        load("dance", 0, str(tmp_path))


@pytest.mark.parametrize(("ratio", "met", "code"), [(9.0, True, 0), (9.0, False, 1), (None, True, 1)])
def test_the_verb_prints_all_figures_and_ends_with_1_when_one_is_missed(
    ratio: float | None,
    met: bool,
    code: int,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    measured = EvaluationBench(
        coverage_min=0.95,
        coverage_max=0.98,
        clustered_coverage_min=0.94,
        num_simulations=10,
        weighted_coverage_min=0.94,
        rare_coverage_min=0.95,
        rare_warned=1.0,
        type1_sequential=0.04,
        power_sequential=0.85,
        sample_ratio_sequential=1.3,
        mean_sample_ratio=0.8,
        cpu_ms_per_sample=1.0,
        bytes_per_sample=900.0,
        rss_mb=100.0,
        num_samples=10,
        summary_s_200k=0.1,
        inspect_cpu_ms_per_sample=ratio,
        inspect_bytes_per_sample=ratio,
        inspect_version="0.0",
        ratio=ratio,
        read_ratio=ratio,
        targets=(Target(name="rss_mb", value=100.0, relation="<=", limit=200.0, met=met),),
    )
    asked: dict[str, Any] = {}

    def bench(**options: Any) -> EvaluationBench:
        asked.update(options)
        return measured

    monkeypatch.setattr("flightschool.bench.bench_evaluation", bench)
    capsys.readouterr()
    assert main(["bench", "evaluation", "--quick", "--json"]) == code
    said = json.loads(capsys.readouterr().out)
    assert (asked["quick"], asked["peer"]) == (True, True)
    keys = "cpu_ms_per_sample inspect_cpu_ms_per_sample ratio bytes_per_sample summary_s_200k read_ratio coverage_min"
    keys += " coverage_max clustered_coverage_min type1_sequential power_sequential rss_mb"
    assert set(keys.split()) <= set(said)
    assert said["met"] is (code == 0)
