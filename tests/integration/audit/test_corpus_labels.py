"""Every label of the corpus, of each half, is shown by running it: proofs, attacks, the solution, doing nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests import needs

from flightschool.records import Outcome
from flightschool.rollouts.terminal import Episode
from flightschool.testing.corpus import CorpusTask, corpus_digest, read_corpus

pytestmark = [pytest.mark.integration, pytest.mark.long]

CORPUS = Path(__file__).parents[2] / "corpus" / "audit"
HALVES = {half: read_corpus(CORPUS / half) for half in ("unseen", "second", "third", "fourth", "fifth")}
TASKS = {task.id: task for tasks in HALVES.values() for task in tasks}
NUM_FLAKY = 16
"""Repeats of a flaky solution. Each fails a third to two thirds of the time, so all alike is one in 600."""


def sample() -> list[str]:
    """One task of each verdict of the first half, two of its large classes; three, two, one of the others."""
    wanted = {
        "unseen": {"sound": 2, "exploitable": 2},
        "second": {"sound": 1, "exploitable": 1, "leaking": 1},
        "third": {"sound": 1, "refuses-correct-work": 1},
        "fourth": {"leaking": 1},
        "fifth": {},
    }
    chosen: list[str] = []
    for half, tasks in HALVES.items():
        by_verdict: dict[str, list[str]] = {}
        for task in tasks:
            by_verdict.setdefault(task.verdict, []).append(task.id)
        for verdict, ids in by_verdict.items():
            chosen += ids[: wanted[half].get(verdict, int(half == "unseen"))]
    return chosen


class Rolls:
    """Runs policies on one unpacked task."""

    def __init__(self, task: CorpusTask, folder: Path, flights: Any) -> None:
        self.task = task
        self.folder = task.unpack(folder / "tasks")
        self.programs = task.unpack_programs(folder / "programs")
        self.flights = flights

    def __call__(self, policy: str, num: int = 1) -> list[Any]:
        return list(self.flights(self.folder, policy, num))

    def passes(self, policy: str, num: int = 1) -> list[bool | None]:
        """Of each episode whether it passed; None: it has no verdict."""
        passed: list[bool | None] = []
        for result in self(policy, num):
            assert isinstance(result, Episode), result
            reward = result.attempt.reward
            assert (reward is None) == (result.attempt.outcome is Outcome.INFRA_FAILURE)
            passed.append(None if reward is None else reward.total >= self.task.pass_mark)
        return passed


def show(rolls: Rolls) -> None:
    """Run what proves the label."""
    task = rolls.task
    if task.verdict == "unaudited":
        assert not isinstance(rolls("oracle")[0], Episode)
        return
    if task.verdict == "broken-oracle":
        assert True not in rolls.passes("oracle", 2)
        return
    if task.verdict == "flaky":
        assert set(rolls.passes("oracle", NUM_FLAKY)) == {True, False}
        assert rolls.passes("noop") == [False]
        return
    num = 3 if task.verdict in ("sound", "refuses-correct-work") else 1
    assert rolls.passes("oracle", num) == [True] * num
    if task.proof is not None:
        wanted = {"passes": True, "refused": False, "no-verdict": None}[task.shows]
        assert rolls.passes(f"script:{rolls.programs / task.proof.path}") == [wanted]
    if task.verdict in ("sound", "refuses-correct-work"):
        assert rolls.passes("noop") == [False]
    if task.verdict == "sound":
        for attack in (*(rolls.programs / file.path for file in task.attacks), CORPUS / "battery.sh"):
            assert rolls.passes(f"script:{attack}") == [False], attack.name


def _check(task: CorpusTask, tmp_path: Path, flights: Any) -> None:
    needs.programs(*task.programs)
    show(Rolls(task, tmp_path, flights))


@pytest.mark.parametrize("name", sample())
def test_labels_of_a_sample_are_true(name: str, tmp_path: Path, flights: Any) -> None:
    _check(TASKS[name], tmp_path, flights)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(TASKS))
def test_all_labels_are_true(name: str, tmp_path: Path, flights: Any) -> None:
    _check(TASKS[name], tmp_path, flights)


@pytest.mark.parametrize("half", HALVES)
def test_each_half_is_large_and_broad_enough(half: str) -> None:
    tasks = HALVES[half]
    flawed = [task for task in tasks if task.verdict != "sound"]
    assert len(flawed) >= 60
    assert len(tasks) - len(flawed) >= 30
    assert len({row for task in flawed for row in task.rows}) >= 30


@pytest.mark.parametrize("half", ["second", "third", "fourth", "fifth"])
def test_a_sealed_half_is_what_was_sealed(half: str) -> None:
    assert corpus_digest(CORPUS / half) in (CORPUS / "README.md").read_text(encoding="utf-8")
