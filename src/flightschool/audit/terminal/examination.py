"""One task folder under examination: its image built once, and every play in fresh sandboxes of the real runner."""

from __future__ import annotations

import asyncio
import posixpath
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, TypeVar

import msgspec

from flightschool.audit.terminal.one_image import OneImage
from flightschool.audit.terminal.scripting import ScriptPolicy, script
from flightschool.environments.terminal import Limits, TaskStep, TerminalTask
from flightschool.environments.terminal.end_state import EndState
from flightschool.environments.terminal.grading import UnplaceableError, grade
from flightschool.environments.terminal.grading_bench import GradingBench
from flightschool.environments.terminal.trees import Image, ImageStore
from flightschool.errors import InfrastructureError
from flightschool.records import EndReason
from flightschool.rollouts.terminal import Episode, NotRun, TerminalPolicy, TerminalRunner
from flightschool.rollouts.terminal.scoring import Scores
from flightschool.sandbox import NativeProvider

__all__ = ["NEEDS", "PASS_MARK", "Examination", "NotRunError", "Play", "limited", "together"]

T = TypeVar("T")

PASS_MARK: Final = 1.0 - 1e-9
"""Reward from which on an attempt counts as passed."""
WAITING: Final = 12
"""Whoever took so many times his processor time by the clock waited for something; less may be a busy machine."""
FIRST_AGENT_S: Final = 300.0
FIRST_VERIFIER_S: Final = 120.0
"""Most that the reference and its grader get, whatever the task allows: a grader that hangs must not hold the pool."""


NEEDS: Final = "needs "
"""Begins the reason of a task that cannot be run here."""


class NotRunError(Exception):
    """The task cannot be run here; the text says what it needs, and how it could have it.

    Args:
        need: what it needs, in one word.
        reason: why.
        mend: what would give it that; may be empty.
    """

    def __init__(self, need: str, reason: str, mend: str) -> None:
        super().__init__(f"{NEEDS}{need}: {reason}" + (f"; mend: {mend}" if mend else ""))


@dataclass(frozen=True, kw_only=True)
class Play:
    """One attempt, or one grading of end states that were made up."""

    reward: float | None
    """None: the grader gave no verdict, and ``problem`` says why."""
    problem: str = ""
    reason: EndReason = EndReason.FINISHED
    detail: str = ""
    output: str = ""
    """End of what the tests printed, of the last stage."""
    agent_s: float = 0.0
    grader_s: float = 0.0
    grader_cpu_s: float = 0.0
    blobs: tuple[bytes, ...] = field(default=(), repr=False)

    @property
    def passes(self) -> bool:
        """Whether it was rewarded at the pass mark."""
        return self.reward is not None and self.reward >= PASS_MARK

    @property
    def grading_cost_s(self) -> float:
        """Seconds that one grading takes on a quiet machine: of a processor, or of the clock where the tests wait."""
        waits = self.grader_s > 1.0 + WAITING * self.grader_cpu_s
        return self.grader_s if waits else self.grader_cpu_s

    @property
    def cost_s(self) -> float:
        """Seconds that all of it takes on a quiet machine, by the share that its grading was held up."""
        if self.grader_s <= 0:
            return self.agent_s
        return (self.agent_s + self.grader_s) * self.grading_cost_s / self.grader_s

    @cached_property
    def states(self) -> tuple[EndState, ...]:
        """End states of the stages that were graded; each holds all that was written so far."""
        return tuple(EndState.from_bytes(blob) for blob in self.blobs)

    @property
    def told(self) -> str:
        """The outcome in words, for a finding."""
        verdict = f"reward {self.reward:g}" if self.reward is not None else f"no verdict: {self.problem}"
        tail = " ".join(self.output.split())[-200:]
        return f"{verdict}; the tests printed: {tail}" if tail else verdict


class Examination:
    """What the probes of one task share.

    Args:
        task: the task as read.
        store: builds and keeps images.
        provider: makes the sandboxes; the one of ``store``.
        gate: bounds the sandboxes that are alive at one time.
        seed: of the plays.

    Call ``prepare`` once before anything else.
    """

    def __init__(
        self, task: TerminalTask, store: ImageStore, provider: NativeProvider, gate: asyncio.Semaphore, *, seed: int = 0
    ) -> None:
        self.given = task
        """The task with its own time limits."""
        self.task = limited(task, FIRST_AGENT_S, FIRST_VERIFIER_S)
        self.store = store
        self.provider = provider
        self.seed = seed
        self.num_episodes = 0
        self.notes: list[str] = []
        """What is worth saying and accuses no one."""
        self.equivalent_mutants: list[str] = []
        """Changes of the reference's work that turned out to be the same work."""
        self.not_applicable: list[str] = []
        """Attacks that cannot matter in this task, and why."""
        self.bench = GradingBench()
        """Grades; a context of the caller's."""
        self._gate = gate
        self._image: Image | None = None

    @property
    def image(self) -> Image:
        """The image that every play begins with."""
        assert self._image is not None, "prepare() comes first"
        return self._image

    async def prepare(self) -> None:
        """Build the image.

        Raises:
            NotRunError: it cannot be built here.
            InputError, InfrastructureError: it cannot be built at all, or a build step failed.
        """
        image = await self.store.build(self.task)
        if not isinstance(image, Image):
            raise NotRunError(image.need, image.reason, image.mend)
        self._image = image
        self.store = OneImage(self.store, image)

    def hurry(self, play: Play) -> None:
        """Bound later plays by what the reference took: an attack that makes the grader hang is not waited for long."""
        agent_s, grader_s = max(10.0, 3 * play.agent_s + 5), max(15.0, 5 * play.grader_s + 10)
        self.task = limited(self.task, agent_s, grader_s)

    # -------------------------------------------------------------------------------------------- plays

    async def run(self, body: str, *, task: TerminalTask | None = None, plain: bool = False) -> Play:
        """Play a shell program as the policy."""
        return await self.play(ScriptPolicy(script(body)), task=task, plain=plain)

    async def play(
        self, policy: TerminalPolicy, *, task: TerminalTask | None = None, index: int = 0, plain: bool = False
    ) -> Play:
        """One attempt through the real runner.

        Args:
            policy: who acts.
            task: a variant of the task; None: the task.
            index: of the attempt, which its seed depends on.
            plain: grade exactly as training does, with nothing made ahead: for what is told as evidence.

        Raises:
            NotRunError: the task needs what is not here.
            InfrastructureError: no sandbox, twice.
        """
        detail = ""
        for number in range(2):
            blobs: list[bytes] = []
            judge = grade if plain else self.bench.grade
            runner = TerminalRunner(
                self.store, self.provider, run="audit", keep_blob=_keep(blobs), controlled=False, grade=judge
            )
            async with self._gate:
                self.num_episodes += 1
                started = time.perf_counter()
                result = await runner.attempt(
                    task or self.task, policy, group="audit", index=index, seed=self.seed + index, number=number
                )
                wall_s = time.perf_counter() - started
            if isinstance(result, NotRun):
                raise NotRunError(result.need, result.reason, result.mend)
            if result.attempt.reason is not EndReason.WORLD_ERROR:
                return _play(result, tuple(blobs), wall_s)
            detail = result.attempt.detail
        raise InfrastructureError(f"no attempt could be made: {detail}", where=self.task.folder, expected="a sandbox")

    async def grade(self, states: Sequence[EndState], *, task: TerminalTask | None = None, plain: bool = False) -> Play:
        """Grade end states, one of each stage, without running a policy (``plain`` as in ``play``)."""
        chosen, judge = task or self.task, grade if plain else self.bench.grade
        scores, output, grader_s, cpu_s = Scores(chosen), "", 0.0, 0.0
        async with self._gate:
            self.num_episodes += 1
            for place, (stage, state) in enumerate(zip(chosen.stages, states, strict=False)):
                try:
                    graded = await judge(chosen, stage, self.image, state, self.store, self.provider)
                except UnplaceableError as error:
                    return Play(reward=0.0, reason=EndReason.RESOURCE_LIMIT, detail=error.what)
                output, grader_s, cpu_s = graded.output, grader_s + graded.wall_s, cpu_s + graded.cpu_s
                if graded.reward is None:
                    return Play(reward=None, problem=graded.problem, reason=EndReason.GRADER_ERROR, output=output)
                scores.add(stage, graded)
                if place + 1 < len(chosen.stages) and not scores.may_go_on(stage, graded):
                    break
        return Play(reward=scores.result()[1].total, output=output, grader_s=grader_s, grader_cpu_s=cpu_s)

    # -------------------------------------------------------------------------------------------- variants

    def as_user(self, user: str) -> TerminalTask:
        """The task with another account for the policy."""
        steps = tuple(msgspec.structs.replace(step, agent_user=user) for step in self.task.steps)
        return msgspec.structs.replace(self.task, agent_user=user, steps=steps)

    def with_variables(self, variables: Mapping[str, str], *, agent: bool = False) -> TerminalTask:
        """The task with variables for its tests, and for the policy too if ``agent``."""
        grader = {**self.task.verifier_env, **variables}
        both = {**self.task.environment_env, **variables} if agent else self.task.environment_env
        return msgspec.structs.replace(self.task, verifier_env=grader, environment_env=both)

    def inside(self, path: str) -> str:
        """An absolute path for one that may be relative to the working directory."""
        return posixpath.normpath(posixpath.join(self.image.workdir, path))


async def together(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """All results in order; the first error ends those that are still under way before it is raised."""
    tasks = [asyncio.create_task(one) for one in work]
    try:
        return list(await asyncio.gather(*tasks))
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


def limited(task: TerminalTask, agent_s: float, verifier_s: float) -> TerminalTask:
    """The task with time limits of at most so many seconds."""

    def cut(limits: Limits) -> Limits:
        return msgspec.structs.replace(
            limits,
            agent_s=min(limits.agent_s or agent_s, agent_s),
            verifier_s=min(limits.verifier_s or verifier_s, verifier_s),
        )

    def step(one: TaskStep) -> TaskStep:
        return msgspec.structs.replace(one, limits=cut(one.limits))

    steps = tuple(step(one) for one in task.steps)
    return msgspec.structs.replace(task, limits=cut(task.limits), steps=steps)


def _play(episode: Episode, blobs: tuple[bytes, ...], wall_s: float) -> Play:
    attempt = episode.attempt
    stages = episode.details.stages if episode.details else ()
    graded = [stage.graded for stage in stages if stage.graded is not None]
    grader_s = sum(one.wall_s for one in graded)
    no_verdict = attempt.reason is EndReason.GRADER_ERROR
    return Play(
        reward=attempt.reward.total if attempt.reward is not None else None,
        problem=attempt.detail if no_verdict else "",
        reason=attempt.reason,
        detail=attempt.detail,
        output=graded[-1].output if graded else "",
        agent_s=max(0.0, wall_s - grader_s),
        grader_s=grader_s,
        grader_cpu_s=sum(one.cpu_s for one in graded),
        blobs=blobs,
    )


def _keep(blobs: list[bytes]) -> Callable[[bytes], str]:
    def keep(data: bytes) -> str:
        blobs.append(data)
        return ""

    return keep
