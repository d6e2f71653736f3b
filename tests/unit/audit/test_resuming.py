"""An audit that was cut off goes on with what it kept, and finds what an uncut one finds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flightschool.audit import TaskReports, audit_environment, auditing, open_journal
from flightschool.audit.journal import Lines
from flightschool.verification import OutcomeReward

NUM = 6


def journal(folder: Path, environment: Any, **more: Any) -> Lines[TaskReports]:
    return open_journal(folder, environment, OutcomeReward(), repeats=2, **more)


def audit(environment: Any, **more: Any) -> Any:
    tasks = environment.tasks()[:NUM]
    return audit_environment(environment, composition=OutcomeReward(), tasks=tasks, repeats=2, **more)


class CutOffError(Exception):
    """Stands for a kill."""


def test_an_audit_that_was_cut_off_goes_on(price_list: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auditing, "BATCH_S", 0.0)  # each task is a batch, and kept
    whole = audit(price_list)

    def cut(num_done: int, num_tasks: int) -> None:
        if num_done == 4:
            raise CutOffError

    with pytest.raises(CutOffError):
        audit(price_list, journal=journal(tmp_path, price_list), progress=cut)

    begun: list[str] = []
    examine = auditing._examine

    def watched(task: Any, *rest: Any) -> Any:
        begun.append(task.id)
        return examine(task, *rest)

    monkeypatch.setattr(auditing, "_examine", watched)
    told: list[tuple[int, int]] = []
    kept = journal(tmp_path, price_list)
    again = audit(price_list, journal=kept, progress=lambda *counts: told.append(counts))
    assert begun == [task.id for task in price_list.tasks()[3:NUM]], "the fourth was not judged again: it is not kept"
    assert told == [(3, 6), (4, 6), (5, 6), (6, 6)]
    assert again == whole, "the ceiling over all tasks included"
    kept.forget()
    assert not list(tmp_path.rglob("*.jsonl")), "what ended leaves nothing behind"


def test_what_changed_or_is_asked_otherwise_begins_anew(price_list: Any, tmp_path: Path) -> None:
    tasks = price_list.tasks()
    audit(price_list, journal=journal(tmp_path, price_list))
    key = next(iter(journal(tmp_path, price_list)._places))
    assert journal(tmp_path, price_list).find(key) is not None
    assert journal(tmp_path, price_list, seed=3).find(key) is None
    assert journal(tmp_path, price_list, source="desk.py 1700000000").find(key) is None
    price_list.change(tasks[0].id, instruction="Give bolt the price of gear, please.")
    assert journal(tmp_path, price_list).find(key) is None, "siblings are tried on every task"
    assert journal(tmp_path, price_list, fresh=True).find(key) is None
