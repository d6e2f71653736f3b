"""Every statistic against a library that others keep, by numbers that ``record_oracles.py`` wrote down.

What no library has is held against enumeration in the other files of this folder: Blaker's coverage, the boundary of a
walk, e-values, sampling without replacement, pass@k.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from flightschool import statistics as ours

HERE = Path(__file__).parent
KNOWN: dict[str, Any] = json.loads((HERE / "oracles.json").read_text(encoding="utf-8"))


def near(value: float, *, rel: float = 1e-8, abs_: float = 1e-10) -> Any:
    return pytest.approx(value, rel=rel, abs=abs_)


def test_the_libraries_are_named() -> None:
    assert set(KNOWN["libraries"]) == {
        "scipy",
        "statsmodels",
        "scikit-learn",
        "pingouin",
        "krippendorff",
        "ppi-python",
    }


def test_proportions() -> None:
    for k, n, level, low, high in KNOWN["wilson"]:
        found = ours.wilson(k, n, level)
        assert (found.low, found.high) == (near(low), near(high))
    for k, n, level, low, high in KNOWN["clopper_pearson"]:
        assert ours.clopper_pearson(k, n, level) == (near(low), near(high))
    for k, n, low, high in KNOWN["blaker"]:  # brute force by the definition, on a grid of 1/20,000
        found = ours.blaker(k, n)
        assert (found.low, found.high) == (near(low, abs_=1.1e-4), near(high, abs_=1.1e-4))
    for gained, lost, p in KNOWN["mcnemar"]:
        before = [False] * gained + [True] * lost + [True, False]
        after = [True] * gained + [False] * lost + [True, False]
        assert ours.mcnemar_exact(before, after).p_value == near(p)


def test_distributions() -> None:
    for x, a, b, value in KNOWN["beta_cdf"]:
        assert ours.beta_cdf(x, a, b) == near(value)
    for x, a, b, value in KNOWN["beta_quantile"]:
        assert ours.beta_quantile(x, a, b) == near(value)
    for x, num, den, value in KNOWN["f_quantile"]:
        assert ours.f_quantile(x, num, den) == near(value)
    for x, freedom, value in KNOWN["student_quantile"]:
        assert ours.student_quantile(x, freedom) == near(value)
    for wins, losses, value in KNOWN["e_value"]:
        assert ours.e_value(wins, losses) == near(value)


@pytest.mark.parametrize("row", KNOWN["clustered"], ids=["rates", "yes or no", "numbers"])
def test_clustered_means(row: dict[str, Any]) -> None:
    """Statsmodels' cluster-robust error of a mean, its design effect, and Korn–Graubard by scipy's quantiles."""
    clusters = [f"c{c}" for c in row["clusters"]]
    assert ours.design_effect(row["values"], clusters) == near(row["design_effect"])
    found = ours.cluster_bootstrap_mean(row["values"], clusters)
    assert found.value == near(row["mean"])
    # the bootstrap is wider on purpose (two levels, expanded tails), by a tenth or two with few clusters
    ratio = (found.high - found.low) / (2 * 1.96 * row["error"])
    assert 0.95 < ratio < 1.35
    if "korn_graubard" in row:
        exact = ours.korn_graubard(row["values"], clusters)
        assert (exact.low, exact.high) == (near(row["korn_graubard"][0]), near(row["korn_graubard"][1]))


def test_bootstrap_of_independent_items() -> None:
    """With one item a cluster the interval is scipy's percentile bootstrap, but for the second level of drawing."""
    row = KNOWN["bootstrap"]
    clusters = [str(n) for n in range(len(row["before"]))]
    for found, (low, high) in (
        (ours.cluster_bootstrap_mean(row["before"], clusters), row["mean"]),
        (ours.paired_bootstrap(row["before"], row["after"], clusters), row["difference"]),
    ):
        width = high - low
        assert found.low == pytest.approx(low, abs=0.06 * width)
        assert found.high == pytest.approx(high, abs=0.06 * width)


def test_association() -> None:
    for row in KNOWN["association"]:
        found = ours.pearson(row["x"], row["y"])
        assert (found.value, found.low, found.high) == tuple(near(v) for v in row["pearson"])
        assert ours.spearman(row["x"], row["y"]).value == near(row["spearman"])
        assert ours.kendall_tau(row["x"], row["y"]) == near(row["kendall"])
        assert ours.ranks(row["x"]) == row["ranks"]


def test_calibration() -> None:
    row = KNOWN["calibration"]
    found = ours.calibration(row["predicted"], row["successes"], row["totals"])
    assert (found.intercept, found.slope) == (near(row["fit"][0], rel=1e-5), near(row["fit"][1], rel=1e-5))
    assert found.brier == near(row["brier"])


def test_agreement() -> None:
    row = KNOWN["agreement"]
    first, second = [r[0] for r in row["ratings"]], [r[1] for r in row["ratings"]]
    assert ours.cohen_kappa(first, second) == near(row["cohen"])
    assert ours.fleiss_kappa(row["ratings"]) == near(row["fleiss"])
    for level, value in row["alpha"].items():
        assert ours.krippendorff_alpha(row["with_gaps"], level) == near(value), level


def test_reliability() -> None:
    icc = KNOWN["icc"]
    found = ours.icc_oneway(icc["rows"])
    assert (found.single, found.average) == (near(icc["single"]), near(icc["average"]))
    assert (found.low, found.high) == (near(icc["interval"][0], abs_=6e-3), near(icc["interval"][1], abs_=6e-3))
    assert ours.cronbach_alpha(list(zip(*KNOWN["cronbach"]["rows"], strict=True))) is not None
    assert ours.cronbach_alpha(KNOWN["cronbach"]["rows"]) == near(KNOWN["cronbach"]["alpha"])


def test_variance_components() -> None:
    """REML of a mixed model gives the mean squares' answer where all components are positive and the study balanced."""
    row = KNOWN["g_study"]
    found = ours.g_study([[[[run] for run in runs] for runs in system] for system in row["scores"]])
    assert found.cut == ()
    for name, value in row["components"].items():
        assert getattr(found, name) == pytest.approx(value, rel=0.01), name


def test_planning() -> None:
    for n, sd, effect in KNOWN["minimal_detectable_effect"]:
        assert ours.minimal_detectable_effect(n, sd) == near(effect, rel=1e-4)
    assert ours.holm(KNOWN["holm"]["p"]) == [near(p) for p in KNOWN["holm"]["adjusted"]]
    for q, low, high in KNOWN["quantile"]["intervals"]:
        found = ours.quantile(KNOWN["quantile"]["values"], q)
        assert (found.low, found.high) == (low, high)
    for n, delta, psi, power in KNOWN["mcnemar_power"]:
        assert ours.required_pairs(delta, psi) == n
        assert 0.79 <= power <= 0.84  # summed over all outcomes: the planned power is had, and little more is paid for


def test_prediction_powered() -> None:
    """The library adds one rectifier to all; ours rectifies each verdict apart, and so is narrower."""
    row = KNOWN["ppi"]
    verdicts = [*row["judged"], *row["more"]]
    drawn = {verdict: row["judged"].count(verdict) / verdicts.count(verdict) for verdict in (0.0, 1.0)}
    found = ours.right_share(
        [
            ours.Reviewed(stratum="all", passed=bool(said), label="right" if right else "wrong", inclusion=drawn[said])
            for said, right in zip(row["judged"], row["labels"], strict=True)
        ]
    )
    assert found.value == near(row["value"], abs_=0.02)
    low, high = row["interval"]
    assert low - 0.03 <= found.low < found.value < found.high <= high + 0.03
    assert 0.7 * (high - low) < found.high - found.low < high - low


def test_formulas_of_one_line_by_hand() -> None:
    assert ours.spearman_brown(0.296, 8) == pytest.approx(0.771, abs=5e-4)  # measured beforehand, docs/design
    assert ours.disattenuated(0.42, 0.7, 0.9) == pytest.approx(0.42 / math.sqrt(0.63))
    assert ours.effective_sample_size([0.7, 0.25, 0.05]) == pytest.approx(1 / (0.49 + 0.0625 + 0.0025))
    assert ours.standard_error_of_measurement(0.5, 0.84) == pytest.approx(0.2)
