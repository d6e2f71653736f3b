"""The gate at the start of training: nothing that will train is measured, nor kin to what is or will be.

The pool of a freeze is clean by construction; this gate does not rely on that. What is about to be imitated or trained
on is compared with every suite and listed holdout of the workspace that is in use: by digest, which needs no
environment, and by text, from what the freeze kept. Sealed holdouts are compared in counts, by a process that has the
key. A suite that a newer version replaced is out of use: its tasks may train.

What cannot be compared refuses the training, unless a person names it with a reason (``[uncompared]``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flightschool.environments.opening import is_url, open_environment, reference_of
from flightschool.errors import FlightschoolError, GateError, InputError
from flightschool.evaluation import (
    Ancestry,
    SealedHoldout,
    SuiteDesign,
    frozen_tasks,
    load_sealed,
    load_texts,
    refuse_kin,
    refuse_measured,
    refuse_sealed_kin,
    save_texts,
    task_texts,
)
from flightschool.governance import AuditLog, KeyRing, override
from flightschool.lineage import Text
from flightschool.protocols import Environment, Store
from flightschool.records import Suite, Task
from flightschool.stations.settings import UncomparedTable
from flightschool.stations.telling import Tell
from flightschool.store import Workspace

__all__ = ["require_unseen"]

ACTION = "lineage check"
GATE = "lineage"
MOST_NAMED = 8


def require_unseen(
    space: Workspace,
    environment: Environment,
    tasks: Sequence[Task],
    run: str,
    tell: Tell,
    uncompared: UncomparedTable | None = None,
) -> str:
    """Refuse to train on what is measured and on its kin.

    What was compared goes into the audit log, whose head is returned.

    Args:
        space: the workspace whose suites and holdouts are compared.
        environment: of the training.
        tasks: what will be imitated or trained on.
        run: name of the run, for the log.
        tell: is told what was compared.
        uncompared: suites and holdouts that need not be compared where that cannot be done, with name and reason.

    Raises:
        InputError: ``uncompared`` names what is no suite or holdout in use.
        GateError: names open tasks that would train, or have kin; of sealed ones the number alone. Or names what
            cannot be compared.
        InfrastructureError: the counting process did not answer.
    """
    waived = uncompared or UncomparedTable()
    ancestry = Ancestry(statement=f"what {run} will train on", texts=task_texts(tasks))
    suites, sealed = _not_replaced(space.store), space.store.keys("sealed-holdout")
    _refuse_unknown(waived, [*(suite.name for suite in suites), *sealed])
    for suite in suites:
        refuse_measured(suite, tasks, where=ancestry.statement)
    told: dict[str, str] = {}
    barred: dict[str, str] = {}
    for suite in suites:
        texts = _texts_of(suite, environment, space)
        if isinstance(texts, str):
            barred[suite.name] = texts
            continue
        refuse_kin(suite, texts, ancestry)
        told[suite.name] = f"{len(ancestry.texts)} texts compared, none is kin"
    ring = KeyRing(outside=space.root)
    for name in sealed:
        card: SealedHoldout = load_sealed(space.store, name)
        if ring.has(card.key_id):
            told[name] = refuse_sealed_kin(card, ancestry, ring)
        else:
            barred[name] = f"its key is not on this machine (role {card.role} holds it)"
    _refuse_uncompared(barred, waived, ancestry.statement)
    told |= _let_pass(space.store, barred, waived)
    lines = [f"{name}: {line}" for name, line in told.items()]
    AuditLog(space.store).append("train", ACTION, run, {"num_texts": len(ancestry.texts), "compared": lines})
    for line in lines:
        tell.note(f"lineage: {line}")
    return AuditLog(space.store).head().digest


def _not_replaced(store: Store) -> list[Suite]:
    replaced = {design.follows for _, design in store.items("suite-design", SuiteDesign)}
    found = [suite for kind in ("suite", "holdout") for _, suite in store.items(kind, Suite)]
    return [suite for suite in found if suite.name not in replaced]


def _texts_of(suite: Suite, environment: Environment, space: Workspace) -> Sequence[Text] | str:
    """The texts of a suite as its freeze kept them, else as its environment has them; or why they cannot be had.

    A suite of before texts were kept gets them as soon as its environment is met with every task unchanged. No server
    is asked: a training must not wait on one, nor change with what it answers.
    """
    kept = load_texts(space.store, suite)
    if kept is not None:
        return kept
    world = _world_of(suite, environment, space)
    if isinstance(world, str):
        return f"no texts of its tasks are kept, and {world}"
    if not save_texts(space.store, suite, world, actor="train"):
        missing = len(suite.task_digests) - len(frozen_tasks(suite, world))
        return (
            f"no texts of its tasks are kept, and its environment {suite.environment!r} has changed: "
            f"{missing} of {len(suite.task_digests)} tasks are gone or differ"
        )
    return load_texts(space.store, suite) or ()


def _world_of(suite: Suite, environment: Environment, space: Workspace) -> Environment | str:
    """The environment of a suite as it is now; or why it cannot be had, in words."""
    name, digest = suite.environment, suite.environment_digest
    if (name, digest) == (environment.name, environment.digest):
        return environment
    reference = reference_of(name, digest, space)
    if is_url(reference):
        return f"they lie on a server ({reference})"
    try:
        return open_environment(reference, space, folders=True)
    except FlightschoolError as error:
        return f"its environment {name!r} cannot be opened ({error.what})"


def _refuse_unknown(waived: UncomparedTable, known: Sequence[str]) -> None:
    strange = [name for name in waived.suites if name not in known]
    if strange:
        raise InputError(
            f"{strange[0]!r} is to go uncompared, and is no suite or holdout in use",
            where="uncompared.suites",
            expected=", ".join(known) or "suites of this workspace; it has none",
            mend="correct the name, or leave it out",
        )


def _refuse_uncompared(barred: Mapping[str, str], waived: UncomparedTable, where: str) -> None:
    """Refuse what cannot be compared and nobody answers for. Raises ``GateError``."""
    open_ = [f"{name}: {why}" for name, why in barred.items() if name not in waived.suites]
    if open_:
        more = f"; and {len(open_) - MOST_NAMED} more" if len(open_) > MOST_NAMED else ""
        raise GateError(
            f"{len(open_)} suite(s) cannot be compared with what would train: {'; '.join(open_[:MOST_NAMED])}{more}",
            where=where,
            expected="texts kept by the freeze, an environment that holds the frozen tasks, or the key of a holdout",
            mend="bring environment or key here once, or answer for it: name it in [uncompared] suites, with name and "
            "reason",
        )


def _let_pass(store: Store, barred: Mapping[str, str], waived: UncomparedTable) -> dict[str, str]:
    """What is told of suites that go uncompared; each is an override in the audit log."""
    told = {}
    for name, why in barred.items():
        override(AuditLog(store), GATE, name, waived.name, waived.reason)
        told[name] = f"NOT compared, {why}; {waived.name} answers for it: {waived.reason}"
    return told
