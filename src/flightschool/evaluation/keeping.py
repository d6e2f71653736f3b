"""Evaluations in the workspace: kept with their digest in the audit log, and refused when they no longer have it."""

from __future__ import annotations

from flightschool.errors import GateError
from flightschool.evaluation.records import EvaluationRun
from flightschool.governance import AuditLog
from flightschool.protocols import Store

__all__ = ["EVALUATION_KIND", "keep_run", "load_run"]

EVALUATION_KIND = "evaluation"
ACTION = "evaluate"


def keep_run(store: Store, run: EvaluationRun, *, actor: str) -> None:
    """Keep a run; its digest goes into the chained log, so that a score edited later is seen."""
    detail = {"digest": run.digest, "suite": run.suite, "suite_digest": run.suite_digest, "policy": run.policy}
    AuditLog(store).append(actor, ACTION, run.id, detail)
    store.put(EVALUATION_KIND, run.id, run)


def load_run(store: Store, run_id: str) -> EvaluationRun:
    """A kept run. Runs that were kept without a log entry (by a training job) are given as they are.

    Raises:
        NotFoundError: no such run.
        GateError: it is not what the log saw measured.
    """
    run = store.get(EVALUATION_KIND, run_id, EvaluationRun)
    logged = [e.detail["digest"] for e in AuditLog(store).entries() if e.action == ACTION and e.subject == run_id]
    if logged and run.digest != logged[-1]:
        raise GateError(
            f"evaluation {run_id!r} is not what was measured: its record was changed",
            where=f"evaluation {run_id}",
            expected=f"digest {logged[-1]}, as in the audit log",
            mend="measure again, and find out who wrote to the database",
        )
    return run
