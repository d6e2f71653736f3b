"""The gate at the start of training: nothing that will train is kin to what is or will be measured.

The pool of a freeze is clean by construction; this gate does not rely on that. What is about to be imitated or trained
on is compared with every suite of the workspace that is in use, by text, and with every sealed holdout of the
workspace, in counts, by a process that has the key. A suite that a newer version replaced is out of use, and so is one
whose environment has changed (every run on it is refused): their tasks may train.
"""

from __future__ import annotations

from collections.abc import Sequence

from flightschool.environments.opening import is_url, open_environment, reference_of
from flightschool.errors import FlightschoolError
from flightschool.evaluation import (
    Ancestry,
    SealedHoldout,
    SuiteDesign,
    load_sealed,
    refuse_kin,
    refuse_sealed_kin,
    suite_texts,
    task_texts,
)
from flightschool.governance import AuditLog, KeyRing
from flightschool.protocols import Environment, Store
from flightschool.records import Suite, Task
from flightschool.stations.telling import Tell
from flightschool.store import Workspace

__all__ = ["require_unseen"]

ACTION = "lineage check"


def require_unseen(space: Workspace, environment: Environment, tasks: Sequence[Task], run: str, tell: Tell) -> str:
    """Refuse to train on kin of what is measured; what was compared goes into the audit log, whose head is returned.

    Raises:
        GateError: names open tasks that have kin; of sealed ones the number alone.
        InfrastructureError: the counting process did not answer.
    """
    ancestry = Ancestry(statement=f"what {run} will train on", texts=task_texts(tasks))
    told = []
    for suite in _not_replaced(space.store):
        world = _world_of(suite, environment, space)
        if isinstance(world, str):
            told.append(f"{suite.name}: not compared, {world}")
            continue
        refuse_kin(suite, suite_texts(suite, world), ancestry)
        told.append(f"{suite.name}: {len(ancestry.texts)} texts compared, none is kin")
    ring = KeyRing(outside=space.root)
    for name in space.store.keys("sealed-holdout"):
        card: SealedHoldout = load_sealed(space.store, name)
        told.append(refuse_sealed_kin(card, ancestry, ring))
    AuditLog(space.store).append("train", ACTION, run, {"num_texts": len(ancestry.texts), "compared": told})
    for line in told:
        tell.note(f"lineage: {line}")
    return AuditLog(space.store).head().digest


def _not_replaced(store: Store) -> list[Suite]:
    replaced = {design.follows for _, design in store.items("suite-design", SuiteDesign)}
    return [suite for _, suite in store.items("suite", Suite) if suite.name not in replaced]


def _world_of(suite: Suite, environment: Environment, space: Workspace) -> Environment | str:
    """The environment of a suite as it was frozen; or why it cannot be had, in words.

    No server is asked: a training must not wait on one, nor change with what it answers.
    """
    name, digest = suite.environment, suite.environment_digest
    if (name, digest) == (environment.name, environment.digest):
        return environment
    reference = reference_of(name, digest, space)
    if is_url(reference):
        return f"its tasks lie on a server ({reference})"
    try:
        found = open_environment(reference, space, folders=True)
    except FlightschoolError as error:
        return f"its environment {name!r} cannot be opened ({error.what})"
    return found if found.digest == digest else f"its environment {name!r} has changed, so it is out of use"
