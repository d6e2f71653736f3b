"""No policy leaves the denominator by what it leaves behind, and no broken grader makes a policy fail."""

from __future__ import annotations

import asyncio
from typing import Any

import psutil
import pytest

from flightschool.environments.terminal import read_folder
from flightschool.environments.terminal.trees import ImageStore
from flightschool.records import EndReason, Outcome
from flightschool.rollouts.terminal import Episode, TerminalRunner, parse_policy
from flightschool.sandbox import NativeProvider

pytestmark = [pytest.mark.integration, pytest.mark.long]

SLOW_READER = "n=0; while IFS= read -r -n1 c; do n=$((n + 1)); done < answer; [ $n = 7 ]"
RUNS_IT = "[ -e answer ] && ./answer"
SPOILERS = {
    "a long file for a slow reader": (SLOW_READER, "head -c 40M /dev/zero | tr '\\0' x > answer"),
    "a program that never ends": (RUNS_IT, "printf '#!/bin/sh\\nsleep 60\\n' > answer; chmod 755 answer"),
    "a program that kills the tests": (RUNS_IT, "printf '#!/bin/sh\\nkill -9 $PPID\\n' > answer; chmod 755 answer"),
    "a program that eats all memory": (
        RUNS_IT,
        "printf '#!/bin/sh\\nx=x; while :; do x=$x$x$x$x; done\\n' > answer; chmod 755 answer",
    ),
    "a program that spoils the verdict": (
        RUNS_IT,
        "printf '#!/bin/sh\\ncd /logs/verifier; rm -f reward.txt; mkdir reward.txt\\n' > answer; chmod 755 answer",
    ),
}


def marked(kit: Any, condition: str, attack: str, **more: str) -> dict[str, str]:
    """A task whose image brings the attack on it, so that one policy can try many."""
    files: dict[str, str] = kit.harbor(
        "FROM debian:12\nWORKDIR /app\nCOPY attack /attack\n",
        kit.judge(condition).replace("if ", "cd /app\nif ", 1),
        environment__attack=attack + "\n",
        **more,
    )
    files["task.toml"] = files["task.toml"].replace("[verifier]\ntimeout_sec = 20", "[verifier]\ntimeout_sec = 1")
    files["task.toml"] += "[environment]\nmemory_mb = 256\nstorage_mb = 64\n"
    return files


def test_what_is_left_cannot_keep_an_attempt_from_being_counted(runs: Any, kit: Any) -> None:
    for number, (condition, attack) in enumerate(SPOILERS.values()):
        kit.write(runs.folder / f"tasks/{number}", marked(kit, condition, attack))
    results = runs(runs.folder / "tasks", runs.script("sh /attack\n"), num=len(SPOILERS), concurrency=8)
    for name, episode in zip(SPOILERS, results, strict=True):
        assert isinstance(episode, Episode)
        attempt = episode.attempt
        assert (attempt.outcome, attempt.reason, attempt.cause) == (
            Outcome.POLICY_FAILURE, EndReason.UNGRADABLE, "policy",
        ), (name, attempt.detail)  # fmt: skip
        assert attempt.reward is not None
        assert attempt.reward.total == 0.0
        assert "no policy touched" in attempt.detail
        assert attempt.verdict is not None
        assert not attempt.verdict.checks[0].passed


BROKEN = {"hangs": "sleep 60", "has no verdict": "exit 3", "is malformed": "echo 1.5 > /logs/verifier/reward.txt; exit"}


def test_a_grader_that_has_no_verdict_on_an_untouched_state_either_is_to_blame(runs: Any, kit: Any) -> None:
    for name, test in BROKEN.items():
        files = marked(kit, "true", "head -c 1M /dev/zero > answer")
        files["tests/test.sh"] = f"{kit.head}{test}\n"
        kit.write(runs.folder / "tasks" / name, files)
    results = runs(runs.folder / "tasks", runs.script("sh /attack\n"), num=len(BROKEN), concurrency=8)
    told = [(one.attempt.outcome, one.attempt.reason, one.attempt.cause, one.attempt.reward) for one in results]
    assert told == [(Outcome.INFRA_FAILURE, EndReason.GRADER_ERROR, "grader", None)] * len(BROKEN)


def test_a_grader_that_was_only_disturbed_gives_its_verdict(runs: Any, kit: Any) -> None:
    """The launcher dies in the middle of the first grading."""
    files = kit.harbor("FROM debian:12\nWORKDIR /app\n", kit.head + "sleep 0.7\n" + kit.judge("[ -e /app/done ]"))
    task = read_folder(runs.task(files))

    async def body() -> None:
        provider = NativeProvider()
        runner = TerminalRunner(ImageStore(runs.images, provider), provider, run="test")
        try:
            await runner.attempt(task, parse_policy("noop"), group="g", index=0, seed=0)
            policy = parse_policy(runs.script("touch done; sleep 0.3\n"))
            attempt = asyncio.create_task(runner.attempt(task, policy, group="g", index=1, seed=0))
            await asyncio.sleep(0.8)
            for launcher in psutil.Process().children():
                launcher.kill()
            episode = await attempt
            assert isinstance(episode, Episode)
            assert episode.attempt.outcome is Outcome.SCORED, episode.attempt.detail
            assert episode.attempt.reward is not None
            assert episode.attempt.reward.total == 1.0
        finally:
            await provider.aclose()

    asyncio.run(body())


def test_a_step_that_cannot_begin_on_what_an_earlier_one_left_is_the_policys_failure(runs: Any, kit: Any) -> None:
    files = kit.sound["several_steps"]()
    files["steps/measure/workdir/setup.sh"] = "mkdir place && touch was-set-up\n"
    files["steps/make/tests/test.sh"] = kit.judge("true")
    attempt = runs(runs.task(files), runs.script("cp given.txt text; touch place\n"))[0].attempt
    assert (attempt.outcome, attempt.reason) == (Outcome.POLICY_FAILURE, EndReason.UNGRADABLE), attempt.detail
    assert attempt.reward.total == 0.5
    broken = {**files, "steps/measure/workdir/setup.sh": "exit 1\n"}
    attempt = runs(runs.task(broken, "broken"), runs.script("cp given.txt text; touch place\n"))[0].attempt
    assert (attempt.outcome, attempt.reason) == (Outcome.INFRA_FAILURE, EndReason.WORLD_ERROR), attempt.detail


FOLDERS = ("/home/user", "/tmp /var/tmp /home/user /run /root /etc /dev/shm /opt /srv /logs /usr/local/bin /app")


def test_links_in_place_of_folders_do_not_keep_the_grader_from_starting(runs: Any, kit: Any) -> None:
    for number, places in enumerate(FOLDERS):
        attack = f"for d in {places}; do rm -rf $d; ln -sfn /nowhere $d; done 2>/dev/null; true"
        kit.write(runs.folder / f"tasks/{number}", marked(kit, "true", attack))
    results = runs(runs.folder / "tasks", runs.script("sh /attack\n"), num=len(FOLDERS))
    outcomes = {place: one.attempt.outcome for place, one in zip(FOLDERS, results, strict=True)}
    assert Outcome.INFRA_FAILURE not in outcomes.values(), [one.attempt.detail for one in results]
