"""What a served engine's protocol must be able to say, and the HTTP underneath. One file a server implements ``Wire``.

Completions are *streamed*. So an interruption needs nothing of the server: the connection is closed, which every
server takes as the end of the request, and what had arrived by then is the piece; the rest is asked for again under
the weights of the day. A reply in one piece would be lost with the connection.
"""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from flightschool.digest import digest
from flightschool.errors import InfrastructureError, InputError, TokenContractError
from flightschool.records import Json, WeightsVersion

if TYPE_CHECKING:
    import httpx2

__all__ = ["Ask", "Delta", "Http", "Wire", "broken", "gave_up", "label_of", "logprob_of", "other_weights", "salt_of"]

_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
_MOST_TOLD = 300
_BAD_REQUEST = frozenset({400, 404, 405, 413, 422})


@dataclass(frozen=True)
class Ask:
    """One completion, or what is missing of one."""

    token_ids_T: tuple[int, ...]
    max_new_tokens: int
    stop_token_ids: tuple[int, ...]
    temperature: float
    seed: int
    salt: str
    """Caches are shared only between requests of equal salt: it names the weights that a session's cache began with."""


@dataclass(frozen=True)
class Delta:
    """Tokens that arrived."""

    token_ids_T: tuple[int, ...] = ()
    logprobs_T: tuple[float, ...] = ()
    finish: str = ""
    """``stop``, ``length``, ``interrupted`` (the server gave the request up), or empty while it goes on."""
    version: str = ""
    """Label of the weights, where the server tells it with the tokens."""


class Wire(Protocol):
    """One server's protocol."""

    kind: str
    """``vllm`` or ``sglang``."""
    url: str
    """Base address."""
    untied: bool
    """Whether the server was seen to have an output head of its own; known once ``served`` was asked."""

    def stream(self, http: Http, ask: Ask) -> AsyncIterator[Delta]:
        """Generate.

        Raises:
            InputError: the server refuses this request.
            InfrastructureError: it cannot be reached, fails, or ends the stream early.
            TokenContractError: what it returns is not token-exact.
        """
        ...

    async def limits(self, http: Http) -> int | None:
        """Longest sequence that the server takes, if it says."""
        ...

    async def check_health(self, http: Http) -> None:
        """Raises ``InfrastructureError`` unless the server can generate."""
        ...

    async def check_sampling(self, http: Http, token_ids_T: tuple[int, ...]) -> None:
        """Raises ``TokenContractError`` unless tempered log-probabilities are those of the tempered distribution."""
        ...

    async def score(self, http: Http, token_ids_T: tuple[int, ...], start: int) -> tuple[float, ...]:
        """Log-probabilities of the tokens from ``start`` ≥ 1 on, each given all before it, at temperature 1.

        Raises:
            InputError: the server refuses the request.
            InfrastructureError: it cannot be reached, or fails.
            TokenContractError: it returns no numbers, others, or those of other tokens.
        """
        ...

    async def tokenize(self, http: Http, text: str) -> tuple[int, ...]:
        """Ids of a text in which control tokens are meant. Raises as ``score`` does."""
        ...

    async def pause(self, http: Http, *, keep_cache: bool) -> None:
        """End running requests and hold new ones back."""
        ...

    async def load(self, http: Http, folder: Path, label: str, *, keep_cache: bool) -> None:
        """Load the weights of a model folder, which the server must be able to read, and call them ``label``."""
        ...

    async def resume(self, http: Http) -> None:
        """Take requests again."""
        ...

    async def label(self, http: Http) -> str:
        """Label of the served weights; empty if none was given, or the server knows of none."""
        ...

    async def served(self, http: Http) -> tuple[str, Mapping[str, str]]:
        """Label of the served weights, and check sums by parameter; empty what the server cannot tell."""
        ...


def label_of(version: WeightsVersion) -> str:
    """What a server calls these weights."""
    return f"{version.run}/{version.incarnation}/{version.step}"


def salt_of(version: WeightsVersion, step: int) -> str:
    """Salt of caches that begin under the weights of ``step``; servers take no ``/`` or ``@`` there, and no long text.

    Args:
        version: of the same run and incarnation.
        step: of the weights that a session's cache began with.
    """
    return digest([version.run, version.incarnation, step]).removeprefix("sha256:")[:32]


@dataclass
class Http:
    """A connection pool to one server, for one event loop.

    Args:
        kind: the server, for errors.
        url: its base address.
        key: bearer token; empty: none.
        timeout_s: seconds without a byte after which the server counts as gone.
        transport: what carries requests; the network by default.
        setting: key of the configuration that the address stands under, for errors.
    """

    kind: str
    url: str
    key: str = ""
    timeout_s: float = 120.0
    transport: httpx2.AsyncBaseTransport | None = None
    setting: str = "engine.url"
    _client: httpx2.AsyncClient | None = field(default=None, repr=False)

    @property
    def client(self) -> httpx2.AsyncClient:
        """The pool."""
        if self._client is None:
            import httpx2

            url = httpx2.URL(self.url)
            self._client = httpx2.AsyncClient(
                base_url=url,
                headers={"Authorization": f"Bearer {self.key}"} if self.key else {},
                timeout=httpx2.Timeout(self.timeout_s, connect=min(10.0, self.timeout_s)),
                limits=httpx2.Limits(max_connections=None, max_keepalive_connections=64),
                follow_redirects=False,  # a redirect could carry the key elsewhere
                trust_env=url.host not in _LOOPBACK,  # a proxy does not reach this machine's own loopback
                transport=self.transport,
            )
        return self._client

    async def ask(self, method: str, path: str, body: Json = None, *, params: Mapping[str, str] | None = None) -> Any:
        """One request and its JSON reply (None if empty or no JSON).

        Raises:
            InputError: the server refuses it (4xx).
            InfrastructureError: no answer, or 5xx.
        """
        import httpx2

        try:
            reply = await self.client.request(method, path, json=body, params=params)
        except httpx2.HTTPError as error:
            raise self.gone(path, error) from error
        if reply.status_code >= 300:
            raise self.refused(path, reply.status_code, reply.text)
        try:
            return reply.json()
        except ValueError:
            return None

    async def events(self, path: str, body: Json) -> AsyncIterator[dict[str, Any]]:
        """JSON objects of a stream of server-sent events, up to ``[DONE]``. Closing the iterator closes the request.

        Raises:
            InputError: the server refuses the request.
            InfrastructureError: no answer, 5xx, or a broken or unfinished stream.
        """
        import httpx2

        try:
            async with self.client.stream("POST", path, json=body) as reply:
                if reply.status_code >= 300:
                    await reply.aread()
                    raise self.refused(path, reply.status_code, reply.text)
                done = False
                async for line in reply.aiter_lines():  # to the end, so that the connection can be used again
                    data = line.removeprefix("data:").strip()
                    done = done or data == "[DONE]"
                    if line.startswith("data:") and not done:
                        yield self._event(path, data)
        except httpx2.HTTPError as error:
            raise self.gone(path, error) from error
        if done:
            return
        raise InfrastructureError(
            "the stream ended before the completion did",
            where=f"{self.kind} {self.url}{path}",
            expected="[DONE] at the end",
            mend="see the server's log; the attempt is retried",
        )

    def _event(self, path: str, data: str) -> dict[str, Any]:
        try:
            event = json.loads(data)
        except ValueError:
            event = None
        told = event.get("error") if isinstance(event, dict) else None
        code = told.get("code") if isinstance(told, dict) else None
        if isinstance(code, int):  # refused after the stream had begun with 200
            raise self.refused(path, code, data)
        if not isinstance(event, dict) or "error" in event:
            raise InfrastructureError(
                f"the stream broke: {data[:_MOST_TOLD]}",
                where=f"{self.kind} {self.url}{path}",
                expected="JSON objects",
                mend="see the server's log; the attempt is retried",
            )
        return event

    def gone(self, path: str, error: Exception) -> InfrastructureError:
        """The server did not answer."""
        return InfrastructureError(
            f"the {self.kind} server did not answer: {type(error).__name__}: {error}",
            where=f"{self.url}{path}",
            expected="a server that runs",
            mend=f"start it, or correct {self.setting}; see its log",
        )

    def refused(self, path: str, status: int, text: str) -> InputError | InfrastructureError:
        """The server answered with an error."""
        what = f"the {self.kind} server answered {status}: {text[:_MOST_TOLD]}"
        where = f"{self.url}{path}"
        if status in _BAD_REQUEST:
            mend = "see docs/design/engines.md for the server's version and the flags that it must be started with"
            return InputError(what, where=where, expected="a request that the server takes", mend=mend)
        return InfrastructureError(what, where=where, expected="an answer", mend="see the server's log")

    async def aclose(self) -> None:
        """Close all connections."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None


def logprob_of(value: object, kind: str) -> float:
    """A log-probability as a server wrote it.

    Raises:
        TokenContractError: it is missing, NaN, infinite, positive, or the number that servers write for −∞.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise broken(kind, f"a log-probability is missing: {value!r}")
    if not math.isfinite(value) or value > 0.0 or value <= _FILLED:
        raise broken(kind, f"a log-probability of a sampled token is {value}")
    return float(value)


_FILLED = -9999.0
"""Servers that cannot write −∞ as JSON write this; nothing that was sampled has it."""


def broken(kind: str, what: str) -> TokenContractError:
    """A reply that is not token-exact."""
    return TokenContractError(
        what,
        where=f"{kind} server",
        expected="token ids and the log-probability of each, as sampled",
        mend="start the server as docs/design/engines.md says; a proxy in between may drop fields",
    )


def check_tempered(values: Sequence[float], where: str, mend: str) -> None:
    """Log-probabilities of one token at two temperatures differ, if they are those of what is sampled from.

    Raises:
        TokenContractError: they do not.
    """
    if values[0] == values[1]:
        raise TokenContractError(
            "log-probabilities do not follow the temperature",
            where=where,
            expected="those of the distribution that is sampled from",
            mend=mend,
        )


def other_weights(wire: Wire, told: str, version: WeightsVersion) -> InfrastructureError:
    """The server calls its weights otherwise than those that were published last."""
    lost = told in ("", "default")
    what = "were lost: the server was started anew" if lost else f"are called {told!r} by the server"
    return InfrastructureError(
        f"the weights {label_of(version)!r} {what}",
        where=f"{wire.kind} {wire.url}",
        expected="tokens of the weights that were published last",
        mend="they are published again" if lost else "stop whoever else updates this server's weights",
    )


def gave_up(wire: Wire, session: str, times: int) -> InfrastructureError:
    """The server ends a request again and again."""
    return InfrastructureError(
        f"the server gave session {session} up {times} times in a row without a token",
        where=f"{wire.kind} {wire.url}",
        expected="a server that nobody else pauses, with room for the run's requests",
        mend="see the server's log",
    )
