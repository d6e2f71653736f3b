"""Records of the evaluation room: what was frozen, what was measured, how two measurements differ.

Nothing here holds a ``Reward``: an item keeps whether the work succeeded and what was violated, since a reward is a
training signal and a suite measures.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from flightschool.digest import digest as content_digest
from flightschool.errors import NotFoundError
from flightschool.evaluation.rules import Prices, RunRules
from flightschool.records import EndReason, Measurement, Outcome, Record, Suite
from flightschool.statistics import McNemar

__all__ = ["Comparison", "Difference", "EvaluationItem", "EvaluationRun", "Frozen", "Pool", "Summary"]


class Frozen(Record, frozen=True, kw_only=True):
    """A freeze: what is measured on, what is sealed, and what is left to train on."""

    suite: Suite
    holdout: Suite | None
    """None when no fraction was set aside."""
    pool: tuple[str, ...]
    """Ids of the tasks of families that neither the suite nor the holdout touches."""
    left_out: tuple[str, ...] = ()
    """Kinships by wording for which families were taken out of the pool."""


class Pool(Record, frozen=True, kw_only=True):
    """What a freeze left to train on."""

    suite: str
    suite_digest: str
    tasks: tuple[str, ...]


class EvaluationItem(Record, frozen=True, kw_only=True):
    """One attempt at one task of a suite."""

    task: str
    family: str
    stratum: str
    trained: bool
    """Whether the freeze declared this stratum as one that is trained."""
    repeat: int
    seed: int
    success: bool | None
    """None when every attempt was an infra failure: missing, never counted as failed or left out silently."""
    outcome: Outcome
    reason: EndReason
    violations: tuple[str, ...]
    """Ids of the constraint checks that failed."""
    virtual_ms: float
    wall_ms: float = 0.0
    """Real time, left out of digests."""
    num_tokens: int
    num_calls: int
    num_denied: int = 0
    """Calls that no permission allowed: refused, or (where enforcement was off) only noted."""
    num_retries: int
    """Infra failures before this attempt."""
    cost_usd: float | None = None
    """None where nobody stated prices."""
    attempt: str
    attempt_digest: str
    suspected: str = ""
    """What in the policy's training this task is kin to, with how; empty for none known."""


class EvaluationRun(Record, frozen=True, kw_only=True):
    """A policy measured on a suite."""

    id: str
    suite: str
    suite_digest: str
    environment: str
    environment_digest: str
    policy: str
    noise: str
    """Name of the fault profile; ``clean`` without faults."""
    noise_digest: str
    composition_digest: str
    repeats: int
    seed: int
    holdout: bool
    weights: dict[str, float]
    """Stratum → share of traffic, as frozen."""
    items: tuple[EvaluationItem, ...]
    """In the order of the suite, repeats innermost."""
    lineage: str = ""
    """What is known of the policy's training: against what the tasks were compared; empty when nobody looked."""
    log_head: str = ""
    """Digest of the audit log's last entry when the run began: the log proves that the freeze came before."""
    rules: RunRules = RunRules()
    """Limits and retries that were registered before."""
    prices: Prices | None = None
    enforced: bool = True
    """Whether denied calls were refused."""
    regraded: str = ""
    """Id of the evaluation whose stored attempts were graded again for this one; empty for one that was flown."""
    seeds_of: str = ""
    """Digest of the suite whose seeds the attempts were made with, where that is another version."""

    @property
    def num_missing(self) -> int:
        """Items without a grade."""
        return sum(item.success is None for item in self.items)

    @property
    def missing_share(self) -> float:
        """Share of the items without a grade."""
        return self.num_missing / len(self.items) if self.items else 0.0

    @property
    def graded(self) -> tuple[EvaluationItem, ...]:
        """Items with a grade."""
        return tuple(item for item in self.items if item.success is not None)

    @property
    def digest(self) -> str:
        """Digest of all but the run's own id, the attempts' ids and real times."""
        items = [msgspec.structs.replace(item, attempt="", wall_ms=0.0) for item in self.items]
        return content_digest(msgspec.structs.replace(self, id="", items=tuple(items)))


class Summary(Record, frozen=True, kw_only=True):
    """What a run says, with intervals. Names are ``metric/scope`` (see ``evaluation.metrics``)."""

    run: str
    suite: str
    policy: str
    noise: str
    num_items: int
    num_missing: int
    low_bound: float
    """Success rate over all items if every missing one had failed."""
    high_bound: float
    """Success rate over all items if every missing one had succeeded."""
    measurements: tuple[Measurement, ...]
    notes: tuple[str, ...] = ()
    """What a reader must not overlook."""

    def measurement(self, name: str) -> Measurement:
        """The measurement of this name. Raises ``NotFoundError``."""
        return _named(name, self.measurements)


class Difference(Record, frozen=True, kw_only=True):
    """Candidate minus baseline in one metric and scope."""

    name: str
    """``metric/scope``."""
    before: float
    after: float
    diff: float
    low: float
    high: float
    mde: float
    """Smallest true difference that this comparison shows with 80 % power."""
    num_pairs: int
    num_families: int
    sign_agreement: float = 0.5
    """Probability that an independent re-run shows a difference of the same sign."""
    reliable: bool
    """Enough families, and the decision would come out again (see ``evaluation.comparison``)."""
    winner: str | None
    """``candidate``, ``baseline``, or None when the interval holds 0 or the decision is not reliable."""


class Comparison(Record, frozen=True, kw_only=True):
    """Two runs on one suite; the headline is success weighted by traffic."""

    suite: str
    suite_digest: str
    noise: str
    baseline: str
    candidate: str
    diff: float
    low: float
    high: float
    mde: float
    reliable: bool
    winner: str | None
    sign_agreement: float = 0.5
    """Of the headline, see ``Difference``."""
    e_value: float = 1.0
    """Evidence against "no difference" from the discordant pairs, valid however often one looked: 20 rejects at .05."""
    doubts: tuple[str, ...] = ()
    """Why the comparison is not reliable; empty when it is."""
    mcnemar: McNemar
    differences: tuple[Difference, ...]
    num_missing_before: int
    num_missing_after: int

    def difference(self, name: str) -> Difference:
        """The difference of this name. Raises ``NotFoundError``."""
        return _named(name, self.differences)


N = TypeVar("N", Measurement, Difference)


def _named(name: str, candidates: Sequence[N]) -> N:
    for candidate in candidates:
        if candidate.name == name:
            return candidate
    raise NotFoundError(
        f"nothing named {name!r} was measured",
        where="evaluation",
        expected=", ".join(candidate.name for candidate in candidates),
        mend="use one of these names",
    )
