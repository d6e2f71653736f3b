"""Checks of asynchrony: what is told about versions must be possible, within the bound, and true. Imports no torch.

Three faults look alike from outside (a run that learns badly) and are told apart here:

* *impossible tags*: weights only move forward, so along a conversation versions never fall, none is older than the
  group's admission, none newer than the trainer. Tags that were shuffled, or read twice, break this (``check_tags``);
* *true tags beyond the bound*: the engine lags, or the rule has an error (``check_bound``);
* *possible tags that are not true*: tokens said to be of the newest weights must have the log-probabilities that the
  trainer computes under them, up to the engine's own noise. If tokens said to be fresh differ about as much as those
  said to be old, the tags tell nothing (``check_fresh``).
"""

from __future__ import annotations

from collections.abc import Sequence

from flightschool.errors import TokenContractError
from flightschool.records import SpanKind, TokenSpan

__all__ = ["LEAST_TOKENS", "check_bound", "check_fresh", "check_tags", "oldest_version"]

LEAST_TOKENS = 256
"""Fewer fresh or stale tokens than this say nothing about the tags."""


def oldest_version(spans: Sequence[TokenSpan]) -> int | None:
    """Version of the oldest sampled token; None if nothing was sampled."""
    return min((run.step for span in spans if span.kind is SpanKind.COMPLETION for run in span.versions), default=None)


def check_tags(spans: Sequence[TokenSpan], *, where: str, admitted: int, newest: int) -> None:
    """Raise unless the versions of an attempt are possible.

    Args:
        spans: of one attempt, parents before children.
        where: the attempt, for the error.
        admitted: version under which its group was admitted.
        newest: the trainer's version.

    Raises:
        TokenContractError: a version falls along the conversation, or lies outside ``admitted`` … ``newest``.
    """
    newest_above: dict[int | None, int] = {None: admitted}
    for span in spans:
        last = newest_above.get(span.parent, admitted)
        if span.kind is SpanKind.COMPLETION:
            for run in span.versions:
                if run.step < last or run.step > newest:
                    raise TokenContractError(
                        f"a token of version {run.step} follows one of version {last}"
                        if run.step <= newest
                        else f"a token of version {run.step}, which no trainer has made yet",
                        where=f"{where} span {span.id}",
                        expected=f"versions that never fall, from {admitted} to {newest}",
                        mend="the engine mixes up version tags: each token must bear the version that sampled it",
                    )
                last = run.step
        newest_above[span.id] = last


def check_bound(spans: Sequence[TokenSpan], *, where: str, version: int, max_staleness: int) -> None:
    """Raise if a gradient applied by the step from ``version`` would come from a token older than the bound.

    Raises:
        TokenContractError: it would.
    """
    oldest = oldest_version(spans)
    if oldest is not None and version - oldest > max_staleness:
        raise TokenContractError(
            f"a token of version {oldest} would train at version {version}",
            where=where,
            expected=f"an age of at most {max_staleness}",
            mend="the engine lags behind what it reports, or steps were made that should have been held",
        )


def check_fresh(*, fresh: tuple[float, int], stale: tuple[float, int], floor: float, where: str) -> None:
    """Raise if tokens said to be of the newest weights differ from the trainer like old ones do.

    Args:
        fresh: Σ|log π − log μ| over tokens whose whole context is said to be of the trainer's version, and their
        number. stale: the same over all other tokens.
        floor: mean difference that the engine's arithmetic alone may cause, in nats.
        where: the step, for the error.

    Raises:
        TokenContractError: the fresh mean is above ``floor`` and above half of the stale mean, each over at least
            ``LEAST_TOKENS`` tokens; or above four times ``floor`` whatever the others do.
    """
    if fresh[1] < LEAST_TOKENS:
        return
    mean = fresh[0] / fresh[1]
    like_stale = stale[1] >= LEAST_TOKENS and mean > 0.5 * stale[0] / stale[1]
    if mean > 4.0 * floor or (mean > floor and like_stale):
        raise TokenContractError(
            f"tokens said to be of the newest weights differ from them by {mean:.3f} nats on average",
            where=where,
            expected=f"at most {floor:g}, and clearly less than older tokens",
            mend="the engine samples under other weights than it reports: publication is lost, late, or tags are wrong",
        )
