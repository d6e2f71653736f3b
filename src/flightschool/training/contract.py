"""The token contract: what trains is what was sampled, or nothing trains.

Checked on every completion before it reaches the model. Log-probabilities that are missing, NaN, positive, of another
length or filled with 0.0 (certainty) would train silently in the wrong direction; each raises and says which span.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from flightschool.errors import TokenContractError
from flightschool.records import SpanKind, TokenSpan

__all__ = ["LEAST_FILL", "check_span", "token_versions"]

LEAST_FILL = 8
"""A converged policy may be certain of a short turn to the last bit; more exact zeros than this in a row at the end of
a completion that has nothing else are a fill. Shorter fills are caught by the trainer, which recomputes each."""


def check_span(span: TokenSpan, where: str, newest_step: int, grammars: Mapping[str, str] | None = None) -> None:
    """Raise unless the span may train.

    Args:
        span: a completion.
        where: attempt and span, for the error.
        newest_step: version of the trainer: no token can be newer.
        grammars: support → text of the grammar, of the attempt.

    Raises:
        TokenContractError: the span is not token-exact.
    """
    if span.kind is not SpanKind.COMPLETION:
        raise _broken(f"a span of kind {span.kind} was given to train", where, "a completion")
    num_tokens = len(span.token_ids_T)
    if len(span.logprobs_T) != num_tokens:
        raise _broken(f"{len(span.logprobs_T)} log-probabilities for {num_tokens} tokens", where, "one a token")
    if any(not math.isfinite(value) or value > 0.0 for value in span.logprobs_T):
        raise _broken("a log-probability is NaN, infinite or above 0", where, "finite values ≤ 0")
    if num_tokens > LEAST_FILL and not any(span.logprobs_T) and not any(span.log_kept_mass_T):
        raise _broken("every log-probability is 0.0, as if certain", where, "behaviour log-probabilities")
    _check_support(span, where, grammars or {})
    if not span.temperature > 0.0:
        raise _broken(f"temperature {span.temperature}", where, "a temperature above 0")
    if sum(run.count for run in span.versions) != num_tokens or any(run.count < 1 for run in span.versions):
        raise _broken("weights versions do not cover the tokens", where, f"{num_tokens} tokens covered")
    if any(not 0 <= run.step <= newest_step for run in span.versions):
        raise _broken("tokens of weights that the trainer never had", where, f"versions from 0 to {newest_step}")


def _check_support(span: TokenSpan, where: str, grammars: Mapping[str, str]) -> None:
    kept_T = span.log_kept_mass_T
    if span.support == "full":
        if any(kept_T):
            raise _broken("part of the mass was cut off a full support", where, "the name of the support")
        return
    if span.support not in grammars:
        what = f"sampled on the restricted support {span.support!r}, whose grammar is not known"
        raise _broken(what, where, "the grammar's text in the attempt")
    if len(kept_T) != len(span.token_ids_T) or any(math.isnan(value) or value > 0.0 for value in kept_T):
        raise _broken("the kept mass of a restricted support is missing or impossible", where, "one value ≤ 0 a token")


def token_versions(span: TokenSpan) -> list[int]:
    """The version of each token."""
    return [run.step for run in span.versions for _ in range(run.count)]


def _broken(what: str, where: str, expected: str) -> TokenContractError:
    mend = "whoever wrote this span must report what was sampled, unchanged"
    return TokenContractError(what, where=where, expected=expected, mend=mend)
