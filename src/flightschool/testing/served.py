"""Servers that speak the protocols of vLLM and SGLang over a small engine of ours: clients are tested over real HTTP.

They run in the event loop of the test, listen on loopback, sample with ``TorchEngine`` and load weights from the
folders that they are told of. Written after the servers' public interfaces (field by field as far as the clients look);
recorded conversations with real ones are tested beside them. ``distort`` changes events before they are sent: what a
server may get wrong, a test can make wrong.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import msgspec
import torch

from flightschool.digest import digest
from flightschool.engines.folders import LoadedModel, load_model
from flightschool.engines.requests import continuation
from flightschool.engines.torch_engine import TorchEngine
from flightschool.engines.transformer import CausalAttention
from flightschool.errors import FlightschoolError
from flightschool.protocols import GenerationRequest
from flightschool.records import WeightsVersion

__all__ = ["ServedFake", "SglangFake", "VllmFake"]

Event: TypeAlias = dict[str, Any]
Stream: TypeAlias = AsyncIterator[Event]


class ServedFake:
    """HTTP and generation, common to both; a context manager.

    Args:
        loaded: the model; its weights are replaced by those that are loaded.
        distort: changes a stream's events; an event that becomes None breaks the connection.
        labels: whether it knows labels and check sums of weights.
        tokenizes: whether it has ``/tokenize``.
        port: where it listens; 0: the system chooses.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        *,
        distort: Callable[[Event], Event | None] = lambda event: event,
        labels: bool = True,
        tokenizes: bool = True,
        port: int = 0,
    ) -> None:
        self.port = port
        self.engine = TorchEngine(loaded, max_context=loaded.config.max_context)
        self.label = "default"
        self.paused = False
        self.requests: list[tuple[str, Event]] = []
        """Everything that was asked, with its body."""
        self.distort = distort
        self.labels = labels
        self.tokenizes = tokenizes
        self._model, self._tokenizer = loaded.model, loaded.tokenizer
        self._number = 0
        self._handlers: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> ServedFake:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for handler in list(self._handlers):
            handler.cancel()
        await asyncio.gather(*self._handlers, return_exceptions=True)
        await self._server.wait_closed()

    # ------------------------------------------------------------------ what a server does

    async def answer(self, method: str, path: str, body: Event) -> Event | Stream | int:
        """The reply to one request: an object, a stream of events, or a status."""
        raise NotImplementedError

    async def tokens(self, request: GenerationRequest) -> AsyncIterator[tuple[int, float, str]]:
        """Tokens one by one, with log-probability and how it ended (empty while it goes on)."""
        self._number += 1
        name = f"request-{self._number}"
        part = GenerationRequest(
            session=name,
            token_ids_T=request.token_ids_T,
            max_new_tokens=1,
            stop_token_ids=request.stop_token_ids,
            temperature=request.temperature,
            seed=request.seed,
        )
        try:
            for count in range(1, request.max_new_tokens + 1):
                while self.paused:
                    await asyncio.sleep(0)
                piece = await self.engine.generate(part)
                last = "length" if count == request.max_new_tokens else ""
                yield piece.token_ids_T[0], piece.logprobs_T[0], "stop" if piece.finish == "stop" else last
                if piece.finish == "stop":
                    return
                part = msgspec.structs.replace(continuation(part, piece), max_new_tokens=1)
        finally:
            self.engine.release(name)

    def load(self, folder: Path) -> None:
        """Serve the weights of a folder."""
        state = load_model(folder).model.state_dict()
        step = self.engine.version.step + 1
        self.engine.update_weights(WeightsVersion(run="", incarnation=0, step=step), state, keep_cache=False)

    def checksums(self) -> dict[str, str]:
        """SHA-256 of each parameter."""
        return {name: digest(tensor.numpy().tobytes()) for name, tensor in self._model.state_dict().items()}

    def scores(self, token_ids: list[int]) -> list[float | None]:
        """Log-probability of each token given those before it; None for the first."""
        tokens_N = torch.tensor(token_ids)
        with torch.inference_mode():
            hidden_ND = self._model(tokens_N, torch.arange(len(token_ids)), CausalAttention([len(token_ids)]))
            log_NV = torch.log_softmax(self._model.logits(hidden_ND).float(), dim=-1)
        return [None, *log_NV[:-1].gather(1, tokens_N[1:, None])[:, 0].tolist()]

    def tokenize(self, body: Event) -> Event | int:
        """Ids of a text in which control tokens are meant; 404 from a server that is too old to say."""
        return {"tokens": list(self._tokenizer.encode_with_control(body["prompt"]))} if self.tokenizes else 404

    # ------------------------------------------------------------------ HTTP

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handler = asyncio.ensure_future(self._serve(reader, writer))
        self._handlers.add(handler)
        handler.add_done_callback(self._handlers.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                method, target, _ = head.split(b"\r\n", 1)[0].decode().split(" ")
                length = next((int(line[15:]) for line in head.split(b"\r\n") if line[:15].lower() == _LENGTH), 0)
                data = await reader.readexactly(length)
                parts = urlsplit(target)
                body = json.loads(data) if data else {}
                self.requests.append((f"{method} {target}", body))
                await self._reply(reader, writer, await self._answer(method, parts.path, body))
        except (asyncio.IncompleteReadError, ConnectionError):
            return  # the client is gone
        finally:
            writer.close()

    async def _answer(self, method: str, path: str, body: Event) -> Event | Stream | int:
        try:
            return await self.answer(method, path, body)
        except FlightschoolError as error:
            return {"error": {"message": str(error)}, "http_status": 400}

    async def _reply(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answer: Event | Stream | int
    ) -> None:
        if isinstance(answer, AsyncIterator):
            await self._stream(reader, writer, answer)
            return
        status = answer if isinstance(answer, int) else int(answer.get("http_status", 200))
        data = b"" if isinstance(answer, int) else json.dumps(answer).encode()
        writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: {len(data)}\r\n".encode())
        writer.write(b"Content-Type: application/json\r\n\r\n" + data)
        await writer.drain()

    async def _stream(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, events: Stream) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        try:
            async for event in events:
                if reader.at_eof():
                    raise ConnectionError("the client closed the stream")
                changed = self.distort(event)
                if changed is None:
                    raise ConnectionError("broken on purpose")
                _chunk(writer, b"data: " + json.dumps(changed).encode() + b"\n\n")
                await writer.drain()
        finally:
            await events.aclose()  # type: ignore[attr-defined]  # an async generator
        _chunk(writer, b"data: [DONE]\n\n")
        writer.write(b"0\r\n\r\n")
        await writer.drain()


_LENGTH = b"content-length:"
_BAD_SALT = frozenset("@/\\\0")


def _chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


class VllmFake(ServedFake):
    """vLLM's OpenAI-compatible server in development mode.

    Args:
        processed: whether log-probabilities are those of the tempered distribution (``--logprobs-mode``).
    """

    def __init__(self, loaded: LoadedModel, *, processed: bool = True, **options: Any) -> None:
        super().__init__(loaded, **options)
        self.processed = processed

    async def answer(self, method: str, path: str, body: Event) -> Event | Stream | int:  # noqa: PLR0911 - routes
        """See ``ServedFake``."""
        match f"{method} {path}":
            case "GET /health":
                return 200
            case "GET /v1/models":
                return {"data": [{"id": "fake", "max_model_len": self.engine.max_context}]}
            case "POST /v1/completions" if _BAD_SALT & set(body.get("cache_salt", "")):
                return 400
            case "POST /v1/completions" if "prompt_logprobs" in body:
                return self.distort(self._scored(body["prompt"])) or 500
            case "POST /tokenize":
                return self.tokenize(body)
            case "POST /v1/completions":
                return self._completions(body) if body.get("stream") else await self._once(body)
            case "POST /pause" | "POST /resume":
                self.paused = path == "/pause"
                return {"status": "paused" if self.paused else "resumed"}
            case "POST /collective_rpc":
                self.load(Path(body["kwargs"]["weights_path"]))
                return {"results": [None]}
            case "POST /reset_prefix_cache":
                return 200
            case "POST /update_weight_version" if self.labels:
                self.label = body["new_version"]
                return {"success": True}
            case "GET /weight_info" if self.labels:
                return {"weight_version": self.label}
            case "POST /weight_checker" if self.labels:
                return {"checksums": self.checksums()}
        return 404

    async def _completions(self, body: Event) -> Stream:
        async for token, logprob, finish in self.tokens(_request(body, body["prompt"], body["max_tokens"])):
            choice = {
                "index": 0,
                "text": "",
                "token_ids": [token],
                "logprobs": {"token_logprobs": [logprob], "tokens": [f"token_id:{token}"]},
                "finish_reason": finish or None,
            }
            yield {"object": "text_completion", "choices": [choice]}

    def _scored(self, prompt: list[int]) -> Event:
        rows = [
            None if value is None else {str(token): {"logprob": value, "rank": 1, "decoded_token": ""}}
            for token, value in zip(prompt, self.scores(prompt), strict=True)
        ]
        return {"choices": [{"index": 0, "text": "", "prompt_logprobs": rows, "finish_reason": "length"}]}

    async def _once(self, body: Event) -> Event:
        """One likeliest token with its log-probability, in one piece."""
        greedy = _request({**body, "temperature": 0.0}, body["prompt"], 1)
        async for token, logprob, _ in self.tokens(greedy):
            told = logprob / float(body["temperature"]) if self.processed else logprob  # any other number will do
            return {"choices": [{"logprobs": {"top_logprobs": [{str(token): told}]}}]}
        return {"choices": []}


class SglangFake(ServedFake):
    """SGLang's server.

    Args:
        cumulative: whether events of a stream repeat what came before.
        eos_token_ids: the model's own end tokens.
    """

    def __init__(
        self, loaded: LoadedModel, *, cumulative: bool = True, eos_token_ids: tuple[int, ...] = (), **options: Any
    ) -> None:
        super().__init__(loaded, **options)
        self.cumulative = cumulative
        self.eos_token_ids = eos_token_ids

    async def answer(self, method: str, path: str, body: Event) -> Event | Stream | int:  # noqa: PLR0911 - routes
        """See ``ServedFake``."""
        match f"{method} {path}":
            case "GET /health_generate":
                return 200
            case "GET /server_info":
                return {"context_length": self.engine.max_context + 6, "max_req_input_len": self.engine.max_context}
            case "GET /model_info":
                return {"weight_version": self.label} if self.labels else {}
            case "POST /generate" if body.get("logprob_start_len", -1) >= 0:
                return self.distort(self._scored(body["input_ids"], body["logprob_start_len"])) or 500
            case "POST /tokenize":
                return self.tokenize(body)
            case "POST /generate":
                return self._generate(body) if body.get("stream") else await self._once(body)
            case "POST /pause_generation" | "POST /continue_generation":
                self.paused = path == "/pause_generation"
                return {"status": "ok"}
            case "POST /update_weights_from_disk":
                return self._update(body)
            case "POST /weights_checker" if self.labels:
                return {"success": True, "ranks": [{"checksums": self.checksums()}]}
        return 404

    def _update(self, body: Event) -> Event:
        try:
            self.load(Path(body["model_path"]))
        except FlightschoolError as error:
            return {"success": False, "message": str(error), "num_paused_requests": 0, "http_status": 400}
        self.label = body["weight_version"]
        return {"success": True, "message": "", "num_paused_requests": 0}

    async def _generate(self, body: Event) -> Stream:
        params = self._ends(body["sampling_params"])
        ids: list[int] = []
        rows: list[tuple[float, int, None]] = []
        async for token, logprob, finish in self.tokens(_request(params, body["input_ids"], params["max_new_tokens"])):
            ids.append(token)
            rows.append((logprob, token, None))
            part = slice(None) if self.cumulative else slice(-1, None)
            meta: Event = {
                "completion_tokens": len(ids),
                "output_token_logprobs": rows[part],
                "finish_reason": {"type": finish} if finish else None,
            }
            if self.labels:
                meta["weight_version"] = self.label
            yield {"text": "", "output_ids": ids[part], "meta_info": meta}

    def _ends(self, params: Event) -> Event:
        """``ignore_eos`` switches all stop tokens off; without it the model's own end a completion as well."""
        stops = [] if params["ignore_eos"] else [*params["stop_token_ids"], *self.eos_token_ids]
        return {**params, "stop_token_ids": stops}

    def _scored(self, prompt: list[int], start: int) -> Event:
        values = [None, *self.scores(prompt)[start + 1 :]]
        rows = [[value, token, None] for value, token in zip(values, prompt[start:], strict=True)]
        return {"text": "", "output_ids": [], "meta_info": {"input_token_logprobs": rows}}

    async def _once(self, body: Event) -> Event:
        params = body["sampling_params"]
        async for token, logprob, _ in self.tokens(_request({**params, "temperature": 0.0}, body["input_ids"], 1)):
            told = logprob / float(params["temperature"])
            return {"meta_info": {"output_top_logprobs": [[(told, token, None)]]}}
        return {}


def _request(params: Mapping[str, Any], prompt: list[int], max_new_tokens: int) -> GenerationRequest:
    return GenerationRequest(
        session="",
        token_ids_T=tuple(prompt),
        max_new_tokens=max_new_tokens,
        stop_token_ids=tuple(params.get("stop_token_ids") or ()),
        temperature=float(params["temperature"]),
        seed=int(params.get("seed") or params.get("sampling_seed") or 0),
    )
