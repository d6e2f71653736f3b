"""Running a kept attempt again: same task, program and seed give the same digests, if the program itself repeats."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from flightschool.environments.terminal import UnreadableTask, read_folder
from flightschool.environments.terminal.trees import ImageStore
from flightschool.errors import InputError
from flightschool.records import Attempt
from flightschool.rollouts.replay import Replay
from flightschool.rollouts.terminal.policies import TerminalPolicy
from flightschool.rollouts.terminal.records import NotRun, TerminalEpisode
from flightschool.rollouts.terminal.runner import TerminalRunner
from flightschool.rollouts.terminal.running import native_provider
from flightschool.sandbox import NativeProvider

__all__ = ["replay_terminal"]


def replay_terminal(
    recorded: Attempt, details: TerminalEpisode, policy: TerminalPolicy, *, images: Path, base_trees: Path | None = None
) -> Replay:
    """Run a recorded attempt again in fresh sandboxes and grade it anew.

    Args:
        recorded: the attempt.
        details: what was kept beside it.
        policy: the one that made it.
        images: folder in which built images are kept.
        base_trees: see ``ImageStore``.

    Raises:
        InputError: the task's folder is gone or is another task now, or it cannot be run here.
        InfrastructureError: no sandbox can be made here.
    """
    task = read_folder(Path(details.folder))
    if isinstance(task, UnreadableTask):
        raise InputError(task.what, where=details.folder, expected="the folder as it was", mend="restore it")
    if task.digest != recorded.task_digest:
        raise InputError(
            "the task is another one now",
            where=details.folder,
            expected=f"a task of digest {recorded.task_digest}",
            mend="restore its folder as it was",
        )

    async def again() -> Replay:
        provider = await native_provider()
        networked = NativeProvider(without=["network"]) if details.networked else None
        try:
            store = ImageStore(images, provider, base_trees=base_trees, networked=networked)
            runner = TerminalRunner(store, provider, run=recorded.run)
            result = await runner.attempt(
                task, policy, group=recorded.group, index=recorded.index, seed=recorded.seed, number=recorded.number
            )
        finally:
            await provider.aclose()
            if networked is not None:
                await networked.aclose()
        if isinstance(result, NotRun):
            raise InputError(
                f"it needs {result.need} here: {result.reason}", where=details.folder, expected="the same machine"
            )
        # attempts that were kept before events were told have none
        kept = result.attempt if recorded.events else msgspec.structs.replace(result.attempt, events=())
        return Replay(recorded_digest=recorded.digest, replayed_digest=kept.digest, attempt=result.attempt)

    return asyncio.run(again())
