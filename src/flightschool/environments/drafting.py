"""Checks proposed from traces, rules and experts' words. A draft scores nothing until a person signs it.

What the old agent did is not silently the truth: each proposal says where it comes from and on how many episodes it
rests, and waits. Four sources:

- *successes*: what the end states of all recorded successes of a task have in common, against the initial state;
- *regularities*: a tool that no success ever used before another one had been called;
- *policy*: sentences of the house rules that name a tool and forbid or bound it;
- *statements*: lines of an expert: ``never TOOL``, ``TOOL at most N``, ``TOOL only after TOOL``, ``answer contains
  TEXT``, each with ``TASK:`` before it if it is about one task.

A sentence that cannot be turned into a check is kept as an open one, for a person to put into words that can.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from flightschool.environments.driving import call_now
from flightschool.environments.grouping import sort_trials
from flightschool.environments.traced import TracedEnvironment
from flightschool.records import (
    AnswerCheck,
    CallCheck,
    CheckKind,
    CheckRule,
    CheckSpec,
    Comparison,
    Effect,
    Json,
    JsonCheck,
    Milestone,
    Minefield,
    MinefieldCheck,
    Record,
    ToolCall,
)
from flightschool.tools import ToolBoundary
from flightschool.traces import RecordedEpisode

__all__ = ["DraftCheck", "draft_checks"]

_LEAST_EPISODES = 5
_MOST_SENTENCE = 400
_FORBIDDING = re.compile(r"\b(never|must not|may not|cannot|should not|do not|don't)\b", re.IGNORECASE)
_BOUND = re.compile(r"\bat most (one|two|three|four|five|\d+)\b", re.IGNORECASE)
_NUMBERS = {"one": 1, "two": 2, "three": 3, "four": 4, "five": 5}


class DraftCheck(Record, frozen=True, kw_only=True):
    """One proposal."""

    id: str
    """Unique in its environment."""
    task: str = ""
    """The task that it is about; empty: all tasks."""
    source: Literal["successes", "regularities", "policy", "statements"]
    evidence: str
    """What it rests on, in words."""
    check: CheckSpec | None = None
    """None: a sentence that nobody has put into a check yet."""
    status: Literal["draft", "signed", "rejected"] = "draft"
    by: str = ""
    """Who decided."""
    reason: str = ""


def draft_checks(
    environment: TracedEnvironment, episodes: Sequence[RecordedEpisode], statements: Sequence[str] = ()
) -> tuple[DraftCheck, ...]:
    """All proposals, none of them signed.

    Args:
        environment: what was built from the episodes.
        episodes: the recordings.
        statements: lines of an expert.
    """
    effects = {spec.name: spec.effect for spec in environment.tools()}
    tasks = {task.id for task in environment.tasks()} | {one.task.id for one in environment.content.waiting}
    found = [
        *_from_successes(environment, episodes),
        *_from_order(episodes, effects),
        *_from_policy(environment.policy_text, effects),
        *_from_statements(statements, effects, tasks),
    ]
    unique: dict[str, DraftCheck] = {}
    for one in found:
        name, number = one.id, 2
        while name in unique:
            name, number = f"{one.id}-{number}", number + 1
        unique[name] = msgspec.structs.replace(one, id=name)
    return tuple(unique.values())


# ------------------------------------------------------------------------------------------------ successes


def _from_successes(environment: TracedEnvironment, episodes: Sequence[RecordedEpisode]) -> Iterator[DraftCheck]:
    trials = sort_trials(episodes, one_state=bool(environment.content.state_digest))
    for task in environment.tasks():
        successes = [episode for episode in trials.groups.get(task.id, ()) if episode.success]
        if not successes:
            continue
        ends = [_changed(environment, task.id, episode) for episode in successes]
        for table, key in ends[0]:
            if not all((table, key) in end for end in ends):
                continue
            common = _common([end[table, key] for end in ends])
            if common is None or common == {}:
                continue
            rule = JsonCheck(
                pointer=f"/{_escaped(table)}/{_escaped(key)}", expected=common, compare=Comparison(subset=True)
            )
            yield DraftCheck(
                id=f"{task.id}/state-{table}-{key}",
                task=task.id,
                source="successes",
                evidence=f"{len(successes)} of {len(successes)} recorded successes end with this row",
                check=_spec(f"state-{table}-{key}", CheckKind.FUNCTIONAL, rule),
            )


def _changed(environment: TracedEnvironment, task_id: str, episode: RecordedEpisode) -> dict[tuple[str, str], Json]:
    """Rows that an episode left otherwise than it found them, by table and key."""
    task = environment.task(task_id)
    world = environment.open(task)
    boundary = ToolBoundary(
        world, environment.tools(), environment.permissions(task), shown=task.tools, max_calls=len(episode.calls) + 1
    )
    before: dict[str, Json] = msgspec.json.decode(world.snapshot())
    for call in episode.calls:
        call_now(boundary, ToolCall(id=call.id, name=call.name, arguments=call.arguments))
    after: dict[str, Json] = msgspec.json.decode(world.snapshot())
    boundary.close()
    world.close()
    return {
        (table, key): row
        for table, rows in after.items()
        if isinstance(rows, dict)
        for key, row in rows.items()
        if not isinstance(before.get(table), dict) or before[table].get(key) != row
    }


def _common(values: Sequence[Json]) -> Json:
    """What all values have in common: equal values, and of objects the fields in which they agree. None: nothing."""
    first = values[0]
    if all(isinstance(value, dict) for value in values):
        shared = {key: _common([value[key] for value in values]) for key in first if all(key in v for v in values)}
        return {key: value for key, value in shared.items() if value is not None}
    return first if all(value == first for value in values[1:]) else None


def _escaped(part: str) -> str:
    """A part of a JSON pointer (RFC 6901)."""
    return part.replace("~", "~0").replace("/", "~1")


# ------------------------------------------------------------------------------------------------ regularities


def _from_order(episodes: Sequence[RecordedEpisode], effects: Mapping[str, Effect]) -> Iterator[DraftCheck]:
    """Tools that no success used before another one had been called in an earlier turn."""
    before: dict[str, list[set[str]]] = {}
    for episode in episodes:
        if not episode.success:
            continue
        seen: dict[str, int] = {}
        for call in episode.calls:
            if call.is_error:
                continue
            if effects.get(call.name) not in (None, Effect.READ):
                before.setdefault(call.name, []).append({name for name, turn in seen.items() if turn < call.turn})
            seen.setdefault(call.name, call.turn)
    for tool, sets in sorted(before.items()):
        always = set.intersection(*sets) - {tool}
        reads = sorted(name for name in always if effects.get(name) is Effect.READ)
        if len(sets) < _LEAST_EPISODES:
            continue
        for read in reads:
            yield DraftCheck(
                id=f"{tool}-only-after-{read}",
                source="regularities",
                evidence=f"{len(sets)} of {len(sets)} uses in recorded successes come after {read}",
                check=_only_after(tool, read),
            )


def _only_after(tool: str, other: str) -> CheckSpec:
    rule = MinefieldCheck(
        mines=(Minefield(id=f"early-{tool}", tool=tool, unless_after=other),),
        milestones=(Milestone(id=other, tool=other),),
    )
    return _spec(f"{tool}-only-after-{other}", CheckKind.CONSTRAINT, rule)


# ------------------------------------------------------------------------------------------------ words


def _from_policy(text: str, effects: Mapping[str, Effect]) -> Iterator[DraftCheck]:
    """Sentences of the rules that forbid or bound what a tool does. None of them is more than a suggestion."""
    for number, sentence in enumerate(_sentences(text), 1):
        if not (_FORBIDDING.search(sentence) or _BOUND.search(sentence)):
            continue
        tools = [tool for tool in sorted(effects) if tool.replace("_", " ") in sentence.casefold() or tool in sentence]
        check = None
        bound = _BOUND.search(sentence)
        if len(tools) == 1 and bound is not None:
            check = _at_most(tools[0], _number(bound.group(1)))
        elif len(tools) == 1:
            check = _at_most(tools[0], 0)
        yield DraftCheck(id=f"policy-{number}", source="policy", evidence=f"the rules say: {sentence}", check=check)


def _sentences(text: str) -> list[str]:
    parts = re.split(r"(?<=[.!?])\s+|\n+", text)
    return [" ".join(part.split()).lstrip("-*# ")[:_MOST_SENTENCE] for part in parts if part.strip()]


def _number(word: str) -> int:
    return _NUMBERS.get(word.casefold()) or int(word)


def _at_most(tool: str, most: int) -> CheckSpec:
    return _spec(f"{tool}-at-most-{most}", CheckKind.CONSTRAINT, CallCheck(tool=tool, least=0, most=most))


def _from_statements(
    lines: Sequence[str], effects: Mapping[str, Effect], tasks: Collection[str]
) -> Iterator[DraftCheck]:
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        task, _, rest = text.partition(":")
        about, said = (task.strip(), rest.strip()) if task.strip() in tasks else ("", text)
        yield DraftCheck(
            id=f"{about + '/' if about else ''}statement-{number}",
            task=about,
            source="statements",
            evidence=f"an expert said: {said[:_MOST_SENTENCE]}",
            check=_stated(said, effects),
        )


def _stated(said: str, effects: Mapping[str, Effect]) -> CheckSpec | None:
    never = re.fullmatch(r"never (\w+)\.?", said, re.IGNORECASE)
    if never and never.group(1) in effects:
        return _at_most(never.group(1), 0)
    most = re.fullmatch(r"(\w+) at most (\d+)( times)?\.?", said, re.IGNORECASE)
    if most and most.group(1) in effects:
        return _at_most(most.group(1), int(most.group(2)))
    after = re.fullmatch(r"(\w+) only after (\w+)\.?", said, re.IGNORECASE)
    if after and after.group(1) in effects and after.group(2) in effects:
        return _only_after(after.group(1), after.group(2))
    answer = re.fullmatch(r"answer contains (.+)", said, re.IGNORECASE)
    if answer:
        return _spec("answer", CheckKind.FUNCTIONAL, AnswerCheck(contains=(answer.group(1).strip("\"' "),)))
    return None


def _spec(check_id: str, kind: CheckKind, rule: CheckRule) -> CheckSpec:
    return CheckSpec(id=check_id, kind=kind, rule=rule, author="draft")
