"""Grading kept attempts again: the end states are the old ones, the sandboxes of the grader are new."""

from __future__ import annotations

from collections.abc import Callable

from flightschool.environments.terminal import TerminalTask
from flightschool.environments.terminal.end_state import EndState
from flightschool.environments.terminal.grading import Graded, grade
from flightschool.environments.terminal.trees import ImageStore, NotRunnable
from flightschool.errors import InputError
from flightschool.rollouts.terminal.records import TerminalEpisode
from flightschool.sandbox import NativeProvider

__all__ = ["regrade"]


async def regrade(
    task: TerminalTask,
    episode: TerminalEpisode,
    get_blob: Callable[[str], bytes],
    store: ImageStore,
    provider: NativeProvider,
) -> tuple[Graded, ...]:
    """Grade every stage of a kept episode that was graded, without running the policy.

    Raises:
        InputError: no end states were kept, the image cannot be built here, or it is another one now.
        InfrastructureError: a sandbox was lost.
    """
    image = await store.kept(episode.image_digest) or await store.build(task)
    if isinstance(image, NotRunnable):
        raise InputError(f"the image cannot be built: {image.reason}", where=task.folder, expected="the same machine")
    if image.digest != episode.image_digest:
        raise InputError(
            "the image is another one now",
            where=task.folder,
            expected=f"an image of digest {episode.image_digest}",
            mend="grade where the attempt was made, or run it again",
        )
    graded = []
    for stage, result in zip(task.stages, episode.stages, strict=False):
        if result.graded is not None and not result.blob:
            raise InputError(
                "the end state was not kept",
                where=episode.attempt,
                expected="an attempt whose output was kept",
                mend="roll out with --keep-output in a workspace",
            )
        if result.graded is not None:
            state = EndState.from_bytes(get_blob(result.blob))
            graded.append(await grade(task, stage, image, state, store, provider))
    return tuple(graded)
