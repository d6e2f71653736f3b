"""What every engine does with requests, weights and pieces of completions, whatever computes them. Pure functions."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from flightschool.errors import InputError, TokenContractError
from flightschool.protocols import Generation, GenerationRequest
from flightschool.records import VersionRun

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["check_generation", "check_request", "check_state", "continuation", "drawing", "joined"]

LEAST_TOKENS_NEVER_ALL_CERTAIN = 8
"""A converged policy may be certain of a short turn to the last bit; of more tokens than these, zeros are a fill."""


def check_request(request: GenerationRequest, *, vocab: int, max_context: int) -> None:
    """Refuse what can never be served.

    Raises:
        InputError: empty, too long, token ids that the model does not have, or settings out of range.
    """
    tokens = request.token_ids_T
    where = f"session {request.session}"
    if not tokens or len(tokens) >= max_context:
        raise InputError(
            f"a context of {len(tokens)} tokens leaves nothing to generate",
            where=where,
            expected=f"1 to {max_context - 1} tokens",
            mend="end the episode as context_full, or raise the engine's max_context",
        )
    numbers = request.max_new_tokens >= 1 and request.temperature >= 0 and 0 <= request.num_drawn < len(tokens)
    if min(tokens) < 0 or max(tokens) >= vocab or not numbers:
        raise InputError(
            "a request is out of range",
            where=where,
            expected=f"token ids below {vocab}, at least one new token, a temperature of 0 or more",
            mend="use the model's own tokenizer and check the generation settings",
        )


def check_state(wanted: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> None:
    """Refuse weights that are not the model's.

    Raises:
        InputError: a name or a shape differs.
    """
    wrong = sorted(
        name
        for name in wanted.keys() | given.keys()
        if name not in wanted or name not in given or wanted[name].shape != given[name].shape
    )
    if wrong:
        raise InputError(
            f"{len(wrong)} tensor(s) do not fit the model, for instance {wrong[0]}",
            where="update_weights",
            expected="every parameter of the model, by name and shape",
            mend="publish from a trainer of the same model folder",
        )


def drawing(request: GenerationRequest) -> random.Random:
    """The request's own random numbers, one a token: a continuation goes on where the first part stopped."""
    rng = random.Random(request.seed)
    for _ in range(request.num_drawn):
        rng.random()
    return rng


def continuation(request: GenerationRequest, piece: Generation) -> GenerationRequest:
    """The request for what is missing after an interrupted piece."""
    return msgspec.structs.replace(
        request,
        token_ids_T=request.token_ids_T + piece.token_ids_T,
        max_new_tokens=request.max_new_tokens - len(piece.token_ids_T),
        num_drawn=request.num_drawn + len(piece.token_ids_T),
    )


def joined(first: Generation, rest: Generation) -> Generation:
    """An interrupted piece and its continuation as one completion.

    ``kv_step`` bounds the cache under the tokens of the newest weights. Where the second piece goes on with the weights
    of the first, the older bound holds for the whole: a cache that was evicted in between is computed anew for the
    continuation only, not for what was sampled before.
    """
    runs = list(first.versions)
    kv_steps = [part.kv_step for part in (first, rest) if part.token_ids_T] or [rest.kv_step]
    if first.versions and rest.versions and first.versions[-1].step != rest.versions[0].step:
        kv_steps = [rest.kv_step]  # all that is of the newest weights is in the continuation
    for run in rest.versions:
        if runs and runs[-1].step == run.step:
            runs[-1] = VersionRun(step=run.step, count=runs[-1].count + run.count)
        else:
            runs.append(run)
    return Generation(
        token_ids_T=first.token_ids_T + rest.token_ids_T,
        logprobs_T=first.logprobs_T + rest.logprobs_T,
        versions=tuple(runs),
        kv_step=min(kv_steps),
        finish=rest.finish,
        support=rest.support,
        log_kept_mass_T=first.log_kept_mass_T + rest.log_kept_mass_T,
        routing_T=rest.routing_T or first.routing_T,  # of the whole context, as far as it was computed
    )


def check_generation(generation: Generation, where: str = "") -> None:
    """Refuse what is not token-exact.

    Args:
        generation: what an engine returned.
        where: the engine or the session, for the error.

    Raises:
        TokenContractError: log-probabilities missing, of another length, NaN, positive or all 0.0; versions or kept
            mass that do not cover the tokens.
    """
    num_tokens = len(generation.token_ids_T)
    logprobs_T, kept_T = generation.logprobs_T, generation.log_kept_mass_T
    if num_tokens == 0:
        raise TokenContractError(
            "an engine returned no tokens", where=where, expected="at least one token", mend="check the engine"
        )
    if len(logprobs_T) != num_tokens:
        raise TokenContractError(
            f"{len(logprobs_T)} log-probabilities for {num_tokens} tokens",
            where=where,
            expected="one log-probability a token",
            mend="ask the engine for log-probabilities of sampled tokens",
        )
    if not all(math.isfinite(value) and value <= 0.0 for value in logprobs_T):
        raise TokenContractError(
            "a log-probability is NaN, infinite or above 0",
            where=where,
            expected="finite values ≤ 0",
            mend="check the engine",
        )
    if num_tokens > LEAST_TOKENS_NEVER_ALL_CERTAIN and not any(logprobs_T) and not any(kept_T):
        raise TokenContractError(
            "every log-probability is 0.0, as if certain",
            where=where,
            expected="behaviour log-probabilities",
            mend="the engine fills in zeros where it should report; enable its log-probabilities",
        )
    if sum(run.count for run in generation.versions) != num_tokens:
        raise TokenContractError(
            "weights versions do not cover the tokens",
            where=where,
            expected=f"{num_tokens} tokens covered",
            mend="check the engine",
        )
    if len(kept_T) != (0 if generation.support == "full" else num_tokens):
        raise TokenContractError(
            f"{len(kept_T)} kept masses for {num_tokens} tokens on the support {generation.support!r}",
            where=where,
            expected="one a token on a restricted support, none on the full one",
            mend="check the engine",
        )
