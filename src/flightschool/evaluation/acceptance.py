"""Final acceptance: the one way to a sealed holdout.

Before anything is decrypted, the look is in the audit log: role, actor, reason, the candidate's digest and which look
of how many it is. Looks are few; their error probability is shared out (alpha / looks each, Bonferroni: research pages
call it the simplest of the reusable-holdout rules), so a candidate does not pass by being tried again. A look that was
cut short is gone on with by the same candidate and is not counted twice.

The opened tasks and the attempts at them live in memory and, for later dispute, in a box under the same key: what the
workspace keeps in clear is numbers.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path
from typing import NotRequired, Required, TypedDict, Unpack

import msgspec

from flightschool.environments import TracedContent
from flightschool.environments.declared import Declaration, DeclaredEnvironment
from flightschool.environments.foreign import ForeignContent, ForeignEnvironment
from flightschool.environments.registry import EnvironmentRecord, open_content
from flightschool.environments.terminal import lay_out_folders
from flightschool.errors import GateError, InputError
from flightschool.evaluation.records import EvaluationRun
from flightschool.evaluation.rules import Prices, RunRules
from flightschool.evaluation.running import AttemptRunner, Progress, evaluate
from flightschool.evaluation.sealed import DEFAULT_ALPHA, SealedHoldout, SealedPart, load_sealed, unseal_part
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

__all__ = ["ACCEPTANCE_KIND", "SEALED_AGAINST", "Acceptance", "Asked", "accept"]

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


class Asked(Record, frozen=True, kw_only=True):
    """Who asks for a look, as what, why, for which candidate.

    Raises:
        InputError: a target outside 0..1.
    """

    actor: str
    role: str
    reason: str
    candidate_digest: str
    """Content of the candidate: weights, script or address."""
    target: float | None = None
    """Least success that is accepted, 0..1."""

    def __post_init__(self) -> None:
        if self.target is not None and not 0 <= self.target <= 1:
            raise InputError(f"target {self.target}", where="accept", expected="a rate from 0 to 1", mend="correct it")


class Measured(TypedDict):
    """How the candidate is measured: what ``evaluate`` takes, but for what acceptance itself decides."""

    composition: Required[RewardComposition]
    weather_profile: NotRequired[FaultProfile | None]
    repeats: NotRequired[int]
    seed: NotRequired[int]
    concurrency: NotRequired[int]
    progress: NotRequired[Progress | None]
    rules: NotRequired[RunRules]
    prices: NotRequired[Prices | None]


Opens = Callable[[Environment], Callable[[str], AbstractAsyncContextManager[AttemptRunner]] | None]
"""What makes the attempts in an environment that was opened (see ``running.How``)."""


def accept(
    store: SqlStore,
    name: str,
    make_policy: Callable[[Environment], Policy],
    *,
    ring: KeyRing,
    asked: Asked,
    base: Callable[[], Environment],
    opens: Opens | None = None,
    **how: Unpack[Measured],
) -> Acceptance:
    """Spend one look.

    Args:
        store: the workspace's store.
        name: the suite's or the holdout's name.
        make_policy: the candidate, given the opened environment.
        ring: holds the key.
        asked: who opens it, why, for which candidate.
        base: the environment of code from which tasks were hidden; not called where the workspace kept the content.
        opens: what makes the attempts; the episode runner by default.
        how: see ``running.How``.

    Raises:
        NotFoundError: no such holdout, or its key is not here.
        InputError: no actor or reason.
        GateError: another role, spent looks, a changed box, or an environment that is no longer what was sealed.
    """
    card = _card(store, name)
    key, part = None, SealedPart(suite=_listed(store, card.name))
    if card.key_id:
        key = ring.take(card.key_id, role=asked.role)
        _require_memory(store, card, key)
        part = unseal_part(card, key)  # proves key and box before a look is spent; nothing is shown yet
    attempts: list[Attempt] = []
    with _opened(store, card, part, base) as environment:
        require_unchanged(part.suite, environment)
        look, entry = _look(store, card, asked)
        if key is not None:
            ring.spend(key.id, look)
        run = evaluate(
            part.suite,
            environment,
            make_policy(environment),
            run=f"{card.name}-look-{look}",
            on_attempt=attempts.append,
            open_runner=None if opens is None else opens(environment),
            **how,
        )
    if key is not None:
        _keep_sealed(store, key, run, attempts)
    return _concluded(store, card, run, look, entry, asked)


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


@contextmanager
def _opened(
    store: SqlStore, card: SealedHoldout, part: SealedPart, base: Callable[[], Environment]
) -> Iterator[Environment]:
    """The environment as it was when the holdout was sealed: in memory, or, of task folders, in a folder of this
    process's own outside the workspace, which is gone at the end.
    """
    if part.folders is None:
        yield _rebuilt(store, card, part, base)
        return
    with tempfile.TemporaryDirectory(prefix="flightschool-look-") as scratch:
        yield lay_out_folders(part.folders, Path(scratch, "tasks"))


def _rebuilt(store: SqlStore, card: SealedHoldout, part: SealedPart, base: Callable[[], Environment]) -> Environment:
    if not part.content:
        environment = base()
        while environment.digest != card.environment_digest and store.has(WITHDRAWN, environment.digest):
            # Tasks hidden before this holdout was sealed are no part of what it was taken from.
            withdrawn = store.get(WITHDRAWN, environment.digest, Withdrawn)
            environment = ReducedEnvironment(environment, withdrawn.hidden)
        return environment
    record = store.get(ENVIRONMENTS, card.environment, EnvironmentRecord)
    opened: Environment
    if record.kind == "foreign":
        opened = ForeignEnvironment(record.name, msgspec.json.decode(part.content, type=ForeignContent))
    else:
        opened = open_content(store, record, msgspec.json.decode(part.content, type=TracedContent))
    if part.checks:
        opened = DeclaredEnvironment(opened, msgspec.json.decode(part.checks, type=Declaration))
    return opened


def _look(store: Store, card: SealedHoldout, asked: Asked) -> tuple[int, LogEntry]:
    """The look's number and log entry: a new one, or the one that this candidate began and never ended."""
    entries = [e for e in AuditLog(store).verified() if e.subject == card.name and e.action in (OPEN, RESULT)]
    opened = [e for e in entries if e.action == OPEN]
    ended = {e.detail.get("look") for e in entries if e.action == RESULT}
    for number, entry in enumerate(opened[: card.looks], start=1):
        if number not in ended and entry.detail.get("candidate") == asked.candidate_digest:
            return number, entry
    detail = {
        "digest": card.digest,
        "candidate": asked.candidate_digest,
        "role": asked.role,
        "alpha": card.alpha / card.looks,
        "level": card.level,
    }
    entry = enter_look(store, card.name, actor=asked.actor, reason=asked.reason, looks=card.looks, detail=detail)
    number = 1 + sum(
        e.action == OPEN and e.subject == card.name and e.index < entry.index for e in AuditLog(store).verified()
    )
    return number, entry


def _keep_sealed(store: Store, key: HoldoutKey, run: EvaluationRun, attempts: list[Attempt]) -> None:
    data = msgspec.msgpack.encode((run, attempts))
    store.put(SEALED_ATTEMPTS, run.id, seal(data, key.secret, f"attempts of {run.id}"))


def _concluded(
    store: Store, card: SealedHoldout, run: EvaluationRun, look: int, entry: LogEntry, asked: Asked
) -> Acceptance:
    summary = summarise(run, level=card.level)
    accuracy = summary.measurement("success/weighted")
    found = Acceptance(
        id=run.id,
        suite=card.suite,
        holdout_digest=card.digest,
        policy=run.policy,
        candidate_digest=asked.candidate_digest,
        role=asked.role,
        reason=asked.reason,
        look=look,
        looks=card.looks,
        alpha=card.alpha / card.looks,
        accuracy=accuracy,
        measurements=summary.measurements,
        target=asked.target,
        accepted=None if asked.target is None else accuracy.low >= asked.target,
        num_missing=run.num_missing,
        num_unaudited=card.num_unaudited,
        run_digest=run.digest,
        entry=entry.digest,
        statement=SEALED_AGAINST if card.key_id else LISTED_ONLY,
        notes=(*summary.notes, *_unaudited(card)),
    )
    store.put(ACCEPTANCE_KIND, found.id, found)
    detail = {
        "look": look,
        "candidate": asked.candidate_digest,
        "run": run.digest,
        "success": accuracy.value,
        "low": accuracy.low,
        "high": accuracy.high,
        "accepted": found.accepted,
    }
    AuditLog(store).append(asked.actor, RESULT, card.name, detail)
    return found


def _unaudited(card: SealedHoldout) -> tuple[str, ...]:
    if not card.num_unaudited:
        return ()
    why = f" (override: {card.override_reason})" if card.override_reason else ""
    told = f"{card.num_unaudited} of {card.num_tasks} sealed tasks had no sound audit when they were sealed{why}"
    return (told,)
