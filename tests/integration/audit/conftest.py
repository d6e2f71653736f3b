"""The seen half of the labelled tasks: small folders of our own making, flawed in one known way or clean."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests import needs
from tests.integration.audit import seen_clean, seen_flawed
from tests.integration.audit.labelled import SUM, SUM_SOLUTION, SUM_TEST, Labelled, judge, place, task, write
from tests.integration.audit.seen_meaning import OF_MEANING, WITHOUT_THE_FLAW

from flightschool.environments.terminal import UnreadableTask, read_folder
from flightschool.environments.terminal.trees import ImageStore
from flightschool.errors import InputError
from flightschool.rollouts.terminal import Episode, Result, TerminalRunner, parse_policy
from flightschool.sandbox import NativeProvider

FLAWED = {**seen_flawed.FLAWED, **OF_MEANING}
CLEAN = {**seen_clean.CLEAN, **WITHOUT_THE_FLAW}


@pytest.fixture(scope="session")
def sandboxes() -> str:
    """Why nothing can be run here; empty where it can."""
    if not sys.platform.startswith("linux"):
        return "sandboxes need Linux"
    code = (
        "import asyncio\nfrom flightschool.sandbox import NativeProvider as P\nasync def main():\n"
        " p = P()\n print((await p.try_out()).works)\n await p.aclose()\nasyncio.run(main())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    return "" if done.stdout.strip() == "True" else f"no native sandbox: {done.stdout}{done.stderr[-500:]}"


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory, sandboxes: str) -> Path:
    """One folder of built images for all tests of this room: most tasks share their base, and many their image."""
    needs.sandbox(sandboxes)
    return tmp_path_factory.mktemp("images")


class Flights:
    """Runs policies on task folders: one launcher and one store of images for all tests of this room."""

    def __init__(self, images: Path) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._provider = NativeProvider()
        self._store = ImageStore(images, self._provider)

    def __call__(self, folder: Path, policy: str, num: int = 1) -> list[Result]:
        """Attempts at one task, two at a time."""
        return asyncio.run_coroutine_threadsafe(self._attempts(folder, policy, num), self._loop).result(300)

    def rewards(self, folder: Path, policy: str, num: int = 1) -> list[float | None]:
        """Rewards of attempts; None: there is no verdict."""
        found: list[float | None] = []
        for result in self(folder, policy, num):
            assert isinstance(result, Episode), result
            found.append(None if result.attempt.reward is None else result.attempt.reward.total)
        return found

    async def _attempts(self, folder: Path, policy: str, num: int) -> list[Result]:
        runner = TerminalRunner(self._store, self._provider, run="test")
        task, chosen, gate = read_folder(folder), parse_policy(policy), asyncio.Semaphore(2)

        async def one(index: int) -> Result:
            async with gate:
                try:
                    return await runner.attempt(task, chosen, group="test", index=index, seed=index)
                except InputError as error:
                    return UnreadableTask(id=task.id, folder=task.folder, **error.as_dict())

        return list(await asyncio.gather(*(one(index) for index in range(num))))

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._provider.aclose(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@pytest.fixture(scope="session")
def flights(images: Path) -> Iterator[Flights]:
    found = Flights(images)
    yield found
    found.close()


@pytest.fixture
def seen() -> Callable[[str], Labelled]:
    return lambda name: FLAWED.get(name) or CLEAN[name]


@pytest.fixture
def kit() -> Kit:
    return Kit()


class Kit:
    """Helpers for tests in one place, since test folders are no packages."""

    flawed = FLAWED
    clean = CLEAN
    task = staticmethod(task)
    judge = staticmethod(judge)
    write = staticmethod(write)
    place = staticmethod(place)
    sum_instruction = SUM
    sum_solution = SUM_SOLUTION
    sum_test = SUM_TEST
