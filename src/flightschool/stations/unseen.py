"""The gate at the start of training: nothing that will train is kin to what is or will be measured.

The pool of a freeze is clean by construction; this gate does not rely on that. What is about to be imitated or trained
on is compared with every suite of this environment that is in use, by text, and with every sealed holdout of the
workspace, in counts, by a process that has the key. A suite that a newer version replaced is out of use: its tasks may
train.
"""

from __future__ import annotations

from collections.abc import Sequence

from flightschool.evaluation import (
    Ancestry,
    SealedHoldout,
    SuiteDesign,
    load_sealed,
    refuse_kin,
    refuse_sealed_kin,
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
    for suite in _in_use(space.store, environment):
        refuse_kin(suite, environment, ancestry)
        told.append(f"{suite.name}: {len(ancestry.texts)} texts compared, none is kin")
    ring = KeyRing(outside=space.root)
    for name in space.store.keys("sealed-holdout"):
        card: SealedHoldout = load_sealed(space.store, name)
        told.append(refuse_sealed_kin(card, ancestry, ring))
    AuditLog(space.store).append("train", ACTION, run, {"num_texts": len(ancestry.texts), "compared": told})
    for line in told:
        tell.note(f"lineage: {line}")
    return AuditLog(space.store).head().digest


def _in_use(store: Store, environment: Environment) -> list[Suite]:
    replaced = {design.follows for _, design in store.items("suite-design", SuiteDesign)}
    suites = [suite for _, suite in store.items("suite", Suite)]
    return [
        suite
        for suite in suites
        if suite.name not in replaced
        and suite.environment == environment.name
        and suite.environment_digest == environment.digest
    ]
