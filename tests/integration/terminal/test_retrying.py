"""What the infrastructure loses is tried again, by a bounded rule, and no episode falls out of the count."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from flightschool.cli.rollout_folders import result_row
from flightschool.records import EndReason, Outcome
from flightschool.rollouts.terminal import Episode

pytestmark = [pytest.mark.integration, pytest.mark.long]


class Killer:
    """Kills the launcher whose sandbox runs ``sleep SECONDS``, for so many of them."""

    def __init__(self, most: int) -> None:
        self.seconds = f"1.{os.getpid():09}"
        self.most = most
        self.killed: set[int] = set()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Killer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.is_set() and len(self.killed) < self.most:
            for process in psutil.process_iter(["cmdline"]):
                if process.info["cmdline"] == ["sleep", self.seconds]:
                    with contextlib.suppress(psutil.Error, StopIteration):
                        launcher = next(one for one in process.parents() if one.ppid() == os.getpid())
                        if launcher.pid not in self.killed:
                            launcher.kill()
                            self.killed.add(launcher.pid)
            time.sleep(0.01)


@pytest.fixture
def killer(request: pytest.FixtureRequest) -> Iterator[Killer]:
    with Killer(request.param) as made:
        yield made


def episode_of(result: Any) -> Episode:
    assert isinstance(result, Episode), result
    return result


def numbers(episode: Episode) -> list[tuple[int, Outcome, EndReason]]:
    attempts = [one.attempt for one in (*episode.lost, episode)]
    assert [attempt.id for attempt in attempts] == [f"{attempts[0].id[:-1]}{n}" for n in range(len(attempts))]
    assert len({(attempt.group, attempt.index, attempt.seed) for attempt in attempts}) == 1
    return [(attempt.number, attempt.outcome, attempt.reason) for attempt in attempts]


@pytest.mark.parametrize("killer", [1], indirect=True)
def test_a_lost_sandbox_of_the_policy_is_tried_again(runs: Any, kit: Any, killer: Killer) -> None:
    task = runs.task(kit.harbor("FROM debian:12\nWORKDIR /app\n", kit.judge("[ -e /app/done ]")))
    (result,) = runs(task, runs.script(f"sleep {killer.seconds}; touch done\n"))
    episode = episode_of(result)
    assert numbers(episode) == [
        (0, Outcome.INFRA_FAILURE, EndReason.WORLD_ERROR),
        (1, Outcome.SCORED, EndReason.FINISHED),
    ]
    assert episode.lost[0].attempt.reward is None
    assert episode.attempt.reward is not None
    assert episode.attempt.reward.total == 1.0
    row = result_row(result, False)
    assert (row["outcome"], [one["reason"] for one in row["lost"]]) == ("scored", ["world_error"])


@pytest.mark.parametrize("killer", [1], indirect=True)
def test_a_lost_sandbox_of_the_tests_is_tried_again(runs: Any, kit: Any, killer: Killer) -> None:
    test = kit.judge(f"sleep {killer.seconds}; [ ! -e /app/done ]")
    (result,) = runs(runs.task(kit.harbor("FROM debian:12\nWORKDIR /app\n", test)), "noop")
    assert numbers(episode_of(result)) == [
        (0, Outcome.INFRA_FAILURE, EndReason.GRADER_ERROR),
        (1, Outcome.SCORED, EndReason.FINISHED),
    ]


@pytest.mark.parametrize("killer", [100], indirect=True)
def test_what_is_lost_to_the_end_stays_in_the_count(runs: Any, kit: Any, killer: Killer) -> None:
    """Three attempts and no more; its neighbours are judged."""
    judged = kit.judge("[ -e /app/done ]")
    runs.task(kit.harbor("FROM debian:12\nWORKDIR /app\n", judged), "all/a")
    runs.task(kit.harbor("FROM debian:12\nWORKDIR /app\nRUN touch lost\n", judged), "all/lost")
    act = f"if [ -e lost ]; then sleep {killer.seconds}; fi; touch done\n"
    kept, lost, more = map(episode_of, runs(runs.folder / "tasks/all", runs.script(act), num=3, concurrency=1))
    assert (kept.attempt.outcome, more.attempt.outcome) == (Outcome.SCORED, Outcome.SCORED)
    assert numbers(lost) == [(number, Outcome.INFRA_FAILURE, EndReason.WORLD_ERROR) for number in range(3)]
    assert lost.attempt.reward is None
    assert len(killer.killed) == 3


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"tests/test.sh": "mkdir -p /logs/verifier; echo nan > /logs/verifier/reward.txt\n"}, EndReason.GRADER_ERROR),
        ({"environment/Dockerfile": "FROM debian:12\nRUN exit 7\n"}, EndReason.WORLD_ERROR),
    ],
)
def test_what_the_task_itself_breaks_is_tried_once_more(
    runs: Any, kit: Any, files: dict[str, str], reason: EndReason
) -> None:
    task = runs.task(kit.harbor("FROM debian:12\nWORKDIR /app\n", kit.judge("true")) | files)
    (result,) = runs(task, "noop")
    assert numbers(episode_of(result)) == [(number, Outcome.INFRA_FAILURE, reason) for number in range(2)]


def test_what_the_policy_breaks_is_not_tried_again(runs: Any, kit: Any) -> None:
    task = runs.task(kit.harbor("FROM debian:12\nWORKDIR /app\n", kit.judge("[ -e /app/done ]")))
    (result,) = runs(task, runs.script("kill -9 $$\n"))
    assert numbers(episode_of(result)) == [(0, Outcome.POLICY_FAILURE, EndReason.POLICY_ERROR)]


@pytest.mark.parametrize("killer", [1], indirect=True)
def test_a_workspace_keeps_what_was_lost_and_counts_episodes(runs: Any, kit: Any, killer: Killer, tell: Any) -> None:
    runs.task(kit.harbor("FROM debian:12\nWORKDIR /app\n", kit.judge("[ -e /app/done ]")))
    assert tell(["init", "."], runs.folder)[0] == 0
    policy = runs.script(f"sleep {killer.seconds}; touch done\n")
    code, told = tell(["rollout", "./tasks/task", "--policy", policy, "-n", "2"], runs.folder)
    assert code == 0
    summary = told["summary"]
    assert (summary["num_episodes"], summary["num_scored"], summary["num_infra_failures"]) == (2, 2, 0)
    assert (summary["num_retries"], summary["success"]) == (sum(len(row["lost"]) for row in told["episodes"]), 1.0)
    assert summary["num_retries"] >= 1
    shown = tell(["runs", "show", summary["run"]], runs.folder)[1]["episodes"]
    assert sorted(row["outcome"] for row in shown) == ["infra_failure"] * summary["num_retries"] + ["scored"] * 2
