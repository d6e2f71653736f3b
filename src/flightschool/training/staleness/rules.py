"""Rules of staleness: who may start, who may step, what is thrown away. Pure decisions on accounts; no torch, no clock.

Staleness of a gradient = version just before the step that applies it − version of its oldest token. With ``S`` the
bound, ``B`` the groups of a nominal step and ``v`` the trainer's version, the rules of the field are

* ``DiscardRule``: step whenever B groups are there; a group that is read with ``v − oldest > S`` is thrown away
  (miles ``--max-weight-staleness``, TRL ``max_staleness``, ART ``max_steps_off_policy``). Strict, and biased: the long
  groups are the ones that grow old.
* ``AdmissionRule``: start a group only while ``admitted < (v + S + 1) · B`` (AReaL, arXiv:2505.24298, section 5.1;
  SkyRL). Unbiased, and not strict: it bounds how many are under way, not how old any one is.
* ``HoldRule``, the one that runs here: step only if ``v + 1 − oldest(g) ≤ S`` for every running or waiting group g;
  until then finished groups go on being accumulated into the same step. Strict and unbiased; the price is larger steps.
  ``docs/design/staleness.md`` proves all three claims and that, with the episodes running when they run, no rule that
  discards nothing and expires nothing makes more steps.

By hand, S = 1, version 3: with running groups admitted under 3 and 2, ``3 + 1 − 2 = 2 > 1``, so the step is held until
the older one is finished and accumulated; then ``3 + 1 − 3 = 1`` and it is made, with everything accumulated so far.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from flightschool.errors import InputError

__all__ = ["Accounts", "AdmissionRule", "DiscardRule", "HoldRule", "StalenessRule"]


@dataclass(frozen=True)
class Accounts:
    """What a rule may know."""

    version: int
    """The trainer's version."""
    running: Collection[int] = ()
    """Version under which each running group was admitted: none of its tokens is older."""
    waiting: Collection[int] = ()
    """Version of the oldest token of each finished group that waits for the trainer."""
    expected: Collection[int] = ()
    """Version of the oldest token of each group that an earlier start of the run left half made: it holds a step like a
    running one, and takes no place among them until it is begun again."""
    num_admitted: int = 0
    """Groups admitted since version 0."""


class StalenessRule(Protocol):
    """Decides; keeps no state of its own."""

    def num_to_admit(self, accounts: Accounts) -> int:
        """How many groups may be started now."""
        ...

    def may_step(self, accounts: Accounts) -> bool:
        """Whether the trainer may step now, provided that enough groups are accumulated."""
        ...

    def keeps(self, accounts: Accounts, oldest: int) -> bool:
        """Whether a waiting group with this oldest version is trained (False: it is thrown away unread)."""
        ...


@dataclass(frozen=True)
class HoldRule:
    """Hold the step, never the samples.

    Args:
        max_staleness: S.
        max_inflight: most groups that run or wait; a waiting group counts, since both grow old with every step.
        reserve: with ``drains``, waiting groups that keep the trainer at work meanwhile.
        drains: start nothing while at most one running group holds the step and ``reserve`` groups wait: whatever is
            started just before a step spends one of the S steps that it may see on nothing, and may hold a later one.

    Raises:
        InputError: ``max_staleness`` or ``max_inflight`` is below 1.
    """

    max_staleness: int
    max_inflight: int
    reserve: int = 0
    drains: bool = False

    def __post_init__(self) -> None:
        if self.max_staleness < 1 or self.max_inflight < 1:
            raise InputError(
                f"a hold with max_staleness {self.max_staleness} and max_inflight {self.max_inflight}",
                expected="both at least 1",
                mend="for no staleness at all, train in sync mode",
            )

    def num_to_admit(self, accounts: Accounts) -> int:
        """See ``StalenessRule``."""
        if self.drains and len(accounts.waiting) >= self.reserve and self.num_holding(accounts) <= 1:
            return 0
        return max(0, self.max_inflight - len(accounts.running) - len(accounts.waiting))

    def may_step(self, accounts: Accounts) -> bool:
        """See ``StalenessRule``."""
        oldest = min((*accounts.running, *accounts.waiting, *accounts.expected), default=accounts.version + 1)
        return not self._too_old(accounts, oldest)

    def keeps(self, accounts: Accounts, oldest: int) -> bool:
        """Everything is trained: ``may_step`` saw to it that nothing can be too old."""
        del accounts, oldest
        return True

    def num_holding(self, accounts: Accounts) -> int:
        """Running groups that a step now would push over the bound."""
        return sum(self._too_old(accounts, admitted) for admitted in accounts.running)

    def _too_old(self, accounts: Accounts, oldest: int) -> bool:
        # the group's earliest step is the next one but one: it would be applied from version + 1
        return accounts.version + 1 - oldest > self.max_staleness


@dataclass(frozen=True)
class DiscardRule:
    """Throw away what is too old when it is read."""

    max_staleness: int
    max_waiting: int

    def num_to_admit(self, accounts: Accounts) -> int:
        """See ``StalenessRule``."""
        return max(0, self.max_waiting - len(accounts.waiting))

    def may_step(self, accounts: Accounts) -> bool:
        """Always."""
        del accounts
        return True

    def keeps(self, accounts: Accounts, oldest: int) -> bool:
        """See ``StalenessRule``."""
        return accounts.version - oldest <= self.max_staleness


@dataclass(frozen=True)
class AdmissionRule:
    """Bound how many are under way."""

    max_staleness: int
    groups_per_step: int
    max_waiting: int

    def num_to_admit(self, accounts: Accounts) -> int:
        """See ``StalenessRule``."""
        room = (accounts.version + self.max_staleness + 1) * self.groups_per_step - accounts.num_admitted
        return max(0, min(room, self.max_waiting - len(accounts.waiting)))

    def may_step(self, accounts: Accounts) -> bool:
        """Always."""
        del accounts
        return True

    def keeps(self, accounts: Accounts, oldest: int) -> bool:
        """Everything is trained, however old."""
        del accounts, oldest
        return True
