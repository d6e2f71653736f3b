"""Spans of tokens, each of one author, with log-probabilities and weights versions. ``T``: tokens of one span."""

from __future__ import annotations

from enum import StrEnum

from flightschool.records.base import Record


class WeightsVersion(Record, frozen=True, kw_only=True):
    """Which weights: versions of different incarnations are never compared by number."""

    run: str
    incarnation: int
    step: int
    digest: str = ""


class VersionRun(Record, frozen=True, kw_only=True):
    """``count`` consecutive tokens that were sampled under the weights of ``step``."""

    step: int
    count: int


class SpanKind(StrEnum):
    """Who wrote the tokens."""

    PROMPT = "prompt"
    OBSERVATION = "observation"
    COMPLETION = "completion"  # sampled by the policy: what reinforcement trains
    DEMONSTRATION = "demonstration"  # written by a recorded operator, without log-probabilities: only imitated


class TokenSpan(Record, frozen=True, kw_only=True):
    """A run of tokens of one author; spans form a forest, a trajectory is a path from root to leaf."""

    id: int
    parent: int | None
    kind: SpanKind
    token_ids_T: tuple[int, ...]
    logprobs_T: tuple[float, ...] = ()
    """Behaviour log-probabilities, one a token, on completions; empty on all others."""
    versions: tuple[VersionRun, ...] = ()
    """Weights versions, run-length coded, covering exactly the tokens of a completion."""
    kv_step: int = 0
    """Oldest weights step in the KV cache under this completion's tokens of the newest weights (a bound)."""
    temperature: float = 1.0
    support: str = "full"
    """``full``, or ``grammar:`` with the digest of a grammar (its text stands in the attempt): log-probabilities are
    then those of the policy renormalised over the tokens that the grammar allowed."""
    log_kept_mass_T: tuple[float, ...] = ()
    """Log of the probability that the allowed tokens had together, one a token; empty on the full support."""
    turn: int = 0
    """Assistant turn, counted from 0."""
    routing_ref: str = ""
    """Where the experts chosen for these tokens are kept, prompt tokens too: digest of a blob, ``#``, first byte,
    number of tokens, bytes a token. Empty: a dense model, or not kept."""
