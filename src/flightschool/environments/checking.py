"""Checks that every environment must pass, whoever built it.

They are about the environment, not about the policy: fresh worlds are equal, reads change nothing and repeat
themselves, what was written is there, equal calls give equal worlds, and the oracle still solves its task. A finding
that is *barring* means that no reward of this environment can be trusted.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Sequence

from flightschool.digest import digest as content_digest
from flightschool.environments.driving import call_now
from flightschool.environments.recorded import NOT_RECORDED
from flightschool.errors import InfrastructureError
from flightschool.protocols import Environment, WorldReply
from flightschool.records import CheckKind, Effect, Evidence, Finding, Reference, Severity, Task, ToolCall
from flightschool.tools import ToolBoundary
from flightschool.tools.boundary import render_reply
from flightschool.verification import CheckVerifier, tools_in

__all__ = ["check_environment"]


def check_environment(environment: Environment, *, max_tasks: int | None = None) -> list[Finding]:
    """All findings, in the order of the tasks; empty when nothing is wrong.

    Args:
        environment: what to examine.
        max_tasks: examine the first tasks only; None means all.
    """
    effects = {spec.name: spec.effect for spec in environment.tools()}
    tasks = list(environment.tasks())
    findings = list(_shape(environment, tasks))
    for task in tasks[:max_tasks]:
        try:
            findings += _task(environment, task, effects)
        except InfrastructureError as error:
            findings.append(_barring("world", f"task {task.id}: the environment's own code broke", str(error)))
    return findings


def _shape(environment: Environment, tasks: Sequence[Task]) -> Iterator[Finding]:
    ids = [task.id for task in tasks]
    if not ids:
        yield _barring("tasks", "there are no tasks", "")
    twice = sorted({task_id for task_id in ids if ids.count(task_id) > 1}) if len(set(ids)) < len(ids) else []
    if twice:
        yield _barring("tasks", f"task ids are used twice: {', '.join(twice[:3])}", "")
    missing = sorted({task.stratum for task in tasks} - set(environment.strata))
    if missing:
        yield _barring("strata", f"strata without a share of traffic: {', '.join(missing)}", "")
    total = sum(environment.strata.values())
    if abs(total - 1) > 1e-6:
        yield _barring("strata", "shares of traffic do not sum to 1", f"they sum to {total:g}")
    first, again = environment.digest, environment.digest
    if first != again:
        yield _barring("digest", "the digest of the environment changes from look to look", "")


def _task(environment: Environment, task: Task, effects: dict[str, Effect]) -> Iterator[Finding]:
    reference = environment.reference(task.id)
    yield from _unknown_tools(task, reference, effects)
    first, second = environment.open(task), environment.open(task)
    try:
        fresh = first.snapshot()
        if fresh != second.snapshot():
            yield _barring("reset", f"task {task.id}: two fresh worlds differ", "their snapshots are not equal")
            return
        for call in reference.oracle:
            before = first.snapshot()
            reply = first.execute(call)
            problem = _reply_problem(call, reply, second.execute(call))
            if problem:
                yield _barring("determinism", f"task {task.id}: {call.name} answers differently", problem)
            if effects.get(call.name) is Effect.READ:
                yield from _read(task, call, reply, first.execute(call), before == first.snapshot())
            elif not reply.is_error and call.name != "decline" and before == first.snapshot():
                yield _warning("writes", f"task {task.id}: {call.name} succeeded and changed nothing", "")
        if first.snapshot() != second.snapshot():
            yield _barring("determinism", f"task {task.id}: equal calls give different worlds", "")
        if environment.open(task).snapshot() != fresh:
            yield _barring("leak", f"task {task.id}: an episode changed the initial state of the next", "")
    finally:
        first.close()
        second.close()
    yield from _oracle(environment, task)


def _read(task: Task, call: ToolCall, reply: WorldReply, again: WorldReply, unchanged: bool) -> Iterator[Finding]:
    problem = _reply_problem(call, reply, again)
    if problem:
        yield _barring("reads", f"task {task.id}: {call.name} is called a read and answers twice differently", problem)
    if not unchanged:
        yield _barring("reads", f"task {task.id}: {call.name} is called a read and changes the state", "")


def _unknown_tools(task: Task, reference: Reference, known: Collection[str]) -> Iterator[Finding]:
    """Checks that count calls of a tool that is not there: a safety check among them could never fire."""
    for check in reference.checks:
        for tool in dict.fromkeys(tools_in(check.rule)):
            if tool not in known:
                near = " or ".join(map(repr, difflib.get_close_matches(tool, list(known), n=3)))
                what = f"task {task.id}: check {check.id} names tool {tool!r}, which the environment does not have"
                yield _barring("checks", what, f"did you mean {near}?" if near else f"it has {len(known)} tools")


def _oracle(environment: Environment, task: Task) -> Iterator[Finding]:
    """The oracle through the boundary, judged: it must pass, or the task cannot be learned from."""
    reference = environment.reference(task.id)
    if not reference.oracle and not reference.oracle_answer:
        yield _warning("oracle", f"task {task.id}: no oracle is known", "")
        return
    world = environment.open(task)
    initial = world.snapshot()
    limit = len(reference.oracle) + 1
    boundary = ToolBoundary(
        world, environment.tools(), environment.permissions(task), shown=task.tools, max_calls=limit
    )
    for call in reference.oracle:
        call_now(boundary, call)
    evidence = Evidence(
        initial_state=initial, end_state=world.snapshot(), events=boundary.events, answer=reference.oracle_answer
    )
    verdict = CheckVerifier(reference.checks).verify(evidence)
    boundary.close()
    world.close()
    failed = [c for c in verdict.checks if not c.passed and c.kind is not CheckKind.PROCESS]
    unrecorded = [e.call.name for e in evidence.events if NOT_RECORDED in e.result.content and e.result.is_error]
    if failed:
        why = f"{unrecorded[0]} is not recorded in that state; " if unrecorded else ""
        yield _barring("oracle", f"task {task.id}: the oracle fails {failed[0].id}", f"{why}{failed[0].evidence}")


def _reply_problem(call: ToolCall, left: WorldReply, right: WorldReply) -> str:
    one, other = (render_reply(call, reply).content for reply in (left, right))
    return "" if content_digest(one.encode()) == content_digest(other.encode()) else f"{one[:120]} ≠ {other[:120]}"


def _barring(probe: str, what: str, evidence: str) -> Finding:
    return Finding(probe=f"environment-{probe}", severity=Severity.BARRING, what=what, evidence=evidence)


def _warning(probe: str, what: str, evidence: str) -> Finding:
    return Finding(probe=f"environment-{probe}", severity=Severity.WARNING, what=what, evidence=evidence)
