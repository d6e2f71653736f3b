"""Solutions given as keystrokes are typed into a shell on a real terminal inside, as the agent's user."""

from __future__ import annotations

from typing import Any

import pytest
from tests import needs
from tests.integration.terminal.episodes import only

from flightschool.environments.terminal import export_harbor, read_folder
from flightschool.records import Outcome
from flightschool.rollouts.terminal import Episode, NotRun

pytestmark = [pytest.mark.integration, pytest.mark.long]

PASSES = "if {}; then echo '=== 1 passed in 0.01s ==='; else echo '=== 1 failed in 0.01s ==='; fi\n"


def bench(solution: str, condition: str, dockerfile: str = "FROM debian:12\nWORKDIR /app\n") -> dict[str, str]:
    return {
        "task.yaml": "instruction: Type it.\nmax_agent_timeout_sec: 60\nmax_test_timeout_sec: 20\n",
        "Dockerfile": dockerfile,
        "run-tests.sh": "cd /app; " + PASSES.format(condition),
        "solution.yaml": solution,
    }


def total(episode: Episode) -> float | None:
    return None if episode.attempt.reward is None else episode.attempt.reward.total


def test_an_editor_is_used_as_a_person_does(runs: Any) -> None:
    needs.programs("vim", path="/usr/bin:/bin")
    solution = """\
- {command: "vim -u NONE -n page", min_timeout_sec: 1.5}
- {command: i, append_enter: false}
- {command: "one line"}
- {command: "another", append_enter: false}
- {command: Escape, append_enter: false}
- {command: kyyp, append_enter: false}
- {command: Down, append_enter: false}
- {command: dd, append_enter: false}
- {command: ":wq", block: false, min_timeout_sec: 0.5}
"""
    condition = '[ "$(cat page)" = "one line\none line" ]'.replace("\n", "\n")
    episode = only(runs(runs.task(bench(solution, condition)), "oracle"))
    assert total(episode) == 1.0, episode


def test_the_agents_user_types_and_what_was_typed_is_told(runs: Any) -> None:
    dockerfile = "FROM debian:12\nRUN useradd -m clerk\nWORKDIR /app\nRUN chown clerk /app\nUSER clerk\nENV WORD=plum\n"
    solution = "- command: echo $(whoami) $WORD $(pwd) > said\n  block: true\n"
    episode = only(runs(runs.task(bench(solution, '[ "$(cat said)" = "clerk plum /app" ]', dockerfile)), "oracle"))
    assert total(episode) == 1.0, episode
    told = [event.call.arguments.get("command") for event in episode.attempt.events]
    assert told[0] == "echo $(whoami) $WORD $(pwd) > said"
    assert episode.details is not None
    assert "echo $(whoami) $WORD" in episode.details.stages[0].output


def test_a_stroke_that_blocks_for_too_long_ends_the_solution(runs: Any) -> None:
    solution = "- {command: sleep 50, block: true, max_timeout_sec: 0.5}\n- {command: touch done, block: true}\n"
    episode = only(runs(runs.task(bench(solution, "[ -e done ]")), "oracle"))
    assert (total(episode), episode.attempt.detail) == (0.0, "exit code 124")
    assert episode.details is not None
    assert "'sleep 50' did not end in 0.5 s" in episode.details.stages[0].output


def test_a_shell_that_is_left_ends_the_solution_in_peace(runs: Any) -> None:
    solution = "- {command: touch done}\n- {command: exit, block: true}\n- {command: touch never, block: true}\n"
    episode = only(runs(runs.task(bench(solution, "[ -e done ] && [ ! -e never ]")), "oracle"))
    assert (episode.attempt.outcome, total(episode)) == (Outcome.SCORED, 1.0), episode


def test_what_would_be_fetched_is_seen_before_it_is_typed(runs: Any) -> None:
    solution = "- {command: pip install a-package-that-nobody-has, block: true}\n"
    (result,) = runs(runs.task(bench(solution, "true")), "oracle")
    assert isinstance(result, NotRun)
    assert (result.need, "solution.yaml" in result.reason) == ("network", True)


def test_an_image_without_python_cannot_be_typed_in(runs: Any) -> None:
    (runs.folder / "base-trees" / "bare_1" / "etc").mkdir(parents=True)
    (result,) = runs(runs.task(bench("- {command: ls}\n", "true", "FROM bare:1\n")), "oracle")
    assert isinstance(result, NotRun)
    assert (result.need, "typed by a program in Python" in result.reason) == ("solution", True)


@pytest.mark.parametrize("name", ["typed", "terminal_bench"])
def test_exported_as_harbor_the_oracle_passes_as_before(runs: Any, kit: Any, name: str) -> None:
    kit.skip_without(name)
    task = read_folder(runs.task(kit.sound[name]()))
    exported = export_harbor(task, runs.folder / "exported")
    assert exported.oracle == ("/bin/bash", "/solution/solve.sh")
    assert total(only(runs(runs.folder / "exported", "oracle"))) == 1.0
    assert total(only(runs(runs.folder / "exported", "noop"))) == 0.0
