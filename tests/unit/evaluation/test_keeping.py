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


def test_a_run_that_the_log_never_saw_is_refused(run_of: Any, store: SqlStore) -> None:
    store.put("evaluation", "eval-0002", run_of([True] * 4, id="eval-0002"))
    with pytest.raises(GateError, match="never measured"):
        load_run(store, "eval-0002")
    with pytest.raises(NotFoundError):
        load_run(store, "eval-0009")
