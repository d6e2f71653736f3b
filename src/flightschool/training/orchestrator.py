"""The asynchronous core: generation and training side by side in one event loop, the trainer in its own process.

Stations, and who wakes whom::

    source ─► dispatcher ─► episode workers ─► journal ─► (teacher) ─► sample queue ─► batcher ─► trainer ─► publisher
                 ▲                │                                         │                        │           │
                 └── slot free ───┘                                         └──── wake ──► coordinator          engine

* The *dispatcher* (see the module) is a plain function: it starts workers while the accounts of the queue allow. Called
  by whoever freed something: a worker that ended, the coordinator after each group and each step.
* A *worker* generates one group, journals it, has the teacher score it where one is asked, offers it to the queue, and
  wakes the coordinator.
* The *coordinator* (``_coordinate``) is the only one that talks to the trainer, one question at a time: it consumes the
  oldest groups, or makes the step that is due, or sleeps until a worker wakes it. A new version reaches the engine
  right after the step that made it; the engine takes it between two decode steps, so running groups go on under it.

Who ends first. In health: the coordinator, when the steps are done, the source is dry, the time is over or no group
carries a gradient any more; then workers are cancelled (after the last step and with a dry source none is left; else
their groups stay admitted in the journal, unfinished), the model is exported, the result is written, and the trainer is
told to stop. In a crash of the trainer: the pending
question raises, workers are cancelled, the error names the process and its log. In a crash of a worker: it
tries again; when it gives up, the coordinator raises its error at the next turn. If this process is killed, the
trainer notices and ends itself. All of these leave a folder from which the run goes on (see ``journal``): by itself
after a lost trainer (``supervisor``), else when it is told to.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from pathlib import Path

import msgspec

from flightschool.errors import FlightschoolError, InfrastructureError
from flightschool.protocols import GroupSource
from flightschool.records import EpisodeGroup, GroupState, Record, WeightsVersion
from flightschool.training.algorithms import TurnQuality
from flightschool.training.crediting import Credited, Crediting
from flightschool.training.credits import CreditsFile, credit_row
from flightschool.training.dispatcher import Dispatcher, MakeGroup, ScoreGroup
from flightschool.training.folders import RunFolder, write_durably
from flightschool.training.incidents import Incidents
from flightschool.training.journal import Journal, Opened, Recovery
from flightschool.training.link import TrainerLink
from flightschool.training.messages import (
    Account,
    Accumulate,
    Done,
    Export,
    Manifest,
    Ready,
    Save,
    Start,
    Step,
    Stepped,
    StepStats,
    TrainerSpec,
    num_tokens,
)
from flightschool.training.progress import Meter, MetricsFile, ProgressCallback, read_metrics, trained_ages
from flightschool.training.queue import SampleQueue, Waiting
from flightschool.training.settings import TrainingSettings
from flightschool.training.staleness import check_tags
from flightschool.training.temperature import Temperature

__all__ = ["ApplyWeights", "MakeGroup", "Orchestrator", "TrainResult"]

ApplyWeights = Callable[[WeightsVersion], Awaitable[None]]
"""Makes the engine use a published version; returns once new tokens come from it."""

_MAX_SKIPPED_IN_A_ROW = 3
"""One bad batch says nothing of the next; three say that the weights, or the rewards, are at fault. A checkpoint only
ever follows an applied step, so a run that is gone on with begins with none skipped, as this count does."""
_MIN_TOO_FEW = 8


class TrainResult(Record, frozen=True, kw_only=True):
    """What a finished run leaves; lies in ``result.json``."""

    run: str
    stopped: str
    """Why it ended: ``steps done``, ``source dry``, ``time limit``, ``no gradient``."""
    model: str
    """The trained model's folder."""
    model_digest: str
    manifest: Manifest
    num_groups: int
    """Groups consumed over the whole lineage."""
    num_zero_advantage: int
    """Of those consumed in the last incarnation: groups without a gradient."""
    num_unfinished: int
    """Groups that ran or waited when the run ended: 0 unless the time was over or no group carried a gradient."""
    max_staleness: int
    length_bias: float
    wall_s: float
    """Of the last incarnation."""


@dataclass
class _Counters:
    skipped_in_a_row: int = 0
    flat_in_a_row: int = 0
    too_few_in_a_row: int = 0
    zero_advantage: int = 0


class Orchestrator:
    """One incarnation of a run.

    Args:
        settings: of the run.
        spec: where the trainer finds everything; names run and incarnation.
        source: of tasks, already moved past what earlier incarnations admitted.
        make_group: generates and judges one group.
        link: to the trainer.
        apply_weights: carries published weights to the engine.
        recovery: what an earlier incarnation left.
        progress: is called after every step.
        incidents: are told of what failed and was mended.
        quality: judges single turns; failed calls by default. Nothing where ``turn_weight`` is 0.
        untrained: tasks whose groups are watched and give no gradient (canaries).
        score: asks the teacher about a finished group; None: there is none.
    """

    def __init__(
        self,
        settings: TrainingSettings,
        spec: TrainerSpec,
        *,
        source: GroupSource,
        make_group: MakeGroup,
        link: TrainerLink,
        apply_weights: ApplyWeights | None = None,
        recovery: Recovery | None = None,
        progress: ProgressCallback | None = None,
        incidents: Incidents | None = None,
        quality: TurnQuality | None = None,
        untrained: Collection[str] = (),
        score: ScoreGroup | None = None,
    ) -> None:
        recovery = recovery or Recovery()
        self._settings, self._spec = settings, spec
        self._source, self._make_group, self._link = source, make_group, link
        self._score = score
        self._apply_weights, self._progress = apply_weights, progress
        self._folder = RunFolder(Path(spec.run_dir))
        self._incidents = incidents or Incidents(self._folder.incidents)
        self._recovery = recovery
        self._consumed = list(recovery.consumed)
        self._accounts = list(recovery.accounts)
        self._pending: list[tuple[str, GroupState]] = []
        """Consumed since the last step."""
        self._queue = SampleQueue(settings, recovery.step)
        self._temperature = Temperature(settings, recovery.temperature)
        self._crediting = Crediting(settings, quality, untrained)
        self._meter = Meter(
            incarnation=recovery.incarnation,
            num_steps=settings.num_steps,
            first_step=recovery.step,
            groups_per_step=settings.groups_per_step,
            count_zero_advantage=settings.count_zero_advantage,
            max_staleness=settings.max_staleness,
            before=recovery.tally,
            ages=trained_ages(read_metrics(self._folder.metrics), recovery.lineage),
            time_limit_s=settings.time_limit_s,
        )
        self._metrics = MetricsFile(self._folder.metrics)
        self._credits = CreditsFile(self._folder.credits)
        self._counters = _Counters()
        self._started = time.monotonic()

    async def run(self) -> TrainResult:
        """Run to the end.

        Raises:
            InfrastructureError: trainer or engine died, or nothing can be scored.
            TokenContractError: a group is not token-exact, or its version tags are impossible.
            FlightschoolError: three steps in a row were not finite.
        """
        self._wake = asyncio.Event()
        journal = Journal(self._folder.journal)
        self._dispatcher = Dispatcher(
            self._settings,
            self._recovery,
            source=self._source,
            make_group=self._make_group,
            queue=self._queue,
            journal=journal,
            meter=self._meter,
            incidents=self._incidents,
            wake=self._wake.set,
            score=self._score,
        )
        try:
            ready = await self._link.ask(Start(spec=self._spec))
            assert isinstance(ready, Ready)
            await self._use(ready.version)
            journal.append(
                Opened(incarnation=self._recovery.incarnation, step=self._recovery.step, lineage=self._recovery.lineage)
            )
            for item in self._recovery.offer:
                self._dispatcher.take_up(item, self._recovery.scores.get(item.group.id))
            stopped = await self._coordinate()
            num_unfinished = self._dispatcher.num_running + len(self._queue.waiting)
            await self._dispatcher.cancel()
            return await self._finish(stopped, num_unfinished)
        finally:
            await self._dispatcher.cancel()
            journal.close()

    # ------------------------------------------------------------------ coordinator

    async def _coordinate(self) -> str:
        while self._queue.version < self._settings.num_steps:
            self._dispatcher.admit()
            if self._dispatcher.failure is not None:
                raise self._dispatcher.failure
            reason = self._reason_to_stop()
            if reason:
                if self._queue.num_gradient:
                    await self._step()
                return reason
            if self._queue.step_due():
                await self._step()
            elif (item := self._queue.take()) is not None:
                await self._consume(item)
            else:
                await self._sleep()
        return "steps done"

    def _reason_to_stop(self) -> str:
        if self._settings.time_limit_s is not None and self._elapsed() > self._settings.time_limit_s:
            return "time limit"
        if self._counters.flat_in_a_row >= self._settings.max_flat_groups:
            return "no gradient"
        if self._dispatcher.dry and not self._queue.running and not self._queue.waiting:
            return "source dry"
        return ""

    async def _sleep(self) -> None:
        """Until a worker ends, or the time is over.

        Raises:
            FlightschoolError: nothing runs that could end: accounts are wrong, and waiting would be for ever.
        """
        if not self._dispatcher.num_running:
            raise FlightschoolError(
                "the run hangs: nothing runs, waits or can be admitted, and no step is due",
                where=self._spec.run,
                expected="a running group, or a reason to stop",
                mend="go on with --resume, and report this with the run's journal",
            )
        limit = self._settings.time_limit_s
        try:
            await asyncio.wait_for(self._wake.wait(), None if limit is None else max(0.0, limit - self._elapsed()))
        except TimeoutError:
            return
        self._wake.clear()

    async def _consume(self, item: Waiting) -> None:
        """Have the trainer add a group's gradient, together with those that wait and belong to the same step."""
        self._queue.consuming = True
        batch = self._credited(item)
        groups = tuple(credited.train for _, credited in batch if credited.train is not None)
        if groups:
            await self._link.ask(Accumulate(groups=groups))
        for group, (credits_, train, turns, qualities, _, distilled) in batch:
            where = self._recovery.incarnation, self._queue.version
            self._credits.write(credit_row(group, credits_, turns, *where, distilled.tokens))
            self._consumed.append(group.id)
            self._pending.append((group.id, credits_.state))
            group = msgspec.structs.replace(group, state=credits_.state)
            trained = [] if train is None else [member.attempt for member in train.members]
            self._meter.consumed(group, credits_, trained, qualities, distilled.sums)
            self._source.report(group)
        self._queue.consuming = False

    def _credited(self, first: Waiting) -> list[tuple[EpisodeGroup, Credited]]:
        """The group and all that the coordinator would consume next, as far as they may share a pass of the trainer."""
        item: Waiting | None = first
        batch: list[tuple[EpisodeGroup, Credited]] = []
        room = math.inf if self._settings.mode == "sync" else self._settings.max_pack_tokens
        while item is not None:
            for member in item.group.baseline:
                check_tags(member.spans, where=member.id, admitted=item.group.admitted_step, newest=self._queue.version)
            credited = self._crediting.credit(item.group, item.scores)
            batch.append((item.group, credited))
            if credited.train is None:
                self._queue.num_flat += 1
                self._queue.num_flat_members += credited.num_flat_members
            else:
                self._queue.num_gradient += 1
                room -= num_tokens(credited.train)
            if not self._crediting.watches(item.group):
                self._count(credited.credits.state)
            ends = room <= 0 or self._queue.step_due() or self._reason_to_stop()
            item = None if ends else self._queue.take()
        return batch

    def _count(self, state: GroupState) -> None:
        counters = self._counters
        counters.flat_in_a_row = 0 if state is GroupState.COMPLETE else counters.flat_in_a_row + 1
        counters.zero_advantage += state is not GroupState.COMPLETE
        counters.too_few_in_a_row = counters.too_few_in_a_row + 1 if state is GroupState.TOO_FEW else 0
        if counters.too_few_in_a_row >= max(_MIN_TOO_FEW, 2 * self._settings.groups_per_step):
            raise InfrastructureError(
                f"{counters.too_few_in_a_row} groups in a row have fewer than two scored members",
                where=self._spec.run,
                expected="attempts that can be scored",
                mend="see the attempts' details in the journal: world, engine or grader fails",
            )

    async def _step(self) -> None:
        self._queue.consuming = True
        before = self._queue.version
        num_flat = self._queue.num_flat_members if self._settings.count_zero_advantage else 0
        reply = await self._link.ask(Step(num_flat_members=num_flat))
        assert isinstance(reply, Stepped)
        version = before if reply.version is None else reply.version.step
        self._queue.stepped(version)
        self._settle(before, applied=reply.version is not None)
        if reply.version is not None:
            await self._use(reply.version)
        self._tell_rejected(before, version, reply.stats)
        row = self._metrics.write(self._meter.step(before, version, reply.stats, self._temperature.value))
        self._temperature.step(row.success)
        self._dispatcher.temperature = self._temperature.value
        if self._progress is not None:
            self._progress(row)
        self._counters.skipped_in_a_row = self._counters.skipped_in_a_row + 1 if reply.version is None else 0
        if reply.version is None:
            self._refuse_more_skips()
        elif version % self._settings.checkpoint_every == 0 and version < self._settings.num_steps:
            await self._link.ask(Save(directory=str(self._folder.checkpoint(version)), manifest=self._manifest()))
            self._folder.prune_checkpoints()
        self._queue.consuming = False

    def _settle(self, version: int, *, applied: bool) -> None:
        """Write down what a step consumed."""
        self._accounts += [
            Account(group=group, version=version, state=state, applied=applied) for group, state in self._pending
        ]
        self._pending = []

    async def _use(self, version: WeightsVersion) -> None:
        if self._apply_weights is not None:
            await self._apply_weights(version)
        self._dispatcher.engine_step = version.step
        self._dispatcher.temperature = self._temperature.value

    def _tell_rejected(self, before: int, version: int, stats: StepStats) -> None:
        """A step without a single token that trains is made like any other: Adam goes on by what it remembers."""
        if stats.num_trained_tokens and stats.reject_share >= 1.0:
            self._incidents.add(
                "rejected",
                f"step {before} → {version}: all {stats.num_trained_tokens} tokens were rejected by correction "
                f"{self._settings.correction!r}, veto or opsm_delta, and nothing was learned: see k1, k3 and "
                "max_abs_mismatch of metrics.jsonl; wider bounds or a smaller max_staleness are the usual mend",
            )

    def _refuse_more_skips(self) -> None:
        if self._counters.skipped_in_a_row >= _MAX_SKIPPED_IN_A_ROW:
            raise FlightschoolError(
                f"{self._counters.skipped_in_a_row} steps in a row were skipped: loss or gradient not finite",
                where=str(self._folder.kept),
                expected="finite losses and gradients",
                mend=f"see flightschool runs show {self._folder.root.name} --kept; a lower learning rate usually helps",
            )

    # ------------------------------------------------------------------ end

    def _manifest(self) -> Manifest:
        recovery = self._recovery
        return Manifest(
            run=self._spec.run,
            incarnation=recovery.incarnation,
            step=self._queue.version,
            lineage=(*recovery.lineage, (recovery.incarnation, self._queue.version)),
            consumed=tuple(self._consumed),
            accounts=tuple(self._accounts),
        )

    async def _finish(self, stopped: str, num_unfinished: int) -> TrainResult:
        self._settle(self._queue.version, applied=True)  # groups without a gradient, consumed after the last step
        done = await self._link.ask(Export(directory=str(self._folder.model)))
        assert isinstance(done, Done)
        result = TrainResult(
            run=self._spec.run,
            stopped=stopped,
            model=str(self._folder.model),
            model_digest=done.digest,
            manifest=self._manifest(),
            num_groups=len(self._consumed),
            num_zero_advantage=self._counters.zero_advantage,
            num_unfinished=num_unfinished,
            max_staleness=self._meter.max_staleness,
            length_bias=self._meter.length_bias(),
            wall_s=self._elapsed(),
        )
        write_durably(self._folder.result, msgspec.json.encode(result))
        return result

    def _elapsed(self) -> float:
        return time.monotonic() - self._started
