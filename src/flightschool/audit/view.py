"""The agent's view before its first act, and what must not stand in it.

*Secrets* of a task are the values that right work needs and that the instruction does not give: arguments of the
oracle's writes that stand in the result of an earlier read, words that the final answer must contain, and
identifiers that the checks expect in the end state. Vocabulary is no secret: members of an enumeration, truth values,
small numbers, and words that the oracle did not read but that a rule in the guidance teaches. Nor is a secret given
away by a text that stands unchanged beside other answers in other tasks (``SharedTexts``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from flightschool.audit.values import is_prose, parameter_schema, values_in
from flightschool.records import (
    CheckSpec,
    Effect,
    Json,
    Reference,
    Task,
    ToolCall,
    ToolEvent,
    ToolSpec,
)
from flightschool.verification import expected_values

__all__ = [
    "SMALLEST_SECRET_NUMBER",
    "Secret",
    "SharedTexts",
    "agent_view",
    "leaks",
    "secrets_of",
    "stands_in",
    "vocabulary_of",
]

Secret: TypeAlias = tuple[str, str]
"""(where the value is needed, the value as text)."""

SHORTEST_SECRET = 3
SMALLEST_SECRET_NUMBER = 100
"""Smaller ones stand in every text; they tell something only in an answer key (``listing``)."""


def agent_view(task: Task, specs: Sequence[ToolSpec]) -> dict[str, str]:
    """Place → text of all that the policy can read before it acts. The instruction is a place of its own."""
    view = {"instruction": task.instruction, "guidance": task.guidance}
    for index, message in enumerate(task.example):
        calls = [json.dumps(call.arguments, ensure_ascii=False) for call in message.tool_calls]
        view[f"example message {index}"] = "\n".join([message.content, *calls])
    for spec in specs:
        view[f"description of {spec.name}"] = spec.description + "\n" + "\n".join(_descriptions(spec.parameters))
    return view


def secrets_of(
    task: Task, reference: Reference, events: Sequence[ToolEvent], specs: Mapping[str, ToolSpec]
) -> tuple[Secret, ...]:
    """What the instruction withholds and right work needs.

    Args:
        task: the task.
        reference: its sealed side.
        events: events of the oracle's attempt.
        specs: all tools of the environment by name.
    """
    vocabulary = vocabulary_of(specs.values())
    secrets: dict[str, str] = {}
    for where, value in (*_read_before_written(events, specs), *_expected(reference.checks)):
        text = str(value)
        if text not in vocabulary and _can_be_secret(value) and not stands_in(text, task.instruction):
            secrets.setdefault(text, where)
    return tuple((where, text) for text, where in secrets.items())


class SharedTexts:
    """Which values each text of a view accompanies, task by task.

    A rule that every task shows and that names all week days tells no task its day; a text that accompanies one
    value only tells it, and so does one that lists several ids of which each is some task's answer.

    Args:
        tasks: (view, solution) of every task.
    """

    def __init__(self, tasks: Iterable[tuple[Mapping[str, str], Sequence[ToolCall]]]) -> None:
        self._values: dict[str, dict[str, set[str]]] = {}
        for view, calls in tasks:
            slots = [(f"{c.name}.{parameter}", str(value)) for c in calls for parameter, value in c.arguments.items()]
            for text in view.values():
                known = self._values.setdefault(text, {})
                for slot, value in slots:
                    known.setdefault(slot, set()).add(value)

    def tells(self, text: str, secret: Secret) -> bool:
        """Whether a text in which the secret stands gives it away."""
        where, value = secret
        values = self._values.get(text, {}).get(where, set()) | {value}
        if len(values) == 1:
            return True
        names_something = any(sign.isdigit() for sign in value)
        return names_something and any(stands_in(other, text) for other in values - {value})


def leaks(view: Mapping[str, str], secrets: Sequence[Secret]) -> Iterator[tuple[str, Secret]]:
    """(place, secret) of every secret that stands in the view."""
    for place, text in view.items():
        for secret in secrets:
            if stands_in(secret[1], text):
                yield place, secret


def stands_in(value: str, text: str) -> bool:
    """Whether ``value`` stands in ``text`` as a whole word, whatever its case (``A-1`` does not stand in ``A-10``)."""
    return re.search(rf"(?<![\w-]){re.escape(value)}(?![\w-])", text, re.IGNORECASE) is not None


def _read_before_written(events: Sequence[ToolEvent], specs: Mapping[str, ToolSpec]) -> Iterator[tuple[str, Json]]:
    read: set[str] = set()
    for event in events:
        if event.effect is Effect.READ:
            read.update(str(value) for value in values_in([event]))
            continue
        for parameter, value in event.call.arguments.items():
            schema = parameter_schema(specs[event.call.name], parameter) if event.call.name in specs else {}
            if "enum" not in schema and str(value) in read:
                yield f"{event.call.name}.{parameter}", value


def _expected(checks: Sequence[CheckSpec]) -> Iterator[tuple[str, Json]]:
    for check in checks:
        yield from ((f"check {check.id}", value) for value in expected_values(check.rule) if _is_identifier(value))


def _is_identifier(value: Json) -> bool:
    """Values that no one writes by chance: ids (letters with digits) and long numbers."""
    if isinstance(value, str):
        return not is_prose(value) and any(c.isdigit() for c in value) and any(c.isalpha() for c in value)
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) >= SMALLEST_SECRET_NUMBER


def _can_be_secret(value: Json) -> bool:
    if isinstance(value, bool) or value is None:
        return False
    if isinstance(value, int | float):
        return abs(value) >= SMALLEST_SECRET_NUMBER
    return isinstance(value, str) and len(value) >= SHORTEST_SECRET


def vocabulary_of(specs: Iterable[ToolSpec]) -> frozenset[str]:
    """Members of the tools' enumerations."""
    words: set[str] = set()
    for spec in specs:
        _collect_enums(spec.parameters, words)
    return frozenset(words)


def _collect_enums(schema: Json, words: set[str]) -> None:
    if isinstance(schema, dict):
        words.update(str(member) for member in schema.get("enum", ()) if not isinstance(schema.get("enum"), dict))
        for inner in schema.values():
            _collect_enums(inner, words)
    elif isinstance(schema, list):
        for inner in schema:
            _collect_enums(inner, words)


def _descriptions(schema: Json) -> Iterator[str]:
    if isinstance(schema, dict):
        for key, inner in schema.items():
            if key == "description" and isinstance(inner, str):
                yield inner
            elif key in ("default", "examples", "const"):
                yield json.dumps(inner, ensure_ascii=False)
            else:
                yield from _descriptions(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from _descriptions(inner)
