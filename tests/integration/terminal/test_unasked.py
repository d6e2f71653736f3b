"""Policy content that reaches the grader by ways nobody asked for: verdicts beside the verdict, settings of tools."""

from __future__ import annotations

from typing import Any

import pytest
from tests import needs

from flightschool.environments.terminal import grading, sifting
from flightschool.records import Outcome
from flightschool.rollouts.terminal import Episode

ROOT_HOME = "/root"

pytestmark = pytest.mark.integration

RIGHT = '[ "$(cat /app/answer 2>/dev/null)" = right ]'
FORGED = "#!/bin/sh\\necho '{\\\"reward\\\": 1}' > /logs/verifier/reward.json\\n"
FORGE = f'printf "{FORGED}" > /app/program; chmod 755 /app/program\n'


def run(runs: Any, task: Any, policy: str) -> Episode:
    (result,) = runs(task, policy)
    assert isinstance(result, Episode), result
    assert result.attempt.outcome is Outcome.SCORED, result.attempt.detail
    return result


def total(episode: Episode) -> float | None:
    return None if episode.attempt.reward is None else episode.attempt.reward.total


def left_out(episode: Episode) -> dict[str, str]:
    assert episode.details is not None
    graded = episode.details.stages[0].graded
    assert graded is not None
    return {one.path: one.why for one in graded.left_out}


def running(kit: Any, verdict: str = "") -> dict[str, str]:
    """Tests that run what the policy wrote, and judge something else."""
    test = f"{kit.head}[ -x /app/program ] && /app/program\n{verdict or kit.judge(RIGHT)}"
    files: dict[str, str] = kit.harbor("FROM debian:12\nWORKDIR /app\n", test)
    return files


def test_a_verdict_that_the_tests_do_not_speak_of_is_none(runs: Any, kit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    task = runs.task(running(kit))
    forged = run(runs, task, runs.script(FORGE))
    assert total(forged) == 0.0
    assert left_out(forged)["/logs/verifier/reward.json"] == "a verdict that no file of the task speaks of"
    folder = runs.script(FORGE.replace("echo '{\\\"reward\\\": 1}' >", "mkdir"), "folder.sh")
    assert total(run(runs, task, folder)) == 0.0, "nor does one spoil the tests' own"
    monkeypatch.setattr(grading, "own_verdicts", lambda task, files: (set(files), set()))
    assert total(run(runs, task, runs.script(FORGE))) == 1.0, "where it counts, it is believed"


@pytest.mark.parametrize(
    "verdict",
    [
        "echo '{\"reward\": 1}' > /logs/verifier/reward.json\necho 0 > /logs/verifier/reward.txt\n",
        "for kind in json; do echo '{\"reward\": 1}' > /logs/verifier/reward.$kind; done\n",
        ". /tests/write.sh\n",
    ],
)
def test_a_verdict_of_the_tests_own_counts_wherever_they_name_it(runs: Any, kit: Any, verdict: str) -> None:
    files = running(kit, verdict)
    if "write.sh" in verdict:
        files["tests/write.sh"] = "echo '{\"reward\": 1}' > /logs/verifier/reward.json\n"
        files["tests/test.sh"] += "# not reward.txt\n"
    assert total(run(runs, runs.task(files), "noop")) == 1.0


ROOT_REPOSITORY = (
    "FROM debian:12\nENV GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b\n"
    "WORKDIR /app\nRUN git init -q . && git commit -q --allow-empty -m begin\n"
)
EVIL = "printf '#!/bin/sh\\necho right > /app/answer\\n' > /app/evil; chmod 755 /app/evil\n"
SETTINGS = {
    "a file of jq": (
        "jq",
        "FROM debian:12\nWORKDIR /app\n",
        '[ "$(echo [] | jq length)" = 7 ]',
        "echo 'def length: 7;' > ~/.jq\n",
        f"{ROOT_HOME}/.jq",
    ),
    "a monitor of git": (
        "git",
        ROOT_REPOSITORY,
        f"git status --porcelain >&2; {RIGHT}",
        f"{EVIL}git config core.fsmonitor /app/evil\n",
        "",
    ),
    "a hook of git": (
        "git",
        ROOT_REPOSITORY,
        f"git commit -q --allow-empty -m x >&2; {RIGHT}",
        f"{EVIL}cp evil .git/hooks/pre-commit\n",
        "",
    ),
    "git's settings at home": (
        "git",
        ROOT_REPOSITORY,
        f"git status --porcelain >&2; {RIGHT}",
        f"{EVIL}git config --global core.fsmonitor /app/evil\n",
        f"{ROOT_HOME}/.gitconfig",
    ),
}


@pytest.mark.parametrize("what", SETTINGS)
def test_settings_of_tools_do_not_turn_the_tests(
    runs: Any, kit: Any, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, dockerfile, condition, attack, path = SETTINGS[what]
    needs.programs(program, path="/usr/bin")
    task = runs.task(kit.harbor(dockerfile, kit.judge(condition).replace("if ", "cd /app\nif ", 1)))
    policy = runs.script(attack)
    full = run(runs, task, policy)
    assert total(full) == 0.0
    assert not path or path in left_out(full)
    monkeypatch.setattr(sifting, "unasked_places", lambda homes, instruction: frozenset())
    monkeypatch.setattr(grading, "GIT_QUIET", {})
    monkeypatch.setattr(grading, "GIT_HOOKS_OFF", {})
    assert total(run(runs, task, policy)) == 1.0, "without the defence it does"


def test_settings_that_the_task_is_about_are_kept(runs: Any, kit: Any) -> None:
    """A task about a tool: its settings at home, and hooks, are the work itself."""
    files = kit.harbor("FROM debian:12\nWORKDIR /app\n", kit.judge('[ "$(git config --global user.name)" = me ]'))
    files["instruction.md"] = "Tell git who I am: me.\n"
    assert total(run(runs, runs.task(files, "git"), runs.script("git config --global user.name me\n"))) == 1.0
    files = kit.harbor(
        ROOT_REPOSITORY, kit.judge(f"git commit -q --allow-empty -m x && {RIGHT}").replace("if ", "cd /app\nif ", 1)
    )
    files["instruction.md"] = "Write a pre-commit hook that writes right into /app/answer.\n"
    hook = f"{EVIL}mv evil .git/hooks/pre-commit\n"
    assert total(run(runs, runs.task(files, "hook"), runs.script(hook))) == 1.0
