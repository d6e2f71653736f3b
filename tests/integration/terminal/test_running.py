"""Tasks are run whole: built, attempted, graded elsewhere. The oracle gets 1, doing nothing does not."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.integration.terminal.episodes import only

from flightschool.environments.terminal import UnreadableTask, read_folder
from flightschool.environments.terminal.rooms import Rooms
from flightschool.environments.terminal.trees import Account, Image, ImageStore, Tree
from flightschool.records import EndReason, Outcome
from flightschool.rollouts.terminal import Episode, NotRun, TerminalRunner, parse_policy, regrade
from flightschool.sandbox import Limits, NativeProvider
from flightschool.sandbox.helper import find_helper

pytestmark = pytest.mark.integration


def test_the_oracle_solves_and_doing_nothing_does_not(runs: Any, sound: tuple[str, dict[str, str]]) -> None:
    name, files = sound
    task = runs.task(files, name)
    oracle = only(runs(task, "oracle")).attempt
    assert (oracle.outcome, oracle.reward and oracle.reward.total) == (Outcome.SCORED, 1.0), oracle
    noop = only(runs(task, "noop")).attempt
    assert noop.outcome is Outcome.SCORED
    assert noop.reward is not None
    assert noop.reward.total < 1.0


def test_the_same_as_an_ordinary_user(
    tmp_path: Path, kit: Any, as_ordinary: Callable[[Callable[[], None]], None]
) -> None:
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents:
        if parent.stat().st_uid == os.geteuid() and str(parent).startswith("/tmp/"):
            parent.chmod(0o755)
    own = tmp_path / "own"
    own.mkdir()
    if os.geteuid() == 0:
        os.chown(own, kit.ordinary, kit.ordinary)
    run = kit.runs(own, ordinary=True)
    parent = tmp_path / "tasks"
    for name in kit.sound:
        kit.write(parent / name, kit.sound[name]())

    def work() -> None:
        results = run(parent, "oracle", num=len(kit.sound))
        assert not [found for found in results if isinstance(found, UnreadableTask)], results
        told = {r.attempt.task: (r.attempt.outcome.value, r.attempt.detail, r.attempt.reward) for r in results}
        assert len(told) == len(kit.sound)
        for name, (outcome, detail, reward) in told.items():
            assert (outcome, reward and reward.total) == ("scored", 1.0), (name, detail)

    as_ordinary(work)


def solution_language(files: dict[str, str]) -> str:
    first = files.get("solution/solve.sh", "").split("\n")[0]
    return first.rpartition("/")[2].removeprefix("env ").split(" ")[0] if first.startswith("#!") else "bash"


def test_the_tasks_of_these_tests_cover_what_is_promised(kit: Any) -> None:
    """At least twelve; which of them has what."""
    tasks = {name: make() for name, make in kit.sound.items()}
    assert len(tasks) >= 12
    assert {"awk", "perl", "node"} <= {solution_language(files) for files in tasks.values()}
    dockerfiles = {name: files.get("environment/Dockerfile", "") for name, files in tasks.items()}
    for keyword in ("FROM", "COPY", "ADD", "WORKDIR", "ENV", "ARG", "USER", "RUN", "SHELL"):
        assert any(f"\n{keyword} " in f"\n{text}" for text in dockerfiles.values()), keyword
    for words in ("--chown=", "--chmod=", "<<END", "apt-get install", "pip install", 'ADD ["', "pack.tar"):
        assert any(words in text for text in dockerfiles.values()), words
    parts = "task.toml task.yaml instruction.md tests/test.sh solution/solve.sh steps/measure/workdir/setup.sh"
    parts += " solution.sh solution.yaml"
    for name in parts.split():
        assert any(name in files for files in tasks.values()), name
    told = " ".join(text for files in tasks.values() for text in files.values())
    for words in ("[[steps]]", "min_reward", '"final"', "reward.json", "reward.txt", 'user = "root"', "memory_mb"):
        assert words in told, words


@pytest.mark.parametrize(
    ("verdict", "problem"),
    [
        ("nan", "nan"),
        ("1.5", "above_one"),
        ("-1", "below_zero"),
        ("passed", "not_a_number"),
        ("", "empty"),
    ],
)
def test_a_malformed_verdict_is_the_graders_failure(runs: Any, kit: Any, verdict: str, problem: str) -> None:
    test = f"{kit.head}printf %s '{verdict}' > /logs/verifier/reward.txt\n"
    attempt = only(runs(runs.task(kit.harbor("FROM debian:12\n", test)), "noop")).attempt
    assert (attempt.outcome, attempt.reason, attempt.cause) == (
        Outcome.INFRA_FAILURE, EndReason.GRADER_ERROR, "grader",
    )  # fmt: skip
    assert attempt.reward is None
    assert attempt.verdict is None
    assert problem in attempt.detail


@pytest.mark.parametrize(
    ("test", "told"),
    [
        ("exit 0\n", "no verdict"),
        ("exit 3\n", "exit code 3"),
        ("echo 1 > /logs/verifier/reward.txt; sleep 60\n", "did not end within 1 s"),
        ("echo 1 > /logs/verifier/reward.txt; kill -9 $$\n", "signal 9"),
        ("echo '{\"reward\": 2}' > /logs/verifier/reward.json; echo 1 > /logs/verifier/reward.txt\n", "above_one"),
        ("ln -s /etc/hostname /logs/verifier/reward.txt\n", "symbolic link"),
        ("mkfifo /logs/verifier/reward.txt\n", "not a regular file"),
        ("echo 1 > /logs/one; ln /logs/one /logs/verifier/reward.txt\n", "hard link"),
    ],
)
def test_a_grader_that_breaks_scores_nobody(runs: Any, kit: Any, test: str, told: str) -> None:
    files = kit.harbor("FROM debian:12\n", kit.head + test)
    files["task.toml"] = files["task.toml"].replace("[verifier]\ntimeout_sec = 20", "[verifier]\ntimeout_sec = 1")
    attempt = only(runs(runs.task(files), "noop")).attempt
    assert (attempt.reason, attempt.reward) == (EndReason.GRADER_ERROR, None)
    assert told in attempt.detail


def test_what_cannot_be_built_here_is_said_and_not_scored(runs: Any, kit: Any) -> None:
    parent = runs.folder / "tasks"
    good = kit.judge("true")
    runs.task(kit.harbor("FROM debian:12\nRUN echo one\nRUN curl -fsSL https://example.org/x -o /x\n", good), "fetches")
    runs.task(kit.harbor("FROM golang:1 AS b\nFROM debian:12\nCOPY --from=b /t /t\n", good), "stages")
    runs.task(kit.harbor("FROM debian:12\n", kit.head + "pip install a-package-that-nobody-has\n"), "tests_fetch")
    secret = kit.toml.replace("[verifier]\n", '[verifier]\nenv = { KEY = "${A_KEY}", OTHER = "${B:-b}" }\n')
    runs.task(kit.harbor("FROM debian:12\n", good) | {"task.toml": secret}, "secret")
    results = {result.task: result for result in runs(parent, "noop", num=4) if isinstance(result, NotRun)}
    assert {name: result.need for name, result in results.items()} == {
        "fetches": "network", "stages": "docker", "tests_fetch": "network", "secret": "variable",
    }  # fmt: skip
    assert results["fetches"].reason.startswith("environment/Dockerfile:3: ")
    assert results["stages"].reason.startswith("environment/Dockerfile:3: ")
    assert "tests/test.sh" in results["tests_fetch"].reason
    assert "A_KEY" in results["secret"].reason


def test_a_failing_step_is_told_with_its_line_and_its_words(runs: Any, kit: Any) -> None:
    dockerfile = "FROM debian:12\nWORKDIR /app\nRUN echo before \\\n && echo the reason >&2 && exit 7\n"
    attempt = only(runs(runs.task(kit.harbor(dockerfile, kit.judge("true"))), "noop")).attempt
    assert (attempt.outcome, attempt.reason, attempt.cause) == (
        Outcome.INFRA_FAILURE, EndReason.WORLD_ERROR, "world",
    )  # fmt: skip
    for word in ("environment/Dockerfile:3", "exit code 7", "the reason"):
        assert word in attempt.detail
    kept = [place.name for place in runs.images.iterdir() if not place.name.startswith(("base-", "present-"))]
    assert kept == []


def test_what_a_policys_program_can_cause_stays_in_the_denominator(runs: Any, kit: Any) -> None:
    files = kit.harbor("FROM debian:12\nWORKDIR /app\n", kit.judge("[ -e /app/done ]"))
    files["task.toml"] = files["task.toml"].replace("[agent]\ntimeout_sec = 20", "[agent]\ntimeout_sec = 1")
    task = runs.task(files)
    late = only(runs(task, runs.script("touch done; sleep 30\n"))).attempt
    assert (late.outcome, late.reason, late.reward and late.reward.total) == (
        Outcome.POLICY_FAILURE, EndReason.TIME_LIMIT, 1.0,
    )  # fmt: skip
    killed = only(runs(task, runs.script("kill -9 $$\n"))).attempt
    assert (killed.reason, killed.reward and killed.reward.total) == (EndReason.POLICY_ERROR, 0.0)
    failed = only(runs(task, runs.script("touch done; exit 9\n"))).attempt
    assert (failed.reason, failed.detail) == (EndReason.FINISHED, "exit code 9")
    assert failed.reward is not None
    assert failed.reward.total == 1.0


def test_a_program_runs_by_its_first_line_as_the_agents_user(runs: Any, kit: Any) -> None:
    kit.skip_without("perl_user")
    files = kit.harbor(
        "FROM debian:12\nRUN useradd -m -d /srv/clerk clerk\nWORKDIR /app\nRUN chown clerk /app\n"
        "ENV FLAVOUR=plum\nUSER clerk\n",
        kit.judge('[ "$(cat /app/said)" = "clerk /srv/clerk plum /app" ] && [ ! -e /tmp/.policy ]'),
    )
    script = "#!/usr/bin/perl\nopen F, '>said'; chomp($w = `whoami`); chomp($p = `pwd`);\n"
    script += 'print F "$w $ENV{HOME} $ENV{FLAVOUR} $p";\n'
    attempt = only(runs(runs.task(files), runs.script(script, "act.pl"))).attempt
    assert attempt.reward is not None
    assert attempt.reward.total == 1.0


def test_steps_build_on_one_another_and_stop_below_the_least_reward(runs: Any, kit: Any) -> None:
    task = runs.task(kit.sound["several_steps"]())
    half = only(runs(task, runs.script('[ "$FLIGHTSCHOOL_STEP" = measure ] || cp given.txt text\n')))
    assert half.attempt.verdict is not None
    assert [check.id for check in half.attempt.verdict.checks] == ["make", "measure"]
    assert half.attempt.reward is not None
    assert half.attempt.reward.total == 0.5
    none = only(runs(task, "noop"))
    assert none.details is not None
    assert [stage.name for stage in none.details.stages] == ["make"]
    files = kit.sound["several_steps"]()
    files["task.toml"] = 'multi_step_reward_strategy = "final"\n' + files["task.toml"]
    first_only = runs.script('[ "$FLIGHTSCHOOL_STEP" = measure ] || cp given.txt text\n')
    final = only(runs(runs.task(files, "final"), first_only))
    assert final.attempt.reward is not None
    assert final.attempt.reward.total == 0.0


def test_the_same_seed_gives_the_same_digests_and_images_are_built_once(runs: Any, kit: Any) -> None:
    kit.skip_without("awk_sum")
    task = runs.task(kit.sound["awk_sum"]())
    first, second = only(runs(task, "oracle")), only(runs(task, "oracle"))
    assert first.attempt.digest == second.attempt.digest
    images = [place for place in runs.images.iterdir() if not place.name.startswith(("base-", "present-"))]
    assert len(images) == 1
    assert (images[0] / "image.json").is_file()
    assert only(runs(task, "oracle", seed=1)).attempt.digest != first.attempt.digest


def test_a_kept_attempt_can_be_graded_again_without_running_it(runs: Any, kit: Any) -> None:
    task = runs.task(kit.sound["several_steps"]())
    episode = only(runs(task, "oracle"))
    details = episode.details
    assert details is not None

    async def again() -> list[float | None]:
        provider = NativeProvider()
        try:
            store = ImageStore(runs.images, provider)
            graded = await regrade(read_folder(task), details, runs.blobs.__getitem__, store, provider)
            return [one.reward for one in graded]
        finally:
            await provider.aclose()

    assert asyncio.run(again()) == [1.0, 1.0]


def open_things() -> tuple[list[str], str]:
    return sorted(path.name for path in Path("/proc/self/fd").iterdir()), Path("/proc/self/mounts").read_text()


def test_nothing_is_left_behind(runs: Any, kit: Any) -> None:
    task = runs.task(kit.sound["several_steps"]())
    runs(task, "oracle")
    before = open_things()
    runs(task, "oracle", num=3)
    assert open_things() == before
    assert [place.name for place in runs.images.iterdir() if place.name.startswith(".")] == []


def test_the_command_line_keeps_the_contract(runs: Any, kit: Any, tell: Any) -> None:
    kit.skip_without("awk_sum")
    runs.task(kit.sound["awk_sum"](), "tasks/sum")
    runs.task(kit.harbor("FROM debian:12\nRUN wget https://example.org/x\n", kit.judge("true")), "tasks/fetches")
    kit.write(runs.folder / "tasks/tasks/broken", {"task.toml": "x = [", "instruction.md": "?"})
    words = ["--policy", "oracle", "-n", "3", "--seed", "4", "--keep-output"]
    code, told = kit.told_by_a_program(["rollout", "tasks/tasks", *words], runs.folder)
    assert code == 0
    assert (told["schema"], told["policy"], told["seed"]) == (1, "oracle", 4)
    rows = {row["task"]: row for row in told["episodes"]}
    assert {name: row["outcome"] for name, row in rows.items()} == {
        "sum": "scored", "fetches": "needs_network", "broken": "unreadable",
    }  # fmt: skip
    assert rows["sum"]["reward"] == {"outcome": 1.0, "process": 0.0, "latency": 0.0, "gate": 1.0, "total": 1.0}
    assert rows["fetches"]["reward"] is None
    assert "environment/Dockerfile:2" in rows["fetches"]["reason"]
    assert told["summary"]["num_not_run"] == 2
    assert rows["sum"]["stages"][0]["end_state"].startswith("sha256:")
    limits = {line["limit"]: line["kept_by"] for line in rows["sum"]["stages"][0]["limits"]}
    assert set(Limits.__struct_fields__) | {"network", "ids"} <= limits.keys()
    assert all(limits.values())
    assert tell(["rollout", "./tasks/tasks/fetches", "--policy", "noop", "-n", "1"], runs.folder)[0] == 1
    code, told = tell(["rollout", "./tasks/tasks/sum", "--policy", "random", "-n", "1"], runs.folder)
    (row,) = told["episodes"]  # whoever has no program acts by calling a shell, and fails as any other does
    assert (code, row["outcome"], row["reward"]["total"]) == (0, "scored", 0.0)
    assert row["num_tool_calls"] >= 1
    for wrong in (["./tasks/tasks/sum", "--policy", "genius"], ["./tasks/tasks/broken", "--policy", "noop"]):
        code, told = tell(["rollout", *wrong], runs.folder)
        assert code == 2
        assert set(told["error"]) == {"what", "where", "expected", "mend"}


def test_a_workspace_keeps_attempts_and_their_end_states(runs: Any, kit: Any, tell: Any) -> None:
    runs.task(kit.sound["several_steps"]())
    assert tell(["init", "."], runs.folder)[0] == 0
    code, told = tell(["rollout", "./tasks/task", "--policy", "oracle", "-n", "1", "--keep-output"], runs.folder)
    assert (code, told["summary"]["run"]) == (0, "rollout-0001")
    from flightschool.environments.terminal.end_state import EndState
    from flightschool.rollouts.terminal import TerminalEpisode
    from flightschool.store import Workspace

    space = Workspace(runs.folder)
    try:
        kept = space.store.get("terminal-episode", told["episodes"][0]["id"], TerminalEpisode)
        state = EndState.from_bytes(space.store.get_blob(kept.stages[-1].blob))
    finally:
        space.close()
    assert next(entry.data for entry in state.entries if entry.path == "/app/size") == b"6\n"
    assert tell(["runs", "show", "rollout-0001"], runs.folder)[0] == 0
    attempt = told["episodes"][0]
    code, again = tell(["runs", "replay", attempt["id"]], runs.folder)
    assert (code, again["identical"], again["replayed_digest"]) == (0, True, attempt["digest"])
    (runs.folder / "tasks/task/steps/make/workdir/given.txt").write_text("another\n")
    code, again = tell(["runs", "replay", attempt["id"]], runs.folder)
    assert code == 2
    assert "another one now" in again["error"]["what"]


def test_the_sandboxes_of_tasks_are_made_by_the_launcher_that_is_used_here(runs: Any, kit: Any) -> None:
    task = read_folder(runs.task(kit.sound["partial"]()))

    async def makers() -> list[str]:
        provider = NativeProvider()
        try:
            store = ImageStore(runs.images, provider)
            image = await store.build(task)
            assert isinstance(image, Image)
            rooms = Rooms(task=task, image=image, stand_ins=store.stand_ins(image))
            found = []
            for account in (image.account, Account(name="clerk", uid=1000, gid=1000, home="/")):
                async with provider.open(rooms.spec(Tree(Path(image.tree), over_host=True), account, 60)) as box:
                    assert (await box.exec(["true"])).ok
                    found.append(next(line.mechanism for line in box.enforcement if line.limit == "launcher"))
            return found
        finally:
            await provider.aclose()

    expected = "launcher and agent in C" if find_helper().program else "launcher and agent in Python"
    assert asyncio.run(makers()) == [expected] * 2


def test_a_killed_launcher_is_infrastructure_and_the_next_attempt_runs(runs: Any, kit: Any) -> None:
    task = read_folder(runs.task(kit.harbor("FROM debian:12\nWORKDIR /app\n", kit.judge("true"))))
    policy = parse_policy(runs.script("sleep 20\n"))

    async def body() -> None:
        provider = NativeProvider()
        runner = TerminalRunner(ImageStore(runs.images, provider), provider, run="test")
        try:
            first = await runner.attempt(task, parse_policy("noop"), group="g", index=0, seed=0)
            assert isinstance(first, Episode)
            assert first.attempt.outcome is Outcome.SCORED
            attempt = asyncio.create_task(runner.attempt(task, policy, group="g", index=1, seed=0))
            await asyncio.sleep(1.0)
            for launcher in psutil.Process().children():
                launcher.kill()
            lost = await attempt
            assert isinstance(lost, Episode)
            assert (lost.attempt.outcome, lost.attempt.reason) == (Outcome.INFRA_FAILURE, EndReason.WORLD_ERROR)
            assert lost.attempt.reward is None
            again = await runner.attempt(task, parse_policy("noop"), group="g", index=2, seed=0)
            assert isinstance(again, Episode)
            assert again.attempt.outcome is Outcome.SCORED
        finally:
            await provider.aclose()

    asyncio.run(body())


def test_a_task_without_a_solution_has_no_oracle(runs: Any, kit: Any) -> None:
    (result,) = runs(runs.task(kit.harbor("FROM debian:12\n", kit.judge("true"))), "oracle")
    assert isinstance(result, NotRun)
    assert result.need == "solution"
