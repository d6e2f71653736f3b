"""Generalizability: how much of a score's variance is the system, and how many tasks, repeats and judges would do.

G-study of systems p × tasks i × runs r (nested in p and i: run 2 of one task has nothing in common with run 2 of
another) × judges j, balanced; components by equating mean squares with their expectations (R. Brennan, Generalizability
Theory, 2001, ch. 3). Negative estimates are cut to 0. A facet of one level is left out, and what it would hold falls
to its neighbour: with one run a task, σ²_r is part of σ²_pi.

D-study: relative error σ²_δ = σ²_pi/n_i + σ²_pj/n_j + σ²_pij/(n_i·n_j) + σ²_r/(n_i·n_r) + σ²_rj/(n_i·n_r·n_j), and
Eρ² = σ²_p / (σ²_p + σ²_δ): the reliability of *telling systems apart*. Φ adds σ²_i/n_i + σ²_j/n_j +
σ²_ij/(n_i·n_j): the reliability of the score as such. For one run and one judge Eρ² is Cronbach's alpha over tasks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from flightschool.errors import InputError
from flightschool.records import Record

__all__ = ["Design", "VarianceComponents", "cheapest_design", "dependability", "g_study", "generalizability"]


class VarianceComponents(Record, frozen=True, kw_only=True):
    """σ² of each effect; ``p`` systems, ``i`` tasks, ``r`` runs within p and i, ``j`` judges."""

    p: float
    i: float
    pi: float
    r: float
    j: float = 0.0
    pj: float = 0.0
    ij: float = 0.0
    pij: float = 0.0
    rj: float = 0.0
    num_systems: int
    num_tasks: int
    num_runs: int
    num_judges: int
    cut: tuple[str, ...] = ()
    """Effects whose estimate was negative and is given as 0."""


class Design(Record, frozen=True, kw_only=True):
    """A plan for the next measurement."""

    num_tasks: int
    num_runs: int
    num_judges: int
    coefficient: float
    """Eρ² that it would reach."""
    cost: float


def g_study(scores: Sequence[Sequence[Sequence[Sequence[float]]]]) -> VarianceComponents:
    """Variance components of a balanced array.

    Args:
        scores: scores[p][i][r][j]: system, task, run, judge; one judge is a list of one.

    Raises:
        InputError: not balanced, fewer than two systems or tasks, or values that are not finite.
    """
    import numpy as np

    try:
        x = np.asarray(scores, dtype=float)
    except ValueError as error:
        raise _unbalanced("rows of unequal length") from error
    if x.ndim != 4 or x.shape[0] < 2 or x.shape[1] < 2 or 0 in x.shape or not np.isfinite(x).all():
        raise _unbalanced(f"an array of shape {x.shape}")
    n_p, n_i, n_r, n_j = x.shape

    def ss(*kept: int) -> float:
        """Sum of squares of the means over all axes but ``kept``, each counted as often as it stands for a score."""
        dropped = tuple(axis for axis in range(4) if axis not in kept)
        means = x.mean(axis=dropped) if dropped else x
        return float((means**2).sum() * np.prod([x.shape[axis] for axis in dropped], initial=1))

    one, p, i, j = ss(), ss(0), ss(1), ss(3)
    pi, pj, ij, pij, r, rj = ss(0, 1), ss(0, 3), ss(1, 3), ss(0, 1, 3), ss(0, 1, 2), ss(0, 1, 2, 3)
    mean_squares = {
        "p": ((p - one), n_p - 1),
        "i": ((i - one), n_i - 1),
        "j": ((j - one), n_j - 1),
        "pi": (pi - p - i + one, (n_p - 1) * (n_i - 1)),
        "pj": (pj - p - j + one, (n_p - 1) * (n_j - 1)),
        "ij": (ij - i - j + one, (n_i - 1) * (n_j - 1)),
        "pij": (pij - pi - pj - ij + p + i + j - one, (n_p - 1) * (n_i - 1) * (n_j - 1)),
        "r": (r - pi, n_p * n_i * (n_r - 1)),
        "rj": (rj - r - pij + pi, n_p * n_i * (n_r - 1) * (n_j - 1)),
    }
    ms = {name: total / freedom if freedom else 0.0 for name, (total, freedom) in mean_squares.items()}
    raw = {
        "rj": ms["rj"],
        "r": (ms["r"] - ms["rj"]) / n_j,
        "pij": (ms["pij"] - ms["rj"]) / n_r,
        "pi": (ms["pi"] - ms["pij"] - ms["r"] + ms["rj"]) / (n_r * n_j),
        "pj": (ms["pj"] - ms["pij"]) / (n_i * n_r),
        "ij": (ms["ij"] - ms["pij"]) / (n_p * n_r),
        "p": (ms["p"] - ms["pi"] - ms["pj"] + ms["pij"]) / (n_i * n_r * n_j),
        "i": (ms["i"] - ms["pi"] - ms["ij"] + ms["pij"]) / (n_p * n_r * n_j),
        "j": (ms["j"] - ms["pj"] - ms["ij"] + ms["pij"]) / (n_p * n_i * n_r),
    }
    scale = max(1e-30, float(x.var()))
    cut = tuple(name for name, value in raw.items() if value < -1e-12 * scale)
    return VarianceComponents(
        **{name: max(0.0, value) for name, value in raw.items()},
        num_systems=n_p,
        num_tasks=n_i,
        num_runs=n_r,
        num_judges=n_j,
        cut=cut,
    )


def generalizability(found: VarianceComponents, num_tasks: int, num_runs: int = 1, num_judges: int = 1) -> float:
    """Eρ² of a design: the reliability of telling systems apart. 0 when systems do not differ."""
    error = _relative_error(found, num_tasks, num_runs, num_judges)
    return found.p / (found.p + error) if found.p > 0 else 0.0


def dependability(found: VarianceComponents, num_tasks: int, num_runs: int = 1, num_judges: int = 1) -> float:
    """Φ of a design: the reliability of the score itself, harder tasks and harsher judges counted as error."""
    error = _relative_error(found, num_tasks, num_runs, num_judges)
    error += found.i / num_tasks + found.j / num_judges + found.ij / (num_tasks * num_judges)
    return found.p / (found.p + error) if found.p > 0 else 0.0


def cheapest_design(
    found: VarianceComponents,
    *,
    wanted: float = 0.8,
    cost_of_a_task: float = 0.0,
    cost_of_a_run: float = 1.0,
    cost_of_a_judgement: float = 0.0,
    most_tasks: int = 2000,
    runs: Iterable[int] = (1, 2, 3, 4, 6, 8, 12, 16, 32),
    judges: Iterable[int] = (1,),
) -> Design | None:
    """The cheapest tasks × runs × judges that reach ``wanted``; None if none does.

    Cost of a design: tasks · (cost_of_a_task + runs · (cost_of_a_run + judges · cost_of_a_judgement)).

    Raises:
        InputError: a coefficient outside (0, 1).
    """
    if not 0 < wanted < 1:
        raise InputError(f"Eρ² {wanted} wanted", where="cheapest_design", expected="between 0 and 1", mend="use 0.8")
    judge_counts = tuple(judges)
    best: Design | None = None
    for num_runs in runs:
        for num_judges in judge_counts:
            num_tasks = _tasks_for(found, wanted, num_runs, num_judges)
            if num_tasks is None or num_tasks > most_tasks:
                continue
            cost = num_tasks * (cost_of_a_task + num_runs * (cost_of_a_run + num_judges * cost_of_a_judgement))
            if best is None or cost < best.cost:
                best = Design(
                    num_tasks=num_tasks,
                    num_runs=num_runs,
                    num_judges=num_judges,
                    coefficient=generalizability(found, num_tasks, num_runs, num_judges),
                    cost=cost,
                )
    return best


def _tasks_for(found: VarianceComponents, wanted: float, num_runs: int, num_judges: int) -> int | None:
    """Least n_i with σ²_p / (σ²_p + a/n_i + b) ≥ wanted, where b = σ²_pj / n_j does not shrink with tasks."""
    allowed = found.p * (1 - wanted) / wanted - found.pj / num_judges
    shrinking = found.pi + found.pij / num_judges + found.r / num_runs + found.rj / (num_runs * num_judges)
    if found.p <= 0 or allowed <= 0:
        return None
    return max(2, math.ceil(shrinking / allowed - 1e-9))


def _relative_error(found: VarianceComponents, num_tasks: int, num_runs: int, num_judges: int) -> float:
    if min(num_tasks, num_runs, num_judges) < 1:
        raise InputError(
            f"{num_tasks} tasks × {num_runs} runs × {num_judges} judges",
            where="design",
            expected="one or more of each",
            mend="correct them",
        )
    return (
        found.pi / num_tasks
        + found.pj / num_judges
        + found.pij / (num_tasks * num_judges)
        + found.r / (num_tasks * num_runs)
        + found.rj / (num_tasks * num_runs * num_judges)
    )


def _unbalanced(what: str) -> InputError:
    return InputError(
        f"no balanced study: {what}",
        where="g_study",
        expected="scores[system][task][run][judge], two or more systems and tasks, every cell filled",
        mend="leave out tasks that were not graded everywhere, and say so",
    )
