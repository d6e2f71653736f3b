"""The dispatcher and its workers: who is admitted, who makes a group, and what happens when making it fails.

A worker makes one group, journals it and offers it to the sample queue. If making it fails (the world or the engine
broke), or takes longer than ``group_limit_s``, the worker tries again after a pause that doubles: the same task and the
same ordinal under a new name, with the members that had ended already. So a dead engine costs its own groups some time
and a straggler cannot hold the step for ever. A group that stayed unfinished in every try ends with the members it has;
with fewer than two it is consumed without a gradient and counted, since a run must not wait for what never ends. A
group that *failed* in every try ends the run: its error says why.

Where a teacher is asked, the worker has its group scored between the journal and the queue. Till then the group counts
as running, so no step can make it too old; what the teacher said is journalled as well. A teacher that does not answer
ends the run, and the finished groups wait in the journal: the next incarnation asks about those that lack its word.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import NamedTuple

import msgspec

from flightschool.digest import derive_seed
from flightschool.errors import InfrastructureError
from flightschool.protocols import GroupSource
from flightschool.records import Attempt, EpisodeGroup, GroupState, Task
from flightschool.training.algorithms.distill import TeacherScores
from flightschool.training.incidents import Incidents
from flightschool.training.journal import (
    Admitted,
    Discarded,
    Ended,
    Finished,
    Journal,
    Recovery,
    Scored,
    oldest_step,
    oldest_version,
)
from flightschool.training.progress import Meter
from flightschool.training.queue import SampleQueue
from flightschool.training.settings import TrainingSettings

__all__ = ["Dispatcher", "MakeGroup", "Part", "ScoreGroup", "pause_s"]


class Part(NamedTuple):
    """A group as far as it has come."""

    known: Mapping[int, Attempt]
    """Attempts that ended in an earlier try, by their place in the group: they are not made again."""
    keep: Callable[[Attempt], None]
    """Is told every attempt that ends, infra failures apart."""
    sampled: Callable[[int], None]
    """Is told once, as the try ends in whatever way, how many tokens were sampled for it."""


MakeGroup = Callable[[Task, str, int, int, float, Part], Awaitable[EpisodeGroup]]
"""(task, group id, version admitted under, seed, temperature, what is there already) → the finished group."""

ScoreGroup = Callable[[EpisodeGroup], Awaitable[TeacherScores]]
"""Finished group → what a teacher says of its tokens."""

LEAST_MEMBERS = 2
"""Attempts that can be compared with one another."""
_LONGEST_PAUSE_S = 60.0


def pause_s(first_s: float, number: int) -> float:
    """Seconds before the ``number``-th try after the first: doubles, up to a minute."""
    return min(_LONGEST_PAUSE_S, first_s * 2.0 ** (number - 1))


class Dispatcher:
    """Admits groups and runs their workers. Lives as long as an incarnation; used on its event loop only.

    Args:
        settings: of the run.
        recovery: what an earlier incarnation left.
        source: of tasks, moved past what was admitted before.
        make_group: generates and judges one group.
        queue: takes admissions and finished groups.
        journal: write-ahead.
        meter: counts.
        incidents: are told of every failure that is mended.
        wake: is called whenever the coordinator has something new to look at.
        score: asks the teacher; None: there is none.
    """

    def __init__(
        self,
        settings: TrainingSettings,
        recovery: Recovery,
        *,
        source: GroupSource,
        make_group: MakeGroup,
        queue: SampleQueue,
        journal: Journal,
        meter: Meter,
        incidents: Incidents,
        wake: Callable[[], None],
        score: ScoreGroup | None = None,
    ) -> None:
        self._settings = settings
        self._incarnation = recovery.incarnation
        self._readmit = deque(recovery.readmit)
        queue.num_owed = len(self._readmit)
        self._next_ordinal = recovery.next_ordinal
        self._members = {ordinal: {a.index: a for a in kept} for ordinal, kept in recovery.kept.items()}
        """Ordinal → place → attempt of a group that is not finished yet."""
        self._source, self._make_group, self._score = source, make_group, score
        self._queue, self._journal, self._meter = queue, journal, meter
        for ordinal, kept in recovery.kept.items():
            queue.expect(ordinal, oldest_version(kept, recovery.step))
        self._incidents, self._wake = incidents, wake
        self._workers: set[asyncio.Task[None]] = set()
        self._closing = False
        self.engine_step = recovery.step
        """Version that the engine samples under."""
        self.temperature = settings.first_temperature
        """Of the groups admitted from now on."""
        self.dry = False
        """Whether the source has no task left."""
        self.failure: BaseException | None = None
        """What ended the first worker that could not be helped."""

    @property
    def num_running(self) -> int:
        """Workers alive."""
        return len(self._workers)

    def admit(self) -> None:
        """Start as many groups as the accounts allow."""
        if self._closing or self.dry:
            return
        for _ in range(self._queue.num_to_admit()):
            admission = self._next_admission()
            if admission is None:
                self.dry = True
                self._wake()
                return
            self._enter(admission)
            self._start(self._work(admission), admission.group)

    def take_up(self, item: Finished, scores: TeacherScores | None) -> None:
        """A group that an earlier incarnation finished: it waits for the trainer, or first for the teacher."""
        self._meter.finished(item.group)
        if self._score is None or scores is not None:
            self._queue.offer(item.ordinal, item.group, scores)
            return
        self._queue.admit(item.ordinal, oldest_step(item.group))
        self._start(self._hand_over(item), item.group.id)

    def _start(self, work: Coroutine[None, None, None], name: str) -> None:
        worker = asyncio.create_task(work, name=name)
        self._workers.add(worker)
        self._meter.running(len(self._workers))
        worker.add_done_callback(self._ended)

    async def cancel(self) -> None:
        """End all workers; their groups stay admitted, unfinished."""
        self._closing = True
        workers = list(self._workers)
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)

    def _next_admission(self) -> Admitted | None:
        temperature = self.temperature
        if self._readmit:
            old = self._readmit.popleft()
            self._queue.num_owed = len(self._readmit)
            ordinal, task = old.ordinal, old.task
            if ordinal in self._members:
                temperature = old.temperature  # members are compared with one another
        else:
            fresh = self._source.next_task()
            if fresh is None:
                return None
            ordinal, task = self._next_ordinal, fresh
            self._next_ordinal += 1
        group = f"g{ordinal:06d}" + (f".{self._incarnation}" if self._incarnation else "")
        return Admitted(
            incarnation=self._incarnation,
            ordinal=ordinal,
            group=group,
            task=task,
            admitted_step=self._oldest(ordinal),
            temperature=temperature,
        )

    def _oldest(self, ordinal: int) -> int:
        """Version that a group beginning now is as old as: the engine's, or that of the members it has."""
        return min(self.engine_step, oldest_version([*self._members.get(ordinal, {}).values()], self.engine_step))

    def _enter(self, admission: Admitted) -> None:
        self._journal.append(admission)
        self._queue.admit(admission.ordinal, admission.admitted_step)

    # ------------------------------------------------------------------ workers

    async def _work(self, admission: Admitted) -> None:
        group = await self._tried(admission)
        self._members.pop(admission.ordinal, None)
        finished = Finished(incarnation=admission.incarnation, ordinal=admission.ordinal, group=group)
        self._journal.append(finished)
        self._meter.finished(group)
        await self._hand_over(finished)

    async def _hand_over(self, item: Finished) -> None:
        """To the trainer, by way of the teacher where there is one."""
        scores = None
        if self._score is not None:
            scores = await self._score(item.group)
            if self._closing:
                return
            self._journal.append(
                Scored(incarnation=self._incarnation, ordinal=item.ordinal, group=item.group.id, scores=scores)
            )
        self._queue.offer(item.ordinal, item.group, scores)

    async def _tried(self, first: Admitted) -> EpisodeGroup:
        """The group, made in as many tries as the settings allow."""
        admission, limit_s = first, self._settings.group_limit_s
        for number in range(1, self._settings.max_restarts + 2):
            last = number > self._settings.max_restarts
            try:
                async with asyncio.timeout(limit_s) as limit:
                    return await self._make(admission)
            except TimeoutError:
                if not limit.expired():
                    raise  # of something within
                what = f"group {admission.group} at task {admission.task.id} is not done after {limit_s:g} s"
                self._incidents.add("straggler", f"{what}; {'given up' if last else 'begun anew'}")
            except InfrastructureError as error:
                if last:
                    raise
                self._incidents.add("retry", f"group {admission.group} failed: {error.what}; begun anew")
            if last:
                break
            await asyncio.sleep(pause_s(self._settings.restart_pause_s, number))
            admission = msgspec.structs.replace(
                admission,
                group=f"{first.group if '.' in first.group else first.group + '.0'}-{number}",
                admitted_step=self._oldest(first.ordinal),
            )
            self._enter(admission)
        members = tuple(member for _, member in sorted(self._members.get(first.ordinal, {}).items()))
        return EpisodeGroup(
            id=admission.group,
            task=admission.task.id,
            size=self._settings.group_size,
            members=members,
            admitted_step=admission.admitted_step,
            state=GroupState.COMPLETE if len(members) >= LEAST_MEMBERS else GroupState.TOO_FEW,
        )

    async def _make(self, admission: Admitted) -> EpisodeGroup:
        ended = self._members.setdefault(admission.ordinal, {})
        known = dict(ended)

        def keep(attempt: Attempt) -> None:
            if attempt.reward is not None and not self._closing:
                self._journal.append(
                    Ended(incarnation=admission.incarnation, ordinal=admission.ordinal, attempt=attempt)
                )
                ended[attempt.index] = attempt

        def sampled(num_tokens: int) -> None:
            kept = sum(a.num_completion_tokens for index, a in ended.items() if known.get(index) is not a)
            self._discard(admission, num_tokens - kept)

        seed = derive_seed("group", self._settings.seed, admission.ordinal)
        return await self._make_group(
            admission.task,
            admission.group,
            admission.admitted_step,
            seed,
            admission.temperature,
            Part(known, keep, sampled),
        )

    def _discard(self, admission: Admitted, num_tokens: int) -> None:
        """So many tokens were sampled for attempts that were cut short, or that infrastructure failed."""
        if num_tokens <= 0:
            return
        entry = Discarded(incarnation=admission.incarnation, ordinal=admission.ordinal, num_tokens=num_tokens)
        self._journal.append(entry)
        self._meter.discarded(num_tokens)

    def _ended(self, worker: asyncio.Task[None]) -> None:
        self._workers.discard(worker)
        self._meter.running(len(self._workers))
        if not worker.cancelled() and worker.exception() is not None:
            self.failure = self.failure or worker.exception()
        elif not worker.cancelled():
            self.admit()
        self._wake()
