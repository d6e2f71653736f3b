"""Final acceptance: the one way to a sealed holdout.

Before anything is decrypted, the look is in the audit log: role, actor, reason, the candidate's digest and which look
of how many it is. Looks are few; their error probability is shared out (alpha / looks each, Bonferroni: research pages
call it the simplest of the reusable-holdout rules), so a candidate does not pass by being tried again. A look that was
cut short is gone on with by the same candidate and is not counted twice.

The opened tasks and the attempts at them live in memory and, for later dispute, in a box under the same key: what the
workspace keeps in clear is numbers.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from flightschool.environments import TracedContent
from flightschool.environments.registry import EnvironmentRecord, open_content
from flightschool.errors import GateError, InputError
from flightschool.evaluation.records import EvaluationRun
from flightschool.evaluation.running import Progress, evaluate
from flightschool.evaluation.sealing import (
    DEFAULT_ALPHA,
    SealedHoldout,
    SealedPart,
    load_sealed,
    unseal_part,
)
from flightschool.evaluation.suites import (
    DEFAULT_LOOKS,
    HOLDOUT_KIND,
    OPEN,
    enter_look,
    num_looks,
    require_logged,
    require_unchanged,
)
from flightschool.evaluation.summary import summarise
from flightschool.evaluation.sweeping import ENVIRONMENTS
from flightschool.governance import AuditLog, HoldoutKey, KeyRing, ReducedEnvironment, Sealed, Withdrawn, seal
from flightschool.governance.withholding import KIND as WITHDRAWN
from flightschool.perturbation import FaultProfile
from flightschool.protocols import Environment, RewardComposition, Store
from flightschool.records import Attempt, LogEntry, Measurement, Record, Suite
from flightschool.rollouts import Policy
from flightschool.store import SqlStore

__all__ = ["ACCEPTANCE_KIND", "SEALED_AGAINST", "Acceptance", "accept"]

ACCEPTANCE_KIND = "acceptance"
SEALED_ATTEMPTS = "sealed-attempts"
RESULT = "holdout result"
SEALED_AGAINST = "sealed against accident, not against the operator: on one account who runs this can read the key"

LISTED_ONLY = "listed, not sealed: this holdout was kept out of training by name alone, its text was never taken away"


class Acceptance(Record, frozen=True, kw_only=True):
    """One look at a sealed holdout. Numbers only."""

    id: str
    suite: str
    holdout_digest: str
    policy: str
    candidate_digest: str
    """Content of the candidate: weights, script or address."""
    role: str
    reason: str
    look: int
    """Counted from 1."""
    looks: int
    alpha: float
    """Error probability of this look."""
    accuracy: Measurement
    """Success weighted by traffic, with an interval of coverage 1 − alpha."""
    measurements: tuple[Measurement, ...]
    target: float | None
    accepted: bool | None
    """Whether the whole interval lies at or above the target; None without a target."""
    num_missing: int
    num_unaudited: int
    run_digest: str
    """Of the evaluation, which lies in a box."""
    entry: str
    """Digest of the log entry of the look."""
    statement: str = SEALED_AGAINST
    notes: tuple[str, ...] = ()


def accept(
    store: SqlStore,
    name: str,
    make_policy: Callable[[Environment], Policy],
    *,
    ring: KeyRing,
    actor: str,
    role: str,
    reason: str,
    candidate_digest: str,
    composition: RewardComposition,
    base: Callable[[], Environment],
    target: float | None = None,
    weather_profile: FaultProfile | None = None,
    repeats: int = 1,
    seed: int = 0,
    concurrency: int = 64,
    progress: Progress | None = None,
) -> Acceptance:
    """Spend one look.

    Args:
        store: the workspace's store.
        name: the suite's or the holdout's name.
        make_policy: the candidate, given the opened environment.
        ring: holds the key.
        actor: who opens.
        role: as what.
        reason: why.
        candidate_digest: identity of the candidate.
        composition: grades.
        base: the environment of code from which tasks were hidden; not called where the workspace kept the content.
        target: least success that is accepted, 0..1.
        weather_profile: faults, or None.
        repeats: attempts at each task.
        seed: seed of the evaluation.
        concurrency: attempts at a time.
        progress: told after each item.

    Raises:
        NotFoundError: no such holdout, or its key is not here.
        InputError: no actor or reason, or a target outside 0..1.
        GateError: another role, spent looks, a changed box, or an environment that is no longer what was sealed.
    """
    if target is not None and not 0 <= target <= 1:
        raise InputError(f"target {target}", where="accept", expected="a rate from 0 to 1", mend="correct it")
    card = _card(store, name)
    key, part = None, SealedPart(suite=_listed(store, card.name))
    if card.key_id:
        key = ring.take(card.key_id, role=role)
        _require_memory(store, card, key)
        part = unseal_part(card, key)  # proves key and box before a look is spent; nothing is shown yet
    environment = _opened(store, card, part, base)
    require_unchanged(part.suite, environment)
    look, entry = _look(store, card, role, actor, reason, candidate_digest)
    if key is not None:
        ring.spend(key.id, look)
    attempts: list[Attempt] = []
    run = evaluate(
        part.suite,
        environment,
        make_policy(environment),
        composition=composition,
        run=f"{card.name}-look-{look}",
        weather_profile=weather_profile,
        repeats=repeats,
        seed=seed,
        concurrency=concurrency,
        progress=progress,
        on_attempt=attempts.append,
    )
    if key is not None:
        _keep_sealed(store, key, run, attempts)
    return _concluded(store, card, run, look, entry, actor, role, reason, candidate_digest, target)


# ------------------------------------------------------------------------------------------------ parts


def _card(store: Store, name: str) -> SealedHoldout:
    """The sealed holdout's card; for one that is merely listed, a card with an empty box."""
    listed = next((n for n in (name, f"{name}-holdout") if store.has(HOLDOUT_KIND, n)), None)
    if listed is None:
        return load_sealed(store, name)
    suite = store.get(HOLDOUT_KIND, listed, Suite)
    return SealedHoldout(
        name=listed,
        suite=listed.removesuffix("-holdout"),
        environment=suite.environment,
        environment_digest=suite.environment_digest,
        successor=suite.environment_digest,
        digest=suite.digest,
        num_tasks=len(suite.task_digests),
        num_unaudited=0,
        strata={share.name: share.num_tasks for share in suite.strata},
        looks=DEFAULT_LOOKS,
        alpha=DEFAULT_ALPHA,
        role="",
        key_id="",
        box=Sealed(algorithm="none", label=listed, nonce=b"", ciphertext=b""),
        complete=True,
    )


def _listed(store: Store, name: str) -> Suite:
    """The record of a listed holdout; of a sealed one nothing but its name lies outside the box."""
    if store.has(HOLDOUT_KIND, name):
        suite = store.get(HOLDOUT_KIND, name, Suite)
        require_logged(store, suite)
        return suite
    return Suite(name=name, environment="", environment_digest="", task_digests={}, strata=())


def _require_memory(store: Store, card: SealedHoldout, key: HoldoutKey) -> None:
    """The key remembers looks that a workspace restored from a copy has forgotten."""
    logged = num_looks(store, card.name)
    if logged < key.spent:
        raise GateError(
            f"the key remembers {key.spent} looks, the audit log {logged}: the workspace was restored or its log cut",
            where=f"holdout {card.name}",
            expected=f"a log with at least {key.spent} looks",
            mend="bring back the newest copy of the workspace",
        )


def _opened(store: SqlStore, card: SealedHoldout, part: SealedPart, base: Callable[[], Environment]) -> Environment:
    """The environment as it was when the holdout was sealed, in memory."""
    if not part.content:
        environment = base()
        while environment.digest != card.environment_digest and store.has(WITHDRAWN, environment.digest):
            # Tasks hidden before this holdout was sealed are no part of what it was taken from.
            withdrawn = store.get(WITHDRAWN, environment.digest, Withdrawn)
            environment = ReducedEnvironment(environment, withdrawn.hidden)
        return environment
    content = msgspec.json.decode(part.content, type=TracedContent)
    record = store.get(ENVIRONMENTS, card.environment, EnvironmentRecord)
    return open_content(store, record, content)


def _look(
    store: Store, card: SealedHoldout, role: str, actor: str, reason: str, candidate: str
) -> tuple[int, LogEntry]:
    """The look's number and log entry: a new one, or the one that this candidate began and never ended."""
    entries = [e for e in AuditLog(store).entries() if e.subject == card.name and e.action in (OPEN, RESULT)]
    opened = [e for e in entries if e.action == OPEN]
    ended = {e.detail.get("look") for e in entries if e.action == RESULT}
    for number, entry in enumerate(opened[: card.looks], start=1):
        if number not in ended and entry.detail.get("candidate") == candidate:
            return number, entry
    detail = {
        "digest": card.digest,
        "candidate": candidate,
        "role": role,
        "alpha": card.alpha / card.looks,
        "level": card.level,
    }
    entry = enter_look(store, card.name, actor=actor, reason=reason, looks=card.looks, detail=detail)
    number = 1 + sum(
        e.action == OPEN and e.subject == card.name and e.index < entry.index for e in AuditLog(store).entries()
    )
    return number, entry


def _keep_sealed(store: Store, key: HoldoutKey, run: EvaluationRun, attempts: list[Attempt]) -> None:
    data = msgspec.msgpack.encode((run, attempts))
    store.put(SEALED_ATTEMPTS, run.id, seal(data, key.secret, f"attempts of {run.id}"))


def _concluded(
    store: Store,
    card: SealedHoldout,
    run: EvaluationRun,
    look: int,
    entry: LogEntry,
    actor: str,
    role: str,
    reason: str,
    candidate: str,
    target: float | None,
) -> Acceptance:
    summary = summarise(run, level=card.level)
    accuracy = summary.measurement("success/weighted")
    notes = list(summary.notes)
    if card.num_unaudited:
        notes.append(f"{card.num_unaudited} of {card.num_tasks} sealed tasks had no sound audit when they were sealed")
    found = Acceptance(
        id=run.id,
        suite=card.suite,
        holdout_digest=card.digest,
        policy=run.policy,
        candidate_digest=candidate,
        role=role,
        reason=reason,
        look=look,
        looks=card.looks,
        alpha=card.alpha / card.looks,
        accuracy=accuracy,
        measurements=summary.measurements,
        target=target,
        accepted=None if target is None else accuracy.low >= target,
        num_missing=run.num_missing,
        num_unaudited=card.num_unaudited,
        run_digest=run.digest,
        entry=entry.digest,
        statement=SEALED_AGAINST if card.key_id else LISTED_ONLY,
        notes=tuple(notes),
    )
    store.put(ACCEPTANCE_KIND, found.id, found)
    detail = {
        "look": look,
        "candidate": candidate,
        "run": run.digest,
        "success": accuracy.value,
        "low": accuracy.low,
        "high": accuracy.high,
        "accepted": found.accepted,
    }
    AuditLog(store).append(actor, RESULT, card.name, detail)
    return found
