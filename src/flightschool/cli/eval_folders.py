"""Suites over task folders: who acts there, what keeps and judges the attempts, and what does not exist there."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import TYPE_CHECKING, TypeGuard

from flightschool.cli.references import terminal_policy
from flightschool.cli.rollout_folders import images_folder
from flightschool.errors import InputError

if TYPE_CHECKING:
    from flightschool.environments.terminal import TerminalFolders
    from flightschool.evaluation import AttemptRunner, Judge
    from flightschool.protocols import Environment, RewardComposition, Store
    from flightschool.records import Task
    from flightschool.rollouts import Policy, Sampling
    from flightschool.rollouts.terminal import TerminalEpisode
    from flightschool.store import Workspace

__all__ = [
    "composition_of",
    "folder_judge",
    "folder_policy",
    "forget_images",
    "is_folders",
    "refuse_for_folders",
    "unaudited_folders",
]

DETAILS_KIND = "terminal-episode"


def is_folders(world: Environment) -> TypeGuard[TerminalFolders]:
    """Whether these are task folders."""
    from flightschool.environments.terminal import TerminalFolders

    return isinstance(world, TerminalFolders)


def composition_of(store: Store, world: Environment) -> RewardComposition:
    """What makes a reward of a verdict: in folders their own tests alone, whatever the workspace composes elsewhere."""
    from flightschool.rollouts.terminal import OwnVerdict
    from flightschool.verification import current_reward

    return OwnVerdict() if is_folders(world) else current_reward(store)


def refuse_for_folders(perturb: str | None, enforcement: bool) -> None:
    """What only tools have. Raises ``InputError``."""
    if perturb is not None:
        raise InputError(
            "there is no weather in a terminal", where="--perturb", expected="clean", mend="leave the option out"
        )
    if not enforcement:
        raise InputError(
            "a sandbox has no permissions that could be left unenforced",
            where="--no-enforcement",
            expected="an environment with tools",
            mend="leave the option out",
        )


def folder_policy(
    text: str,
    world: TerminalFolders,
    space: Workspace,
    sampling: Sampling,
    *,
    keep_states: bool = False,
    sealed: bool = False,
) -> tuple[Policy, Callable[[str], AbstractAsyncContextManager[AttemptRunner]]]:
    """The policy as an evaluation knows it, and what opens the sandboxes for a run of an id.

    Of ``sealed`` folders that were opened nothing is kept in the workspace: images lie beside the folders.
    """
    from flightschool.rollouts.terminal import ProgramSeat, ShellPolicy, open_folder_runner

    acting = terminal_policy(text, space, sampling)
    programs = None if isinstance(acting, ShellPolicy) else acting

    def keep(details: TerminalEpisode) -> None:
        space.store.put(DETAILS_KIND, details.attempt, details)

    def opened(run: str) -> AbstractAsyncContextManager[AttemptRunner]:
        return open_folder_runner(
            world,
            run=run,
            images=world.path.parent / "images" if sealed else images_folder(space),
            programs=programs,
            keep_blob=space.store.put_blob if keep_states else None,
            keep_details=None if sealed else keep,
        )

    return acting.inner if isinstance(acting, ShellPolicy) else ProgramSeat(acting), opened


def unaudited_folders(store: Store, tasks: Sequence[Task]) -> list[str]:
    """Those whose present content was not audited, or not found sound."""
    from flightschool.audit import folder_audits
    from flightschool.records import AuditVerdict

    audits = folder_audits(store, tasks)
    return [task for task, audit in audits if audit is None or audit.verdict is not AuditVerdict.SOUND]


def forget_images(space: Workspace) -> None:
    """Drop built images, a cache: those of sealed tasks hold their files."""
    shutil.rmtree(images_folder(space), ignore_errors=True)


def folder_judge(space: Workspace, world: TerminalFolders) -> Callable[[], AbstractContextManager[Judge]]:
    """Judges kept end states by the folders' tests, in fresh sandboxes."""
    from flightschool.rollouts.terminal import TerminalEpisode, folder_judging

    def details(attempt: str) -> TerminalEpisode | None:
        kept = space.store.has(DETAILS_KIND, attempt)
        return space.store.get(DETAILS_KIND, attempt, TerminalEpisode) if kept else None

    return lambda: folder_judging(world, details, space.store.get_blob, images=images_folder(space))
