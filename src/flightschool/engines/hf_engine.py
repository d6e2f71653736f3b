"""A generic engine: any causal language model that transformers runs, one forward pass a sequence and token.

For architectures that our own transformer does not know. It keeps the contract of the own engine (exact tokens,
versions, grammars, weights in flight) and none of its speed: sequences take turns, token by token, and a group's prompt
is computed by each member. What is cached of a session is used again where the new context extends it; anything else
is computed anew, since not every architecture can cut its state back.

Who wakes whom. Each ``generate`` runs its own passes in the event loop's thread and lets the others in between two
tokens; so weights change only between two tokens, as in the own engine. Whatever a pass or its draw raises kills the
engine: its caches or weights can no longer be trusted, and every other request notices before its next token. Only
the dead end of a grammar fails its own request alone.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from flightschool.engines.base import EngineBase
from flightschool.engines.grammar import GrammarBook, GrammarWalk
from flightschool.engines.grammar_text import grammar_support
from flightschool.engines.hf_folders import HfModel
from flightschool.engines.plain_pass import Extension, extension_of
from flightschool.engines.requests import check_state, drawing
from flightschool.engines.sampling import restrict, sample
from flightschool.errors import InfrastructureError
from flightschool.protocols import Generation, GenerationRequest
from flightschool.records import VersionRun, WeightsVersion

__all__ = ["HfEngine"]


@dataclass(eq=False)
class _Cache:
    """Keys and values (or whatever state the architecture keeps) of one session."""

    tokens: list[int] = field(default_factory=list)
    state: Any = None
    step: int = 0
    """Oldest weights under it."""


@dataclass(eq=False)
class _Job:
    request: GenerationRequest
    tokens: list[int]
    walk: GrammarWalk | None
    logprobs: list[float] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    kept: list[float] = field(default_factory=list)
    interrupted: bool = False
    released: bool = False


class HfEngine(EngineBase):
    """Implements ``protocols.TrainedEngine``.

    Args:
        loaded: model and tokenizer; ``load_weights`` writes the module's parameters.
        run: run that the first weights version is of.
        step: its step.
        max_context: longest sequence; never above the model's own.
        num_threads: threads of torch in this process; left alone if not given.
        between_steps: called before every pass.
    """

    def __init__(
        self,
        loaded: HfModel,
        *,
        run: str = "",
        step: int = 0,
        max_context: int = 1024,
        num_threads: int | None = None,
        between_steps: Callable[[], None] | None = None,
        version: WeightsVersion | None = None,
    ) -> None:
        if num_threads is not None:
            torch.set_num_threads(num_threads)
        super().__init__(
            version or WeightsVersion(run=run, incarnation=0, step=step, digest=loaded.digest),
            vocab=loaded.vocab,
            max_context=min(max_context, loaded.max_context),
        )
        self.between_steps = between_steps
        self.generated_tokens = 0
        """Tokens sampled since the engine was made."""
        self._loaded, self._model = loaded, loaded.model
        self._device = next(loaded.model.parameters()).device
        self._book = GrammarBook(loaded.tokenizer, loaded.vocab)
        self._caches: dict[str, _Cache] = {}
        self._jobs: dict[str, _Job] = {}

    # -------------------------------------------------------------------------------------------- requests

    async def generate(self, request: GenerationRequest) -> Generation:
        """Sample a continuation.

        Raises:
            InputError: the request can never be served, or its session is busy.
            InfrastructureError: the engine died (also of a NaN output), or its weights' lineage ended while the session
                was under way.
        """
        self._validate(request, busy=request.session in self._jobs)
        drawn = request.token_ids_T[len(request.token_ids_T) - request.num_drawn :]
        walk = self._book.walk(request.grammar, drawn) if request.grammar else None
        job = _Job(request=request, tokens=list(request.token_ids_T), walk=walk)
        self._jobs[request.session] = job
        try:
            return await self._sample(job)
        except BaseException:
            self._num_cut += len(job.logprobs)
            raise
        finally:
            if self._jobs.get(request.session) is job:  # else released, and the name is another's now
                del self._jobs[request.session]

    async def _sample(self, job: _Job) -> Generation:
        request, rng = job.request, drawing(job.request)
        room = min(request.max_new_tokens, self._max_context - len(request.token_ids_T))
        while True:
            await asyncio.sleep(0)
            if job.released:
                raise asyncio.CancelledError
            self._refuse_dead()
            self._refuse_orphan(request.session)
            if job.interrupted:
                return self._generation(job, "interrupted")
            mask = None if job.walk is None else job.walk.mask()  # a dead end: outside of what kills the engine
            try:
                if self.between_steps is not None:
                    self.between_steps()
                token = self._draw(job, self._forward(job), mask, rng.random())
            except Exception as error:
                self._dead = f"the engine died: {type(error).__name__}: {error}"
                raise InfrastructureError(self._dead, where="engine", mend="start a new engine") from error
            stopped = token in request.stop_token_ids
            if stopped or len(job.logprobs) == room:
                return self._generation(job, "stop" if stopped else "length")

    def _forward(self, job: _Job) -> Tensor:
        """Logits after the last token, ``[1, V]``, from what is cached and what is new."""
        cache = self._caches.get(job.request.session)
        if cache is None or job.tokens[: len(cache.tokens)] != cache.tokens or len(cache.tokens) >= len(job.tokens):
            cache = _Cache(step=self._version.step)
            self._caches[job.request.session] = cache
        if cache.state is not None and self._extension == "anew":
            cache.tokens, cache.state = [], None
        new = job.tokens[len(cache.tokens) :]
        one_by_one = cache.state is not None and self._extension == "one by one"
        for piece in ([token] for token in new) if one_by_one else (new,):
            fed_1N = torch.tensor([piece], device=self._device)
            logits_1NV, cache.state = self._loaded.feed(fed_1N, cache.state)
        cache.tokens = list(job.tokens)
        return logits_1NV[:, -1].clone()  # drawing overwrites

    @functools.cached_property
    def _extension(self) -> Extension:
        return extension_of(self._loaded)

    def _draw(self, job: _Job, logits_1V: Tensor, mask: Tensor | None, uniform: float) -> int:
        temperature = job.request.temperature
        (kept,) = restrict(logits_1V, [temperature], [mask])
        (token,), (logprob,) = sample(logits_1V, [temperature], [uniform])
        job.tokens.append(token)
        job.logprobs.append(logprob)
        job.steps.append(self._version.step)
        if job.walk is not None:
            job.kept.append(kept)
            job.walk.advance(token)
        self.generated_tokens += 1
        return token

    def _generation(self, job: _Job, finish: str) -> Generation:
        cache = self._caches.get(job.request.session)
        grammar = job.request.grammar
        return Generation(
            token_ids_T=tuple(job.tokens[len(job.tokens) - len(job.logprobs) :]),
            logprobs_T=tuple(job.logprobs),
            versions=tuple(VersionRun(step=step, count=len(list(run))) for step, run in groupby(job.steps)),
            kv_step=self._version.step if cache is None else cache.step,
            finish=finish,
            support=grammar_support(grammar) if grammar else "full",
            log_kept_mass_T=tuple(job.kept),
        )

    async def interrupt(self, session: str | None = None) -> int:
        """Running requests return what they have, as ``interrupted``; their caches stay for the continuation."""
        jobs = [job for name, job in self._jobs.items() if session in (None, name)]
        for job in jobs:
            job.interrupted = True
        return len(jobs)

    def release(self, session: str) -> None:
        """The session is over: free its cache. A request of it that still runs is cancelled."""
        self._orphans.discard(session)
        self._caches.pop(session, None)
        if session in self._jobs:
            self._jobs.pop(session).released = True

    async def aclose(self) -> None:
        """End: waiters get an ``InfrastructureError``, caches are freed."""
        self._dead = "the engine was closed"
        self._caches.clear()

    # -------------------------------------------------------------------------------------------- weights

    async def load_weights(
        self, version: WeightsVersion, state: Mapping[str, Tensor], *, keep_cache: bool = True
    ) -> None:
        """See ``protocols.TrainedEngine``."""
        parameters = dict(self._model.named_parameters())
        check_state(parameters, state)
        with torch.no_grad():
            for name, parameter in parameters.items():
                parameter.copy_(state[name])
        if not self._is_successor(version):
            self._orphans.update(self._caches, self._jobs)
            self._caches.clear()
        elif not keep_cache:
            self._caches.clear()
        self._version = version
