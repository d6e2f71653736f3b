"""An engine behind HTTP, with the same contract as our own.

Who may do what when. ``generate`` streams tokens; a *gate* is open except while weights are being loaded. To load
weights: close the gate, close all streams (each keeps what had arrived), pause the server, write the folder, have the
server load and name it, resume, *verify* what is served, open the gate; then every interrupted completion asks for its
rest. So the weights of each token are known exactly: no request runs across an update.

KV caches. Every session has a *salt*, the step of the weights that its cache began with; servers share and reuse
cached keys and values only within one salt. ``keep_cache`` leaves the salts: a session's older prefix is reused and
``kv_step`` says its age. Without, all salts become the new step: everything is computed anew. New sessions always take
the present step.

Verification. The label that was given must come back, where the server tells it, with the weights' check sums where it
can: from one publication to the next, equal weights must have kept and other weights must have changed them.

A server that is started anew serves the weights of its folder again. The label tells: with the tokens, or asked for
after each completion. Tokens of a server that lost its weights are never returned; after that, and after every stream
that broke, the server is awaited (``timeout_s``) and the newest weights are published again before anything more is
sampled. So a server may be restarted in the middle of a run.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from flightschool.digest import derive_seed
from flightschool.engines.base import EngineBase
from flightschool.engines.requests import check_generation, continuation, joined
from flightschool.engines.served.export import FolderExporter
from flightschool.engines.served.streams import Line, Running, ended, generation
from flightschool.engines.served.wire import Ask, Http, Wire, broken, gave_up, label_of, other_weights, salt_of
from flightschool.errors import FlightschoolError, InfrastructureError, InputError
from flightschool.protocols import Generation, GenerationRequest
from flightschool.records import WeightsVersion

if TYPE_CHECKING:
    import httpx2
    from torch import Tensor

__all__ = ["ServedEngine"]

_SEED_BITS = 31  # servers take signed 32- or 64-bit seeds
_MOST_FRUITLESS = 3
_AWAITING_S = 0.5


class ServedEngine(EngineBase):
    """Implements ``protocols.TrainedEngine`` over a server's protocol.

    Args:
        wire: the server's protocol.
        vocab: rows of the model's output.
        max_context: longest sequence.
        run: run that the first weights version is of.
        step: its step.
        digest: digest of the model folder that the server was started with.
        exporter: writes published weights where the server reads them; None: weights cannot be loaded.
        key: bearer token of the server; empty: none.
        timeout_s: seconds without a byte after which the server counts as gone.
        transport: what carries requests; the network by default.
    """

    def __init__(
        self,
        wire: Wire,
        *,
        vocab: int,
        max_context: int,
        run: str = "",
        step: int = 0,
        digest: str = "",
        exporter: FolderExporter | None = None,
        key: str = "",
        timeout_s: float = 120.0,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        super().__init__(
            WeightsVersion(run=run, incarnation=0, step=step, digest=digest), vocab=vocab, max_context=max_context
        )
        self.wire = wire
        self._exporter = exporter
        self._key, self._timeout_s, self._transport = key, timeout_s, transport
        self._lines: dict[asyncio.AbstractEventLoop, Line] = {}
        self._running: dict[str, Running] = {}
        self._salts: dict[str, int] = {}
        self._sums: Mapping[str, str] = {}
        self._labelled = self._looked = False
        self._published = ""  # digest of the weights that were loaded last
        self._folder: Path | None = None  # of the weights that were loaded last
        self._doubt = False  # whether the server may have lost them
        self._tempered = False
        self.generated_tokens = 0
        """Tokens that arrived since the engine was made."""

    # -------------------------------------------------------------------------------------------- requests

    async def generate(self, request: GenerationRequest) -> Generation:
        """Sample a continuation.

        Raises:
            InputError: the request can never be served, its session is busy, or the server refuses it.
            InfrastructureError: the server is gone, the engine was closed, or the weights' lineage ended.
            TokenContractError: what the server returned is not token-exact.
        """
        self._admit(request)
        running = Running()
        self._running[request.session] = running
        try:
            return await self._whole(request, running)
        except BaseException:
            self._num_cut += running.num_arrived
            raise
        finally:
            if self._running.get(request.session) is running:  # else released, and the name is another's now
                del self._running[request.session]

    async def _whole(self, request: GenerationRequest, running: Running) -> Generation:
        whole = ended(request, await self._piece(request, running), self._max_context)
        fruitless = 0
        while whole.finish == "interrupted" and not running.interrupted:
            self._refuse_dead()
            self._refuse_orphan(request.session)
            before = self._version
            piece = await self._piece(continuation(request, whole), running)
            fruitless = 0 if piece.token_ids_T or self._version != before else fruitless + 1
            if fruitless == _MOST_FRUITLESS:
                raise gave_up(self.wire, request.session, fruitless)
            whole = ended(request, joined(whole, piece), self._max_context)
        if whole.token_ids_T or whole.finish != "interrupted":
            check_generation(whole, f"{self.wire.kind} {self.wire.url}")
        return whole

    async def _piece(self, request: GenerationRequest, running: Running) -> Generation:
        """What arrives until the end, or until the stream is closed."""
        async with self._gate():
            if running.released:
                raise asyncio.CancelledError
            if running.interrupted:
                return generation([], self._version.step, self._version.step)
            self._refuse_dead()
            self._refuse_orphan(request.session)
            if self._doubt:
                await self._reassure()
            version = self._version
            salt = self._salts.setdefault(request.session, version.step)
            stream = asyncio.ensure_future(self._read(request, salt, running))
            running.stream = stream
        try:
            await stream
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not running.closed or (task is not None and task.cancelling()):
                stream.cancel()
                raise
        except InfrastructureError:
            self._doubt = True
            raise
        finally:
            running.stream = None
            running.closed = False
        try:
            await self._check_origin(running, version)
        except InfrastructureError:
            self._doubt = True
            raise
        if running.released:
            raise asyncio.CancelledError
        return generation(running.take(), version.step, salt)

    async def _check_origin(self, running: Running, version: WeightsVersion) -> None:
        """Raise unless what arrived is of these weights, as far as the server can tell."""
        if running.lost:
            running.lost = False
            self._check_label("", version)
        if not self._labelled or running.told:
            return
        async with self._gate():
            if self._version is version:  # else others were loaded meanwhile, and it was looked at before
                self._check_label(await self.wire.label(self._http()), version)

    async def _read(self, request: GenerationRequest, salt: int, running: Running) -> None:
        if request.temperature not in (0.0, 1.0) and not self._tempered:
            await self.wire.check_sampling(self._http(), request.token_ids_T)
            self._tempered = True
        left = min(request.max_new_tokens, self._max_context - len(request.token_ids_T))
        version = self._version
        running.told = False
        ask = Ask(
            token_ids_T=request.token_ids_T,
            max_new_tokens=left,
            stop_token_ids=request.stop_token_ids,
            temperature=request.temperature,
            seed=derive_seed("served", request.seed, request.num_drawn) >> (63 - _SEED_BITS),
            salt=salt_of(version, salt),
        )
        async for delta in self.wire.stream(self._http(), ask):
            if len(delta.token_ids_T) != len(delta.logprobs_T):
                what = f"{len(delta.logprobs_T)} log-probabilities for {len(delta.token_ids_T)} tokens"
                raise broken(self.wire.kind, what)
            if delta.version:
                running.told = True
                self._check_label(delta.version, version)
            self.generated_tokens += len(delta.token_ids_T)
            running.num_arrived += len(delta.token_ids_T)
            running.deltas.append(delta)

    def _check_label(self, told: str, version: WeightsVersion) -> None:
        """Raise unless tokens are of the weights that they are said to be of."""
        if self._labelled and told != label_of(version):
            raise other_weights(self.wire, told, version)

    def _admit(self, request: GenerationRequest) -> None:
        self._validate(request, busy=request.session in self._running)
        if request.grammar:
            raise InputError(
                f"a {self.wire.kind} server does not tell what of the probability a grammar kept",
                where=f"session {request.session}",
                expected="the full support",
                mend="set engine.constrain_calls = false, or sample with engine.kind = 'torch' or 'hf'",
            )

    async def interrupt(self, session: str | None = None) -> int:
        """Running requests return what has arrived, as ``interrupted``."""
        chosen = [running for name, running in self._running.items() if session in (None, name)]
        for running in chosen:
            running.interrupted = True
            running.close()
        return len(chosen)

    def release(self, session: str) -> None:
        """The session is over. A request of it that still runs is cancelled."""
        self._orphans.discard(session)
        self._salts.pop(session, None)
        running = self._running.pop(session, None)
        if running is not None:
            running.released = True
            if running.stream is not None:
                running.stream.cancel()

    # -------------------------------------------------------------------------------------------- weights

    async def load_weights(
        self, version: WeightsVersion, state: Mapping[str, Tensor], *, keep_cache: bool = True
    ) -> None:
        """Write the weights as a folder and have the server serve them (see ``protocols.TrainedEngine``)."""
        if self._exporter is None:
            raise InputError(
                "this engine was opened without a place to publish weights to",
                where="engine",
                expected="a folder that the server can read",
                mend="open it with an exporter",
            )
        self._exporter.check(state)
        if not self._looked:
            await self._look()
        folder = await asyncio.to_thread(self._exporter.write, version, state)
        await self.load_folder(version, folder, keep_cache=keep_cache)
        self._exporter.prune()

    async def load_folder(self, version: WeightsVersion, folder: Path, *, keep_cache: bool = True) -> None:
        """Have the server serve a model folder that it can read.

        Raises:
            InfrastructureError: the server does not serve what it was given.
        """
        same_lineage = self._is_successor(version)
        async with self._gate():
            try:
                await self._look_back()
                await self._exchange(version, folder, keep_cache=keep_cache and same_lineage)
            except FlightschoolError as error:
                self._dead = f"what the server serves is not known: {error.what}"
                raise
            if not same_lineage:
                self._orphans.update(self._salts)
                self._salts.clear()
            elif not keep_cache:
                self._salts = dict.fromkeys(self._salts, version.step)
            self._version, self._folder, self._doubt = version, folder, False

    async def _reassure(self) -> None:
        """Publish the newest weights again, unless the server can tell that it serves them. The gate is held."""
        label = await self._awaited_label()
        if label and self._labelled:
            self._check_label(label, self._version)
        elif self._folder is not None:
            await self._exchange(self._version, self._folder, keep_cache=False)
            self._salts = dict.fromkeys(self._salts, self._version.step)
        self._doubt = False

    async def _awaited_label(self) -> str:
        """Label of the served weights, as soon as the server answers: it may be on its way up again."""
        end = time.monotonic() + self._timeout_s
        while True:
            try:
                return await self.wire.label(self._http())
            except InfrastructureError:
                self._refuse_dead()
                if time.monotonic() > end:
                    raise
            await asyncio.sleep(_AWAITING_S)

    async def _look_back(self) -> None:
        """Before other weights are loaded: what runs must have been sampled under those that should be there."""
        label = await self._awaited_label()
        if self._labelled and label != label_of(self._version):
            for running in self._running.values():
                running.lost = True

    async def _exchange(self, version: WeightsVersion, folder: Path, *, keep_cache: bool) -> None:
        """Interrupt what runs, load, and verify what is served. The gate is held."""
        for running in self._running.values():
            running.close()
        http = self._http()
        await self.wire.pause(http, keep_cache=keep_cache)
        try:
            await self.wire.load(http, folder, label_of(version), keep_cache=keep_cache)
        finally:
            await self.wire.resume(http)
        await self._verify(version)

    async def _verify(self, version: WeightsVersion) -> None:
        label, sums = await self.wire.served(self._http())
        told = f"{self.wire.kind} {self.wire.url}"
        if label and label != label_of(version):
            raise InfrastructureError(
                f"the server serves {label!r} after it was given {label_of(version)!r}",
                where=told,
                expected="the weights that were published",
                mend="stop whoever else updates this server's weights, and start the run again with --resume",
            )
        known = self._published and version.digest and sums and self._sums  # two publications, and sums of both
        if known and (version.digest == self._published) != (sums == self._sums):
            what = "did not change when other weights were loaded"
            raise InfrastructureError(
                f"the served weights {what if sums == self._sums else 'changed though the same were loaded'}",
                where=told,
                expected="check sums that change with the published weights, and only with them",
                mend="see the server's log: it must be able to read the published folder",
            )
        self._labelled, self._sums, self._published = bool(label), sums, version.digest

    # -------------------------------------------------------------------------------------------- the server

    async def check_health(self) -> None:
        """Raises ``InfrastructureError`` unless the server can generate."""
        self._refuse_dead()
        await self.wire.check_health(self._http())

    async def connect(self) -> None:
        """Check health and limits, and note what is served at the beginning.

        Raises:
            InfrastructureError: the server cannot generate.
            InputError: it takes shorter sequences than are asked for.
        """
        await self.check_health()
        longest = await self.wire.limits(self._http())
        if longest is not None and longest < self._max_context:
            raise InputError(
                f"the server takes {longest} tokens, {self._max_context} are asked for",
                where=f"{self.wire.kind} {self.wire.url}",
                expected=f"a server for sequences of {self._max_context} tokens",
                mend="lower training.max_context, or start the server with a longer context",
            )
        await self._look()

    async def _look(self) -> None:
        """Note what is served before anything was published: it decides how weights are written."""
        _, self._sums = await self.wire.served(self._http())
        self._looked = True
        if self._exporter is not None and self.wire.untied:
            self._exporter.untie()

    async def aclose(self) -> None:
        """End: waiters get an ``InfrastructureError``; the server goes on."""
        self._dead = "the engine was closed"
        for running in list(self._running.values()):
            running.close()
        line = self._lines.pop(asyncio.get_running_loop(), None)
        if line is not None:
            await line.http.aclose()

    def _line(self) -> Line:
        """Connections and gate of the running event loop: neither can move between loops."""
        loop = asyncio.get_running_loop()
        if loop not in self._lines:
            self._lines = {known: line for known, line in self._lines.items() if not known.is_closed()}
            http = Http(self.wire.kind, self.wire.url, self._key, self._timeout_s, self._transport)
            self._lines[loop] = Line(http, asyncio.Lock())
        return self._lines[loop]

    def _http(self) -> Http:
        return self._line().http

    def _gate(self) -> asyncio.Lock:
        """Held while weights are loaded, and for the instant in which a request starts."""
        return self._line().gate
