"""Attempts in task folders judged again by the folders' own tests: kept end states, fresh sandboxes, same scoring."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from flightschool.digest import digest as content_digest
from flightschool.environments.terminal import TerminalFolders, TerminalTask
from flightschool.environments.terminal.trees import ImageStore
from flightschool.errors import InfrastructureError, InputError
from flightschool.records import Attempt, Check, CheckKind, Reward, Verdict
from flightschool.rollouts.terminal.records import TerminalEpisode
from flightschool.rollouts.terminal.regrading import regrade
from flightschool.rollouts.terminal.running import native_provider
from flightschool.rollouts.terminal.scoring import Scores

__all__ = ["OwnVerdict", "folder_judging"]


class OwnVerdict:
    """The reward of a task folder is what its tests say (``protocols.RewardComposition``)."""

    digest = content_digest(["terminal", 1])

    def compose(self, verdict: Verdict, virtual_ms: float, num_tokens: int | None = None) -> Reward:
        """1 if every check passed, else 0."""
        del virtual_ms, num_tokens
        outcome = float(bool(verdict.checks) and all(check.passed for check in verdict.checks))
        return Reward(
            outcome=outcome, process=0.0, latency=0.0, gate=1.0, total=outcome, composition_digest=self.digest
        )


@contextmanager
def folder_judging(
    folders: TerminalFolders,
    details: Callable[[str], TerminalEpisode | None],
    get_blob: Callable[[str], bytes],
    *,
    images: Path,
) -> Iterator[Callable[[Attempt], Verdict]]:
    """What judges a kept attempt by the tests as they are now.

    Args:
        folders: the tasks.
        details: what was kept beside an attempt, by its id.
        get_blob: bytes of an end state.
        images: folder in which built images are kept.

    Raises:
        InfrastructureError: no sandbox can be made here. So does the judge where an attempt cannot be judged again.
    """
    with asyncio.Runner() as loop:
        provider = loop.run(native_provider())
        try:
            store = ImageStore(images, provider)

            def judge(attempt: Attempt) -> Verdict:
                kept = details(attempt.id)
                if kept is None:
                    raise _lost(attempt, "nothing was kept beside the attempt")
                folder = folders.folder(attempt.task)
                try:
                    graded = iter(loop.run(regrade(folder, kept, get_blob, store, provider)))
                except InputError as error:
                    raise _lost(attempt, error.what) from error
                scores = Scores(folder)
                for stage, result in zip(folder.stages, kept.stages, strict=False):
                    if result.graded is None:
                        scores.nothing(stage, "the end state could not be graded")
                        continue
                    found = next(graded)
                    if found.reward is None:
                        raise _lost(attempt, found.problem)
                    scores.add(stage, found)
                return _verdict(folder, *scores.result())

            yield judge
        finally:
            loop.run(provider.aclose())


def _verdict(folder: TerminalTask, verdict: Verdict, reward: Reward) -> Verdict:
    """One check for the whole task: which steps count, and how, is the folder's own rule."""
    told = "; ".join(f"{check.id}: {check.evidence}" for check in verdict.checks)
    whole = Check(
        id="tests",
        kind=CheckKind.FUNCTIONAL,
        weight=1.0,
        passed=reward.success,
        evidence=f"reward {reward.total:g} ({folder.reward_strategy} of the steps): {told}",
        author="task",
    )
    return Verdict(checks=(whole,), verifier_digest=verdict.verifier_digest)


def _lost(attempt: Attempt, why: str) -> InfrastructureError:
    return InfrastructureError(
        f"cannot be judged again: {why}",
        where=f"attempt {attempt.id}",
        expected="an attempt whose end state was kept, in an image that is the same",
        mend="measure with --keep-states",
    )
