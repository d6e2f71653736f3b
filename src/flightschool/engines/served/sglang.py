"""SGLang's own interface: ``/generate`` with token ids, ``/update_weights_from_disk`` and ``/pause_generation``.

Streams are cumulative by default and incremental on request of whoever started the server; both are read, by the count
of completion tokens that each event tells. Log-probabilities are those of the tempered distribution (the server divides
by the temperature before it takes them), unless it was started to return the original ones: ``check_sampling`` asks.

Ends. ``ignore_eos`` switches the given stop tokens off as well, so it is set only where none are given; the server then
ends completions at the model's own end tokens too. One that ended at a token that was not asked for goes on: it is told
as ``interrupted``, and the client asks for its rest. Written and checked line by line against SGLang 0.5.23.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from flightschool.engines.served.scores import ids_of, sglang_scores
from flightschool.engines.served.wire import Ask, Delta, Http, broken, check_tempered, logprob_of
from flightschool.errors import InfrastructureError, InputError

__all__ = ["SglangWire"]

_FINISHES = {"stop": "stop", "length": "length", "abort": "interrupted"}


class SglangWire:
    """Implements ``wire.Wire``.

    Args:
        url: base address, for instance ``http://127.0.0.1:30000``.
    """

    kind = "sglang"
    untied = False

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")

    async def stream(self, http: Http, ask: Ask) -> AsyncIterator[Delta]:
        """See ``Wire``."""
        received, last = 0, -1
        finish = ""
        async for event in http.events("/generate", _body(ask)):
            delta = _delta(event, received)
            received += len(delta.token_ids_T)
            last = delta.token_ids_T[-1] if delta.token_ids_T else last
            if delta.finish == "stop" and last not in ask.stop_token_ids:
                delta = replace(delta, finish="interrupted")  # an end token of the model's, which nobody asked for
            finish = delta.finish or finish
            yield delta
        if not finish:
            raise broken(self.kind, "the stream ended without a finish reason")

    async def limits(self, http: Http) -> int | None:
        """Longest sequence that the server surely takes: it keeps a few tokens of its context for itself."""
        info = await http.ask("GET", "/server_info")
        told = info if isinstance(info, dict) else {}
        known = [told[key] for key in ("context_length", "max_req_input_len") if isinstance(told.get(key), int)]
        return min(known, default=None)

    async def check_health(self, http: Http) -> None:
        """The server generates one token for itself and says whether it could."""
        await http.ask("GET", "/health_generate")

    async def check_sampling(self, http: Http, token_ids_T: tuple[int, ...]) -> None:
        """Score the likeliest token at two temperatures: tempered log-probabilities differ."""
        values = []
        for temperature in (1.0, 0.5):
            body = _probe(token_ids_T, temperature)
            reply = await http.ask("POST", "/generate", body)
            values.append(_first_top(reply))
        mend = "start the server without SGLANG_RETURN_ORIGINAL_LOGPROB, or sample at temperature 1"
        check_tempered(values, f"sglang {self.url}", mend)

    async def score(self, http: Http, token_ids_T: tuple[int, ...], start: int) -> tuple[float, ...]:
        """Log-probabilities of the prompt from ``start`` on; nothing is generated."""
        body = {
            "input_ids": list(token_ids_T),
            "sampling_params": {"max_new_tokens": 0, "temperature": 1.0},
            "return_logprob": True,
            "logprob_start_len": start - 1,  # the first of them has none: nothing that was looked at predicts it
        }
        return sglang_scores(await http.ask("POST", "/generate", body), token_ids_T, start)

    async def tokenize(self, http: Http, text: str) -> tuple[int, ...]:
        """See ``Wire``."""
        body = {"model": "default", "prompt": text, "add_special_tokens": False}
        return ids_of(await http.ask("POST", "/tokenize", body), self.kind)

    async def pause(self, http: Http, *, keep_cache: bool) -> None:  # noqa: ARG002 - caches go with the update
        """End running requests and hold new ones back."""
        await http.ask("POST", "/pause_generation", {"mode": "abort"})

    async def load(self, http: Http, folder: Path, label: str, *, keep_cache: bool) -> None:
        """Load a folder by its path."""
        body = {
            "model_path": str(folder),
            "load_format": "auto",  # else that of the start: a server begun with dummy weights would draw new ones
            "weight_version": label,
            "flush_cache": not keep_cache,
            "abort_all_requests": True,
        }
        try:
            reply = await http.ask("POST", "/update_weights_from_disk", body)
        except InputError as error:  # 400: what is served now is not known
            reply = error.what
        if not (isinstance(reply, dict) and reply.get("success") is True):
            told = reply.get("message") if isinstance(reply, dict) else reply
            raise InfrastructureError(
                f"the sglang server did not load the weights: {told}",
                where=f"{self.url} {folder}",
                expected="a model folder that the server can read under this path",
                mend="share the folder with the server; see engine.publish_to",
            )

    async def resume(self, http: Http) -> None:
        """Take requests again."""
        await http.ask("POST", "/continue_generation", {})

    async def label(self, http: Http) -> str:
        """See ``Wire``."""
        info = await http.ask("GET", "/model_info")
        label = str(info.get("weight_version") or "") if isinstance(info, dict) else ""
        return "" if label == "default" else label

    async def served(self, http: Http) -> tuple[str, Mapping[str, str]]:
        """The label, and the check sums of rank 0 from servers that have them."""
        return await self.label(http), await _checksums(http)


async def _checksums(http: Http) -> Mapping[str, str]:
    try:
        reply = await http.ask("POST", "/weights_checker", {"action": "checksum"})
    except (InputError, InfrastructureError):
        return {}  # an older server cannot tell
    ranks = reply.get("ranks") if isinstance(reply, dict) else None
    first = ranks[0] if isinstance(ranks, list) and ranks else None
    sums = first.get("checksums") if isinstance(first, dict) else None
    return {str(name): str(value) for name, value in sums.items()} if isinstance(sums, dict) else {}


def _body(ask: Ask) -> dict[str, Any]:
    return {
        "input_ids": list(ask.token_ids_T),
        "sampling_params": {
            "max_new_tokens": ask.max_new_tokens,
            "temperature": ask.temperature,
            "top_p": 1.0,
            "top_k": 1 if ask.temperature == 0.0 else -1,
            "min_p": 0.0,
            "stop_token_ids": list(ask.stop_token_ids),
            "ignore_eos": not ask.stop_token_ids,  # see the module
            "sampling_seed": ask.seed,
        },
        "return_logprob": True,
        "logprob_start_len": -1,
        "extra_key": ask.salt,
        "stream": True,
    }


def _probe(token_ids_T: tuple[int, ...], temperature: float) -> dict[str, Any]:
    params = {"max_new_tokens": 1, "temperature": temperature, "top_p": 1.0, "top_k": -1, "ignore_eos": True}
    ids = list(token_ids_T)
    return {"input_ids": ids, "sampling_params": params, "return_logprob": True, "top_logprobs_num": 1}


def _first_top(reply: object) -> float:
    try:
        return float(reply["meta_info"]["output_top_logprobs"][0][0][0])  # type: ignore[index]
    except (TypeError, KeyError, IndexError, ValueError):
        raise broken("sglang", "top log-probabilities are missing") from None


def _delta(event: Mapping[str, Any], received: int) -> Delta:
    meta = event.get("meta_info")
    ids = event.get("output_ids")
    if not isinstance(meta, dict) or not isinstance(ids, list):
        raise broken("sglang", "an event has no output_ids or no meta_info")
    rows = meta.get("output_token_logprobs")
    if not isinstance(rows, list):
        raise broken("sglang", "output_token_logprobs are missing")
    total = meta.get("completion_tokens")
    if total == len(ids):
        fresh, rows = ids[received:], rows[received:] if len(rows) == len(ids) else rows
    elif total == received + len(ids):
        fresh = ids
    else:
        raise broken("sglang", f"{len(ids)} token ids after {received} of {total}")
    if [row[1] for row in rows] != fresh:
        raise broken("sglang", f"{len(rows)} log-probabilities for {len(fresh)} tokens, or of other tokens")
    reason = meta.get("finish_reason")
    kind = reason.get("type") if isinstance(reason, dict) else reason
    if kind is not None and kind not in _FINISHES:
        raise broken("sglang", f"unknown finish reason {kind!r}")
    return Delta(
        token_ids_T=tuple(int(token) for token in fresh),
        logprobs_T=tuple(logprob_of(row[0], "sglang") for row in rows),
        finish="" if kind is None else _FINISHES[kind],
        version=str(meta.get("weight_version") or ""),
    )
