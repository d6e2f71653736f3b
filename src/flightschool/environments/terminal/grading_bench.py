"""Many gradings of one task: what is alike in all of them is made once, and equal end states are judged once.

A grading lays an end state over the image, puts the tests in their place and runs them in a fresh sandbox. Image, tests
and the bytecode that the tests' own modules compile to are the same each time, so a bench keeps a tree that holds them
already and copies that. The sandbox is as fresh as ever, and what the tests see is what ``grade`` would show them, but
for ``__pycache__`` beside the tests' own modules. Bytecode is only ever taken from a run that the caller trusts.
"""

from __future__ import annotations

import contextlib
import posixpath
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from flightschool.environments.terminal.end_state import EndState, above, beneath
from flightschool.environments.terminal.grading import (
    Graded,
    grade,
    grader_env,
    lay_out,
    place_grader,
    run_grader,
    sieve_of,
)
from flightschool.environments.terminal.records import TaskStep, TerminalTask
from flightschool.environments.terminal.sifting import Sieve
from flightschool.environments.terminal.trees import Image, ImageStore, Tree
from flightschool.sandbox import NativeProvider
from flightschool.sandbox.written import Written, WrittenKind

__all__ = ["GradingBench"]

MOST_CACHE_BYTES = 32 << 20
"""Of bytecode that is kept."""


class _Place(msgspec.Struct):
    """What is kept for one stage over one image."""

    tree: Tree
    is_warm: bool = False


class GradingBench:
    """Grades as ``grade`` does, with its arguments. A context: what it keeps is removed at the end of the block.

    Attributes:
        warms: whether the next grading of each stage gives its bytecode to later ones. Set it for work that is
            trusted, the reference solution's, and for nothing else.
        remembers: whether an end state whose sifted content was graded under the same conditions is not graded again.
            Set it once equal states are known to be judged alike.
        num_remembered: gradings that were saved so.
    """

    def __init__(self) -> None:
        self.warms = False
        self.remembers = False
        self.num_remembered = 0
        self._stack = contextlib.ExitStack()
        self._places: dict[tuple[str, str], _Place] = {}
        self._sieves: dict[tuple[str, str, str], Sieve] = {}
        self._known: dict[tuple[object, ...], Graded] = {}

    def __enter__(self) -> GradingBench:
        """Begin."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove what was kept."""
        self._stack.close()
        self._places.clear()

    async def grade(
        self,
        task: TerminalTask,
        stage: TaskStep,
        image: Image,
        state: EndState,
        store: ImageStore,
        provider: NativeProvider,
    ) -> Graded:
        """Grade an end state (see ``grading.grade``)."""
        sieve = await self._sieve(task, stage, image, store)
        kept, left_out = sieve.sift(state.entries)
        key = _key(task, stage, image, kept)
        known = self._known.get(key) if self.remembers else None
        if known is not None:
            self.num_remembered += 1
            return msgspec.structs.replace(known, left_out=tuple(left_out))
        if _hides(kept, _targets(stage)):
            return await grade(task, stage, image, state, store, provider)
        place = self._place(task, stage, image, store)
        with store.scratch(place.tree, kept) as folder:
            room = place.tree.copy_to(folder)
            lay_out(room, kept)
            warms = self.warms and not place.is_warm

            async def take(box: Any) -> None:
                if warms and not place.is_warm:
                    place.is_warm = True
                    place.tree.apply(_bytecode(await box.written(), _targets(stage)))

            graded = await run_grader(
                task, stage, image, room, store, provider, left_out=tuple(left_out), after_stop=take
            )
        if graded.reward is not None:  # what has no verdict may have one next time
            self._known[key] = graded
        return graded

    async def _sieve(self, task: TerminalTask, stage: TaskStep, image: Image, store: ImageStore) -> Sieve:
        key = (image.tree, stage.name, grader_env(task, stage, image, image.account)["PATH"])
        if key not in self._sieves:
            self._sieves[key] = await sieve_of(task, stage, image, store)
        return self._sieves[key]

    def _place(self, task: TerminalTask, stage: TaskStep, image: Image, store: ImageStore) -> _Place:
        key = (image.tree, stage.name)
        if key not in self._places:
            of_image = Tree(Path(image.tree), over_host=image.over_host)
            tree = of_image.copy_to(self._stack.enter_context(store.scratch(of_image)))
            place_grader(tree, task, stage)
            self._places[key] = _Place(tree)
        return self._places[key]


def _targets(stage: TaskStep) -> tuple[str, ...]:
    return tuple(placement.target for placement in stage.tests)


def _hides(kept: Iterable[Written], targets: tuple[str, ...]) -> bool:
    """Whether a state clears a folder in which tests lie: then they must be placed after it."""
    over = {path for target in targets for path in above(target)}
    return any(entry.path in over and (entry.kind is not WrittenKind.FOLDER or entry.opaque) for entry in kept)


def _bytecode(written: Iterable[Written], targets: tuple[str, ...]) -> list[Written]:
    """Compiled modules beside the tests' own, with the folders that hold them."""
    found: list[Written] = []
    left = MOST_CACHE_BYTES
    for entry in written:
        own = any(beneath(entry.path, target) for target in targets)
        folder, name = posixpath.split(entry.path)
        if own and entry.kind is WrittenKind.FOLDER and name == "__pycache__":
            found.append(entry)
        elif own and entry.kind is WrittenKind.FILE and folder.endswith("/__pycache__") and name.endswith(".pyc"):
            left -= len(entry.data)
            found += [entry] if left >= 0 else []
    return found


def _key(task: TerminalTask, stage: TaskStep, image: Image, kept: list[Written]) -> tuple[object, ...]:
    conditions = (
        image.tree,
        stage.name,
        stage.test_command,
        stage.verifier_user,
        stage.limits,
        tuple(sorted(task.environment_env.items())),
        tuple(sorted(task.verifier_env.items())),
    )
    return (*conditions, EndState(entries=tuple(kept)).digest)
