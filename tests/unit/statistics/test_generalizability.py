"""G-studies: laws, a hand-computed table, and components that come back from simulation."""

from __future__ import annotations

import pytest

from flightschool.digest import derive_random
from flightschool.errors import InputError
from flightschool.statistics import (
    cheapest_design,
    cronbach_alpha,
    dependability,
    g_study,
    generalizability,
    icc_oneway,
)


def flat(table: list[list[float]]) -> list[list[list[list[float]]]]:
    """Systems × tasks, one run, one judge."""
    return [[[[x]] for x in row] for row in table]


def test_systems_by_tasks_by_hand() -> None:
    # Means of systems 2 and 4, of tasks 2 and 4, grand 3. SS_p = 2·(1+1) = 4, SS_i = 4, residual 0.
    found = g_study(flat([[1, 3], [3, 5]]))
    assert (found.p, found.i, found.pi) == pytest.approx((2.0, 2.0, 0.0), abs=1e-12)
    assert generalizability(found, 2) == pytest.approx(1.0)
    assert dependability(found, 2) == pytest.approx(2 / 3)
    # Now with a residual: rows (1, 3), (4, 2). Means 2, 3 | 2.5, 2.5; MS_p = 1, MS_i = 0, MS_pi = 4.
    crossed = g_study(flat([[1, 3], [4, 2]]))
    assert crossed.pi == pytest.approx(4.0)
    assert (crossed.p, crossed.i) == (0.0, 0.0)
    assert set(crossed.cut) == {"p", "i"}


def test_one_run_and_judge_is_cronbachs_alpha() -> None:
    random = derive_random("alpha")
    table = [[level + random.gauss(0, 1) for _ in range(7)] for level in (0.0, 0.5, 1.0, 2.0, 3.0)]
    assert generalizability(g_study(flat(table)), 7) == pytest.approx(cronbach_alpha(table))


def test_runs_within_a_task_are_the_icc() -> None:
    """One effect at a time: with systems that do not differ, tasks × runs is the one-way table."""
    random = derive_random("icc")
    rows = [[level + random.gauss(0, 1) for _ in range(4)] for level in (0.0, 1.0, 2.0, 3.0, 4.0)]
    twice = [[[[x] for x in row] for row in rows], [[[x] for x in row] for row in rows]]
    found = g_study(twice)
    assert found.r == pytest.approx(icc_oneway(rows).within)


def test_simulated_components_come_back() -> None:
    wanted = {"p": 1.0, "i": 2.0, "pi": 0.5, "r": 0.8, "j": 0.3, "pj": 0.2, "ij": 0.1, "pij": 0.15, "rj": 0.4}
    totals = dict.fromkeys(wanted, 0.0)
    trials = 60
    for trial in range(trials):
        random = derive_random("components", trial)

        def effect(name: str, random: object = random) -> float:
            return random.gauss(0, wanted[name] ** 0.5)  # type: ignore[attr-defined, no-any-return]

        n_p, n_i, n_r, n_j = 8, 8, 3, 3
        p, i, j = ([effect(k) for _ in range(n)] for k, n in (("p", n_p), ("i", n_i), ("j", n_j)))
        pj = [[effect("pj") for _ in range(n_j)] for _ in range(n_p)]
        ij = [[effect("ij") for _ in range(n_j)] for _ in range(n_i)]
        scores = []
        for a in range(n_p):
            rows = []
            for b in range(n_i):
                both, three = effect("pi"), [effect("pij") for _ in range(n_j)]
                runs = []
                for _ in range(n_r):
                    luck = effect("r")
                    runs.append(
                        [
                            p[a] + i[b] + j[c] + both + pj[a][c] + ij[b][c] + three[c] + luck + effect("rj")
                            for c in range(n_j)
                        ]
                    )
                rows.append(runs)
            scores.append(rows)
        found = g_study(scores)
        for name in wanted:
            totals[name] += getattr(found, name) / trials
    for name, value in wanted.items():
        assert totals[name] == pytest.approx(value, abs=0.15 + 0.15 * value), name


def test_more_tasks_and_runs_never_hurt_and_the_cheapest_design_is_enough() -> None:
    random = derive_random("design")
    scores = [[[[level + random.gauss(0, 1)] for _ in range(3)] for _ in range(12)] for level in (0.0, 0.4, 0.8)]
    found = g_study(scores)
    assert generalizability(found, 24, 3) > generalizability(found, 12, 3) > generalizability(found, 12, 1)
    assert dependability(found, 12, 3) <= generalizability(found, 12, 3)
    plan = cheapest_design(found, wanted=0.9, cost_of_a_task=1.0)
    assert plan is not None
    assert plan.coefficient >= 0.9
    assert generalizability(found, plan.num_tasks - 1, plan.num_runs) < 0.9
    assert cheapest_design(found, wanted=0.9999999, most_tasks=5) is None


def test_systems_that_do_not_differ_cannot_be_told_apart() -> None:
    same = g_study(flat([[1, 0, 1], [1, 0, 1]]))
    assert same.p == 0.0
    assert generalizability(same, 100) == 0.0
    assert cheapest_design(same) is None
    nothing = g_study(flat([[1, 1], [1, 1]]))
    assert (nothing.p, nothing.i, nothing.pi, nothing.cut) == (0.0, 0.0, 0.0, ())


@pytest.mark.parametrize("scores", [[], flat([[1, 2]]), flat([[1], [2]]), [[[[1]]], [[[1]], [[2]]]]])
def test_what_is_not_balanced(scores: list[list[list[list[float]]]]) -> None:
    with pytest.raises(InputError, match="no balanced study"):
        g_study(scores)
