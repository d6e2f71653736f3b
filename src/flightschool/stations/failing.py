"""Attempts that infrastructure spoiled: told in the words of what failed, and refused once they are too many.

An infra failure has no grade. Few of them are noise; many of them are a broken harness, engine or world, and what is
left of a measurement says nothing about the policy. The limit is that of the suite's rules, so that nothing is kept
which a comparison would refuse later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from flightschool.errors import GateError
from flightschool.evaluation import RunRules
from flightschool.records import Attempt, Outcome

__all__ = ["Ungraded", "refuse_ungraded"]

_RULES = RunRules()
_LONGEST_DETAIL = 600
_MENDS = {
    "harness": "mend the program that harness.command names (docs/design/gateway.md), then run the same command again",
    "engine": "mend the model or what serves it (see flightschool models check DIR), then run the same command again",
    "world": "mend the environment (see flightschool env check), then run the same command again",
    "grader": "mend the checks (see flightschool audit), then run the same command again",
}


def refuse_ungraded(failed: Sequence[Attempt], *, total: int, where: str) -> None:
    """Raise for attempts of which more than the limit failed for good.

    Args:
        failed: the last attempt of each item that has no grade.
        total: items in all.
        where: what was measured or screened.

    Raises:
        GateError: the share of ``failed`` is above the one that comparisons allow; it tells the commonest failure: who
            caused it, how it ended, and its own words.
    """
    if len(failed) <= _RULES.most_missing * total:
        return
    kinds = Counter((attempt.cause, str(attempt.reason), attempt.detail) for attempt in failed)
    (cause, reason, detail), count = kinds.most_common(1)[0]
    words = detail if len(detail) <= _LONGEST_DETAIL else f"…{detail[-_LONGEST_DETAIL:]}"
    most = "" if len(kinds) == 1 else f"{count} of them "
    raise GateError(
        f"{len(failed)} of {total} attempts have no grade, {most}by failure of the {cause} and not of the policy "
        f"({reason})" + (f": {words}" if words else ""),
        where=where,
        expected=f"a grade of at least {1.0 - _RULES.most_missing:.0%} of the attempts; nothing of this was kept",
        mend=_MENDS.get(cause, "mend what failed, then run the same command again"),
    )


class Ungraded:
    """Watches the attempts of an evaluation, and ends it as soon as it cannot become a measurement any more.

    So a program that does not start costs one attempt with its retries, not those of the whole suite.

    Args:
        total: items of the evaluation.
        where: its id.
    """

    def __init__(self, total: int, where: str) -> None:
        self._total = total
        self._where = where
        self._failed: list[Attempt] = []

    def see(self, attempt: Attempt) -> None:
        """Take in an attempt. Raises ``GateError`` with the one that is too many."""
        if attempt.outcome is Outcome.INFRA_FAILURE and attempt.number >= _RULES.max_retries:
            self._failed.append(attempt)
            refuse_ungraded(self._failed, total=self._total, where=self._where)
