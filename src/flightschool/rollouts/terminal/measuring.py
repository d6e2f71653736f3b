"""Task folders behind the interface that an evaluation runs attempts by.

The suite knows tasks; the runner knows folders and sandboxes. An evaluation makes its attempts side by side, as many as
there are processors, and the first attempt at a task builds its image while the others wait for it. What cannot be
attempted on this machine has no grade: it is missing, and the reason stands in the attempt.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from flightschool.environments.terminal import TerminalFolders, TerminalTask
from flightschool.errors import InputError
from flightschool.perturbation import FaultProfile
from flightschool.records import Attempt, EndReason, Task, Timings
from flightschool.rollouts.policies import Policy, PolicyEndpoint
from flightschool.rollouts.runner import outcome_of
from flightschool.rollouts.terminal.policies import TerminalPolicy
from flightschool.rollouts.terminal.records import NotRun, TerminalEpisode
from flightschool.rollouts.terminal.runner import KeepBlob, TerminalRunner
from flightschool.rollouts.terminal.running import Turns, open_terminal_runner
from flightschool.rollouts.terminal.shell import ShellPolicy

__all__ = ["FolderRunner", "ProgramSeat", "open_folder_runner"]

KeepDetails = Callable[[TerminalEpisode], None]


class ProgramSeat:
    """A policy that acts by programs, where an evaluation wants one with a model endpoint: it has only a name."""

    def __init__(self, programs: TerminalPolicy) -> None:
        self.name = programs.name
        self.programs = programs

    def endpoint(self, task: Task, seed: int, group: str) -> PolicyEndpoint:
        """Nothing to talk with. Raises ``InputError``."""
        del seed, group
        raise InputError(
            f"{self.name} acts by programs",
            where=task.id,
            expected="a policy with a model endpoint",
            mend="measure it on task folders",
        )


class FolderRunner:
    """Attempts at the tasks of folders (what ``evaluation.evaluate`` asks of a runner).

    Args:
        folders: the tasks.
        runner: makes the attempts.
        programs: the policy, where it acts by programs; None: the policy of each call is a model.
        keep_details: keeps what an attempt left besides, under the attempt's id.
        concurrency: attempts at a time.
    """

    def __init__(
        self,
        folders: TerminalFolders,
        runner: TerminalRunner,
        *,
        programs: TerminalPolicy | None = None,
        keep_details: KeepDetails | None = None,
        concurrency: int | None = None,
    ) -> None:
        self._folders = folders
        self._runner = runner
        self._programs = programs
        self._keep_details = keep_details
        self._turns = Turns(concurrency)

    async def attempt(
        self,
        task: Task,
        policy: Policy,
        *,
        group: str,
        index: int,
        seed: int,
        number: int = 0,
        weather_profile: FaultProfile | None = None,
    ) -> Attempt:
        """One attempt. Failures of any kind come back as attempts.

        Raises:
            InputError: faults are asked for: there is no weather in a terminal.
        """
        if weather_profile is not None and not weather_profile.is_clean:
            raise InputError(
                "there is no weather in a terminal",
                where=weather_profile.label,
                expected="clean",
                mend="leave the fault profile out",
            )
        folder = self._folders.folder(task.id)
        acting = self._programs or ShellPolicy(policy)
        async with self._turns.of(task.id):
            return await self._one(folder, acting, group, index, seed, number)

    async def _one(
        self, folder: TerminalTask, acting: TerminalPolicy, group: str, index: int, seed: int, number: int
    ) -> Attempt:
        try:
            made = await self._runner.attempt(folder, acting, group=group, index=index, seed=seed, number=number)
        except InputError as error:
            made = NotRun(task=folder.id, task_digest=folder.digest, need="mending", reason=str(error))
        if isinstance(made, NotRun):
            return _not_made(made, folder, acting.name, self._runner.run, group, index, seed, number)
        if made.details is not None and self._keep_details is not None:
            self._keep_details(made.details)
        return made.attempt


@asynccontextmanager
async def open_folder_runner(
    folders: TerminalFolders,
    *,
    run: str,
    images: Path,
    programs: TerminalPolicy | None = None,
    keep_blob: KeepBlob | None = None,
    keep_details: KeepDetails | None = None,
    concurrency: int | None = None,
) -> AsyncIterator[FolderRunner]:
    """A runner with sandboxes of its own, which are gone at the end.

    Args:
        folders: the tasks.
        run: id that attempts are made under.
        images: folder in which built images are kept.
        programs: see ``FolderRunner``.
        keep_blob: keeps end states (bytes → digest), so that they can be graded again.
        keep_details: see ``FolderRunner``.
        concurrency: attempts at a time; one for each processor where it is None.

    Raises:
        InfrastructureError: no sandbox can be made here.
    """
    async with open_terminal_runner(run=run, images=images, keep_blob=keep_blob) as runner:
        yield FolderRunner(folders, runner, programs=programs, keep_details=keep_details, concurrency=concurrency)


def _not_made(
    why: NotRun, folder: TerminalTask, policy: str, run: str, group: str, index: int, seed: int, number: int
) -> Attempt:
    """An attempt that this machine could not make: nobody's failure, and without a grade."""
    outcome, cause = outcome_of(EndReason.WORLD_ERROR)
    return Attempt(
        id=f"{run}:{group}:{index}:{number}",
        run=run,
        group=group,
        index=index,
        number=number,
        environment=folder.format.value,
        environment_digest="",
        task=folder.id,
        task_digest=folder.digest,
        policy=policy,
        seed=seed,
        spans=(),
        messages=(),
        events=(),
        outcome=outcome,
        reason=EndReason.WORLD_ERROR,
        cause=cause,
        verdict=None,
        reward=None,
        end_state="",
        timings=Timings(virtual_ms=0.0),
        detail=f"needs {why.need}: {why.reason}",
    )
