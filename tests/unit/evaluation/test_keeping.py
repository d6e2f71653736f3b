from __future__ import annotations

from typing import Any

import msgspec
import pytest

from flightschool.errors import GateError, NotFoundError
from flightschool.evaluation import keep_run, load_run
from flightschool.store import SqlStore


def test_an_edited_score_is_refused(run_of: Any, store: SqlStore) -> None:
    run = run_of([True, False] * 8, id="eval-0001")
    keep_run(store, run, actor="Vera")
    assert load_run(store, "eval-0001") == run
    first, *others = run.items
    better = msgspec.structs.replace(first, success=not first.success)
    store.put("evaluation", "eval-0001", msgspec.structs.replace(run, items=(better, *others)))
    with pytest.raises(GateError, match="its record was changed"):
        load_run(store, "eval-0001")


def test_runs_of_a_training_job_have_no_entry_and_are_given_as_they_are(run_of: Any, store: SqlStore) -> None:
    store.put("evaluation", "job-before", run_of([True] * 4, id="job-before"))
    assert load_run(store, "job-before").num_missing == 0
    with pytest.raises(NotFoundError):
        load_run(store, "eval-0009")
