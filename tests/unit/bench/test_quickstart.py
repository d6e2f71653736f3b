"""The main job's figures: drawn together on the side of caution, and held against what was promised."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from flightschool.bench import SeedFlight, bench_quickstart, summarise_flights
from flightschool.bench.quickstart import quickstart_command
from flightschool.errors import InfrastructureError, InputError

GOOD: dict[str, Any] = {
    "schema": 1,
    "run": "quickstart-1",
    "report": "report.html",
    "success_before": 0.03,
    "success_after": 0.95,
    "gain_low": 0.8,
    "gain_high": 0.97,
    "perturbed_before": 0.02,
    "perturbed_after": 0.7,
}


def flight(seed: int, wall_s: float = 300.0, peak_rss_mb: float = 3_000.0, **figures: float) -> SeedFlight:
    known = {key: value for key, value in GOOD.items() if key not in ("schema", "run")} | figures
    return SeedFlight(
        seed=seed, workspace=f"seed-{seed}", wall_s=wall_s, peak_rss_mb=peak_rss_mb, num_samples=9, figures={}, **known
    )


def missed(*flights: SeedFlight) -> set[str]:
    return {target.name for target in summarise_flights(flights).targets if not target.met}


def job(workspace: Path, written: dict[str, Any] | None, exit_code: int = 0, said: str = "{}") -> list[str]:
    """A command that leaves what the job would leave."""
    code = "import pathlib, sys; folder = pathlib.Path(sys.argv[1]); folder.mkdir(parents=True); "
    if written is not None:
        code += "(folder / 'quickstart.json').write_text(sys.argv[2]); "
    code += "print(sys.argv[3]); raise SystemExit(int(sys.argv[4]))"
    return [sys.executable, "-c", code, str(workspace), json.dumps(written), said, str(exit_code)]


def test_seeds_are_drawn_together_on_the_side_of_caution() -> None:
    drawn = summarise_flights(
        [
            flight(0, wall_s=200, success_before=0.1, success_after=0.93, gain_low=0.7, perturbed_after=0.6),
            flight(1, wall_s=400, peak_rss_mb=5_000, gain_high=0.99, perturbed_before=0.12),
            flight(2),
        ]
    )
    assert (drawn.wall_s, drawn.peak_rss_mb) == (400, 5_000)
    assert (drawn.success_before, drawn.success_after) == (0.1, 0.93)
    assert (drawn.gain_low, drawn.gain_high) == (0.7, 0.99)
    assert (drawn.perturbed_before, drawn.perturbed_after) == (0.12, 0.6)
    assert drawn.met


@pytest.mark.parametrize(
    ("figures", "name"),
    [
        ({"wall_s": 480.1}, "wall_s"),
        ({"peak_rss_mb": 6_000.1}, "peak_rss_mb"),
        ({"success_before": 0.151}, "success_before"),
        ({"success_after": 0.899}, "success_after"),
        ({"gain_low": 0.0}, "gain_low"),
        ({"gain_low": float("nan")}, "gain_low"),
        ({"perturbed_after": 0.02}, "smallest rise under faults"),
    ],
)
def test_one_seed_that_falls_short_is_a_missed_target(figures: dict[str, float], name: str) -> None:
    assert missed(flight(1, **figures), flight(0), flight(2)) == {name}
    assert not missed(flight(0), flight(1), flight(2))


def test_fewer_seeds_than_promised_are_a_shortfall_unless_quick_was_asked_for() -> None:
    assert missed(flight(0)) == {"number of seeds"}
    assert summarise_flights([flight(0)], least_seeds=1).met


def test_each_seed_gets_a_fresh_process_and_workspace(tmp_path: Path) -> None:
    asked: list[tuple[Path, int, bool]] = []

    def command(workspace: Path, seed: int, offline: bool) -> Sequence[str]:
        asked.append((workspace, seed, offline))
        return job(workspace, GOOD | {"success_after": {3: 0.93, 4: 0.94}[seed]})

    told: list[str] = []
    drawn = bench_quickstart(tmp_path, [3, 4], offline=True, command=command, tell=told.append)
    assert asked == [(tmp_path / "seed-3", 3, True), (tmp_path / "seed-4", 4, True)]
    assert [(f.seed, f.success_after) for f in drawn.seeds] == [(3, 0.93), (4, 0.94)]
    assert drawn.success_after == 0.93
    assert drawn.seeds[0].figures["run"] == "quickstart-1"
    assert drawn.seeds[0].wall_s > 0
    assert len(told) == 4


@pytest.mark.parametrize(
    ("written", "exit_code", "said", "problem"),
    [
        (GOOD, 2, '{"error": {"what": "no network"}}', "ended with 2: no network"),
        (GOOD, 1, "", "no error was named"),
        (None, 0, "{}", "no usable quickstart.json"),
        ({"report": "r"}, 0, "{}", "no usable quickstart.json"),
    ],
)
def test_a_job_that_failed_is_no_measurement(
    tmp_path: Path, written: dict[str, Any] | None, exit_code: int, said: str, problem: str
) -> None:
    with pytest.raises(InfrastructureError, match=problem):
        bench_quickstart(tmp_path, [0], offline=True, command=lambda w, *_: job(w, written, exit_code, said))


def test_a_used_workspace_is_refused(tmp_path: Path) -> None:
    (tmp_path / "seed-1").mkdir()
    with pytest.raises(InputError, match="exists already"):
        bench_quickstart(tmp_path, [0, 1], offline=True, command=lambda w, *_: job(w, GOOD))
    assert not (tmp_path / "seed-0").exists()


@pytest.mark.parametrize("seeds", [[], [1, 1]])
def test_seeds_are_distinct(tmp_path: Path, seeds: list[int]) -> None:
    with pytest.raises(InputError, match="no seeds, or one twice"):
        bench_quickstart(tmp_path, seeds, offline=True)


def test_the_command_is_what_a_user_types(tmp_path: Path) -> None:
    words = quickstart_command(tmp_path, 2, True)
    assert words[:4] == [sys.executable, "-m", "flightschool.cli", "quickstart"]
    assert words[4:] == ["--workspace", str(tmp_path), "--seed", "2", "--json", "--offline"]
    assert "--offline" not in quickstart_command(tmp_path, 2, False)
