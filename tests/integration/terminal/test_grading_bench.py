"""Gradings with what is alike made ahead: the same verdicts as ``grade``, fewer sandboxes, and nothing carried over."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests import needs

from flightschool.environments.terminal import TerminalTask, read_folder
from flightschool.environments.terminal.end_state import EndState
from flightschool.environments.terminal.grading import Graded, grade
from flightschool.environments.terminal.grading_bench import GradingBench
from flightschool.environments.terminal.trees import Image, ImageStore
from flightschool.sandbox import NativeProvider
from flightschool.sandbox.written import Written, WrittenKind

pytestmark = pytest.mark.integration

Judge = Callable[[GradingBench | None, EndState], Awaitable[Graded]]


@pytest.fixture(autouse=True)
def needs_sandboxes(sandboxes: str) -> None:
    needs.sandbox(sandboxes)


def file(path: str, text: str, **more: Any) -> Written:
    return Written(path=path, kind=WrittenKind.FILE, mode=0o644, data=text.encode(), **more)


def graded(task: TerminalTask, images: Path, work: Callable[[Judge], Awaitable[None]]) -> None:
    async def run() -> None:
        provider = NativeProvider()
        try:
            store = ImageStore(images, provider)
            image = await store.build(task)
            assert isinstance(image, Image)

            async def judge(bench: GradingBench | None, state: EndState) -> Graded:
                chosen = grade if bench is None else bench.grade
                return await chosen(task, task.stages[0], image, state, store, provider)

            await work(judge)
        finally:
            await provider.aclose()

    asyncio.run(run())


@pytest.fixture
def counting(kit: Any, tmp_path: Path) -> TerminalTask:
    """Tests that import a module of their own, and say whether it was compiled before and what lies in /app."""
    files = kit.harbor(
        "FROM debian:12\nWORKDIR /app\nCOPY lib lib\n",
        "#!/bin/bash\nmkdir -p /logs/verifier\nls /tests/__pycache__ 2> /dev/null\n"
        "cd /tests && python3 -c 'import checks; checks.run()' > /logs/verifier/reward.txt\nls /app\n",
        environment__lib__x="1\n",
        tests__checks_DOT_py="def run():\n    print(int(open('/app/answer').read() == '42'))\n",
    )
    return read_folder(kit.write(tmp_path / "task", files))


def test_verdicts_are_those_of_grade_and_bytecode_is_kept_of_trusted_work_only(
    counting: TerminalTask, tmp_path: Path
) -> None:
    right, wrong = EndState(entries=(file("/app/answer", "42"),)), EndState(entries=(file("/app/answer", "41"),))

    async def work(judge: Judge) -> None:
        with GradingBench() as bench:
            assert "checks" not in (await judge(bench, right)).output
            assert "checks" not in (await judge(bench, right)).output, "nothing is taken from work that is not trusted"
            bench.warms = True
            assert (await judge(bench, right)).reward == 1.0
            bench.warms = False
            again = await judge(bench, wrong)
            assert (again.reward, "checks.cpython" in again.output) == (0.0, True)
            plain = await judge(None, right)
            assert (plain.reward, "checks.cpython" in plain.output) == (1.0, False)
            assert bench.num_remembered == 0
            bench.remembers = True
            assert (await judge(bench, wrong)).reward == 0.0
            planted = EndState(entries=(*right.entries, file("/app/conftest.py", "x")))  # the sieve leaves it out
            found = await judge(bench, planted)
            assert (found.reward, bench.num_remembered) == (1.0, 2)
            assert [one.path for one in found.left_out] == ["/app/conftest.py"]

    graded(counting, tmp_path / "images", work)


def test_a_state_that_clears_folders_or_lies_in_the_way_of_logs_is_graded_alike(
    counting: TerminalTask, tmp_path: Path
) -> None:
    cleared = EndState(
        entries=(
            Written(path="/app", kind=WrittenKind.FOLDER, mode=0o755, opaque=True),
            file("/app/answer", "42"),
        )
    )
    in_the_way = EndState(
        entries=(
            file("/app/answer", "42"),
            Written(path="/logs", kind=WrittenKind.FOLDER, mode=0o755),
            file("/logs/agent", "no folder"),
        )
    )

    async def work(judge: Judge) -> None:
        with GradingBench() as bench:
            for state in (cleared, in_the_way):
                ahead, plain = await judge(bench, state), await judge(None, state)
                assert (ahead.reward, ahead.output) == (plain.reward, plain.output) == (1.0, plain.output)
            assert "lib" not in (await judge(bench, cleared)).output
            assert "lib" in (await judge(bench, in_the_way)).output

    graded(counting, tmp_path / "images", work)
