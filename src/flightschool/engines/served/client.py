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
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from flightschool.digest import derive_seed
from flightschool.engines.requests import check_generation, check_request, continuation, joined
from flightschool.engines.served.export import FolderExporter
from flightschool.engines.served.wire import Ask, Delta, Http, Wire, broken, label_of
from flightschool.errors import InfrastructureError, InputError
from flightschool.protocols import Generation, GenerationRequest
from flightschool.records import VersionRun, WeightsVersion

if TYPE_CHECKING:
    import httpx2
    from torch import Tensor

__all__ = ["ServedEngine"]

_SEED_BITS = 31  # servers take signed 32- or 64-bit seeds


class ServedEngine:
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
        self.wire = wire
        self._vocab = vocab
        self._max_context = max_context
        self._version = WeightsVersion(run=run, incarnation=0, step=step, digest=digest)
        self._exporter = exporter
        self._key, self._timeout_s, self._transport = key, timeout_s, transport
        self._lines: dict[asyncio.AbstractEventLoop, _Line] = {}
        self._running: dict[str, _Running] = {}
        self._salts: dict[str, int] = {}
        self._orphans: set[str] = set()
        self._sums: Mapping[str, str] = {}
        self._labelled = False
        self._published = ""  # digest of the weights that were loaded last
        self._tempered = False
        self._dead = ""
        self.generated_tokens = 0
        """Tokens that arrived since the engine was made."""

    @property
    def version(self) -> WeightsVersion:
        """Weights in use."""
        return self._version

    @property
    def died(self) -> str:
        """What the engine died of; empty while it lives."""
        return self._dead

    @property
    def max_context(self) -> int:
        """Longest sequence, prompt and completion together."""
        return self._max_context

    # -------------------------------------------------------------------------------------------- requests

    async def generate(self, request: GenerationRequest) -> Generation:
        """Sample a continuation.

        Raises:
            InputError: the request can never be served, its session is busy, or the server refuses it.
            InfrastructureError: the server is gone, the engine was closed, or the weights' lineage ended.
            TokenContractError: what the server returned is not token-exact.
        """
        self._admit(request)
        running = _Running()
        self._running[request.session] = running
        try:
            return await self._whole(request, running)
        finally:
            if self._running.get(request.session) is running:  # else released, and the name is another's now
                del self._running[request.session]

    async def _whole(self, request: GenerationRequest, running: _Running) -> Generation:
        whole = self._ended(request, await self._piece(request, running))
        while whole.finish == "interrupted" and not running.interrupted:
            self._refuse_orphan(request.session)
            piece = await self._piece(continuation(request, whole), running)
            whole = self._ended(request, joined(whole, piece))
        if whole.token_ids_T or whole.finish != "interrupted":
            check_generation(whole, f"{self.wire.kind} {self.wire.url}")
        return whole

    def _ended(self, request: GenerationRequest, whole: Generation) -> Generation:
        """A stream that was closed after its last token, before the server said so, is an end and no interruption."""
        if whole.finish != "interrupted" or not whole.token_ids_T:
            return whole
        room = min(request.max_new_tokens, self._max_context - len(request.token_ids_T))
        stopped = whole.token_ids_T[-1] in request.stop_token_ids
        if stopped or len(whole.token_ids_T) == room:
            return msgspec.structs.replace(whole, finish="stop" if stopped else "length")
        return whole

    async def _piece(self, request: GenerationRequest, running: _Running) -> Generation:
        """What arrives until the end, or until the stream is closed."""
        async with self._gate():
            if running.released:
                raise asyncio.CancelledError
            if running.interrupted:
                return _generation([], self._version.step, self._version.step)
            self._refuse_orphan(request.session)
            step = self._version.step
            salt = self._salts.setdefault(request.session, step)
            stream = asyncio.ensure_future(self._read(request, salt, running))
            running.stream = stream
        try:
            await stream
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not running.closed or (task is not None and task.cancelling()):
                stream.cancel()
                raise
        finally:
            running.stream = None
            running.closed = False
        return _generation(running.take(), step, salt)

    async def _read(self, request: GenerationRequest, salt: int, running: _Running) -> None:
        if request.temperature not in (0.0, 1.0) and not self._tempered:
            await self.wire.check_sampling(self._http(), request.token_ids_T)
            self._tempered = True
        left = min(request.max_new_tokens, self._max_context - len(request.token_ids_T))
        label = label_of(self._version)
        ask = Ask(
            token_ids_T=request.token_ids_T,
            max_new_tokens=left,
            stop_token_ids=request.stop_token_ids,
            temperature=request.temperature,
            seed=derive_seed("served", request.seed, request.num_drawn) >> (63 - _SEED_BITS),
            salt=f"{self._version.run}/{self._version.incarnation}/{salt}",
        )
        async for delta in self.wire.stream(self._http(), ask):
            if len(delta.token_ids_T) != len(delta.logprobs_T):
                what = f"{len(delta.logprobs_T)} log-probabilities for {len(delta.token_ids_T)} tokens"
                raise broken(self.wire.kind, what)
            if delta.version and self._labelled and delta.version != label:
                raise InfrastructureError(
                    f"tokens of the weights {delta.version!r} came while {label!r} are said to be served",
                    where=f"{self.wire.kind} {self.wire.url}",
                    expected="one trainer a server",
                    mend="stop whoever else updates this server's weights",
                )
            self.generated_tokens += len(delta.token_ids_T)
            running.deltas.append(delta)

    def _admit(self, request: GenerationRequest) -> None:
        if self._dead:
            raise InfrastructureError(self._dead, where="engine", mend="start a new engine")
        self._refuse_orphan(request.session)
        check_request(request, vocab=self._vocab, max_context=self._max_context)
        if request.grammar:
            raise InputError(
                f"a {self.wire.kind} server does not tell what of the probability a grammar kept",
                where=f"session {request.session}",
                expected="the full support",
                mend="set engine.constrain_calls = false, or sample with engine.kind = 'torch' or 'hf'",
            )
        if request.session in self._running:
            raise InputError(
                "two requests of one session at a time", where=f"session {request.session}", mend="await the first"
            )

    def _refuse_orphan(self, session: str) -> None:
        if session in self._orphans:
            raise InfrastructureError(
                "the weights that this session began with belong to a dead incarnation",
                where=f"session {session}",
                mend="retry the attempt",
            )
        if self._dead:
            raise InfrastructureError(self._dead, where="engine", mend="start a new engine")

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
        folder = await asyncio.to_thread(self._exporter.write, version, state)
        await self.load_folder(version, folder, keep_cache=keep_cache)
        self._exporter.prune()

    async def load_folder(self, version: WeightsVersion, folder: Path, *, keep_cache: bool = True) -> None:
        """Have the server serve a model folder that it can read.

        Raises:
            InfrastructureError: the server does not serve what it was given.
        """
        same_lineage = (version.run, version.incarnation) == (self._version.run, self._version.incarnation)
        async with self._gate():
            for running in self._running.values():
                running.close()
            try:
                await self._exchange(version, folder, keep_cache=keep_cache and same_lineage)
                await self._verify(version)
            except InfrastructureError as error:
                self._dead = f"what the server serves is not known: {error.what}"
                raise
            if not same_lineage:
                self._orphans.update(self._salts)
                self._salts.clear()
            elif not keep_cache:
                self._salts = dict.fromkeys(self._salts, version.step)
            self._version = version

    async def _exchange(self, version: WeightsVersion, folder: Path, *, keep_cache: bool) -> None:
        http = self._http()
        await self.wire.pause(http, keep_cache=keep_cache)
        try:
            await self.wire.load(http, folder, label_of(version), keep_cache=keep_cache)
        finally:
            await self.wire.resume(http)

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
        if self._dead:
            raise InfrastructureError(self._dead, where="engine", mend="start a new engine")
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
        _, self._sums = await self.wire.served(self._http())

    async def aclose(self) -> None:
        """End: waiters get an ``InfrastructureError``; the server goes on."""
        self._dead = "the engine was closed"
        for running in list(self._running.values()):
            running.close()
        line = self._lines.pop(asyncio.get_running_loop(), None)
        if line is not None:
            await line.http.aclose()

    def _line(self) -> _Line:
        """Connections and gate of the running event loop: neither can move between loops."""
        loop = asyncio.get_running_loop()
        if loop not in self._lines:
            self._lines = {known: line for known, line in self._lines.items() if not known.is_closed()}
            http = Http(self.wire.kind, self.wire.url, self._key, self._timeout_s, self._transport)
            self._lines[loop] = _Line(http, asyncio.Lock())
        return self._lines[loop]

    def _http(self) -> Http:
        return self._line().http

    def _gate(self) -> asyncio.Lock:
        """Held while weights are loaded, and for the instant in which a request starts."""
        return self._line().gate


@dataclass(frozen=True)
class _Line:
    http: Http
    gate: asyncio.Lock


class _Running:
    """One request under way."""

    def __init__(self) -> None:
        self.deltas: list[Delta] = []
        self.stream: asyncio.Future[None] | None = None
        self.interrupted = False
        """Whether its caller wants what there is; else it goes on by itself once the gate is open."""
        self.closed = False
        self.released = False

    def close(self) -> None:
        """Close the stream, keeping what has arrived."""
        if self.stream is not None and not self.stream.done():
            self.closed = True
            self.stream.cancel()

    def take(self) -> list[Delta]:
        """What has arrived since it was last taken."""
        deltas, self.deltas = self.deltas, []
        return deltas


def _generation(deltas: list[Delta], step: int, salt: int) -> Generation:
    tokens = tuple(token for delta in deltas for token in delta.token_ids_T)
    finish = next((delta.finish for delta in deltas if delta.finish), "interrupted")
    return Generation(
        token_ids_T=tokens,
        logprobs_T=tuple(value for delta in deltas for value in delta.logprobs_T),
        versions=(VersionRun(step=step, count=len(tokens)),) if tokens else (),
        kv_step=salt,
        finish=finish,
    )
