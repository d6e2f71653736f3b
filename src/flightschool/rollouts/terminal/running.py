"""Many episodes in task folders: which tasks, in what order, how many at a time, and what is tried again.

A member of a group whose attempt was lost to the infrastructure gets another one under the next number, with the same
seed: at most two more where a sandbox, a launcher or a disk failed, and at most one more where the task's own build or
tests did, since only a time-out of theirs may have been the machine's. A member has one result whatever was lost on the
way, and one that is lost to the end is an infrastructure failure, which no mean counts and no count leaves out.
"""

from __future__ import annotations

import asyncio
import os
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from flightschool.digest import derive_seed
from flightschool.environments.terminal import TerminalTask, UnreadableTask, iter_tasks, read_folder
from flightschool.environments.terminal.folders import detect_format
from flightschool.environments.terminal.trees import ImageStore
from flightschool.errors import InputError
from flightschool.records import Outcome
from flightschool.rollouts.runner import MAX_INFRA_RETRIES
from flightschool.rollouts.terminal.policies import TerminalPolicy
from flightschool.rollouts.terminal.records import Episode, NotRun
from flightschool.rollouts.terminal.runner import KeepBlob, TerminalRunner
from flightschool.sandbox import NativeProvider, require_native

__all__ = ["Result", "Turns", "find_tasks", "native_provider", "open_terminal_runner", "run_episodes"]

Result: TypeAlias = Episode | NotRun | UnreadableTask
MAX_RETRIES_OF_FAULTY_TASK: Final = 1
RETRY_PAUSE_S: Final = 0.2
"""Before the first; longer before each further one: a host out of processes or disk needs a moment."""


def find_tasks(path: Path) -> list[TerminalTask | UnreadableTask]:
    """The task of a folder, or all tasks below it in order of their paths.

    Raises:
        InputError: the folder is a task that cannot be read, or holds none.
    """
    if detect_format(path) is not None:
        return [read_folder(path)]
    return list(iter_tasks(path))


def run_episodes(
    tasks: Sequence[TerminalTask | UnreadableTask],
    policy: TerminalPolicy,
    *,
    num: int,
    seed: int,
    run: str,
    images: Path,
    base_trees: Path | None = None,
    keep_blob: KeepBlob | None = None,
    concurrency: int | None = None,
    build_network: bool = False,
    on_result: Callable[[Result], None] | None = None,
) -> list[Result]:
    """``num`` episodes over the tasks in turn; tasks repeat once all had theirs. Results in order of the episodes.

    What was lost to the infrastructure is tried again (see above); the lost attempts are in ``Episode.lost``.

    Args:
        images: folder in which built images are kept.
        concurrency: episodes at a time; one for each processor where it is None.
        build_network: whether steps of builds that fetch share this machine's network. Policies and tests never do.

    Raises:
        InfrastructureError: no sandbox can be made here.
    """

    async def run_all() -> list[Result]:
        async with open_terminal_runner(
            run=run, images=images, base_trees=base_trees, keep_blob=keep_blob, build_network=build_network
        ) as runner:
            turns = Turns(concurrency)

            async def one(task: TerminalTask | UnreadableTask, index: int) -> Result:
                async with turns.of(task.id):
                    result = await _member(runner, task, policy, index, seed)
                    if on_result is not None:
                        on_result(result)
                    return result

            order = [(tasks[place % len(tasks)], place // len(tasks)) for place in range(num)]
            return list(await asyncio.gather(*(one(task, index) for task, index in order)))

    return asyncio.run(run_all())


@asynccontextmanager
async def open_terminal_runner(
    *,
    run: str,
    images: Path,
    base_trees: Path | None = None,
    keep_blob: KeepBlob | None = None,
    build_network: bool = False,
) -> AsyncIterator[TerminalRunner]:
    """A runner with sandboxes of its own, which are gone at the end.

    Args:
        run: id that attempts are made under.
        images: folder in which built images are kept.
        base_trees: folder with unpacked base images.
        keep_blob: keeps end states (bytes → digest), so that they can be graded again.
        build_network: see ``run_episodes``.

    Raises:
        InfrastructureError: no sandbox can be made here.
    """
    provider = await native_provider()
    networked = NativeProvider(without=["network"]) if build_network else None
    try:
        store = ImageStore(images, provider, base_trees=base_trees, networked=networked)
        yield TerminalRunner(store, provider, run=run, keep_blob=keep_blob)
    finally:
        await provider.aclose()
        if networked is not None:
            await networked.aclose()


class Turns:
    """Who makes an attempt now: so many at a time, and others at a task wait for the first to build its image.

    Args:
        concurrency: attempts at a time; one for each processor where it is None.
    """

    def __init__(self, concurrency: int | None) -> None:
        self._gate = asyncio.Semaphore(concurrency or os.cpu_count() or 1)
        self._first: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._built: set[str] = set()

    @asynccontextmanager
    async def of(self, task: str) -> AsyncIterator[None]:
        """A turn at a task; one that raises leaves the image to the next."""
        async with self._gate:
            if task in self._built:
                yield
                return
            async with self._first[task]:
                yield
                self._built.add(task)


async def _member(
    runner: TerminalRunner, task: TerminalTask | UnreadableTask, policy: TerminalPolicy, index: int, seed: int
) -> Result:
    """The result of a member of a task's group."""
    if isinstance(task, UnreadableTask):
        return task
    group, own = f"{policy.name}:{task.id}", derive_seed(seed, task.id, index)

    async def again(number: int) -> Episode | NotRun:
        return await runner.attempt(task, policy, group=group, index=index, seed=own, number=number)

    try:
        return await _until_not_lost(again)
    except InputError as error:
        return UnreadableTask(id=task.id, folder=task.folder, **error.as_dict())


async def _until_not_lost(attempt: Callable[[int], Awaitable[Episode | NotRun]]) -> Episode | NotRun:
    """Attempts under numbers from 0, until one is no infrastructure failure or the rule above allows no more."""
    lost: list[Episode] = []
    while True:
        result = await attempt(len(lost))
        if not isinstance(result, Episode):
            return result
        most = MAX_RETRIES_OF_FAULTY_TASK if result.faulty_task else MAX_INFRA_RETRIES
        if result.attempt.outcome is not Outcome.INFRA_FAILURE or len(lost) >= most:
            return msgspec.structs.replace(result, lost=tuple(lost))
        lost.append(result)
        await asyncio.sleep(RETRY_PAUSE_S * len(lost))


async def native_provider() -> NativeProvider:
    """The provider that terminal tasks run with; the caller closes it.

    Raises:
        InfrastructureError: no sandbox of the native mechanism can be made here.
    """
    return await require_native("terminal tasks need", mend="see flightschool doctor for what to enable")
