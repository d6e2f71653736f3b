"""Evaluations in the workspace: kept with their digest in the audit log, and refused when they no longer have it."""

from __future__ import annotations

from flightschool.errors import GateError
from flightschool.evaluation.records import EvaluationRun
from flightschool.governance import AuditLog
from flightschool.protocols import Store

__all__ = ["EVALUATION_KIND", "keep_run", "load_run", "load_runs", "logged_digest"]

EVALUATION_KIND = "evaluation"
ACTION = "evaluate"


def keep_run(store: Store, run: EvaluationRun, *, actor: str) -> None:
    """Keep a run; its digest goes into the chained log, so that a score edited later is seen."""
    detail = {"digest": run.digest, "suite": run.suite, "suite_digest": run.suite_digest, "policy": run.policy}
    AuditLog(store).append(actor, ACTION, run.id, detail)
    store.put(EVALUATION_KIND, run.id, run)


def load_run(store: Store, run_id: str) -> EvaluationRun:
    """A kept run.

    Raises:
        NotFoundError: no such run.
        GateError: it is not what the log saw measured, or the log saw nothing.
    """
    return _as_logged(store.get(EVALUATION_KIND, run_id, EvaluationRun), logged_digest(store, run_id))


def load_runs(store: Store) -> tuple[EvaluationRun, ...]:
    """All kept runs in the order of keeping; the log is read once. Raises ``GateError`` as ``load_run``."""
    logged = {e.subject: str(e.detail["digest"]) for e in AuditLog(store).verified() if e.action == ACTION}
    return tuple(_as_logged(run, logged.get(key, "")) for key, run in store.items(EVALUATION_KIND, EvaluationRun))


def logged_digest(store: Store, run_id: str) -> str:
    """What the log saw measured under this id last; empty for nothing."""
    found = [e.detail["digest"] for e in AuditLog(store).verified() if e.action == ACTION and e.subject == run_id]
    return str(found[-1]) if found else ""


def _as_logged(run: EvaluationRun, logged: str) -> EvaluationRun:
    if run.digest != logged:
        run_id = run.id
        raise GateError(
            f"evaluation {run_id!r} is not what was measured: its record was changed"
            if logged
            else f"evaluation {run_id!r} was never measured, as far as the audit log knows",
            where=f"evaluation {run_id}",
            expected=f"digest {logged}, as in the audit log" if logged else "an entry in the audit log",
            mend="measure again, and find out who wrote to the database",
        )
    return run
