"""vLLM's OpenAI-compatible server: completions of token ids, and the interface for reinforcement learning.

The server must run with ``VLLM_SERVER_DEV_MODE=1`` (pausing and loading weights are served only then) and, to sample at
temperatures other than 1, with ``--logprobs-mode processed_logprobs``: by default it reports log-probabilities of the
untempered distribution. ``check_sampling`` notices.

Weights are reloaded by path through ``collective_rpc``. Where the server knows check sums of its weights (``POST
/weight_checker``) and labels for them (``/update_weight_version``), both are used.

CPU builds pack each layer when it is loaded. The check sums of packed layers are those of nothing, which tells such
builds. A head that is tied to the embedding is packed too, and not packed anew when weights are reloaded (0.32): every
token after an update would come from the new body and the old head. Such a server is refused, and one of an untied copy
of the model is published to untied.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from flightschool.engines.served.scores import ids_of, vllm_scores
from flightschool.engines.served.wire import Ask, Delta, Http, broken, check_tempered, logprob_of
from flightschool.errors import InfrastructureError, InputError

__all__ = ["VllmWire"]

_FINISHES = {"stop": "stop", "length": "length", "abort": "interrupted"}
_SUM_OF_NOTHING = hashlib.sha256().hexdigest()


class VllmWire:
    """Implements ``wire.Wire``.

    Args:
        url: base address, for instance ``http://127.0.0.1:8000``.
        model: name that the server serves the model under; empty: the one that it names first.
    """

    kind = "vllm"

    def __init__(self, url: str, model: str = "") -> None:
        self.url = url.rstrip("/").removesuffix("/v1")
        self._model = model
        self.untied = False

    async def stream(self, http: Http, ask: Ask) -> AsyncIterator[Delta]:
        """See ``Wire``."""
        finish = ""
        async for event in http.events("/v1/completions", _body(ask, await self._name(http))):
            delta = _delta(event)
            if delta is None:
                continue
            finish = delta.finish or finish
            yield delta
        if not finish:
            raise broken(self.kind, "the stream ended without a finish reason")

    async def limits(self, http: Http) -> int | None:
        """The served model's ``max_model_len``."""
        card = await self._card(http)
        return card.get("max_model_len") if isinstance(card.get("max_model_len"), int) else None

    async def check_health(self, http: Http) -> None:
        """Raises unless the engine process lives."""
        await http.ask("GET", "/health")

    async def check_sampling(self, http: Http, token_ids_T: tuple[int, ...]) -> None:
        """Score the likeliest token at two temperatures: tempered log-probabilities differ."""
        values = []
        for temperature in (1.0, 0.5):
            body = {
                "model": await self._name(http),
                "prompt": list(token_ids_T),
                "max_tokens": 1,
                "temperature": temperature,
                "logprobs": 1,
                "ignore_eos": True,
            }
            reply = await http.ask("POST", "/v1/completions", body)
            values.append(_first_top(reply))
        mend = "start the server with --logprobs-mode processed_logprobs, or sample at temperature 1"
        check_tempered(values, f"vllm {self.url}", mend)

    async def score(self, http: Http, token_ids_T: tuple[int, ...], start: int) -> tuple[float, ...]:
        """Log-probabilities of a prompt; the one token that must be generated is thrown away."""
        body = {
            "model": await self._name(http),
            "prompt": list(token_ids_T),
            "max_tokens": 1,
            "temperature": 1.0,
            "prompt_logprobs": 0,
            "add_special_tokens": False,
        }
        return vllm_scores(await http.ask("POST", "/v1/completions", body), token_ids_T, start)

    async def tokenize(self, http: Http, text: str) -> tuple[int, ...]:
        """See ``Wire``."""
        body = {"model": await self._name(http), "prompt": text, "add_special_tokens": False}
        return ids_of(await http.ask("POST", "/tokenize", body), self.kind)

    async def pause(self, http: Http, *, keep_cache: bool) -> None:
        """End running requests and hold new ones back."""
        await http.ask("POST", "/pause", params={"mode": "abort", "clear_cache": str(not keep_cache).lower()})

    async def load(self, http: Http, folder: Path, label: str, *, keep_cache: bool) -> None:
        """Load a folder by its path, and drop cached keys and values unless they are to be kept."""
        body = {"method": "reload_weights", "kwargs": {"weights_path": str(folder)}}
        await http.ask("POST", "/collective_rpc", body)
        if not keep_cache:
            await http.ask("POST", "/reset_prefix_cache")
        try:
            await http.ask("POST", "/update_weight_version", {"new_version": label})
        except InputError:
            return  # a server without labels

    async def resume(self, http: Http) -> None:
        """Take requests again."""
        await http.ask("POST", "/resume")

    async def label(self, http: Http) -> str:
        """See ``Wire``."""
        info = await _perhaps(http, "GET", "/weight_info")
        label = str(info.get("weight_version") or "")
        return "" if label == "default" else label

    async def served(self, http: Http) -> tuple[str, Mapping[str, str]]:
        """Label and check sums, as far as the server knows them."""
        sums = (await _perhaps(http, "POST", "/weight_checker", {"action": "checksum"})).get("checksums")
        known = {str(name): str(value) for name, value in sums.items()} if isinstance(sums, dict) else {}
        self.untied = any(name.endswith("lm_head.weight") for name in known)
        if _SUM_OF_NOTHING not in known.values():
            return await self.label(http), known
        if not self.untied:
            raise self._stale_head()
        return await self.label(http), {}  # packed layers have no bytes to sum

    def _stale_head(self) -> InputError:
        return InputError(
            "this build of vLLM packs its layers and keeps the output head that it started with: it is tied to the "
            "embedding, and new weights do not reach the packed head",
            where=f"vllm {self.url}",
            expected="a CPU server of a model whose head is a tensor of its own",
            mend="start it with the folder that `python -m flightschool.engines.served.export MODEL OUT` writes",
        )

    async def _name(self, http: Http) -> str:
        if not self._model:
            self._model = str((await self._card(http)).get("id") or "")
        return self._model

    async def _card(self, http: Http) -> dict[str, Any]:
        reply = await http.ask("GET", "/v1/models")
        cards = reply.get("data") if isinstance(reply, dict) else None
        if not isinstance(cards, list) or not cards:
            raise InfrastructureError(
                "the vllm server serves no model",
                where=f"{self.url}/v1/models",
                expected="one model",
                mend="see the server's log",
            )
        return next((dict(card) for card in cards if card.get("id") == self._model), dict(cards[0]))


async def _perhaps(http: Http, method: str, path: str, body: object = None) -> dict[str, Any]:
    try:
        reply = await http.ask(method, path, body)
    except InputError:
        return {}  # an older server does not know it
    return reply if isinstance(reply, dict) else {}


def _body(ask: Ask, model: str) -> dict[str, Any]:
    return {
        "model": model,
        "prompt": list(ask.token_ids_T),
        "max_tokens": ask.max_new_tokens,
        "temperature": ask.temperature,
        "top_p": 1.0,
        "top_k": 0,
        "min_p": 0.0,
        "repetition_penalty": 1.0,  # else the folder's generation_config.json may set them
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "stop_token_ids": list(ask.stop_token_ids),
        "ignore_eos": True,  # the stop tokens are given: nothing else ends a completion
        "seed": ask.seed,
        "logprobs": 0,
        "return_token_ids": True,
        "add_special_tokens": False,
        "skip_special_tokens": False,
        "cache_salt": ask.salt,
        "stream": True,
    }


def _first_top(reply: object) -> float:
    try:
        tops = reply["choices"][0]["logprobs"]["top_logprobs"][0]  # type: ignore[index]
        return max(float(value) for value in tops.values())
    except (TypeError, KeyError, IndexError, ValueError, AttributeError):
        raise broken("vllm", "top log-probabilities are missing") from None


def _delta(event: Mapping[str, Any]) -> Delta | None:
    """Tokens of an event; None for one without any (a usage report)."""
    choices = event.get("choices")
    if not isinstance(choices, list):
        raise broken("vllm", "an event has no choices")
    if not choices:
        return None
    choice = choices[0]
    finish = choice.get("finish_reason")
    if finish is not None and finish not in _FINISHES:
        raise broken("vllm", f"unknown finish reason {finish!r}")
    ids = choice.get("token_ids")
    if ids is None and finish is None and not choice.get("text"):
        return None
    table = choice.get("logprobs")
    values = table.get("token_logprobs") if isinstance(table, dict) else None
    if not isinstance(ids, list):
        raise broken("vllm", "token_ids are missing: the server is too old, or something in between drops them")
    if values is None and not ids:
        values = []
    if not isinstance(values, list) or len(values) != len(ids):
        told = "no" if not isinstance(values, list) else len(values)
        raise broken("vllm", f"{told} log-probabilities for {len(ids)} tokens")
    return Delta(
        token_ids_T=tuple(int(token) for token in ids),
        logprobs_T=tuple(logprob_of(value, "vllm") for value in values),
        finish="" if finish is None else _FINISHES[finish],
    )
