"""Programs as harnesses: who caused an end, what a program is told, and that nothing of it outlives its attempt."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

import pytest

from flightschool.errors import ConfigError
from flightschool.records import Attempt, EndReason, Outcome, Task
from flightschool.rollouts import EnginePolicy, EpisodeRunner, OraclePolicy, Policy, Sampling, ToolCallingHarness
from flightschool.rollouts.gateway import ProgramHarness
from flightschool.testing.engines import ByteTokenizer, SpokenEngine
from flightschool.testing.miniature import MiniatureEnvironment
from flightschool.verification import OutcomeReward, RewardSettings

pytestmark = pytest.mark.integration
ENVIRONMENT = MiniatureEnvironment()
AGENT = Path(__file__).with_name("agent.py")
ASK = (
    "import json, os, urllib.request as u\n"
    "def ask(path='/v1/chat/completions', body={'messages': [{'role': 'user', 'content': 'hi'}]}):\n"
    "    h = {'Authorization': 'Bearer ' + os.environ['OPENAI_API_KEY']}\n"
    "    return json.load(u.urlopen(u.Request(os.environ['FLIGHTSCHOOL_URL'] + path, json.dumps(body).encode(), h)))\n"
)


def spoken(*texts: str, fail_at: int | None = None, max_context: int = 100_000) -> EnginePolicy:
    engine = SpokenEngine(texts, fail_at=fail_at, max_context=max_context)
    return EnginePolicy(engine, ByteTokenizer(), "spoken", Sampling(max_new_tokens=200))


async def fly(script: str, policy: Policy, *, task: Task | None = None, timeout_s: float = 30.0) -> Attempt:
    harness = ProgramHarness([sys.executable, "-c", script], timeout_s=timeout_s)
    return await attempt_with(harness, policy, task or ENVIRONMENT.tasks()[0])


async def attempt_with(
    harness: ProgramHarness | ToolCallingHarness, policy: Policy, task: Task, index: int = 0
) -> Attempt:
    runner = EpisodeRunner(ENVIRONMENT, OutcomeReward(RewardSettings()), run="r", harness=harness)
    return await runner.attempt(task, policy, group="g", index=index, seed=1)


async def test_an_unchanged_program_gives_the_attempt_that_the_built_in_harness_gives() -> None:
    """Byte for byte in tokens: the same prompt, the same dialect, the same results."""
    program = ProgramHarness([sys.executable, str(AGENT), "urllib"])
    for task in (ENVIRONMENT.tasks()[0], ENVIRONMENT.task("locked-pump")):
        scripted = await attempt_with(ToolCallingHarness(), OraclePolicy(ENVIRONMENT), task)
        texts = [
            "\n".join(f"{c.name} {_json(c.arguments)}" for c in m.tool_calls) or m.content
            for m in scripted.messages
            if m.role == "assistant"
        ]
        built_in = await attempt_with(ToolCallingHarness(), spoken(*texts), task)
        gated = await attempt_with(program, spoken(*texts), task)
        assert gated.spans == built_in.spans
        assert [e.call for e in gated.events] == [e.call for e in built_in.events]
        assert gated.reward == built_in.reward
        assert gated.reward is not None
        assert gated.reward.success
        assert gated.reason is built_in.reason


def _json(value: object) -> str:
    import json

    return json.dumps(value)


async def test_attempts_run_side_by_side_on_one_gateway() -> None:
    harness = ProgramHarness([sys.executable, "-c", ASK + "ask()"])
    tasks = ENVIRONMENT.tasks()[:6]
    attempts = await asyncio.gather(
        *(attempt_with(harness, spoken(f"I am {i}"), task, i) for i, task in enumerate(tasks))
    )
    assert [a.messages[-1].content for a in attempts] == [f"I am {i}" for i in range(6)]
    assert {a.reason for a in attempts} == {EndReason.FINISHED}
    again = await attempt_with(harness, spoken("again"), tasks[0])
    assert again.reason is EndReason.FINISHED


async def test_the_task_comes_by_variable_and_by_standard_input() -> None:
    script = ASK + (
        "import sys\n"
        "told, read = os.environ.get('FLIGHTSCHOOL_TASK'), sys.stdin.read()\n"
        "ask('/tools/call', {'name': 'decline', 'arguments': {'reason': f'{told} {len(read)} {read[-3:]}'}})\n"
    )
    task = Task(id=ENVIRONMENT.tasks()[0].id, family="f", stratum="s", instruction="go ünï", initial_state="")
    attempt = await fly(script, spoken(), task=task)
    assert attempt.events[0].call.arguments == {"reason": "go ünï 6 ünï"}
    assert attempt.reason is EndReason.DECLINED
    long = Task(id=task.id, family="f", stratum="s", instruction="x" * 300_000 + "end", initial_state="")
    attempt = await fly(script, spoken(), task=long)
    assert attempt.events[0].call.arguments == {"reason": "None 300003 end"}


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("import no_such_module", "no_such_module"),
        ("raise SystemExit(3)", "exited with 3"),
        ("pass", "OPENAI_BASE_URL"),
        ("import time; time.sleep(60)", "cut off after 1 s"),
    ],
)
async def test_a_program_that_fails_before_the_policy_spoke_is_infrastructure(script: str, told: str) -> None:
    attempt = await fly(script, spoken("hi"), timeout_s=1.0 if "sleep" in script else 30.0)
    assert (attempt.outcome, attempt.reason) == (Outcome.INFRA_FAILURE, EndReason.HARNESS_ERROR)
    assert (attempt.cause, attempt.reward) == ("harness", None)
    assert told in attempt.detail


async def test_a_crash_after_the_policy_spoke_stays_in_the_denominator_and_names_no_key() -> None:
    script = ASK + "ask(); raise ValueError('bad answer ' + os.environ['OPENAI_API_KEY'])"
    attempt = await fly(script, spoken("hi"))
    assert (attempt.outcome, attempt.reason) == (Outcome.POLICY_FAILURE, EndReason.POLICY_ERROR)
    assert attempt.cause == "policy"
    assert attempt.reward is not None
    assert "exited with 1" in attempt.detail
    assert "bad answer …" in attempt.detail
    assert len(attempt.spans) == 2


async def test_a_full_context_is_the_policys_end() -> None:
    attempt = await fly(ASK + "ask(); ask(body={'messages': [{'role': 'user', 'content': 'x' * 900}]})",
                        spoken("hi", max_context=500))  # fmt: skip
    assert (attempt.outcome, attempt.reason) == (Outcome.POLICY_FAILURE, EndReason.CONTEXT_FULL)


async def test_an_engine_that_dies_ends_the_attempt_at_once_and_scores_nothing() -> None:
    script = ASK + "import time\ntry:\n    ask(); ask()\nexcept Exception:\n    time.sleep(60)"
    started = time.monotonic()
    attempt = await fly(script, spoken("hi", fail_at=1))
    assert (attempt.outcome, attempt.cause) == (Outcome.INFRA_FAILURE, "engine")
    assert time.monotonic() - started < 20.0


@pytest.mark.long
async def test_time_is_up_and_the_whole_process_group_dies(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    script = ASK + (
        "import subprocess, sys, time\nask()\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(mark)!r}, 'w').write(str(child.pid))\n"
        "time.sleep(600)\n"
    )
    attempt = await fly(script, spoken("hi"), timeout_s=20.0)
    assert (attempt.outcome, attempt.reason) == (Outcome.POLICY_FAILURE, EndReason.TIME_LIMIT)
    await _gone(int(mark.read_text()))


async def test_a_child_that_outlives_its_program_dies_with_the_attempt(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    script = ASK + (
        "import subprocess, sys\nask()\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"  # holds the output open
        f"open({str(mark)!r}, 'w').write(str(child.pid))\n"
    )
    attempt = await fly(script, spoken("hi"))
    assert attempt.reason is EndReason.FINISHED
    await _gone(int(mark.read_text()))


async def _gone(pid: int) -> None:
    for _ in range(200):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return
        if state == "Z":  # dead; whoever inherited it has not asked yet
            return
        await asyncio.sleep(0.05)
    os.kill(pid, 9)
    raise AssertionError("a child of the program is alive")


async def test_a_program_that_writes_without_end_is_not_kept_whole() -> None:
    script = ASK + "import sys\nask()\nfor _ in range(400): print('x' * 9999)\nsys.exit('the end')"
    attempt = await fly(script, spoken("hi"))
    assert attempt.detail.endswith("the end")
    assert len(attempt.detail) < 3000


async def test_cancelling_an_attempt_ends_its_program(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    script = f"import os, time; open({str(mark)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    running = asyncio.ensure_future(fly(script, spoken("hi"), timeout_s=600.0))
    for _ in range(400):
        if mark.exists() and mark.read_text():
            break
        await asyncio.sleep(0.05)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await _gone(int(mark.read_text()))


def test_a_command_that_does_not_exist_is_refused_before_anything_runs() -> None:
    for command in ([], ["no-such-program-anywhere"]):
        with pytest.raises(ConfigError) as refused:
            ProgramHarness(command)
        assert refused.value.where == "harness.command"


async def test_a_program_runs_in_its_folder_and_is_named_from_there(tmp_path: Path) -> None:
    program = tmp_path / "here.sh"
    program.write_text("#!/bin/sh\npwd; exit 3\n", encoding="utf-8")
    program.chmod(0o755)
    harness = ProgramHarness(["./here.sh"], directory=tmp_path)
    attempt = await attempt_with(harness, spoken("x"), ENVIRONMENT.tasks()[0])
    assert str(tmp_path) in attempt.detail
    with pytest.raises(ConfigError, match=r"no program '\./here\.sh'"):
        ProgramHarness(["./here.sh"])
