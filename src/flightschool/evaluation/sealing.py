"""Sealing a holdout: its tasks leave the workspace for one encrypted box, and what is left is another environment.

What moves into the box: the tasks with references and recordings, the recorded episodes they came from, and every
record or blob that speaks about them (attempts, audits, end states). Then the old bytes are overwritten, and all of
the workspace is searched once more. Files that the workspace did not write itself are not deleted behind anyone's
back: sealing refuses and names them.

The order makes a kill harmless: key, log entry, then box and remainder in one transaction, then the erasure, whose
list lies in the box. ``finish_sealing`` goes on from there.

Sealed against accident, not against the operator: on one account, who can run this program can read the key.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from flightschool.environments import EnvironmentRecord
from flightschool.environments.packages import edited_files, refresh_package
from flightschool.environments.terminal import PackedFolders, TerminalFolders, pack_folders, take_folders_away
from flightschool.errors import GateError, InputError
from flightschool.evaluation.needles import Needles
from flightschool.evaluation.records import Frozen, Pool
from flightschool.evaluation.sealed import SEALED_KIND, SealedHoldout, SealedPart, Terms, unseal_part
from flightschool.evaluation.suites import FREEZE, HOLDOUT_KIND, POOL_KIND, SUITE_KIND
from flightschool.evaluation.sweeping import (
    ENVIRONMENTS,
    TRACES,
    Remainder,
    Sweep,
    files_with,
    kept_record,
    own_package,
    refuse_stuck,
    remainder_of,
    require_gone,
)
from flightschool.governance import (
    AuditLog,
    HoldoutKey,
    KeyRing,
    Withdrawn,
    override,
    seal,
    withdraw,
)
from flightschool.lineage import sign
from flightschool.protocols import Environment
from flightschool.records import Suite, Task
from flightschool.store import SqlStore, erase
from flightschool.traces import TraceRecord

__all__ = ["finish_sealing", "seal_holdout"]

SEAL = "seal holdout"
FEWEST_TASKS = 2


def seal_holdout(
    store: SqlStore,
    frozen: Frozen,
    environment: Environment,
    *,
    ring: KeyRing,
    actor: str,
    terms: Terms | None = None,
    root: Path | None = None,
    unaudited: Callable[[Sequence[Task]], Sequence[str]] | None = None,
    override_reason: str = "",
) -> tuple[Frozen, SealedHoldout]:
    """Keep a freeze with its holdout sealed.

    Args:
        store: the workspace's store.
        frozen: a freeze with a holdout, not yet kept.
        environment: what it was taken from, whole.
        ring: gets the key.
        actor: who seals.
        terms: role, looks and alpha.
        root: folder of the workspace, whose files are searched.
        unaudited: tells which tasks have no sound audit; by default none has one.
        override_reason: why tasks without a sound audit are sealed all the same; written to the audit log.

    Returns:
        The freeze as kept (its suite belongs to the environment that is left) and the card of the sealed part.

    Raises:
        InputError: no holdout, or too small a one.
        GateError: a task's verifier was not audited and nobody gives a reason; a name is taken, the environment was
            withdrawn before, or sealed text lies where it cannot be moved from. Nothing has changed then.
        StoreError: sealed text is still found after everything was done.
    """
    terms = terms or Terms()
    holdout = _checked(store, frozen, environment)
    tasks = [environment.task(task_id) for task_id in holdout.task_digests]
    packed = pack_folders(environment, list(holdout.task_digests)) if isinstance(environment, TerminalFolders) else None
    open_ = [task.id for task in tasks] if unaudited is None else list(unaudited(tasks))
    _require_audited(holdout, open_, override_reason)
    needles = Needles(environment, tasks)
    kept = kept_record(store, environment)
    remainder = remainder_of(store, environment, kept, tasks, needles)
    sweep = _swept(store, environment, remainder, kept, needles, root, packed)
    if open_:
        override(AuditLog(store), "audit before sealing", _unaudited_words(holdout, open_), actor, override_reason)
    key = ring.create(holdout.name, role=terms.role, budget=terms.looks)
    part = _part_of(store, holdout, kept, packed, sweep, remainder)
    card = _card_of(frozen, environment, remainder, part, key, tasks, terms, open_, override_reason)
    suite = msgspec.structs.replace(frozen.suite, environment_digest=remainder.digest)
    _log(AuditLog(store), actor, suite, card)
    pool = Pool(suite=suite.name, suite_digest=suite.digest, tasks=frozen.pool)
    _write(store, environment, remainder, sweep, suite, pool, card)
    moved = kept is not None or packed is not None
    _withdraw(store, environment, card, () if moved else tuple(task.digest for task in tasks))
    card = finish_sealing(store, card.name, key, root)
    require_gone(store, needles, root)
    return msgspec.structs.replace(frozen, suite=suite, holdout=holdout), card


def finish_sealing(store: SqlStore, name: str, key: HoldoutKey, root: Path | None = None) -> SealedHoldout:
    """Erase what was sealed, however far that had come, and write the environment's package anew without it.

    Args:
        store: the workspace's store.
        name: the sealed holdout.
        key: its key.
        root: folder of the workspace, where the package is found.

    Raises:
        NotFoundError: nothing was sealed under this name.
        GateError: another key, or a changed box.
    """
    card = store.get(SEALED_KIND, name, SealedHoldout)
    if card.complete:
        return card
    part = unseal_part(card, key)
    if part.folders is not None:
        take_folders_away(part.folders)
    erase(store, part.erased_records, part.erased_blobs)
    if root is not None and store.has(ENVIRONMENTS, card.environment):
        refresh_package(store, root, store.get(ENVIRONMENTS, card.environment, EnvironmentRecord))
    card = msgspec.structs.replace(card, complete=True)
    store.put(SEALED_KIND, name, card)
    return card


# ------------------------------------------------------------------------------------------------ parts


def _checked(store: SqlStore, frozen: Frozen, environment: Environment) -> Suite:
    holdout = frozen.holdout
    if holdout is None:
        raise InputError(
            "nothing to seal",
            where="seal_holdout",
            expected="a holdout",
            mend="freeze with a holdout fraction above 0",
        )
    if len(holdout.task_digests) < FEWEST_TASKS:
        raise InputError(
            f"a holdout of {len(holdout.task_digests)} task gives no interval",
            where=f"holdout {holdout.name}",
            expected=f"at least {FEWEST_TASKS} tasks",
            mend="raise the holdout fraction",
        )
    for kind, name in ((SUITE_KIND, frozen.suite.name), (HOLDOUT_KIND, holdout.name), (SEALED_KIND, holdout.name)):
        if store.has(kind, name):
            raise GateError(
                f"{name!r} is frozen already",
                where=f"{kind} {name}",
                expected="a new name: neither a frozen suite nor a sealed holdout is ever overwritten",
                mend="choose another name",
            )
    if frozen.suite.environment_digest != environment.digest:
        raise GateError(
            "the freeze was taken from another environment",
            where=f"suite {frozen.suite.name}",
            expected=f"environment {environment.digest[:19]}…",
            mend="freeze and seal in one go",
        )
    return holdout


def _require_audited(holdout: Suite, open_: Sequence[str], reason: str) -> None:
    """What is sealed can no longer be audited, so it must have been before, or somebody answers for it."""
    if open_ and not reason.strip():
        raise GateError(
            _unaudited_words(holdout, open_),  # counts alone: the names would be told of what is to be sealed
            where=f"holdout {holdout.name}",
            expected="a sound audit of every task that is sealed: afterwards none is possible",
            mend=f"run flightschool audit {holdout.environment} first, or override with a reason, which is logged",
        )


def _unaudited_words(holdout: Suite, open_: Sequence[str]) -> str:
    return f"{len(open_)} of {len(holdout.task_digests)} tasks to be sealed have no sound audit"


def _part_of(
    store: SqlStore,
    holdout: Suite,
    kept: EnvironmentRecord | None,
    packed: PackedFolders | None,
    sweep: Sweep,
    remainder: Remainder,
) -> SealedPart:
    """What goes into the box, with the list of what is erased once it is there."""
    return SealedPart(
        suite=holdout,
        content=store.get_blob(kept.content) if kept is not None else b"",
        checks=store.get_blob(kept.checks) if kept is not None and kept.checks else b"",
        folders=packed,
        moved=tuple(sweep.moved),
        erased_records=tuple((row.kind, row.key) for row in sweep.moved if row.kind != "blob"),
        erased_blobs=tuple(sweep.blobs | ({kept.content, *remainder.outdated} if kept is not None else set())),
    )


def _swept(
    store: SqlStore,
    environment: Environment,
    remainder: Remainder,
    kept: EnvironmentRecord | None,
    needles: Needles,
    root: Path | None,
    packed: PackedFolders | None,
) -> Sweep:
    """Where sealed text lies. Raises ``GateError`` naming places that it cannot be moved from."""
    sweep = Sweep(store, needles, kept)
    if remainder.record is not None and needles.in_value(msgspec.to_builtins(remainder.record)):
        sweep.stuck.append(f"the inventory of environment {environment.name!r}")
    package = own_package(store, environment, root)
    if package is not None and edited_files(package):
        sweep.stuck.append(f"the package {package}, which was changed by hand")
    own = [] if packed is None else [Path(packed.root, task_id) for task_id in packed.task_ids]
    refuse_stuck(sweep.stuck, files_with(needles, root, store, package, besides=own))
    return sweep


def _card_of(
    frozen: Frozen,
    environment: Environment,
    remainder: Remainder,
    part: SealedPart,
    key: HoldoutKey,
    tasks: Sequence[Task],
    terms: Terms,
    open_: Sequence[str],
    override_reason: str,
) -> SealedHoldout:
    holdout = part.suite
    signed = [sign(task.instruction, key.secret, task.guidance) for task in tasks]
    return SealedHoldout(
        name=holdout.name,
        suite=frozen.suite.name,
        environment=environment.name,
        environment_digest=environment.digest,
        successor=remainder.digest,
        digest=holdout.digest,
        num_tasks=len(tasks),
        num_unaudited=len(open_),
        override_reason=override_reason.strip() if open_ else "",
        strata={share.name: share.num_tasks for share in holdout.strata},
        looks=terms.looks,
        alpha=terms.alpha,
        role=terms.role,
        key_id=key.id,
        box=seal(msgspec.msgpack.encode(part), key.secret, f"holdout {holdout.name}"),
        signatures=tuple(sorted(signed, key=lambda one: one.exact)),
        complete=False,
        sealed_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _write(
    store: SqlStore,
    environment: Environment,
    remainder: Remainder,
    sweep: Sweep,
    suite: Suite,
    pool: Pool,
    card: SealedHoldout,
) -> None:
    """Box and remainder go in together or not at all."""
    rows: list[tuple[str, str, msgspec.Struct]] = [
        (POOL_KIND, suite.name, pool),
        (SUITE_KIND, suite.name, suite),
        (SEALED_KIND, card.name, card),
        *sweep.rewritten,
    ]
    record = remainder.record
    if record is not None:
        split = next((row for kind, key, row in sweep.rewritten if kind == TRACES and key == record.traces), None)
        if isinstance(split, TraceRecord):  # it is still measured against its recordings, the sealed ones apart
            record = msgspec.structs.replace(record, traces_digest=split.blob)
        rows.append((ENVIRONMENTS, environment.name, record))
    store.put_many(rows)


def _withdraw(store: SqlStore, environment: Environment, card: SealedHoldout, hidden: tuple[str, ...]) -> None:
    old = Withdrawn(
        environment=environment.name,
        digest=environment.digest,
        successor=card.successor,
        holdout=card.name,
        hidden=hidden,
    )
    withdraw(store, old)


def _log(log: AuditLog, actor: str, suite: Suite, card: SealedHoldout) -> None:
    log.append(
        actor, FREEZE, suite.name, {"digest": suite.digest, "num_tasks": len(suite.task_digests), "holdout": False}
    )
    detail = {
        "digest": card.digest,
        "num_tasks": card.num_tasks,
        "num_unaudited": card.num_unaudited,
        "environment": card.environment_digest,
        "successor": card.successor,
        "looks": card.looks,
        "alpha": card.alpha,
        "role": card.role,
        "key": card.key_id,
    }
    log.append(actor, SEAL, card.name, detail)
