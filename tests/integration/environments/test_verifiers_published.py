"""verifiers as published, in both directions: its environments here, and ours as a taskset that it loads.

Installing takes minutes: ``pytest -m slow``. Interpreters that have it may be named: ``FLIGHTSCHOOL_VERIFIERS_PYTHON``
(0.4, with v1 tasksets) and ``FLIGHTSCHOOL_VERIFIERS_OLD_PYTHON`` (0.1.14, with ``load_environment``).
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from flightschool.environments.foreign import ForeignEnvironment
from flightschool.environments.peers import PeerSettings, close_peers, import_peer
from flightschool.errors import InfrastructureError
from flightschool.protocols import Environment, World, WorldReply
from flightschool.records import Outcome, Task, ToolCall
from flightschool.rollouts import EpisodeRunner, NoopPolicy, OraclePolicy, run_attempts
from flightschool.serving import Offer, TaskDesk
from flightschool.serving.nemo_gym import NemoGymServer
from flightschool.serving.verifiers import write_taskset
from flightschool.testing.miniature import MiniatureEnvironment, MiniatureWorld
from flightschool.verification import OutcomeReward

pytestmark = [pytest.mark.integration, pytest.mark.slow]

TASKSET = '''
"""A counter behind a tool, and a sum to be said."""

import verifiers.v1 as vf


class CountData(vf.TaskData):
    start: int


class CountState(vf.State):
    value: int = 0


class Counter(vf.Toolset[vf.SharedToolsetConfig, CountState]):
    TOOL_PREFIX = None

    @vf.tool
    def add(self, amount: int) -> int:
        """Add to the counter; its value comes back."""
        self.state.value += amount
        return self.state.value


class CountTask(vf.Task[CountData, CountState]):
    async def setup(self, trace: vf.Trace) -> None:
        trace.state.value = self.data.start

    @vf.reward(weight=1.0)
    async def reached(self, trace: vf.Trace) -> float:
        if trace.state.value == 13:
            raise OSError("the counter is haunted")
        return float(trace.state.value == 10)


class CountConfig(vf.TasksetConfig):
    num: int = 3
    tools: vf.SharedToolsetConfig = vf.SharedToolsetConfig()


class CountTaskset(vf.Taskset[CountTask, CountConfig]):
    @classmethod
    def toolsets(cls, config: CountConfig) -> list[vf.Toolset]:
        return [Counter(config.tools)]

    def load(self) -> list[CountTask]:
        return [self.made(n) for n in range(self.config.num)]

    def made(self, n: int) -> CountTask:
        data = CountData(name=f"from-{n}", prompt=f"Bring the counter from {n} to 10.", start=n)
        return CountTask(data, self.config.task)


__all__ = ["CountTaskset"]

if __name__ == "__main__":
    Counter.run()
'''

OLD = '''
"""A tool and a sum, and a single turn, as modules of verifiers before 0.2 are."""

import verifiers as vf
from datasets import Dataset


def add(a: int, b: int) -> int:
    """The sum of two numbers.

    Args:
        a: first.
        b: second.
    """
    return a + b


def load_environment(tools: bool = True, num: int = 3):
    rows = [{"question": f"What is {n} + {10 * n}?", "answer": str(11 * n)} for n in range(1, num + 1)]
    parser = vf.XMLParser(["answer"], answer_field="answer")

    def right(completion, answer, **kwargs):
        return 1.0 if parser.parse_answer(completion) == answer else 0.0

    settings = {
        "eval_dataset": Dataset.from_list(rows),
        "system_prompt": "Say <answer>…</answer>.",
        "parser": parser,
        "rubric": vf.Rubric(funcs=[right], parser=parser),
    }
    return vf.ToolEnv(tools=[add], max_turns=4, **settings) if tools else vf.SingleTurnEnv(**settings)
'''


def _python(tmp: Path, variable: str, package: str) -> str:
    named = os.environ.get(variable)
    if named:
        return named
    subprocess.run([sys.executable, "-m", "venv", str(tmp)], check=True)
    made = str(tmp / "bin" / "python")
    subprocess.run([made, "-m", "pip", "install", "--quiet", package], check=True)
    return made


@pytest.fixture(scope="module")
def new(tmp_path_factory: pytest.TempPathFactory) -> str:
    return _python(tmp_path_factory.mktemp("verifiers"), "FLIGHTSCHOOL_VERIFIERS_PYTHON", "verifiers==0.4.0")


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> str:
    return _python(tmp_path_factory.mktemp("old"), "FLIGHTSCHOOL_VERIFIERS_OLD_PYTHON", "verifiers==0.1.14")


@pytest.fixture(autouse=True)
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder from which verifiers imports; in place of an installation."""
    (tmp_path / "counting.py").write_text(TASKSET, encoding="utf-8")
    (tmp_path / "old_sums.py").write_text(OLD, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    yield tmp_path
    close_peers()


def imported(python: str, name: str, num: int = 3, **config: object) -> ForeignEnvironment:
    content, unsteady = import_peer(
        "verifiers", PeerSettings(python=python, names=(name,), num_seeds=num, config=config)
    )
    assert unsteady == ()
    return ForeignEnvironment(name, content)


def say(world: World, tool: str, **arguments: object) -> WorldReply:
    return world.execute(ToolCall(id="c", name=tool, arguments=arguments))


def test_a_v1_taskset_with_a_tool_server_is_played_and_scored(new: str) -> None:
    counting = imported(new, "counting", arguments={"num": 2})
    assert [task.family for task in counting.tasks()] == ["from-0", "from-1"]
    assert [tool.name for tool in counting.tools()] == ["add", "reply"]
    assert counting.tools()[0].parameters["properties"]["amount"]["type"] == "integer"
    right, wrong, broken = (counting.open(counting.tasks()[1]) for _ in range(3))
    assert str(say(right, "add", amount=4).value) == "5"
    assert str(say(right, "add", amount=5).value) == "10"
    assert say(right, "reply", text="Done.").value == {"done": True}
    assert json.loads(right.snapshot())["solved"] is True
    say(wrong, "reply", text="Done.")
    assert json.loads(wrong.snapshot())["reward"] == 0.0
    say(broken, "add", amount=12)
    with pytest.raises(InfrastructureError, match="the counter is haunted"):
        say(broken, "reply", text="Done.")
    for world in (right, wrong, broken):
        world.close()


@pytest.mark.parametrize("tools", [True, False])
def test_a_v0_module_is_played_and_scored(old: str, tools: bool) -> None:
    sums = imported(old, "old_sums", arguments={"tools": tools})
    assert [tool.name for tool in sums.tools()] == (["add", "reply"] if tools else ["reply"])
    first = sums.tasks()[0]
    assert (first.instruction, first.guidance) == ("What is 1 + 10?", "Say <answer>…</answer>.")
    runner = EpisodeRunner(sums, OutcomeReward(), run="r")
    solved = run_attempts(runner, sums.tasks(), OraclePolicy(sums), seed=0)
    assert [attempt.reward.success for attempt in solved if attempt.reward] == [True] * 3
    idle = run_attempts(runner, sums.tasks(), NoopPolicy(), seed=0)
    assert [attempt.reward.outcome for attempt in idle if attempt.reward] == [0.0] * 3
    if tools:
        world = sums.open(first)
        assert say(world, "add", a=1, b=10).value == "11"
        say(world, "reply", text="<answer>12</answer>")
        assert json.loads(world.snapshot())["reward"] == 0.0
        world.close()


# ------------------------------------------------------------------------------------------------ ours, over there


class Haunted(MiniatureEnvironment):
    """Its world is lost once it was written to."""

    def open(self, task: Task) -> World:
        class Lost(MiniatureWorld):
            wrote = False

            def execute(self, call: ToolCall) -> WorldReply:
                self.wrote |= call.name.startswith("set")
                return super().execute(call)

            def snapshot(self) -> bytes:
                if self.wrote:
                    raise OSError("gone")
                return super().snapshot()

        return Lost()


@pytest.fixture
def served(modules: Path) -> Iterator[Callable[[Environment], str]]:
    """Serves an environment and writes its taskset beside the other modules; the address."""
    ends: list[Callable[[], object]] = []

    def start(environment: Environment) -> str:
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever)
        thread.start()

        async def open_() -> NemoGymServer:
            server = NemoGymServer(Offer(environment), TaskDesk(environment))
            await server.http.start()
            return server

        server = asyncio.run_coroutine_threadsafe(open_(), loop).result(10)
        folder = modules / "package"
        write_taskset(folder, environment.name, TaskDesk(environment))
        (folder / "miniature_taskset").rename(modules / "miniature_taskset")

        def end() -> None:
            asyncio.run_coroutine_threadsafe(server.close(), loop).result(10)
            loop.call_soon_threadsafe(loop.stop)
            thread.join(10)
            loop.close()

        ends.append(end)
        return server.url

    yield start
    for end in ends:
        end()


def test_our_environment_is_a_taskset_that_it_loads_plays_and_scores(
    new: str, served: Callable[[Environment], str]
) -> None:
    miniature = MiniatureEnvironment()
    theirs = imported(new, "miniature_taskset", num=2, arguments={"task": {"server": served(miniature)}})
    ours = miniature.tasks()[0]
    task = theirs.tasks()[0]
    assert task.instruction == ours.instruction
    shown = {tool.name: tool for tool in theirs.tools()}
    for tool in miniature.tools():
        assert shown[tool.name].parameters == tool.parameters
    right, idle = theirs.open(task), theirs.open(task)
    for call in miniature.reference(ours.id).oracle:
        assert not right.execute(call).is_error
    say(right, "reply", text=miniature.reference(ours.id).oracle_answer)
    say(idle, "reply", text="I did nothing.")
    assert json.loads(right.snapshot())["reward"] > 0.9
    assert json.loads(idle.snapshot())["reward"] < 0.5
    right.close()
    idle.close()


def test_infrastructure_that_failed_here_is_no_score_there(new: str, served: Callable[[Environment], str]) -> None:
    haunted = Haunted()
    theirs = imported(new, "miniature_taskset", num=1, arguments={"task": {"server": served(haunted)}})
    runner = EpisodeRunner(theirs, OutcomeReward(), run="r")
    task = theirs.tasks()[0]
    far = theirs.open(task)
    for call in haunted.reference(haunted.tasks()[0].id).oracle:
        far.execute(call)
    with pytest.raises(InfrastructureError, match="infrastructure failed"):
        say(far, "reply", text="Done.")
    far.close()
    (idle,) = run_attempts(runner, [task], NoopPolicy(), seed=0)
    assert idle.outcome is Outcome.SCORED


def test_its_own_validator_accepts_our_taskset(new: str, served: Callable[[Environment], str], modules: Path) -> None:
    """``vf-validate`` scores each task untouched: none may pass by doing nothing."""
    url = served(MiniatureEnvironment())
    command = [str(Path(new).with_name("vf-validate")), "miniature-taskset", "--only-noop"]
    options = ["--taskset.task.server", url, "--runtime.type", "subprocess", "-o", str(modules / "out")]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False, cwd=modules)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    (summary,) = (modules / "out").rglob("summary.json")
    told = json.loads(summary.read_text(encoding="utf-8"))
    assert told["outcomes"]["valid"] == told["total"] == len(MiniatureEnvironment().tasks())
