"""What reviews have found out about the verifier of an environment, for those who use its verdicts.

Labels are about the checks that judged the attempts, so they speak for an environment as long as its digest is the one
that was reviewed; sealing a part of it changes the digest and no check, and is followed.
"""

from __future__ import annotations

from flightschool.governance.reviews import labels_of, review_rates, sheets_of
from flightschool.governance.withholding import successor_of
from flightschool.protocols import Store
from flightschool.records import Record
from flightschool.statistics import Interval

__all__ = ["KnownError", "known_error"]

FEWEST_REVIEWED = 20
"""Below, the intervals are so wide that a correction says less than the raw figure."""


class KnownError(Record, frozen=True, kw_only=True):
    """How often the verifier of an environment is wrong, by the labels of one review sheet."""

    sheet: str
    num_reviewed: int
    rho0: Interval
    """P(passed | wrong)."""
    rho1: Interval
    """P(not passed | right)."""

    @property
    def noise(self) -> tuple[float, float]:
        """(ρ0, ρ1), the best guesses."""
        return self.rho0.value, self.rho1.value


def known_error(store: Store, environment_digest: str) -> KnownError | None:
    """The error rates of an environment's verifier, from the sheet with the most labels.

    None where no sheet was drawn from attempts in this environment alone, where fewer than ``FEWEST_REVIEWED`` are
    labelled, or where the reviewed held no right or no wrong work, so that one of the rates is not known.
    """
    best: KnownError | None = None
    for sheet in sheets_of(store):
        reviewed = {successor_of(store, digest) for digest in sheet.environments}
        if reviewed != {successor_of(store, environment_digest)}:
            continue
        error = review_rates(sheet, labels_of(store, sheet.name)).error
        if error is None or error.rho0 is None or error.rho1 is None or error.num_reviewed < FEWEST_REVIEWED:
            continue
        if best is None or error.num_reviewed > best.num_reviewed:
            best = KnownError(sheet=sheet.name, num_reviewed=error.num_reviewed, rho0=error.rho0, rho1=error.rho1)
    return best
