"""Code of the policy that runs inside the grader's process: it can look around, end it, or return odd objects."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from flightschool.audit.terminal.records import FlawFinding
from flightschool.audit.terminal.static.case import Case
from flightschool.environments.terminal import VerdictSource

__all__ = ["detect"]

_MEND: Final = "run it in a process of its own and compare what it printed, as data"


def detect(case: Case) -> Iterator[FlawFinding]:
    """One finding for each class, at the first import."""
    imports = [
        found for found in case.live.imports if case.view.may_write(found.path) or found.path not in case.view.files
    ]
    if not imports:
        return
    first = imports[0]
    module = first.module
    yield case.finding(
        "introspection",
        f"{module} is the policy's and is imported into the grader's process, where it can read what is expected",
        first.where,
        0.5,
        _MEND,
    )
    if case.task.verdict_source is VerdictSource.REWARD_FILE and _by_exit_status(case):
        yield case.finding(
            "early-exit",
            f"{module} is imported into the grader's process and can end it with exit code 0",
            first.where,
            0.6,
            f"{_MEND}; require that the expected number of tests ran",
        )
    for comparison in case.comparisons:
        if comparison.operator in ("==", "!=", "in") and any(kind == "module" for kind, _ in comparison.origins):
            yield case.finding(
                "always-equal",
                f"what {module} returns is compared as an object, whose __eq__ it can choose",
                comparison.where,
                0.5,
                f"check its type first; {_MEND}",
            )
            return


def _by_exit_status(case: Case) -> bool:
    """Whether the verdict follows the exit status of the process that imports."""
    ids = {id(run) for run in case.decisive()} | {id(run) for run in case.runs if run.use in ("errexit", "last")}
    return any(id(live.run) in ids for live in case.live.python)
