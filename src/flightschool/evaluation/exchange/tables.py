"""Items of an evaluation as a table, one row an attempt.

CSV by the standard library. Parquet by pyarrow, which is an extra: a hundred megabytes for one file format are not for
everybody. Cells that a spreadsheet would take for a formula are quoted with an apostrophe: ids come from traces, which
other people write.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flightschool.errors import InputError
from flightschool.evaluation.records import EvaluationItem, EvaluationRun

__all__ = ["COLUMNS", "write_csv", "write_parquet"]

COLUMNS = (
    "evaluation", "suite", "suite_digest", "policy", "noise", "task", "family", "stratum", "weight", "trained",
    "suspected", "repeat", "seed", "success", "outcome", "reason", "violations", "num_denied", "virtual_ms", "wall_ms",
    "num_tokens", "num_calls", "num_retries", "cost_usd", "attempt", "attempt_digest",
)  # fmt: skip
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def write_csv(run: EvaluationRun, path: Path) -> int:
    """Write a CSV file (UTF-8); returns the number of rows. A missing grade is an empty cell, never 0."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for row in _rows(run):
            writer.writerow([_cell(row[name]) for name in COLUMNS])
    return len(run.items)


def write_parquet(run: EvaluationRun, path: Path) -> int:
    """Write a Parquet file; returns the number of rows.

    Raises:
        InputError: pyarrow is not installed.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise InputError(
            "Parquet needs pyarrow, which is not installed",
            where=str(path),
            expected="the extra 'parquet'",
            mend='pip install "flightschool[parquet]", or export --format csv',
        ) from error
    rows = [{**row, "violations": list(row["violations"])} for row in _rows(run)]
    table = pyarrow.table({name: [row[name] for row in rows] for name in COLUMNS})
    pyarrow.parquet.write_table(table, path, compression="zstd")
    return len(rows)


def _rows(run: EvaluationRun) -> Iterator[dict[str, Any]]:
    for item in run.items:
        yield _row(run, item)


def _row(run: EvaluationRun, item: EvaluationItem) -> dict[str, Any]:
    own = {name: getattr(item, name) for name in COLUMNS if hasattr(item, name)}
    return own | {
        "evaluation": run.id,
        "suite": run.suite,
        "suite_digest": run.suite_digest,
        "policy": run.policy,
        "noise": run.noise,
        "weight": run.weights.get(item.stratum, 0.0),
        "outcome": str(item.outcome),
        "reason": str(item.reason),
    }


def _cell(value: object) -> object:
    if value is None:
        return ""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, tuple):
        value = "|".join(value)
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value
