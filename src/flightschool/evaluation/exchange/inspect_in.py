"""Inspect logs as evaluations: our own as they were, those of ``inspect_task`` to be judged again, others as they say.

Logs of other tasks are taken at their word, with two things that Inspect leaves to chance: the suite's digest is made
of inputs and targets, so two logs whose truths differ are no pair; and a sample that ended in an error has no grade,
instead of vanishing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from flightschool.digest import digest
from flightschool.errors import GateError, InputError
from flightschool.evaluation.exchange.own import KEY, edited, rebuilt
from flightschool.evaluation.records import EvaluationItem, EvaluationRun
from flightschool.evaluation.rules import RunRules
from flightschool.evaluation.running import item_of
from flightschool.protocols import Environment
from flightschool.records import Attempt, EndReason, Outcome, Record, Suite
from flightschool.traces.formats import inspect_samples

__all__ = ["InspectLog", "read_inspect_log"]

_GRADES = {"C": True, "I": False, "P": False, "N": False}
"""Inspect's letters: correct, incorrect, partial, no answer."""


class InspectLog(Record, frozen=True, kw_only=True):
    """A log as an evaluation."""

    run: EvaluationRun
    attempts: tuple[Attempt, ...] = ()
    """Where our own task module wrote the log: to be kept and judged again, since a log can be edited."""


def read_inspect_log(
    path: Path, run_id: str, *, suite: Suite | None = None, environment: Environment | None = None, score: str = ""
) -> InspectLog:
    """Read a log.

    Args:
        path: a ``.eval`` or ``.json`` file.
        run_id: id of the evaluation, unless our own export names its own.
        suite: the frozen suite, for logs of ``inspect_task``.
        environment: the suite's.
        score: which score is the grade, where there are several.

    Raises:
        TraceError: the file cannot be read.
        InputError: no score that is a grade, or several and none named.
        GateError: our own export was edited, or the log was made with another suite.
    """
    header, samples = inspect_samples(path)
    own = (header.get("metadata") or {}).get(KEY)
    if isinstance(own, dict) and "run" in own:
        tables = [(sample.get("metadata") or {}).get(KEY, {}).get("item") for sample in samples]
        return InspectLog(run=rebuilt(own, tables, str(path)))
    if isinstance(own, dict) and "suite_digest" in own:
        return _flown_there(header, samples, run_id, suite, environment, path)
    if any(isinstance(told := sample.get("metadata"), dict) and KEY in told for sample in samples):
        raise edited("its samples are of a log of ours, whose header is gone or changed", str(path))
    return InspectLog(run=_foreign(header, samples, run_id, score, path))


# ------------------------------------------------------------------------------------------------ by our task module


def _flown_there(
    header: dict[str, Any],
    samples: list[dict[str, Any]],
    run_id: str,
    suite: Suite | None,
    environment: Environment | None,
    path: Path,
) -> InspectLog:
    own = header["metadata"][KEY]
    if suite is None or environment is None or own["suite_digest"] != suite.digest:
        raise GateError(
            f"the log was made with suite {own.get('suite')!r}" + (" as it was before" if suite is not None else ""),
            where=str(path),
            expected=f"suite digest {own['suite_digest']}",
            mend="name the suite with --suite, as it was frozen when Inspect ran it",
        )
    shares = {family: share for share in suite.strata for family in share.families}
    attempts, items = [], []
    for sample in samples:
        attempt = _attempt(sample, run_id, path)
        task = environment.task(attempt.task)
        attempts.append(attempt)
        items.append(item_of(task, shares[task.family], attempt))
    order = {task: number for number, task in enumerate(suite.task_digests)}
    items.sort(key=lambda item: (order[item.task], item.repeat))
    run = EvaluationRun(
        id=run_id,
        suite=suite.name,
        suite_digest=suite.digest,
        environment=environment.name,
        environment_digest=environment.digest,
        policy=f"inspect:{header.get('model') or 'unknown'}",
        noise=str(own.get("noise", "clean")),
        noise_digest=str(own.get("noise_digest", "")),
        composition_digest=str(own.get("composition_digest", "")),
        repeats=max(item.repeat for item in items) + 1,
        seed=int(own.get("seed", 0)),
        holdout=suite.holdout,
        weights={share.name: share.weight for share in suite.strata},
        items=tuple(items),
        rules=msgspec.convert(own.get("rules", {}), RunRules),
    )
    return InspectLog(run=run, attempts=tuple(attempts))


def _attempt(sample: dict[str, Any], run_id: str, path: Path) -> Attempt:
    table = (sample.get("metadata") or {}).get(KEY)
    try:
        attempt = msgspec.convert(table["attempt"], Attempt)  # type: ignore[index]  # a missing table is told below
    except (msgspec.ValidationError, KeyError, TypeError) as error:
        raise InputError(
            f"sample {sample.get('id')!r} holds no attempt: {error}",
            where=str(path),
            expected="every sample with what our task module wrote",
            mend="run it again: samples that were cut short hold nothing",
        ) from error
    return msgspec.structs.replace(attempt, id=f"{run_id}:{attempt.task}:{attempt.index}:{attempt.number}", run=run_id)


# ------------------------------------------------------------------------------------------------ of other tasks


def _foreign(
    header: dict[str, Any], samples: list[dict[str, Any]], run_id: str, score: str, path: Path
) -> EvaluationRun:
    items = tuple(_item(sample, score, path) for sample in samples)
    content = {str(s.get("id")): digest([s.get("input"), s.get("target")]) for s in samples}
    name = str(header.get("task") or path.stem)
    return EvaluationRun(
        id=run_id,
        suite=name,
        suite_digest=digest(content),
        environment=f"inspect:{name}",
        environment_digest=digest(content),
        policy=str(header.get("model") or "unknown"),
        noise="clean",
        noise_digest="",
        composition_digest=f"inspect: {score or 'its only score'}",
        repeats=max((item.repeat for item in items), default=0) + 1,
        seed=0,
        holdout=False,
        weights={"all": 1.0},
        items=items,
        lineage="read from an Inspect log: nobody compared its samples with training data",
    )


def _item(sample: dict[str, Any], score: str, path: Path) -> EvaluationItem:
    grade = None if sample.get("error") else _grade(sample, score, path)
    usage = sample.get("model_usage") or {}
    tokens = [u.get("output_tokens", 0) for u in usage.values() if isinstance(u, dict)]
    task = str(sample.get("id"))
    return EvaluationItem(
        task=task,
        family=task,
        stratum="all",
        trained=False,
        repeat=int(sample.get("epoch", 1)) - 1,
        seed=0,
        success=grade,
        outcome=Outcome.INFRA_FAILURE if grade is None else Outcome.SCORED,
        reason=EndReason.HARNESS_ERROR if grade is None else EndReason.FINISHED,
        violations=(),
        virtual_ms=0.0,
        wall_ms=1e3 * float(sample.get("total_time") or 0.0),
        num_tokens=sum(tokens),
        num_calls=sum(len(m.get("tool_calls") or ()) for m in sample.get("messages") or () if isinstance(m, dict)),
        num_retries=0,
        attempt=str(sample.get("uuid") or f"{task}:{sample.get('epoch', 1)}"),
        attempt_digest=digest(sample.get("messages")),
    )


def _grade(sample: dict[str, Any], score: str, path: Path) -> bool | None:
    scores = sample.get("scores") or {}
    if not scores:
        return None
    if not score and len(scores) > 1:
        raise InputError(
            f"several scores: {', '.join(scores)}",
            where=str(path),
            expected="one that is the grade",
            mend="name it with --score",
        )
    value = (scores.get(score) or {}).get("value") if score else next(iter(scores.values())).get("value")
    if isinstance(value, str) and value in _GRADES:
        return _GRADES[value]
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float) and 0 <= value <= 1:
        return value >= 1
    raise InputError(
        f"the score of sample {sample.get('id')!r} is {value!r}",
        where=str(path),
        expected="C or I, true or false, or a number from 0 to 1",
        mend="name another score with --score",
    )
