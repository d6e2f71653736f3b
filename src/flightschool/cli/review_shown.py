"""One attempt as a reviewer sees it. Whatever the policy and its tools wrote is data: shown, never interpreted."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flightschool.cli import output
from flightschool.cli.references import reopen_environment
from flightschool.errors import FlightschoolError

if TYPE_CHECKING:
    from flightschool.records import Attempt, Check, Message, ReviewLabel, ToolEvent
    from flightschool.store import Workspace

__all__ = ["attempt_row", "tell_attempt"]

MOST_CHARACTERS = 4000
"""Of one text, for people; ``--json`` gives it whole."""


def attempt_row(space: Workspace, attempt: Attempt, labels: Sequence[ReviewLabel], blind: bool) -> dict[str, Any]:
    """The object that ``review show`` prints. ``blind`` leaves out verdict, reward and labels."""
    task, rules = _task(space, attempt)
    verdict, reward = attempt.verdict, attempt.reward
    return {
        "attempt": attempt.id,
        "task": task,
        "policy_text": rules,
        "weather": attempt.noise,
        "messages": [_message_row(message) for message in attempt.messages],
        "calls": [_event_row(event) for event in attempt.events],
        "ended": {"reason": attempt.reason.value, "detail": attempt.detail},
        "blind": blind,
        "outcome": None if blind else attempt.outcome.value,
        "checks": None if blind or verdict is None else [_check_row(check) for check in verdict.checks],
        "members": None if blind or verdict is None else verdict.members,
        "disagreement": None if blind or verdict is None else verdict.disagreement,
        "reward": None if blind else reward,
        "labels": None if blind else list(labels),
    }


def _task(space: Workspace, attempt: Attempt) -> tuple[dict[str, Any], str]:
    """The task and the house rules, as far as the environment still knows the task as it was."""
    known: dict[str, Any] = {"id": attempt.task, "family": None, "stratum": None, "instruction": None, "guidance": None}
    if space.store.has("terminal-episode", attempt.id):
        return known, ""
    try:
        environment = reopen_environment(attempt.environment, attempt.environment_digest, space)
        task = environment.task(attempt.task)
    except FlightschoolError as error:
        output.say(f"the task cannot be read any more: {error.what}")
        return known, ""
    if task.digest != attempt.task_digest:
        output.say("the task has changed since the attempt; what the policy saw stands in its messages")
        return known, ""
    shown = {"family": task.family, "stratum": task.stratum, "instruction": task.instruction, "guidance": task.guidance}
    return {**known, **shown}, environment.policy_text


def _message_row(message: Message) -> dict[str, Any]:
    return {
        "role": message.role,
        "content": message.content,
        "calls": [{"name": call.name, "arguments": call.arguments} for call in message.tool_calls],
    }


def _event_row(event: ToolEvent) -> dict[str, Any]:
    result = event.result
    return {
        "index": event.index,
        "turn": event.turn,
        "name": event.call.name,
        "arguments": event.call.arguments,
        "effect": event.effect.value,
        "result": result.content,
        "is_error": result.is_error,
        "denied_by": result.permission.rule
        if result.permission is not None and not result.permission.allowed
        else None,
        "fault": None if result.fault is None else result.fault.kind,
    }


def _check_row(check: Check) -> dict[str, Any]:
    return {
        "id": check.id,
        "kind": check.kind.value,
        "weight": check.weight,
        "passed": check.passed,
        "evidence": check.evidence,
        "author": check.author,
        "votes": check.votes,
    }


# ------------------------------------------------------------------------------------------------ for people


def tell_attempt(row: Mapping[str, Any]) -> None:
    """Print it, part by part."""
    task = row["task"]
    output.say(f"{row['attempt']}: task {task['id']}", style="bold")
    for name in ("stratum", "family", "instruction", "guidance"):
        if task[name]:
            output.say(f"{name}: {_cut(task[name])}")
    if row["policy_text"]:
        output.say("House rules", style="bold")
        output.say(_cut(row["policy_text"]))
    output.say("What was said", style="bold")
    for message in row["messages"]:
        asked = "".join(f"\n  → {call['name']} {_json(call['arguments'])}" for call in message["calls"])
        output.say(f"{message['role']}: {_cut(message['content'])}{asked}")
    output.say("What was done", style="bold")
    for event in row["calls"]:
        marks = [f"denied by {event['denied_by']}"] if event["denied_by"] else []
        marks += ["error"] if event["is_error"] else []
        marks += [f"fault {event['fault']}"] if event["fault"] else []
        told = f" [{', '.join(marks)}]" if marks else ""
        output.say(f"{event['index']}. {event['name']} ({event['effect']}) {_json(event['arguments'])}{told}")
        output.say(f"   {_cut(event['result'])}")
    output.say(f"ended: {row['ended']['reason']} {row['ended']['detail']}")
    if not row["blind"]:
        _tell_verdict(row)


def _tell_verdict(row: Mapping[str, Any]) -> None:
    output.say("What the verifier says", style="bold")
    for check in row["checks"] or ():
        output.say(f"{'pass' if check['passed'] else 'FAIL'} {check['kind']} {check['id']}: {_cut(check['evidence'])}")
        for vote in check["votes"]:
            output.say(f"     {vote.voter}: {'yes' if vote.passed else 'no'} {_cut(vote.evidence)}")
    reward = row["reward"]
    if reward is None:
        output.say(f"no reward: {row['outcome']}")
    else:
        terms = ("outcome", "process", "latency", "gate", "total")
        output.say(", ".join(f"{term} {getattr(reward, term):.3g}" for term in terms))
    for label in row["labels"]:
        output.say(f"{label.reviewer} on {label.sheet}: {label.label}, {_cut(label.reason)}")


def _cut(text: str) -> str:
    if len(text) <= MOST_CHARACTERS:
        return text
    return f"{text[:MOST_CHARACTERS]}… ({len(text) - MOST_CHARACTERS} characters more under --json)"


def _json(value: object) -> str:
    return _cut(json.dumps(value, ensure_ascii=False))
