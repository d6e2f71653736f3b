"""Frozen suites in the workspace: kept once, checked at every use, and the holdout behind a lock that remembers.

A suite cannot be overwritten: a changed suite is another suite and needs another name. The holdout is kept apart;
whoever opens it leaves name and reason in the audit log *before* it is handed out, since each look at it spends some of
its power to surprise.
"""

from __future__ import annotations

from collections.abc import Mapping

from flightschool.errors import GateError, InputError, NotFoundError
from flightschool.evaluation.design import SuiteDesign, require_design
from flightschool.evaluation.records import Frozen, Pool
from flightschool.governance import AuditLog, require_not_withdrawn
from flightschool.protocols import Environment, Store
from flightschool.records import Json, LogEntry, Suite

__all__ = [
    "DEFAULT_LOOKS",
    "enter_look",
    "load_design",
    "load_pool",
    "load_suite",
    "num_looks",
    "open_holdout",
    "require_logged",
    "require_unchanged",
    "save_design",
    "save_frozen",
    "save_suite",
]

SUITE_KIND = "suite"
HOLDOUT_KIND = "holdout"
POOL_KIND = "pool"
DESIGN_KIND = "suite-design"
FREEZE = "freeze suite"
DESIGN = "design suite"
OPEN = "open holdout"
MOST_NAMED = 12
DEFAULT_LOOKS = 3
"""Looks at a holdout unless the freeze says otherwise."""


def save_design(store: Store, design: SuiteDesign, *, actor: str = "freeze") -> None:
    """Keep the design of a frozen suite, its digest in the audit log. A design is never overwritten."""
    if not store.has(DESIGN_KIND, design.suite):
        AuditLog(store).append(actor, DESIGN, design.suite, {"digest": design.digest, "suite": design.suite_digest})
        store.put(DESIGN_KIND, design.suite, design)


def load_design(store: Store, name: str) -> SuiteDesign | None:
    """The design of a suite; None for one that was frozen without.

    Raises:
        GateError: it is not the one that the audit log saw.
    """
    logged = [e.detail["digest"] for e in AuditLog(store).verified() if e.action == DESIGN and e.subject == name]
    design = store.get(DESIGN_KIND, name, SuiteDesign) if store.has(DESIGN_KIND, name) else None
    if logged != ([design.digest] if design is not None else []):
        raise GateError(
            f"the design of suite {name!r} is not the one that the audit log saw frozen",
            where=f"suite {name}",
            expected=f"digest {logged[0]}" if logged else "a design in the audit log",
            mend="restore the workspace from a copy; find out who changed the record",
        )
    return design


def save_frozen(store: Store, frozen: Frozen, *, actor: str = "freeze") -> None:
    """Keep a freeze whole: suite, holdout and pool, and a line in the audit log.

    Raises:
        GateError: a suite of this name is frozen already and differs, or the environment still holds what was sealed
            from it; nothing is written then.
    """
    require_not_withdrawn(store, frozen.suite.environment_digest)
    suites = [suite for suite in (frozen.suite, frozen.holdout) if suite is not None]
    if all(_is_kept(store, suite) for suite in suites):
        return
    pool = Pool(suite=frozen.suite.name, suite_digest=frozen.suite.digest, tasks=frozen.pool)
    store.put(POOL_KIND, frozen.suite.name, pool)  # before the suite: a suite without its pool would be no freeze
    for suite in suites:
        save_suite(store, suite, actor=actor)


def save_suite(store: Store, suite: Suite, *, actor: str = "freeze") -> None:
    """Keep one suite (or holdout). Saving the same content again changes nothing, not even its time.

    Raises:
        GateError: a suite of this name is frozen already and differs.
    """
    if _is_kept(store, suite):
        return
    detail = {"digest": suite.digest, "num_tasks": len(suite.task_digests), "holdout": suite.holdout}
    AuditLog(store).append(actor, FREEZE, suite.name, detail)
    store.put(_kind(suite), suite.name, suite)


def load_suite(store: Store, name: str, environment: Environment) -> Suite:
    """A frozen suite whose tasks are still what they were.

    Raises:
        NotFoundError: no suite of this name.
        GateError: it is a sealed holdout, the record or the environment has changed since the freeze.
    """
    if not store.has(SUITE_KIND, name) and store.has(HOLDOUT_KIND, name):
        raise GateError(
            f"{name!r} is a sealed holdout",
            where=f"suite {name}",
            expected="open_holdout with a name and a reason",
            mend="measure on the suite; open the holdout for acceptance alone",
        )
    suite = store.get(SUITE_KIND, name, Suite)
    require_logged(store, suite)
    design = load_design(store, name) if environment.digest != suite.environment_digest else None
    if design is not None:  # it knows what differs, task by task and part by part
        require_design(design, suite, environment)
    require_unchanged(suite, environment)
    return suite


def load_pool(store: Store, name: str) -> Pool:
    """The tasks left to train on by the freeze of this suite. Raises ``NotFoundError``."""
    return store.get(POOL_KIND, name, Pool)


def open_holdout(
    store: Store, name: str, environment: Environment, *, actor: str, reason: str, looks: int = DEFAULT_LOOKS
) -> Suite:
    """Open a holdout that is listed but not encrypted; the audit log is written first.

    Args:
        store: the workspace's store.
        name: name of the holdout (``SUITE-holdout``).
        environment: must still be what was frozen.
        actor: who opens it.
        reason: why.
        looks: budget of looks.

    Raises:
        InputError: no actor or no reason.
        NotFoundError: no holdout of this name.
        GateError: the record or the environment has changed since the freeze, or the looks are spent.
    """
    holdout = store.get(HOLDOUT_KIND, name, Suite)
    require_logged(store, holdout)
    require_unchanged(holdout, environment)
    enter_look(store, name, actor=actor, reason=reason, looks=looks, detail={"digest": holdout.digest})
    return holdout


def enter_look(store: Store, name: str, *, actor: str, reason: str, looks: int, detail: Mapping[str, Json]) -> LogEntry:
    """Write a look at a holdout to the log, before anything is shown.

    The log orders the looks of all processes: who comes after the budget is spent finds itself behind it.

    Raises:
        InputError: no actor or no reason.
        GateError: the budget is spent.
    """
    if not actor.strip() or not reason.strip():
        raise InputError(
            "a holdout is opened by a person for a reason",
            where=f"holdout {name}",
            expected="actor and reason",
            mend="give both; they are written to the audit log",
        )
    if num_looks(store, name) >= looks:
        raise _spent(name, looks)
    log = AuditLog(store)
    entry = log.append(actor, OPEN, name, {"reason": reason, "budget": looks, **detail})
    before = sum(e.action == OPEN and e.subject == name and e.index < entry.index for e in log.verified())
    if before >= looks:
        raise _spent(name, looks)
    return entry


def _spent(name: str, looks: int) -> GateError:
    return GateError(
        f"the holdout {name!r} was looked at {looks} times: its budget is spent",
        where=f"holdout {name}",
        expected=f"at most {looks} looks, as set at the freeze",
        mend="seal a new holdout from tasks that nobody has seen; more looks at this one would prove nothing",
    )


def num_looks(store: Store, name: str) -> int:
    """How often a holdout was opened so far."""
    return sum(entry.action == OPEN and entry.subject == name for entry in AuditLog(store).verified())


def require_unchanged(suite: Suite, environment: Environment) -> None:
    """Refuse to measure on anything but what was frozen.

    Raises:
        GateError: names the tasks that changed or vanished, or says that what surrounds them changed.
    """
    drifted = [task_id for task_id, digest in suite.task_digests.items() if _digest_now(environment, task_id) != digest]
    if drifted:
        more = f" and {len(drifted) - MOST_NAMED} more" if len(drifted) > MOST_NAMED else ""
        what = f"{len(drifted)} task(s) changed since the freeze: {', '.join(drifted[:MOST_NAMED])}{more}"
    elif environment.digest != suite.environment_digest:
        what = "the environment changed since the freeze (its tools, checks, permissions, states or other tasks)"
    else:
        return
    raise GateError(
        what,
        where=f"suite {suite.name}, environment {environment.name}",
        expected=f"environment {suite.environment_digest[:19]}…",
        mend="restore the environment, or freeze anew under another name",
    )


def require_logged(store: Store, suite: Suite) -> None:
    """The chained log, not the record alone, says what was frozen. Raises ``GateError``."""
    frozen = [e.detail["digest"] for e in AuditLog(store).verified() if e.action == FREEZE and e.subject == suite.name]
    if suite.digest not in frozen[-1:]:
        raise GateError(
            f"suite {suite.name!r} is not the one that the audit log saw frozen",
            where=f"suite {suite.name}",
            expected=f"digest {frozen[-1]}" if frozen else "a freeze in the audit log",
            mend="freeze anew under another name; find out who changed the record",
        )


def _digest_now(environment: Environment, task_id: str) -> str:
    try:
        return environment.task(task_id).digest
    except NotFoundError:
        return ""


def _kind(suite: Suite) -> str:
    return HOLDOUT_KIND if suite.holdout else SUITE_KIND


def _is_kept(store: Store, suite: Suite) -> bool:
    """Whether exactly this suite is kept; raises if another one is kept under its name."""
    for kind in (SUITE_KIND, HOLDOUT_KIND):
        if not store.has(kind, suite.name):
            continue
        kept = store.get(kind, suite.name, Suite)
        if kept.digest != suite.digest:
            raise GateError(
                f"a suite named {suite.name!r} is frozen already",
                where=f"suite {suite.name}, frozen at {kept.frozen_at}",
                expected="environment, seed, strata and fractions as then, or a new name: what is frozen stays",
                mend="take back what changed, or choose another name (--name of eval freeze, name of [suite] in a job)",
            )
        return True
    return False
