"""Upkeep: what is found on runs made by hand."""

from __future__ import annotations

from typing import Any

import pytest

from flightschool.errors import InputError
from flightschool.evaluation import upkeep
from flightschool.records import StratumShare, Suite


def suite_of(num: int = 10) -> Suite:
    share = StratumShare(name="a", weight=1.0, num_tasks=num, families=tuple(f"f{n}" for n in range(8)), trained=True)
    return Suite(
        name="s",
        environment="e",
        environment_digest="ed",
        task_digests={f"t{n}": "d" for n in range(num)},
        strata=(share,),
    )


def runs_of(run_of: Any, rows: dict[str, str], **fields: Any) -> list[Any]:
    """Policy → one sign a task, + solved, - not."""
    digest = suite_of(len(next(iter(rows.values())))).digest
    return [
        run_of([sign == "+" for sign in signs], policy=policy, suite_digest=digest, **fields)
        for policy, signs in rows.items()
    ]


def test_a_saturated_suite_is_told(run_of: Any) -> None:
    found = upkeep(suite_of(), runs_of(run_of, {"v1": "+++++++++-", "v2": "++++++++++"}))
    assert (found.share_solved_by_all, found.saturated) == (0.9, True)
    assert found.retire == tuple(f"t{n}" for n in range(9))
    assert found.anchors == ("t9",)
    assert found.proposals[0].startswith("saturated")
    fresh = upkeep(suite_of(), runs_of(run_of, {"v1": "+-+-+-+-+-", "v2": "+++--++-+-"}))
    assert not fresh.saturated


def test_a_task_that_better_systems_fail_is_misfit(run_of: Any) -> None:
    rows = {f"v{n}": "+" * n + "-" * (9 - n) + ("-" if n > 4 else "+") for n in range(1, 9)}
    found = upkeep(suite_of(), runs_of(run_of, rows))
    assert found.misfit == ("t9",)
    assert "t9" not in found.anchors
    assert upkeep(suite_of(), runs_of(run_of, dict(list(rows.items())[:4]))).misfit == ()  # too few systems to say


def test_an_oracle_that_fails_now_and_then_flakes(run_of: Any) -> None:
    runs = [*runs_of(run_of, {"oracle": "++++++++++"}), *runs_of(run_of, {"oracle": "+++++-++++"})]
    assert upkeep(suite_of(), runs).flaky == ("t5",)
    noisy = runs_of(run_of, {"oracle": "+++++-++++"}, noise_digest="storm")
    assert upkeep(suite_of(), [runs[0], *noisy]).flaky == ()


def test_drift_and_new_strata(run_of: Any) -> None:
    runs = runs_of(run_of, {"v1": "+-+-+-+-+-"})
    found = upkeep(suite_of(), runs, {"a": 70, "b": 30})
    assert found.drift == pytest.approx(0.3)
    assert found.new_strata == ("b",)
    assert any("drifted by 30%" in one for one in found.proposals)
    assert upkeep(suite_of(), runs, {"a": 3}).drift == 0.0
    with pytest.raises(InputError):
        upkeep(suite_of(), runs, {"a": 0})


def test_nothing_measured_yet(run_of: Any) -> None:
    with pytest.raises(InputError, match="nothing was measured"):
        upkeep(suite_of(), [run_of([True] * 10)])
