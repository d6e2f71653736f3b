"""The rules of a run, fixed before anything is measured: what an attempt may use, what follows when the world breaks.

They are part of a suite's design, hence of what the audit log saw frozen: whoever could choose them afterwards could
choose the result. An attempt that goes beyond a limit has *failed* (the policy could have stopped), so it stays in the
denominator; an attempt that infrastructure broke is made again at most ``max_retries`` times, and what is still
without a grade is missing, shown with the best and worst that it could have changed.
"""

from __future__ import annotations

import math

from flightschool.errors import InputError
from flightschool.records import Attempt, Record, SpanKind, TokenSpan, TokenUse

__all__ = [
    "MAX_RETRIES",
    "MOST_MISSING",
    "Limits",
    "Prices",
    "RunRules",
    "cost_usd",
    "token_use",
    "use_of_spans",
]

MAX_RETRIES = 2
"""New attempts after infra failures of one item."""
MOST_MISSING = 0.02
"""Share of items without a grade above which runs are not compared."""
_MILLION = 1e6


class Limits(Record, frozen=True, kw_only=True):
    """What one attempt may use, beside the turns that its task allows. None: no limit."""

    max_tokens: int | None = None
    """Tokens sampled by the policy."""
    max_calls: int | None = None
    """Tool calls asked for."""
    max_s: float | None = None
    """Real seconds spent in waiting for the policy."""
    max_cost_usd: float | None = None
    """At the prices of the run."""

    @property
    def any(self) -> bool:
        """Whether anything is limited."""
        return (self.max_tokens, self.max_calls, self.max_s, self.max_cost_usd) != (None,) * 4


class Prices(Record, frozen=True, kw_only=True):
    """US dollars for a million tokens."""

    input: float
    """Tokens of the context, sent again with every turn."""
    output: float
    """Tokens sampled."""


class RunRules(Record, frozen=True, kw_only=True):
    """What was registered before the first attempt.

    Raises:
        InputError: a limit that nothing could keep.
    """

    max_retries: int = MAX_RETRIES
    most_missing: float = MOST_MISSING
    limits: Limits = Limits()

    def __post_init__(self) -> None:
        limits = self.limits
        sizes = (limits.max_tokens, limits.max_calls, limits.max_s, limits.max_cost_usd)
        fine = all(size is None or (math.isfinite(size) and size > 0) for size in sizes)
        if not (fine and self.max_retries >= 0 and 0 <= self.most_missing <= 1):
            raise InputError(
                f"rules of a run that nothing can keep: {self}",
                where="rules",
                expected="limits above 0, 0 or more retries, a share of missing items from 0 to 1",
                mend="correct them",
            )


def token_use(attempt: Attempt) -> TokenUse:
    """Tokens of an attempt: as its endpoint counted them, else from its spans."""
    return attempt.usage if isinstance(attempt.usage, TokenUse) else use_of_spans(attempt.spans)


def cost_usd(use: TokenUse, prices: Prices) -> float:
    """What so many tokens cost."""
    return (use.num_prompt_tokens * prices.input + use.num_completion_tokens * prices.output) / _MILLION


def use_of_spans(spans: tuple[TokenSpan, ...]) -> TokenUse:
    """Tokens of a span forest: a completion was sampled behind all tokens on its path, which were sent as context."""
    before: dict[int | None, int] = {None: 0}
    prompt = sampled = 0
    for span in spans:  # a parent stands before its children
        size = len(span.token_ids_T)
        if span.kind is SpanKind.COMPLETION:
            prompt += before.get(span.parent, 0)
            sampled += size
        before[span.id] = before.get(span.parent, 0) + size
    return TokenUse(num_prompt_tokens=prompt, num_completion_tokens=sampled)
