"""Drafts in the workspace, and what becomes of an environment when one is signed.

A signed check joins the reference of its task (or of every task), under the name of whoever signed. A task that waited
for a reference becomes a task with its first signed check that something must be done. The environment has another
digest then: what was audited or frozen before was another environment.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import msgspec

from flightschool.digest import canonical_json
from flightschool.environments.declared import refuse_unknown_tools
from flightschool.environments.drafting import DraftCheck
from flightschool.environments.registry import EnvironmentRecord, load_record, open_content, replace_content
from flightschool.environments.traced import TracedContent, Waiting
from flightschool.errors import InputError
from flightschool.protocols import Store
from flightschool.records import CheckKind, CheckSpec, Record, Reference, Task
from flightschool.verification import CheckVerifier

__all__ = ["decide", "load_drafts", "save_drafts"]

_KIND = "draft-checks"


class Drafts(Record, frozen=True, kw_only=True):
    """All drafts of one environment."""

    environment: str
    checks: tuple[DraftCheck, ...]


def save_drafts(store: Store, environment: str, checks: Sequence[DraftCheck]) -> tuple[DraftCheck, ...]:
    """Keep proposals; those that were decided before keep their decision."""
    decided = {one.id: one for one in load_drafts(store, environment) if one.status != "draft"}
    kept = tuple(decided.pop(one.id, one) for one in checks)
    whole = (*kept, *decided.values())
    store.put(_KIND, environment, Drafts(environment=environment, checks=whole))
    return whole


def load_drafts(store: Store, environment: str) -> tuple[DraftCheck, ...]:
    """The drafts of an environment; none if there never were any."""
    return store.get(_KIND, environment, Drafts).checks if store.has(_KIND, environment) else ()


def decide(
    store: Store,
    environment: str,
    draft_id: str,
    *,
    sign: bool,
    by: str,
    reason: str,
    edited: CheckSpec | None = None,
) -> DraftCheck:
    """Sign or reject a draft; a signed one is put into the environment.

    Args:
        store: the workspace's store.
        environment: name of the environment.
        draft_id: which draft.
        sign: whether it is signed; else it is rejected.
        by: who decides.
        reason: why.
        edited: the check as the person wants it, instead of the proposed one.

    Raises:
        InputError: no such draft, a decision that was made before, a sentence without a check, an empty reason.
        ConfigError: the check is about a tool that the environment does not have.
    """
    drafts = load_drafts(store, environment)
    found = next((one for one in drafts if one.id == draft_id), None)
    problem = _problem(found, sign, edited, reason)
    if found is None or problem:
        raise InputError(
            problem or f"there is no draft {draft_id!r}",
            where=f"drafts of {environment}",
            expected="the id of an open draft, and a reason",
            mend=f"see them with: flightschool review drafts {environment}",
        )
    check = edited or found.check
    if sign and check is not None:
        signed = msgspec.structs.replace(check, author=by)
        CheckVerifier((signed,))  # refuses what could never pass or never fail
        _put_in(store, load_record(store, environment), found, signed)
        found = msgspec.structs.replace(found, check=signed)
    decided = msgspec.structs.replace(found, status="signed" if sign else "rejected", by=by, reason=reason.strip())
    rest = tuple(decided if one.id == draft_id else one for one in drafts)
    store.put(_KIND, environment, Drafts(environment=environment, checks=rest))
    return decided


def _problem(found: DraftCheck | None, sign: bool, edited: CheckSpec | None, reason: str) -> str:
    if found is None:
        return ""
    if found.status != "draft":
        return f"draft {found.id!r} was {found.status} by {found.by}"
    if sign and found.check is None and edited is None:
        return f"draft {found.id!r} is a sentence without a check: write one and give it with --edit"
    return "" if reason.strip() else "a decision needs a reason"


def _put_in(store: Store, record: EnvironmentRecord, draft: DraftCheck, check: CheckSpec) -> None:
    if not record.content:
        raise InputError(
            "this environment's checks are its own code's",
            where=record.name,
            expected="an environment from recordings or tool functions",
            mend="change the code",
        )
    content = msgspec.convert(json.loads(store.get_blob(record.content)), TracedContent)
    content = _with_check(content, draft, check)
    opened = open_content(store, record, content)
    refuse_unknown_tools([check], [tool.name for tool in opened.tools()])
    replace_content(store, record, opened, canonical_json(content))


def _with_check(content: TracedContent, draft: DraftCheck, check: CheckSpec) -> TracedContent:
    references = tuple(_joined(one, check) if draft.task in ("", one.task_id) else one for one in content.references)
    promoted = [one for one in content.waiting if one.task.id == draft.task and check.kind is CheckKind.FUNCTIONAL]
    waiting = tuple(one for one in content.waiting if one not in promoted)
    tasks = (*content.tasks, *(_placed(one, content) for one in promoted))
    references += tuple(Reference(task_id=one.task.id, checks=(check,), oracle=one.acts or ()) for one in promoted)
    return msgspec.structs.replace(content, tasks=tasks, references=references, waiting=waiting)


def _placed(waiting: Waiting, content: TracedContent) -> Task:
    """The task in a stratum that the environment has; one of its own would change the shares of traffic."""
    stratum = waiting.task.stratum
    known = stratum if stratum in content.strata else next(iter(content.strata))
    return msgspec.structs.replace(waiting.task, stratum=known)


def _joined(reference: Reference, check: CheckSpec) -> Reference:
    taken = {one.id for one in reference.checks}
    name, number = check.id, 2
    while name in taken:
        name, number = f"{check.id}-{number}", number + 1
    return msgspec.structs.replace(reference, checks=(*reference.checks, msgspec.structs.replace(check, id=name)))
