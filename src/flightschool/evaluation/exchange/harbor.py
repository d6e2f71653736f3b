"""Harbor jobs: results of an evaluation as a job folder, and job folders as evaluations.

A job is a folder with ``result.json`` and one folder a trial with another. Written for Harbor's own reader and viewer:
a trial without a grade has no verifier result and names its exception, so that Harbor calls its reward invalid too.

Read back, a job of anybody's becomes an evaluation: the suite is the dataset with the checksums of its tasks, the agent
with its model the policy. Two jobs can then be compared in pairs with all that ``compare`` asks for; jobs whose tasks
differ by a byte are refused.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flightschool.digest import digest
from flightschool.errors import InputError
from flightschool.evaluation.exchange.own import KEY, edited, header_of, item_table, rebuilt
from flightschool.evaluation.records import EvaluationItem, EvaluationRun
from flightschool.records import EndReason, Json, Outcome

__all__ = ["read_harbor_job", "write_harbor_job"]

_RESULT = "result.json"
_NAMESPACE = uuid.UUID("6f0b6e3a-6b0e-5d4e-9a63-0c3d1b1f9c55")
_EPOCH = "2023-11-14T22:13:20+00:00"
_INFRA_NAMES = {EndReason.GRADER_ERROR: "VerifierTimeoutError", EndReason.ENGINE_ERROR: "APIConnectionError"}
_ENVIRONMENT_FAILED = "EnvironmentStartTimeoutError"
_EXPECTED = "a job folder of Harbor: result.json, and a folder with another one for each trial"


def write_harbor_job(run: EvaluationRun, task_digests: Mapping[str, str], folder: Path) -> int:
    """Write a job folder that must not exist yet; returns the number of trials.

    Args:
        run: what was measured.
        task_digests: of the suite; the tasks' checksums.
        folder: of the job.

    Raises:
        InputError: the folder exists.
    """
    if folder.exists():
        raise InputError(
            "the folder exists", where=str(folder), expected="a new folder", mend="choose another name for --out"
        )
    folder.mkdir(parents=True)
    names = [_trial_name(run, number, item) for number, item in enumerate(run.items)]
    for name, item in zip(names, run.items, strict=True):
        _write(folder / name / _RESULT, _trial(run, item, name, task_digests.get(item.task, "")))
    _write(folder / _RESULT, _job(run, names))
    return len(names)


def read_harbor_job(folder: Path, run_id: str) -> EvaluationRun:
    """A job folder as an evaluation.

    Args:
        folder: of the job.
        run_id: id of the evaluation.

    Raises:
        InputError: no job, a result that cannot be read, or a task with two checksums.
        GateError: our own export was edited, or lacks a part.
    """
    paths = sorted(path for path in folder.glob(f"*/{_RESULT}"))
    if not paths:
        raise InputError("no trials", where=str(folder), expected=_EXPECTED, mend="name the folder of one job")
    trials = [_load(path) for path in paths]
    own = _own_job(folder)
    if own is not None:
        by_name = {path.parent.name: _own(trial) for path, trial in zip(paths, trials, strict=True)}
        return rebuilt(own, [by_name.get(name) for name in own["trials"]], str(folder))
    if any(_own(trial) is not None for trial in trials):
        raise edited(
            "its trials are of an export of this package, whose own result.json is gone or changed", str(folder)
        )
    checksums = _checksums(trials, folder)
    repeats: Counter[str] = Counter()
    items = []
    for trial, path in zip(trials, paths, strict=True):
        task = str(trial["task_name"])
        items.append(_item(trial, repeats[task], path))
        repeats[task] += 1
    agents = {_agent(trial) for trial in trials}
    if len(agents) > 1:
        raise InputError(
            f"the job holds {len(agents)} agents: {', '.join(sorted(agents)[:4])}",
            where=str(folder),
            expected="one agent with one model",
            mend="run a job for each, or move the trials apart",
        )
    dataset = str(trials[0].get("source") or folder.name)
    return EvaluationRun(
        id=run_id,
        suite=dataset,
        suite_digest=digest(checksums),
        environment="harbor",
        environment_digest=digest(checksums),
        policy=agents.pop(),
        noise="clean",
        noise_digest="",
        composition_digest="harbor: reward of 1 or more",
        repeats=max(repeats.values()),
        seed=0,
        holdout=False,
        weights={"all": 1.0},
        items=tuple(items),
        lineage="read from a Harbor job: nobody compared its tasks with training data",
    )


# ------------------------------------------------------------------------------------------------ out


def _trial_name(run: EvaluationRun, number: int, item: EvaluationItem) -> str:
    plain = "".join(char if char.isalnum() or char in "-." else "-" for char in item.task)[:80].strip("-.") or "task"
    return f"{plain}__{digest([run.id, number]).removeprefix('sha256:')[:7]}"


def _trial(run: EvaluationRun, item: EvaluationItem, name: str, checksum: str) -> dict[str, Json]:
    graded = item.success is not None
    task = {"path": item.task}
    return {
        "schema_version": 1,
        "id": str(uuid.uuid5(_NAMESPACE, f"{run.digest}/{name}")),
        "task_name": item.task,
        "trial_name": name,
        "trial_uri": f"flightschool://{run.id}/{item.attempt}",
        "task_id": task,
        "source": run.suite,
        "task_checksum": checksum.removeprefix("sha256:"),
        "config": {"task": task, "trial_name": name},
        "agent_info": {"name": run.policy, "version": run.suite_digest[:19]},
        "agent_result": {
            "n_output_tokens": item.num_tokens,
            "cost_usd": item.cost_usd,
            "metadata": {KEY: item_table(item)},
        },
        "verifier_result": {"rewards": {"reward": float(bool(item.success))}} if graded else None,
        "exception_info": None if graded else _exception(item),
        "started_at": _EPOCH,
        "finished_at": _EPOCH,
    }


def _exception(item: EvaluationItem) -> dict[str, Json]:
    return {
        "exception_type": _INFRA_NAMES.get(item.reason, _ENVIRONMENT_FAILED),
        "exception_message": f"{item.reason} after {item.num_retries} retries",
        "exception_traceback": "",
        "occurred_at": _EPOCH,
    }


def _job(run: EvaluationRun, names: Sequence[str]) -> dict[str, Json]:
    rewards: defaultdict[str, list[str]] = defaultdict(list)
    errors: defaultdict[str, list[str]] = defaultdict(list)
    for name, item in zip(names, run.items, strict=True):
        if item.success is None:
            errors[_INFRA_NAMES.get(item.reason, _ENVIRONMENT_FAILED)].append(name)
        else:
            rewards[str(float(item.success))].append(name)
    graded = [float(bool(item.success)) for item in run.graded]
    stats = {
        "n_trials": len(names),
        "n_errors": run.num_missing,
        "metrics": [{"mean": sum(graded) / len(graded)}] if graded else [],
        "reward_stats": {"reward": rewards},
        "exception_stats": errors,
    }
    return {
        "schema_version": 1,
        "id": str(uuid.uuid5(_NAMESPACE, run.digest)),
        KEY: {**header_of(run), "trials": list(names)},
        "started_at": _EPOCH,
        "updated_at": _EPOCH,
        "finished_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "n_total_trials": len(names),
        "stats": {
            "n_completed_trials": len(names),
            "n_errored_trials": run.num_missing,
            "evals": {f"{run.policy}__{run.suite}": stats},
        },
    }


def _write(path: Path, value: Json) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


# ------------------------------------------------------------------------------------------------ in


def _load(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(value, dict) or not isinstance(value.get("task_name"), str):
            raise ValueError("no trial: it names no task")
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(
            f"a trial cannot be read: {error}", where=str(path), expected=_EXPECTED, mend="copy the job once more"
        ) from error
    return value


def _checksums(trials: Sequence[dict[str, Any]], folder: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for trial in trials:
        checksum, task = str(trial.get("task_checksum")), trial["task_name"]
        if found.setdefault(task, checksum) != checksum:
            raise InputError(
                f"task {task!r} has two checksums: it was changed in the middle of the job",
                where=str(folder),
                expected="one content of each task",
                mend="run the job again",
            )
    return found


def _item(trial: dict[str, Any], repeat: int, path: Path) -> EvaluationItem:
    reward = _reward(trial, path)
    timing = trial.get("agent_execution") or {}
    context = trial.get("agent_result") or {}
    return EvaluationItem(
        task=trial["task_name"],
        family=trial["task_name"],
        stratum="all",
        trained=False,
        repeat=repeat,
        seed=0,
        success=None if reward is None else reward >= 1,
        outcome=Outcome.INFRA_FAILURE if reward is None else Outcome.SCORED,
        reason=EndReason.GRADER_ERROR if reward is None else EndReason.FINISHED,
        violations=(),
        virtual_ms=0.0,
        wall_ms=_milliseconds(timing),
        num_tokens=_count(context.get("n_output_tokens")),
        num_calls=0,
        num_retries=0,
        cost_usd=context.get("cost_usd"),
        attempt=str(trial.get("trial_name") or path.parent.name),
        attempt_digest=digest(trial),
    )


def _own_job(folder: Path) -> dict[str, Any] | None:
    """The header of a job that this package wrote."""
    path = folder / _RESULT
    if not path.is_file():
        return None
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(
            f"the job's result cannot be read: {error}", where=str(path), expected=_EXPECTED, mend="copy it once more"
        ) from error
    own = value.get(KEY) if isinstance(value, dict) else None
    return own if isinstance(own, dict) and isinstance(own.get("trials"), list) else None


def _own(trial: dict[str, Any]) -> Json:
    """The item, where this package wrote the trial."""
    context = trial.get("agent_result")
    metadata = context.get("metadata") if isinstance(context, dict) else None
    return metadata.get(KEY) if isinstance(metadata, dict) else None


def _reward(trial: dict[str, Any], path: Path) -> float | None:
    """The reward; None where Harbor itself calls it invalid, or gave none: never 0."""
    result = trial.get("verifier_result")
    rewards = result.get("rewards") if isinstance(result, dict) else None
    valid = trial.get("reward_valid", rewards is not None)
    if not rewards or not valid:
        return None
    value = rewards.get("reward", next(iter(rewards.values())) if len(rewards) == 1 else None)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(
            f"several rewards and none called 'reward': {', '.join(rewards)}",
            where=str(path),
            expected="one reward of each trial",
            mend="let the verifier write one number called reward",
        )
    return float(value)


def _agent(trial: dict[str, Any]) -> str:
    info = trial.get("agent_info") or {}
    model = (info.get("model_info") or {}).get("name")
    return f"{info.get('name', 'agent')}" + (f" ({model})" if model else "")


def _milliseconds(timing: dict[str, Any]) -> float:
    try:
        ends = [datetime.fromisoformat(str(timing[key])) for key in ("started_at", "finished_at")]
    except (KeyError, ValueError):
        return 0.0
    return max(0.0, (ends[1] - ends[0]).total_seconds() * 1e3)


def _count(value: Json) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
