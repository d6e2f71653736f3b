"""An evaluation as an Inspect log: one sample an item, repeats as epochs, readable by Inspect's reader and viewer.

A missing grade is a sample with an error and no score: Inspect's own accuracy then leaves it out, and says so beside
the number of completed samples. Every sample carries the suite's canary in its metadata: a log that ends in a training
corpus can be recognised.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from flightschool.errors import GateError
from flightschool.evaluation.exchange.own import KEY, header_of, item_table
from flightschool.evaluation.records import EvaluationItem, EvaluationRun
from flightschool.evaluation.summary import summarise
from flightschool.lineage import canary
from flightschool.protocols import Environment
from flightschool.records import Attempt, Json
from flightschool.traces import episode_from_attempt
from flightschool.traces.formats import inspect_header, inspect_sample, write_inspect_archive

__all__ = ["write_inspect_log"]

_SUCCESS = "success"


def write_inspect_log(
    run: EvaluationRun, environment: Environment, attempt_of: Callable[[str], Attempt], path: Path
) -> int:
    """Write a ``.eval`` file; returns the number of samples.

    Args:
        run: what was measured.
        environment: in which; its tasks and tools go into the samples.
        attempt_of: gives the stored attempt of an id.
        path: of the file.

    Raises:
        NotFoundError: an attempt is not stored.
        GateError: a stored attempt is not what was measured.
    """
    mark = canary(run.suite_digest)

    def samples() -> Any:
        for item in run.items:
            yield _sample(run, item, environment, attempt_of(item.attempt), mark)

    with path.open("wb") as file:
        return write_inspect_archive(file, samples(), lambda ids: _header(run, ids, mark))


def _sample(
    run: EvaluationRun, item: EvaluationItem, environment: Environment, attempt: Attempt, mark: str
) -> dict[str, Any]:
    if attempt.digest != item.attempt_digest:
        raise GateError(
            f"attempt {item.attempt} is not what was measured: its record was changed",
            where=f"evaluation {run.id}",
            expected=f"digest {item.attempt_digest}",
            mend="restore the workspace from a copy",
        )
    task = environment.task(item.task)
    episode = episode_from_attempt(attempt, task, environment.tools(), episode_id=item.task, trial=item.repeat)
    sample = inspect_sample(episode)
    sample["epoch"] = item.repeat + 1
    sample["metadata"] |= {KEY: {**sample["metadata"][KEY], "item": item_table(item)}, "canary": mark}
    sample["model_usage"] = {run.policy: {"output_tokens": item.num_tokens, "total_tokens": item.num_tokens}}
    sample["output"] = {"model": run.policy, "choices": [], "completion": episode.messages[-1].content}
    sample["scores"] = {
        _SUCCESS: {
            "value": "C" if item.success else "I",
            "explanation": ", ".join(item.violations),
            "metadata": {"outcome": str(item.outcome), "reason": str(item.reason)},
        }
    }
    if item.success is None:
        del sample["scores"]
        told = f"{item.reason} after {item.num_retries} retries: no grade"
        sample["error"] = {"message": told, "traceback": "", "traceback_ansi": ""}
    return sample


def _header(run: EvaluationRun, ids: list[str], mark: str) -> dict[str, Any]:
    """The header: Inspect's counts of samples mean dataset items, each with its epochs."""
    tasks = list(dict.fromkeys(item.task for item in run.items))
    header = inspect_header(ids)
    spec = header["eval"]
    spec |= {
        "task": run.suite,
        "model": run.policy,
        "dataset": {"name": run.suite, "samples": len(tasks), "sample_ids": tasks},
        "config": {"epochs": run.repeats},
        "metadata": {KEY: header_of(run), "canary": mark},
    }
    header["plan"] = {"name": run.policy, "steps": [], "config": {}}
    header["results"] = {
        "total_samples": len(run.items),
        "completed_samples": len(run.graded),
        "scores": _scores(run),
    }
    return header


def _scores(run: EvaluationRun) -> list[Json]:
    if not run.graded:
        return []
    whole = summarise(run).measurements
    found = {m.name: m for m in whole if m.name in ("success/weighted", "success/all")}
    metrics: dict[str, Json] = {}
    for name, label in (("success/all", "accuracy"), ("success/weighted", "weighted")):
        if name in found:
            one = found[name]
            for key, value in ((label, one.value), (f"{label}_low", one.low), (f"{label}_high", one.high)):
                metrics[key] = {"name": key, "value": value}
    return [{"name": _SUCCESS, "scorer": _SUCCESS, "scored_samples": len(run.graded), "metrics": metrics}]
