"""Does the suite predict deployment? Asked only of a suite that is reliable.

Deployment outcomes come by version (a policy or an evaluation's id) and stratum. Cells of version × stratum are what is
correlated: versions are few, and their overall rates mix strata in other shares than the suite. Correlations are given
as seen and corrected for attenuation (both sides are noisy); a suite whose cells are not reliable gets no claim.
"""

from __future__ import annotations

import csv
import io
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from flightschool.errors import GateError, InputError
from flightschool.evaluation.records import EvaluationRun
from flightschool.records import Record
from flightschool.statistics import (
    Calibration,
    Interval,
    calibration,
    disattenuated,
    kendall_tau,
    pearson,
    spearman,
)

__all__ = ["DeploymentOutcome", "Transported", "Validity", "read_deployment", "validity"]

LEAST_RELIABILITY = 0.5
"""Reliability of either side's cells below which no validity is claimed."""
FEWEST_CELLS = 4
_FORMAT = "version, stratum, successes, total (JSON list, JSON lines or CSV)"


class DeploymentOutcome(Record, frozen=True, kw_only=True):
    """What happened in deployment, in one cell."""

    version: str
    """Policy as in the evaluation, or the evaluation's id."""
    stratum: str
    successes: int
    total: int


class Transported(Record, frozen=True, kw_only=True):
    """The suite's strata weighted by the traffic that was really seen, beside what really came out."""

    version: str
    predicted: float
    observed: float
    residual: float
    """Observed − predicted: what the suite does not see."""
    num_outcomes: int


class Validity(Record, frozen=True, kw_only=True):
    """How far the suite speaks for deployment."""

    suite: str
    suite_digest: str
    num_versions: int
    num_cells: int
    pearson: Interval
    spearman: Interval
    kendall: float
    reliability_suite: float
    """Share of the variance of the suite's cells that is no sampling error."""
    reliability_deployment: float
    corrected: float | None
    """Pearson corrected for attenuation; None where a side is not reliable."""
    calibration: Calibration
    transported: tuple[Transported, ...]
    claimed: bool
    """Whether a statement on validity is made at all: both sides are reliable, and the interval excludes 0."""
    notes: tuple[str, ...]


def read_deployment(path: Path) -> tuple[DeploymentOutcome, ...]:
    """Outcomes from a file.

    Raises:
        InputError: not found, not readable, a cell twice, or counts that are no counts.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"the outcomes cannot be read: {error}", where=str(path), expected=_FORMAT, mend="check the path"
        ) from error
    try:
        rows = _rows(text, path.suffix)
        found = msgspec.convert(rows, tuple[DeploymentOutcome, ...], strict=False)
    except (ValueError, msgspec.ValidationError, csv.Error, RecursionError) as error:
        raise InputError(
            f"not outcomes: {error}", where=str(path), expected=_FORMAT, mend="correct the file"
        ) from error
    cells = {(one.version, one.stratum) for one in found}
    wrong = next((one for one in found if not 0 <= one.successes <= one.total), None)
    if not found or len(cells) < len(found) or wrong is not None:
        what = (
            "no outcomes"
            if not found
            else f"{wrong.successes} successes of {wrong.total} in {wrong.version}, {wrong.stratum}"
            if wrong is not None
            else "a version and stratum stand there twice"
        )
        raise InputError(
            what, where=str(path), expected="each cell once, 0 ≤ successes ≤ total", mend="correct the file"
        )
    return found


def validity(runs: Sequence[EvaluationRun], outcomes: Sequence[DeploymentOutcome], *, level: float = 0.95) -> Validity:
    """Relate suite scores to outcomes.

    Args:
        runs: evaluations on one suite; several of one policy are averaged.
        outcomes: of deployment.
        level: of the intervals.

    Raises:
        GateError: runs of several suites, or of suites whose scores are not comparable.
        InputError: fewer than four cells that both sides know, or a side that does not vary.
    """
    _require_one_suite(runs)
    scores = _scores(runs)
    paired = [(one, scores[one.version, one.stratum]) for one in outcomes if (one.version, one.stratum) in scores]
    paired = [(one, cell) for one, cell in paired if one.total]
    if len(paired) < FEWEST_CELLS:
        known = ", ".join(sorted({version for version, _ in scores}))
        raise InputError(
            f"{len(paired)} cells of version and stratum are known to both sides",
            where="deployment outcomes",
            expected=f"at least {FEWEST_CELLS}; evaluated versions: {known or 'none'}",
            mend="name versions as the evaluations do (policy or id), or measure them on this suite first",
        )
    x = [sum(cell) / len(cell) for _, cell in paired]
    y = [one.successes / one.total for one, _ in paired]
    seen = pearson(x, y, level)
    suite = _reliability(x, [len(cell) for _, cell in paired])
    deployment = _reliability(y, [one.total for one, _ in paired])
    reliable = min(suite, deployment) >= LEAST_RELIABILITY
    return Validity(
        suite=runs[0].suite,
        suite_digest=runs[0].suite_digest,
        num_versions=len({one.version for one, _ in paired}),
        num_cells=len(paired),
        pearson=seen,
        spearman=spearman(x, y, level),
        kendall=kendall_tau(x, y),
        reliability_suite=suite,
        reliability_deployment=deployment,
        corrected=disattenuated(seen.value, suite, deployment) if reliable else None,
        calibration=calibration(x, [float(one.successes) for one, _ in paired], [one.total for one, _ in paired]),
        transported=_transported(paired),
        claimed=reliable and seen.excludes(0.0),
        notes=tuple(_notes(runs, outcomes, paired, suite, deployment, x)),
    )


def _rows(text: str, suffix: str) -> list[object]:
    if suffix == ".csv":
        return list(csv.DictReader(io.StringIO(text)))
    if suffix == ".jsonl":
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    value = json.loads(text)
    if not isinstance(value, list):
        raise ValueError("a list of objects was expected")
    return value


def _require_one_suite(runs: Sequence[EvaluationRun]) -> None:
    digests = {(run.suite_digest, run.noise_digest, run.composition_digest) for run in runs}
    if len(digests) != 1:
        raise GateError(
            "no evaluations on this suite" if not runs else "the evaluations differ in suite, weather or grading",
            where="validity",
            expected="runs of one frozen suite, graded alike, in one weather",
            mend="scores across this border are not comparable: name the runs that belong together",
        )


def _scores(runs: Sequence[EvaluationRun]) -> Mapping[tuple[str, str], list[float]]:
    """(version, stratum) → a score a task; a version is known by its policy and by the run's id."""
    by_task: defaultdict[tuple[str, str, str], list[float]] = defaultdict(list)
    for run in runs:
        for item in run.graded:
            for version in {run.policy, run.id}:
                by_task[version, item.stratum, item.task].append(float(bool(item.success)))
    cells: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for (version, stratum, _), values in by_task.items():
        cells[version, stratum].append(sum(values) / len(values))
    return cells


def _reliability(rates: Sequence[float], sizes: Sequence[int]) -> float:
    """1 − mean sampling variance / variance between cells; 0 when all of it could be sampling.

    The sampling variance of a rate is p(1 − p)/(n − 1), with p drawn half an item inward so that 3 of 3 is not certain.
    """
    mean = sum(rates) / len(rates)
    between = sum((rate - mean) ** 2 for rate in rates) / (len(rates) - 1)
    if between == 0:
        return 0.0
    inward = [(rate * n + 0.5) / (n + 1) for rate, n in zip(rates, sizes, strict=True)]
    error = sum(p * (1 - p) / max(1, n - 1) for p, n in zip(inward, sizes, strict=True)) / len(rates)
    return max(0.0, 1 - error / between)


def _transported(paired: Sequence[tuple[DeploymentOutcome, list[float]]]) -> tuple[Transported, ...]:
    versions: dict[str, list[tuple[DeploymentOutcome, list[float]]]] = {}
    for one, cell in paired:
        versions.setdefault(one.version, []).append((one, cell))
    found = []
    for version, cells in versions.items():
        total = sum(one.total for one, _ in cells)
        predicted = sum(one.total * sum(cell) / len(cell) for one, cell in cells) / total
        observed = sum(one.successes for one, _ in cells) / total
        found.append(
            Transported(
                version=version,
                predicted=predicted,
                observed=observed,
                residual=observed - predicted,
                num_outcomes=total,
            )
        )
    return tuple(found)


def _notes(
    runs: Sequence[EvaluationRun],
    outcomes: Sequence[DeploymentOutcome],
    paired: Sequence[tuple[DeploymentOutcome, list[float]]],
    suite: float,
    deployment: float,
    x: Sequence[float],
) -> list[str]:
    notes = []
    unmatched = len(outcomes) - len(paired)
    if unmatched:
        notes.append(f"{unmatched} of {len(outcomes)} cells have no suite score (or no outcome) and are left out")
    for name, value, mend in (
        ("suite", suite, "measure with more tasks or repeats"),
        ("deployment", deployment, "wait for more outcomes"),
    ):
        if value < LEAST_RELIABILITY:
            notes.append(f"the {name}'s cells are not reliable ({value:.2f}): no validity is claimed; {mend}")
    if max(x) - min(x) < 0.2:
        notes.append(
            f"suite scores span {min(x):.2f} to {max(x):.2f} only: in so narrow a range a correlation says little, "
            "and what it would be over all policies cannot be told from it"
        )
    silent = sorted(set(runs[0].weights) - {one.stratum for one, _ in paired})
    if silent:
        notes.append(f"cannot speak for stratum {', '.join(silent)}: no outcomes")
    if len({one.version for one, _ in paired}) < 3:
        notes.append("fewer than three versions: the correlation is mostly one between strata")
    return notes
