"""The verbs of ``bench``: exit codes and what they print."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flightschool.bench import EpisodesBench, QuickstartBench, SeedFlight, Target, summarise_flights
from flightschool.cli import main


def spoken(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    capsys.readouterr()
    code = main([*words, "--json"])
    return code, json.loads(capsys.readouterr().out)


def drawn(success_after: float) -> QuickstartBench:
    flight = SeedFlight(
        seed=0,
        workspace="w",
        wall_s=100.0,
        peak_rss_mb=2_000.0,
        num_samples=9,
        report="w/report.html",
        success_before=0.0,
        success_after=success_after,
        gain_low=0.5,
        gain_high=0.9,
        perturbed_before=0.0,
        perturbed_after=0.5,
        figures={"run": "r"},
    )
    return summarise_flights([flight], least_seeds=1)


@pytest.mark.parametrize(("success_after", "exit_code"), [(0.95, 0), (0.85, 1)])
def test_quickstart_prints_all_figures_and_ends_with_1_when_a_target_is_missed(
    success_after: float, exit_code: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def bench(folder: Path, seeds: list[int], **options: Any) -> QuickstartBench:
        asked.append((folder, seeds, options["offline"], options["quick"]))
        return drawn(success_after)

    monkeypatch.setattr("flightschool.bench.bench_quickstart", bench)
    code, said = spoken(capsys, "bench", "quickstart", "--seeds", "4,5", "--quick", "--offline", "--out", "there")
    assert code == exit_code
    assert asked == [(Path("there"), [4], True, True)]
    promised = "wall_s peak_rss_mb success_before success_after gain_low gain_high perturbed_before perturbed_after"
    assert {*promised.split(), "report", "seeds", "targets", "met"} <= set(said)
    assert said["met"] is (exit_code == 0)
    assert said["seeds"][0]["figures"] == {"run": "r"}


def test_seeds_that_are_no_numbers_are_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    code, said = spoken(capsys, "bench", "quickstart", "--seeds", "0,x")
    assert code == 2
    assert said["error"]["where"] == "--seeds"


@pytest.mark.parametrize(("success", "met", "exit_code"), [(1.0, True, 0), (1.0, False, 1), (0.99, True, 1)])
def test_episodes_fall_short_on_time_or_on_success(
    success: float,
    met: bool,
    exit_code: int,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    measured = EpisodesBench(
        cpu_ms=1.0,
        cpu_ms_best=0.9,
        reference_ms=0.1,
        ratio=10.0,
        episodes_per_s=900.0,
        num_episodes=10,
        num_rounds=5,
        concurrency=256,
        checks_per_episode=4.0,
        success=success,
        targets=(Target(name="cpu_ms_best", value=0.9, relation="<=", limit=2.0, met=met),),
    )
    monkeypatch.setattr("flightschool.bench.bench_episodes", lambda num, seed: measured)
    code, said = spoken(capsys, "bench", "episodes")
    assert (code, said["met"], said["ratio"]) == (exit_code, exit_code == 0, 10.0)


def test_robustness_needs_a_workspace(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, said = spoken(capsys, "bench", "robustness")
    assert code == 2
    assert "flightschool init" in said["error"]["mend"]
