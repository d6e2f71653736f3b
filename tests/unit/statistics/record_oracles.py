"""What independent libraries say of fixed data: ``PYTHON record_oracles.py`` writes ``oracles.json`` beside this file.

Run by a Python that has scipy, statsmodels, scikit-learn, pingouin, krippendorff and ppi-python; imports nothing of
this package. ``test_oracles.py`` holds our own small code against what stands in the file, so that no library is needed
to run the tests, and none of ours had a part in the expected numbers.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import random
import warnings
from pathlib import Path
from typing import Any

LIBRARIES = ("scipy", "statsmodels", "scikit-learn", "pingouin", "krippendorff", "ppi-python")


def lib(name: str) -> Any:
    return importlib.import_module(name)


def listed(values: Any) -> list[float]:
    return [float(value) for value in values]


def proportions() -> dict[str, Any]:
    stats, proportion = lib("scipy.stats"), lib("statsmodels.stats.proportion")
    cases = [(0, 5), (5, 5), (3, 7), (18, 20), (49, 50), (190, 200), (1, 1)]
    tables = [(0, 0), (5, 0), (3, 7), (12, 2), (40, 25)]
    contingency = lib("statsmodels.stats.contingency_tables")
    return {
        "wilson": [
            [k, n, level, *listed(proportion.proportion_confint(k, n, 1 - level, "wilson"))]
            for k, n in cases
            for level in (0.8, 0.95)
        ],
        "clopper_pearson": [
            [k, n, level, *listed(stats.binomtest(k, n).proportion_ci(level, "exact"))]
            for k, n in cases
            for level in (0.8, 0.95)
        ],
        "blaker": [[k, n, *blaker(stats.binom, k, n)] for k, n in [(0, 5), (5, 5), (3, 7), (18, 20), (28, 30)]],
        "mcnemar": [[b, c, float(contingency.mcnemar([[3, b], [c, 4]], exact=True).pvalue)] for b, c in tables],
    }


def blaker(binom: Any, k: int, n: int, alpha: float = 0.05) -> list[float]:
    """By the definition, on a grid of p: the outermost points whose acceptability is at least alpha."""
    numpy = lib("numpy")
    kept = []
    for p in numpy.linspace(0.0, 1.0, 20_001):
        tails = numpy.minimum(binom.cdf(numpy.arange(n + 1), n, p), binom.sf(numpy.arange(n + 1) - 1, n, p))
        if binom.pmf(numpy.arange(n + 1), n, p)[tails <= tails[k] * (1 + 1e-12)].sum() >= alpha:
            kept.append(float(p))
    return [kept[0], kept[-1]]


def distributions() -> dict[str, Any]:
    stats, special = lib("scipy.stats"), lib("scipy.special")
    points = (0.001, 0.2, 0.5, 0.9, 0.999)
    shapes = [(0.5, 0.5), (3, 70), (200, 4), (0.2, 30), (5000, 5000)]
    return {
        "beta_cdf": [[x, a, b, float(stats.beta.cdf(x, a, b))] for a, b in shapes for x in points],
        "beta_quantile": [[x, a, b, float(stats.beta.ppf(x, a, b))] for a, b in shapes for x in points],
        "f_quantile": [[x, 7, 31, float(stats.f.ppf(x, 7, 31))] for x in (0.05, 0.9, 0.975)],
        "student_quantile": [[x, d, float(stats.t.ppf(x, d))] for x in (0.025, 0.99) for d in (1, 4.5, 120)],
        "e_value": [
            [w, n - w, float(special.beta(w + 1, n - w + 1) * 2.0**n)] for n in (1, 7, 30) for w in (0, n // 3)
        ],
    }


def clustered(draw: random.Random) -> dict[str, Any]:
    """Values of families, and what cluster-robust regression on a constant says of their mean."""
    api, numpy, stats = lib("statsmodels.api"), lib("numpy"), lib("scipy.stats")
    found = []
    for families, size, kind in ((8, 6, "rates"), (25, 8, "yes or no"), (12, 3, "numbers")):
        values: list[float] = []
        clusters: list[int] = []
        for family in range(families):
            level = draw.betavariate(4, 2)
            for _ in range(size):
                value = {"rates": draw.betavariate(9 * level, 9 * (1 - level)), "numbers": draw.gauss(5 * level, 1)}
                values.append(value.get(kind, float(draw.random() < level)))
                clusters.append(family)
        ols = api.OLS(numpy.array(values), numpy.ones(len(values)))
        robust = ols.fit(cov_type="cluster", cov_kwds={"groups": numpy.array(clusters)}, use_t=True)
        error, plain = float(robust.bse[0]), float(ols.fit().bse[0])
        row: dict[str, Any] = {"values": values, "clusters": clusters, "mean": float(robust.params[0]), "error": error}
        row["design_effect"] = (error / plain) ** 2
        if kind != "numbers":
            n = len(values) / max(1.0, row["design_effect"])
            n *= (stats.t.ppf(0.975, len(values) - 1) / stats.t.ppf(0.975, families - 1)) ** 2
            k = n * row["mean"]
            row["korn_graubard"] = [
                float(stats.beta.ppf(0.025, k, n - k + 1)),
                float(stats.beta.ppf(0.975, k + 1, n - k)),
            ]
        found.append(row)
    return {"clustered": found}


def bootstrap(draw: random.Random) -> dict[str, Any]:
    """Independent items: scipy's own bootstrap of a mean and of a paired difference."""
    stats, numpy = lib("scipy.stats"), lib("numpy")
    before = [draw.gauss(0.4, 0.2) for _ in range(120)]
    after = [b + draw.gauss(0.1, 0.15) for b in before]
    gain = [a - b for a, b in zip(after, before, strict=True)]
    seeded = {"method": "percentile", "n_resamples": 40_000, "rng": numpy.random.default_rng(0)}
    one = stats.bootstrap((numpy.array(before),), numpy.mean, **seeded).confidence_interval
    two = stats.bootstrap((numpy.array(gain),), numpy.mean, **seeded).confidence_interval
    return {"bootstrap": {"before": before, "after": after, "mean": listed(one), "difference": listed(two)}}


def association(draw: random.Random) -> dict[str, Any]:
    stats, metrics, api = lib("scipy.stats"), lib("sklearn.metrics"), lib("statsmodels.api")
    numpy = lib("numpy")
    pairs = []
    for size, rounded in ((6, False), (30, False), (25, True)):
        x: list[float] = [draw.gauss(0, 1) for _ in range(size)]
        y = [0.6 * v + draw.gauss(0, 0.8) for v in x]
        x, y = ([float(round(v)) for v in x], [float(round(v)) for v in y]) if rounded else (x, y)
        r = stats.pearsonr(x, y)
        pairs.append(
            {
                "x": x,
                "y": y,
                "pearson": [float(r.statistic), *listed(r.confidence_interval(0.95))],
                "spearman": float(stats.spearmanr(x, y).statistic),
                "kendall": float(stats.kendalltau(x, y).statistic),
                "ranks": listed(stats.rankdata(x)),
            }
        )
    predicted = [0.1, 0.3, 0.35, 0.6, 0.8, 0.95]
    totals = [20, 10, 15, 30, 12, 40]
    successes = [4, 2, 6, 15, 8, 37]
    outcome = [float(k < s) for s, n in zip(successes, totals, strict=True) for k in range(n)]
    stated = [p for p, n in zip(predicted, totals, strict=True) for _ in range(n)]
    logit = numpy.log(numpy.array(stated) / (1 - numpy.array(stated)))
    fitted = api.GLM(numpy.array(outcome), api.add_constant(logit), family=api.families.Binomial()).fit()
    calibration = {
        "predicted": predicted,
        "totals": totals,
        "successes": successes,
        "fit": listed(fitted.params),
        "brier": float(metrics.brier_score_loss(outcome, stated)),
    }
    return {"association": pairs, "calibration": calibration}


def agreement(draw: random.Random) -> dict[str, Any]:
    metrics, raters, alpha = lib("sklearn.metrics"), lib("statsmodels.stats.inter_rater"), lib("krippendorff")
    numpy = lib("numpy")
    truth = [draw.randrange(1, 5) for _ in range(40)]
    rated = [[t if draw.random() < 0.7 else draw.randrange(1, 5) for _ in range(3)] for t in truth]
    gaps = [[None if draw.random() < 0.15 else label for label in row] for row in rated]
    matrix = numpy.array([[numpy.nan if v is None else float(v) for v in row] for row in gaps]).T
    counts, _ = raters.aggregate_raters(numpy.array(rated))
    return {
        "agreement": {
            "ratings": rated,
            "with_gaps": gaps,
            "cohen": float(metrics.cohen_kappa_score([r[0] for r in rated], [r[1] for r in rated])),
            "fleiss": float(raters.fleiss_kappa(counts)),
            "alpha": {
                level: float(alpha.alpha(reliability_data=matrix, level_of_measurement=level))
                for level in ("nominal", "ordinal", "interval")
            },
        }
    }


def reliability(draw: random.Random) -> dict[str, Any]:
    pandas, pingouin, formula = lib("pandas"), lib("pingouin"), lib("statsmodels.formula.api")
    rows = [[level + draw.gauss(0, 0.7) for _ in range(4)] for level in [draw.gauss(0, 1) for _ in range(14)]]
    cells = [{"item": i, "repeat": j, "score": v} for i, row in enumerate(rows) for j, v in enumerate(row)]
    table = pingouin.intraclass_corr(pandas.DataFrame(cells), "item", "repeat", "score")
    by_type = {
        str(row["Type"]).replace("ICC1k", "ICC(1,k)").replace("ICC1", "ICC(1,1)"): row for _, row in table.iterrows()
    }
    one, mean = by_type["ICC(1,1)"], by_type["ICC(1,k)"]
    interval = next(one[name] for name in table.columns if name.startswith("CI"))
    alpha, _ = pingouin.cronbach_alpha(pandas.DataFrame(rows))
    # systems × tasks × runs: both crossed, runs inside; REML equals the mean squares where all components are positive
    p, i = [draw.gauss(0, 1.2) for _ in range(6)], [draw.gauss(0, 1) for _ in range(7)]
    scores = [
        [[p[a] + i[b] + pi + draw.gauss(0, 0.6) for _ in range(3)] for b in range(7) for pi in [draw.gauss(0, 0.8)]]
        for a in range(6)
    ]
    frame = pandas.DataFrame(
        [
            {"y": v, "p": a, "i": b, "pi": f"{a}/{b}", "all": 1}
            for a, row in enumerate(scores)
            for b, runs in enumerate(row)
            for v in runs
        ]
    )
    parts = {"p": "0 + C(p)", "i": "0 + C(i)", "pi": "0 + C(pi)"}
    fitted = formula.mixedlm("y ~ 1", frame, groups="all", vc_formula=parts).fit(reml=True)
    found = dict(zip(fitted.model.exog_vc.names, listed(fitted.vcomp), strict=True)) | {"r": float(fitted.scale)}
    return {
        "icc": {"rows": rows, "single": float(one["ICC"]), "average": float(mean["ICC"]), "interval": listed(interval)},
        "cronbach": {"rows": rows, "alpha": float(alpha)},
        "g_study": {"scores": scores, "components": found},
    }


def planning() -> dict[str, Any]:
    power, multitest, stats = lib("statsmodels.stats.power"), lib("statsmodels.stats.multitest"), lib("scipy.stats")
    effects = []
    for n, sd in ((50, 0.5), (234, 0.55)):
        effect = power.zt_ind_solve_power(None, n, 0.05, 0.8, ratio=0) * sd
        effects.append([n, sd, float(effect)])
    p_values = [0.001, 0.04, 0.03, 0.2, 0.008]
    ordered = [float(v) for v in range(1, 61)]
    ranks = []
    for q in (0.5, 0.9):
        interval = stats.quantile_test(ordered, q=stats.scoreatpercentile(ordered, 50), p=q).confidence_interval(0.95)
        ranks.append([q, *listed(interval)])
    return {
        "minimal_detectable_effect": effects,
        "holm": {"p": p_values, "adjusted": listed(multitest.multipletests(p_values, method="holm")[1])},
        "quantile": {"values": ordered, "intervals": ranks},
        "mcnemar_power": [
            [234, 0.1, 0.3, mcnemar_power(stats, 234, 0.1, 0.3)],
            [103, 0.15, 0.3, mcnemar_power(stats, 103, 0.15, 0.3)],
        ],
    }


def mcnemar_power(stats: Any, n: int, delta: float, psi: float) -> float:
    """Exact power of the two-sided test |w − l| > 1.96·√(w + l), summed over all outcomes."""
    total = 0.0
    for discordant in range(1, n + 1):
        wins = range(discordant + 1)
        mass = stats.binom.pmf(list(wins), discordant, (psi + delta) / 2 / psi)
        found = sum(m for w, m in zip(wins, mass, strict=True) if abs(2 * w - discordant) > 1.959964 * discordant**0.5)
        total += float(stats.binom.pmf(discordant, n, psi)) * float(found)
    return total


def judged(draw: random.Random) -> dict[str, Any]:
    ppi, numpy = lib("ppi_py"), lib("numpy")
    truth = [float(draw.random() < 0.7) for _ in range(400)]
    judge = [t if draw.random() < 0.85 else 1 - t for t in truth]
    parts = [numpy.array(part) for part in (truth[:80], judge[:80], judge[80:])]
    interval = ppi.ppi_mean_ci(*parts, alpha=0.05, lam=1.0)
    point = ppi.ppi_mean_pointestimate(*parts, lam=1.0)
    return {
        "ppi": {
            "labels": truth[:80],
            "judged": judge[:80],
            "more": judge[80:],
            "weight": 1.0,
            "value": float(numpy.ravel(point)[0]),
            "interval": [float(numpy.ravel(v)[0]) for v in interval],
        }
    }


def main() -> None:
    warnings.simplefilter("ignore")
    draw = random.Random(20261130)
    found: dict[str, Any] = {"libraries": {name: importlib.metadata.version(name) for name in LIBRARIES}}
    found |= proportions() | distributions() | clustered(draw) | bootstrap(draw) | association(draw) | agreement(draw)
    found |= reliability(draw) | planning() | judged(draw)
    path = Path(__file__).with_name("oracles.json")
    path.write_text(json.dumps(found, indent=None, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
