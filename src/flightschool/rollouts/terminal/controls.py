"""Who kept the tests from a verdict: they judge a state that no policy touched, and what they say of it decides.

A grader without a verdict is nobody's score (invariant 1), but a policy must not be able to leave the denominator by
what it leaves behind: a file that the tests read for ever, a program that kills them. So where there is no verdict, the
same tests run on the state as the policy found it. If they have none there either, the fault is theirs. If they have
one, the policy's state is graded once more, since the machine may have been at fault: a verdict counts then, and none
is the policy's doing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final

from flightschool.environments.terminal import TaskStep, TerminalTask
from flightschool.environments.terminal.end_state import EndState
from flightschool.environments.terminal.grading import Graded, UnplaceableError, grade
from flightschool.environments.terminal.trees import Image, ImageStore
from flightschool.errors import FlightschoolError
from flightschool.sandbox import NativeProvider

__all__ = ["Controls", "Grade", "graded_or_why"]

Grade = Callable[[TerminalTask, TaskStep, Image, EndState, ImageStore, NativeProvider], Awaitable[Graded]]
"""``grading.grade``, or what does the same in another way."""

MOST_FAILED: Final = 2
"""So often the tests of an untouched state may fail to judge before they are no longer asked."""
_Key = tuple[str, str, int, float | None]


async def graded_or_why(
    task: TerminalTask,
    place: int,
    image: Image,
    state: EndState,
    store: ImageStore,
    provider: NativeProvider,
    *,
    judge: Grade = grade,
) -> Graded:
    """The verdict on a stage's end state; a sandbox that cannot be made or is lost is a problem told in it.

    Raises:
        UnplaceableError: the end state cannot be laid out, by the policy's doing.
    """
    try:
        return await judge(task, task.stages[place], image, state, store, provider)
    except UnplaceableError:
        raise
    except (FlightschoolError, OSError) as error:
        return Graded(reward=None, lost=True, problem=f"the grader's sandbox: {error}")


class Controls:
    """Knows of which tasks the tests judge an untouched state; asked only after a grading without a verdict."""

    def __init__(self, store: ImageStore, provider: NativeProvider) -> None:
        self._store = store
        self._provider = provider
        self._judging: set[_Key] = set()
        self._failed: Counter[_Key] = Counter()

    async def judge(self, task: TerminalTask, place: int, image: Image, untouched: EndState) -> bool:
        """Whether the tests of a stage have a verdict on what no policy touched.

        Args:
            task: the task.
            place: number of the stage.
            image: what the attempt began with.
            untouched: what the task itself lays over it up to this stage.
        """
        key = (task.digest, image.digest, place, task.stages[place].limits.verifier_s)
        if key not in self._judging and self._failed[key] < MOST_FAILED:
            graded = await graded_or_why(task, place, image, untouched, self._store, self._provider)
            if graded.reward is None:
                self._failed[key] += 1
            else:
                self._judging.add(key)
        return key in self._judging
