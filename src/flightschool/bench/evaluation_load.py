"""Our side of ``bench evaluation``, one measurement a process: a scripted evaluation kept on disk, and reading it back.

``python -m flightschool.bench.evaluation_load run|read|summary SAMPLES FOLDER``: a process of its own, so that its
memory is its own. Samples are two-step tasks of the worked domain: two tool calls through the boundary, three
messages of a scripted policy, checks, reward, record, everything kept.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path

from flightschool.errors import InputError
from flightschool.evaluation import EvaluationItem, EvaluationRun, Summary, evaluate, summarise
from flightschool.records import Attempt, EndReason, Outcome, StratumShare, Suite
from flightschool.store import SqlStore

__all__ = ["main"]

BATCH = 256
STRATUM = "two_step"
_RSS_UNIT = 1 if sys.platform == "darwin" else 1024


def main(what: str, samples: int, folder: str) -> dict[str, float]:
    """One measurement."""
    place = Path(folder) / ("store.sqlite" if what != "summary" else "summary.sqlite")
    with SqlStore(f"sqlite:///{place}") as store:
        if what == "run":
            return _run(store, samples)
        if what == "read":
            return _read(store)
        if what == "summary":
            return _summary(store)
    raise InputError(f"{what!r}", where="evaluation_load", expected="run, read or summary", mend="correct it")


def _run(store: SqlStore, samples: int) -> dict[str, float]:
    from flightschool.environments.desk import build_environment
    from flightschool.rollouts import OraclePolicy
    from flightschool.verification import OutcomeReward

    desk = build_environment()
    tasks = [task for task in desk.tasks() if task.stratum == STRATUM]
    suite = Suite(
        name="load",
        environment=desk.name,
        environment_digest=desk.digest,
        task_digests={task.id: task.digest for task in tasks},
        strata=(
            StratumShare(
                name=STRATUM,
                weight=1.0,
                num_tasks=len(tasks),
                families=tuple({task.family: None for task in tasks}),
                trained=False,
            ),
        ),
    )
    waiting: list[Attempt] = []

    def keep() -> None:
        store.put_many(("attempt", attempt.id, attempt) for attempt in waiting)
        waiting.clear()

    def note(attempt: Attempt) -> None:
        waiting.append(attempt)
        if len(waiting) >= BATCH:
            keep()

    repeats = max(1, samples // len(tasks))
    policy, composition = OraclePolicy(desk), OutcomeReward()
    started, cpu = time.perf_counter(), time.process_time()
    run = evaluate(
        suite, desk, policy, composition=composition, run="load", repeats=repeats, concurrency=100, on_attempt=note
    )
    keep()
    store.put("evaluation", run.id, run)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - started
    store.close()
    size = sum(path.stat().st_size for path in Path(str(store._parsed.database)).parent.iterdir())
    return {
        "samples": float(len(run.items)),
        "success": sum(bool(item.success) for item in run.items) / len(run.items),
        "cpu_ms": 1e3 * cpu / len(run.items),
        "wall_s": wall,
        "bytes": size / len(run.items),
        "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _RSS_UNIT / 1e6,
    }


def _read(store: SqlStore) -> dict[str, float]:
    started = time.perf_counter()
    run = store.get("evaluation", "load", EvaluationRun)
    attempts = sum(1 for _ in store.items("attempt", Attempt))
    return {"read_s": time.perf_counter() - started, "samples": float(len(run.items)), "attempts": float(attempts)}


def make_summary(folder: Path, samples: int) -> None:
    """A kept evaluation of that many samples, with its summary."""
    items = tuple(
        EvaluationItem(
            task=f"t{index % 2000}",
            family=f"f{index % 200}",
            stratum="all",
            trained=False,
            repeat=index // 2000,
            seed=index,
            success=index % 3 > 0,
            outcome=Outcome.SCORED,
            reason=EndReason.FINISHED,
            violations=(),
            virtual_ms=100.0,
            num_tokens=10,
            num_calls=2,
            num_retries=0,
            attempt=f"load:{index}",
            attempt_digest="sha256:" + "0" * 64,
        )
        for index in range(samples)
    )
    run = EvaluationRun(
        id="load",
        suite="s",
        suite_digest="d",
        environment="e",
        environment_digest="d",
        policy="p",
        noise="clean",
        noise_digest="",
        composition_digest="d",
        repeats=max(1, samples // 2000),
        seed=0,
        holdout=False,
        weights={"all": 1.0},
        items=items,
    )
    with SqlStore(f"sqlite:///{folder / 'summary.sqlite'}") as store:
        store.put("evaluation", run.id, run)
        store.put("evaluation-summary", run.id, summarise(run))


def _summary(store: SqlStore) -> dict[str, float]:
    started = time.perf_counter()
    summary = store.get("evaluation-summary", "load", Summary)
    return {"summary_s": time.perf_counter() - started, "items": float(summary.num_items)}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(sys.argv[1], int(sys.argv[2]), sys.argv[3])) + "\n")
