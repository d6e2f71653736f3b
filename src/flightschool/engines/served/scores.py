"""Log-probabilities of given tokens, as vLLM and SGLang write them, and what of that is believed.

Every value must stand beside the id of the very token that was asked about. A token that the model rules out has a
log-probability of −∞, which no JSON holds: servers write ``LEAST_LOGPROB`` for it, and so is it kept here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from flightschool.engines.served.wire import broken

__all__ = ["LEAST_LOGPROB", "ids_of", "score_of", "sglang_scores", "vllm_scores"]

LEAST_LOGPROB = -9999.0
"""What stands for −∞."""


def score_of(value: object, kind: str) -> float:
    """A log-probability as a server wrote it, −∞ as ``LEAST_LOGPROB``.

    Raises:
        TokenContractError: it is missing, NaN or positive.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise broken(kind, f"a log-probability is missing: {value!r}")
    if math.isnan(value) or value > 0.0:
        raise broken(kind, f"a log-probability of a scored token is {value}")
    return max(LEAST_LOGPROB, float(value))


def vllm_scores(reply: object, token_ids_T: Sequence[int], start: int) -> tuple[float, ...]:
    """Values of a completion with ``prompt_logprobs``: an object a token, from its id to what is said of it.

    Raises:
        TokenContractError: a value is missing, impossible, or of another token.
    """
    try:
        rows = reply["choices"][0]["prompt_logprobs"]  # type: ignore[index]
    except (TypeError, KeyError, IndexError):
        rows = None
    if not isinstance(rows, list) or len(rows) != len(token_ids_T):
        told = len(rows) if isinstance(rows, list) else "no"
        raise broken("vllm", f"{told} prompt_logprobs for {len(token_ids_T)} tokens")
    values = []
    for token, row in zip(token_ids_T[start:], rows[start:], strict=True):
        said = row.get(str(token)) if isinstance(row, dict) else None
        if not isinstance(said, dict):
            raise broken("vllm", f"the log-probability of token {token} is missing from its place in the prompt")
        values.append(score_of(said.get("logprob"), "vllm"))
    return tuple(values)


def sglang_scores(reply: object, token_ids_T: Sequence[int], start: int) -> tuple[float, ...]:
    """Values of ``input_token_logprobs``: (value, id, text) a token, the last of them of the prompt's last token.

    Raises:
        TokenContractError: a value is missing, impossible, or of another token.
    """
    try:
        rows = reply["meta_info"]["input_token_logprobs"]  # type: ignore[index]
    except (TypeError, KeyError, IndexError):
        rows = None
    wanted = list(token_ids_T[start:])
    if not isinstance(rows, list) or len(rows) < len(wanted):
        told = len(rows) if isinstance(rows, list) else "no"
        raise broken("sglang", f"{told} input_token_logprobs for {len(wanted)} tokens")
    last = rows[len(rows) - len(wanted) :]
    if not all(isinstance(row, list) and len(row) >= 2 for row in last) or [row[1] for row in last] != wanted:
        raise broken("sglang", "input_token_logprobs are of other tokens than those that were sent")
    return tuple(score_of(row[0], "sglang") for row in last)


def ids_of(reply: object, kind: str) -> tuple[int, ...]:
    """Token ids of ``/tokenize``.

    Raises:
        TokenContractError: there are none.
    """
    ids = reply.get("tokens") if isinstance(reply, dict) else None
    if not isinstance(ids, list) or not all(isinstance(token, int) for token in ids):
        raise broken(kind, "/tokenize returned no token ids")
    return tuple(ids)
