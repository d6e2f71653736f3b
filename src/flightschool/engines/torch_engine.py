"""The engine: continuous batching over the flat transformer, in one asyncio process.

Who wakes whom. ``generate`` validates, queues a job and waits on its future; the first job starts the loop task, which
ends when nothing is left to do. Each round of the loop: the hook is polled (new weights may be copied in), queued jobs
take slots, *one* forward pass computes the next token of every running sequence together with what newcomers still
need of their prompts, tokens are drawn, finished jobs resolve their futures; then the event loop runs everyone else.
A pass runs in the loop's own thread: nothing can change weights or caches under it, and equal arrivals give equal
batches, hence equal tokens.

How it ends. A cancelled waiter's job leaves at the next round. If a pass or the hook raises, every waiter gets an
``InfrastructureError`` and the engine is dead: its caches can no longer be trusted.

What is promised. Log-probabilities equal a plain forward pass of the same weights (1e-5 in float32) as long as a
sequence's cache was computed under the weights that sampled it. Weights may change between two tokens; each token
records the version that drew it, and ``kv_step`` the oldest weights that the cache under it still holds.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from itertools import groupby

import torch
from torch import Tensor

from flightschool.engines.base import EngineBase
from flightschool.engines.cached_attention import CachedAttention
from flightschool.engines.experts import RecordedRouting
from flightschool.engines.folders import LoadedModel
from flightschool.engines.grammar import GrammarBook, GrammarWalk
from flightschool.engines.grammar_text import grammar_support
from flightschool.engines.kernels import has_kernels
from flightschool.engines.kv_cache import KvSlots, PrefixPool, Session
from flightschool.engines.memory import trim
from flightschool.engines.piecewise_attention import PiecewiseAttention
from flightschool.engines.products import serve_fast
from flightschool.engines.requests import check_state, drawing
from flightschool.engines.sampling import restrict, sample
from flightschool.engines.scheduler import Counters, Job, Plan, Scheduler, keep_routes
from flightschool.errors import InfrastructureError, InputError
from flightschool.protocols import Generation, GenerationRequest
from flightschool.records import Record, VersionRun, WeightsVersion

__all__ = ["EngineMetrics", "TorchEngine"]

_YIELDS_AFTER_FINISH = 4  # turns of the event loop that an answered episode gets to ask for its next completion


class EngineMetrics(Record, frozen=True, kw_only=True):
    """What the engine has done since it was made."""

    generated_tokens: int = 0
    prefill_tokens: int = 0
    """Tokens of prompts and observations that went through the model."""
    reused_tokens: int = 0
    """Tokens of prompts and observations that did not, since they were cached."""
    prefix_hits: int = 0
    """Sessions that began on a prefix which another had computed."""
    steps: int = 0
    """Forward passes."""
    evictions: int = 0
    """Idle sessions whose cache was given up for others."""
    weight_updates: int = 0
    busy_s: float = 0.0
    """Time spent in forward passes and sampling."""


class TorchEngine(EngineBase):
    """Implements ``protocols.Engine`` for the Llama family on one device.

    Args:
        loaded: model and tokenizer; the engine reads the module's parameters and writes them in ``update_weights``.
        run: run that the first weights version is of.
        step: its step.
        max_slots: most sequences whose caches are kept; more sessions queue up.
        max_context: longest sequence; never above the model's own.
        max_prefixes: most shared prefixes kept.
        max_step_tokens: most prompt tokens computed in one pass beside decoding, which bounds a pass's length.
        num_threads: threads of torch in this process; left alone if not given.
        between_steps: called before every pass; may call ``update_weights``.
        packed_weights: keep a second copy of the weights, laid out for the kernel (see ``products``).
    """

    def __init__(
        self,
        loaded: LoadedModel,
        *,
        run: str = "",
        step: int = 0,
        max_slots: int = 64,
        max_context: int = 1024,
        max_prefixes: int = 32,
        max_step_tokens: int = 512,
        num_threads: int | None = None,
        between_steps: Callable[[], None] | None = None,
        packed_weights: bool = False,
    ) -> None:
        if min(max_slots, max_context, max_prefixes, max_step_tokens) < 1:
            raise InputError("an engine limit is below 1", expected="positive limits", mend="raise it")
        if num_threads is not None:
            torch.set_num_threads(num_threads)
        super().__init__(
            WeightsVersion(run=run, incarnation=0, step=step, digest=loaded.digest),
            vocab=loaded.config.vocab,
            max_context=min(max_context, loaded.config.max_context),
        )
        self.between_steps = between_steps
        self._model = loaded.model
        self._packed_weights = packed_weights
        serve_fast(self._model, packed=packed_weights)
        self._book = GrammarBook(loaded.tokenizer, loaded.config.vocab)
        self._task: asyncio.Task[None] | None = None
        self._count = Counters()
        weight = loaded.model.model.embed_tokens.weight
        self._has_kernels = has_kernels(weight.device, weight.dtype, loaded.config.head_dim)
        tails, shared = (
            KvSlots(loaded.config, most, weight.dtype, weight.device) for most in (max_slots, max_prefixes)
        )
        self._scheduler = Scheduler(tails, PrefixPool(shared), max_step_tokens, self._count)

    @property
    def metrics(self) -> EngineMetrics:
        """Counters so far."""
        return EngineMetrics(**vars(self._count))

    # -------------------------------------------------------------------------------------------- requests

    async def generate(self, request: GenerationRequest) -> Generation:
        """Sample a continuation.

        Raises:
            InputError: the request can never be served: empty, too long, unknown token ids, or its session is busy.
            InfrastructureError: the engine died, or its weights' lineage ended while the session was under way.
        """
        self._validate(request, busy=any(job.request.session == request.session for job in self._scheduler.jobs()))
        loop = asyncio.get_running_loop()
        job = Job(
            request=request,
            future=loop.create_future(),
            tokens=list(request.token_ids_T),
            room=min(request.max_new_tokens, self._max_context - len(request.token_ids_T)),
            rng=drawing(request),
            walk=self._walk(request),
        )
        self._scheduler.add(job)
        if self._task is None or self._task.done() or self._task.get_loop() is not loop:
            self._task = loop.create_task(self._run())
        try:
            return await job.future
        except BaseException:
            self._num_cut += len(job.logprobs)
            raise

    def release(self, session: str) -> None:
        """The session is over: free its cache. A request of it that still runs is cancelled."""
        self._orphans.discard(session)
        for job in self._scheduler.jobs():
            if job.request.session == session:
                job.future.cancel()
        self._scheduler.settle()
        self._scheduler.forget(session)

    async def interrupt(self, session: str | None = None) -> int:
        """Running requests return what they have, as ``interrupted``; their caches stay for the continuation."""
        jobs = [job for job in self._scheduler.jobs() if session in (None, job.request.session)]
        for job in jobs:
            kept = self._scheduler.session(job.request.session)
            job.future.set_result(self._generation(job, kept, "interrupted"))
        self._scheduler.settle()
        return len(jobs)

    def close(self) -> None:
        """End the engine: waiters get an ``InfrastructureError``, caches are freed."""
        self._fail("the engine was closed")

    async def aclose(self) -> None:
        """See ``close``."""
        self.close()

    def _walk(self, request: GenerationRequest) -> GrammarWalk | None:
        if not request.grammar:
            return None
        drawn = request.token_ids_T[len(request.token_ids_T) - request.num_drawn :]
        return self._book.walk(request.grammar, drawn)

    # -------------------------------------------------------------------------------------------- weights

    async def load_weights(
        self, version: WeightsVersion, state: Mapping[str, Tensor], *, keep_cache: bool = True
    ) -> None:
        """See ``update_weights`` and ``protocols.TrainedEngine``."""
        self.update_weights(version, state, keep_cache=keep_cache)

    def update_weights(
        self, version: WeightsVersion, state: Mapping[str, Tensor] | None, *, keep_cache: bool = True
    ) -> None:
        """Use other weights from the next token on.

        Running sequences go on. With ``keep_cache`` they keep keys and values of the older weights, and say so in
        ``kv_step``; without, all caches are computed again. A version of another run or incarnation cannot be
        compared with the present one by number: sessions under way then end with an ``InfrastructureError``.

        Args:
            version: what the weights are called from now on.
            state: all parameters by name, copied in place; None if the module's owner has changed them in place.
            keep_cache: whether caches stay.

        Raises:
            InputError: names or shapes are not the model's; nothing was changed.
        """
        if state is not None:
            self._copy(state)
        serve_fast(self._model, packed=self._packed_weights)
        trim()  # caches that grew, and what passes left, since the last update
        if not self._is_successor(version):
            self._orphan_sessions()
        self._scheduler.weights_changed(keep_cache)
        self._version = version
        self._count.weight_updates += 1

    def _copy(self, state: Mapping[str, Tensor]) -> None:
        parameters = dict(self._model.named_parameters())
        check_state(parameters, state)
        with torch.no_grad():
            for name, parameter in parameters.items():
                parameter.copy_(state[name])

    def _orphan_sessions(self) -> None:
        for job in self._scheduler.jobs():
            job.future.set_exception(
                InfrastructureError("the weights' incarnation ended", where="engine", mend="retry the attempt")
            )
        self._scheduler.settle()
        for name in self._scheduler.session_names:
            self._orphans.add(name)
            self._scheduler.forget(name)

    # -------------------------------------------------------------------------------------------- the loop

    async def _run(self) -> None:
        try:
            while self._scheduler.busy:
                if self.between_steps is not None:
                    self.between_steps()
                self._scheduler.settle()
                self._scheduler.admit()
                finished = self._step()
                for _ in range(_YIELDS_AFTER_FINISH if finished else 1):
                    await asyncio.sleep(0)
                self._scheduler.settle()
        except Exception as error:  # noqa: BLE001 - whatever broke a pass, no waiter may be left waiting
            self._fail(f"the engine died: {type(error).__name__}: {error}")

    def _fail(self, what: str) -> None:
        self._dead = what
        for job in self._scheduler.jobs():
            job.future.set_exception(InfrastructureError(what, where="engine", mend="start a new engine"))
        self._scheduler.settle()
        for name in self._scheduler.session_names:
            self._scheduler.forget(name)
        for store in (self._scheduler.tails, self._scheduler.pool.slots):
            store.free()

    def _step(self) -> int:
        """One forward pass over all running sequences; returns how many jobs finished."""
        plan = self._scheduler.plan()
        if plan.empty:
            return 0
        start = time.perf_counter()
        with torch.inference_mode():
            hidden_ND = self._forward(plan)
            ready = self._scheduler.commit(plan, self._version.step)
            finished = self._draw(hidden_ND, ready) if ready else 0
        self._count.steps += 1
        self._count.busy_s += time.perf_counter() - start
        return finished

    def _forward(self, plan: Plan) -> Tensor:
        attend = PiecewiseAttention if self._has_kernels else CachedAttention
        attention = attend(
            [segment for _, _, segment in plan.decoding],
            [segment for _, _, segment in plan.filling],
            [segment for _, segment in plan.prefixes],
            self._scheduler.tails,
            self._scheduler.pool.slots,
        )
        if not self._model.config.num_experts:
            hidden: Tensor = self._model(attention.tokens_N, attention.positions_N, attention)
            return hidden
        routing = RecordedRouting()
        hidden = self._model(attention.tokens_N, attention.positions_N, attention, routing)
        keep_routes(plan, routing.rows())
        return hidden

    def _draw(self, hidden_ND: Tensor, ready: list[tuple[Job, Session, int]]) -> int:
        num_ready = len(ready)
        masks, ready = _masks(ready)
        finished = num_ready - len(ready)
        if not ready:
            return finished
        rows = torch.tensor([row for _, _, row in ready], dtype=torch.long, device=hidden_ND.device)
        logits_MV = self._model.logits(hidden_ND[rows])
        temperatures = [job.request.temperature for job, _, _ in ready]
        kept_M = restrict(logits_MV, temperatures, masks)
        tokens, logprobs = sample(logits_MV, temperatures, [job.rng.random() for job, _, _ in ready])
        for (job, session, _), token, logprob, kept in zip(ready, tokens, logprobs, kept_M, strict=True):
            job.tokens.append(token)
            job.logprobs.append(logprob)
            job.steps.append(self._version.step)
            if job.walk is not None:
                job.kept.append(kept)
                job.walk.advance(token)
            self._count.generated_tokens += 1
            stopped = token in job.request.stop_token_ids
            if stopped or len(job.logprobs) == job.room:
                job.future.set_result(self._generation(job, session, "stop" if stopped else "length"))
                finished += 1
        return finished

    def _generation(self, job: Job, session: Session | None, finish: str) -> Generation:
        cached = None if session is None else session.oldest_step()
        grammar = job.request.grammar
        return Generation(
            token_ids_T=tuple(job.tokens[len(job.tokens) - len(job.logprobs) :]),
            logprobs_T=tuple(job.logprobs),
            versions=tuple(VersionRun(step=step, count=len(list(run))) for step, run in groupby(job.steps)),
            kv_step=self._version.step if cached is None else cached,
            finish=finish,
            support=grammar_support(grammar) if grammar else "full",
            log_kept_mass_T=tuple(job.kept),
            routing_T=() if session is None else session.all_routes(),
        )


def _masks(ready: list[tuple[Job, Session, int]]) -> tuple[list[Tensor | None], list[tuple[Job, Session, int]]]:
    """What each job may draw, and the jobs that may draw: one whose grammar is at a dead end fails alone."""
    masks, drawing_ = [], []
    for row in ready:
        job = row[0]
        try:
            masks.append(None if job.walk is None else job.walk.mask())
            drawing_.append(row)
        except InputError as error:
            job.future.set_exception(error)
    return masks, drawing_
