"""From recorded episodes to tasks, with the sealed side that judges them.

Trials of one task are one task. What has to be done is taken from ground truth if the trace carries it, else from the
writes of the best recorded success (fewest calls); nothing is derived from episodes that failed. A task about which
neither is known is left out and named. Rules, in this order:

1. writes known: each is a functional check on a successful call with these arguments (free text is not compared;
   an act of the ground truth whose tool some recorded success never used was not needed);
2. texts known that the answer must contain, or facts that every success read and then told: a check on the answer;
3. ground truth says that nothing is to be done, or names only acts whose arguments are free text: the act that all
   successes share (handing over to a person), else an explicit ``decline``, after the reads that all successes share.

For each tool that changes something, a constraint bounds the calls to what the reference or any success did.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import msgspec

from flightschool.environments.recorded import DECLINE
from flightschool.environments.recordings import call_key
from flightschool.records import (
    AnswerCheck,
    CallCheck,
    CheckKind,
    CheckRule,
    CheckSpec,
    Effect,
    Json,
    Reference,
    Task,
    ToolCall,
)
from flightschool.traces import RecordedCall, RecordedEpisode

__all__ = ["Drafted", "draft", "particular"]

_FREE_TEXT_WORDS = 4
_MOST_GROUNDS = 3
_MOST_FACTS = 4
_DECLINE_REASON = "the rules do not allow this request"
_FACT = re.compile(r"[\w.:/-]*\d[\w.:/-]*")


class Drafted(msgspec.Struct, frozen=True, kw_only=True):
    """A task with its reference, or the reason why there is none."""

    id: str
    episodes: tuple[RecordedEpisode, ...]
    acts: tuple[str, ...]
    """Names of the tools that must be called (``decline`` apart), distinct and sorted; what strata derive from."""
    task: Task
    """Family and stratum are still to be filled in."""
    reference: Reference | None
    problem: str = ""
    truth: tuple[ToolCall, ...] | None = None
    """What ground truth says is to be done."""


def draft(
    task_id: str, episodes: Sequence[RecordedEpisode], effects: Mapping[str, Effect], initial_state: str
) -> Drafted:
    """A task of all recorded trials at it.

    Args:
        task_id: id of the task.
        episodes: the trials, at least one.
        effects: effect of every tool of the inventory.
        initial_state: name of the state that the trials started from.
    """
    writes = {name for name, effect in effects.items() if effect is not Effect.READ}
    successes = sorted((e for e in episodes if e.success), key=lambda e: (len(e.calls), e.id))
    wanted, problem = _wanted(episodes, successes, writes, effects)
    truth = next((e.hint.actions for e in episodes if e.hint.actions is not None), None)
    rounds = max(len({call.turn for call in episode.calls}) for episode in episodes)
    task = Task(
        id=task_id,
        family="",
        stratum="",
        instruction=episodes[0].instruction,
        initial_state=initial_state,
        guidance=episodes[0].guidance,
        max_turns=max(8, rounds + 2, len(wanted.oracle) + 2 if wanted else 0),
    )
    if wanted is None:
        return Drafted(
            id=task_id, episodes=tuple(episodes), acts=(), task=task, reference=None, problem=problem, truth=truth
        )
    checks = (*wanted.checks, *_bounds(wanted.acts, successes, writes))
    reference = Reference(
        task_id=task_id,
        checks=checks,
        oracle=wanted.oracle,
        oracle_answer=wanted.answer,
        abstain=any(call.name == DECLINE.name for call in wanted.oracle),
    )
    names = tuple(sorted({act.name for act in wanted.acts} - {DECLINE.name}))
    return Drafted(id=task_id, episodes=tuple(episodes), acts=names, task=task, reference=reference, truth=truth)


class _Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What has to be done."""

    acts: tuple[ToolCall, ...]
    checks: tuple[CheckSpec, ...]
    oracle: tuple[ToolCall, ...]
    answer: str


def _wanted(
    episodes: Sequence[RecordedEpisode],
    successes: Sequence[RecordedEpisode],
    writes: Collection[str],
    effects: Mapping[str, Effect],
) -> tuple[_Wanted | None, str]:
    truth = next((e.hint.actions for e in episodes if e.hint.actions is not None), None)
    outputs = next((e.hint.outputs for e in episodes if e.hint.outputs), ())
    if truth is None and not successes:
        return None, "no recorded success and no ground truth"
    if truth is not None:
        acts = _needed(tuple(call for call in truth if call.name in writes), successes, writes)
        unknown = sorted({call.name for call in truth} - set(effects))
        if unknown:
            return None, f"ground truth calls {unknown[0]!r}, which no episode shows"
    else:
        acts = _done(successes[0], writes)
    best = _matching(successes, acts, writes)
    oracle = _oracle(best) if best is not None else tuple(truth or ())
    answer = _answer(best, outputs)
    checks = [*_act_checks(acts), *_output_checks(outputs)]
    if outputs or any(_comparable(act.arguments) for act in acts):
        return _Wanted(acts=acts, checks=tuple(checks), oracle=oracle, answer=answer), ""
    if acts or truth is not None:
        return _justified(acts, successes, oracle, effects)
    facts = _facts(successes)
    if not facts:
        return None, "the successes change nothing and tell nothing that could be checked"
    return _Wanted(acts=(), checks=tuple(_output_checks(facts)), oracle=oracle, answer=answer), ""


# ------------------------------------------------------------------------------------------------ acts


def _done(episode: RecordedEpisode, writes: Collection[str]) -> tuple[ToolCall, ...]:
    return tuple(
        ToolCall(id=call.id, name=call.name, arguments=call.arguments)
        for call in episode.calls
        if call.name in writes and call.complete and not call.is_error
    )


def _needed(
    acts: tuple[ToolCall, ...], successes: Sequence[RecordedEpisode], writes: Collection[str]
) -> tuple[ToolCall, ...]:
    """Acts of the ground truth without those whose tool some recorded success never used: it was not needed."""
    used = [{act.name for act in _done(episode, writes)} for episode in successes]
    return tuple(act for act in acts if all(act.name in names for names in used))


def _matching(
    successes: Sequence[RecordedEpisode], acts: Sequence[ToolCall], writes: Collection[str]
) -> RecordedEpisode | None:
    """The shortest success whose writes are the wanted ones (free text and order apart)."""
    wanted = Counter(call_key(act.name, _comparable(act.arguments)) for act in acts)
    for episode in successes:
        done = Counter(call_key(act.name, _comparable(act.arguments)) for act in _done(episode, writes))
        if all(done[key] >= count for key, count in wanted.items()) and all(c.complete for c in episode.calls):
            return episode
    return None


def _comparable(arguments: Mapping[str, Json]) -> dict[str, Json]:
    """Arguments without free text: another wording of a reason or a summary is no other act."""
    return {
        key: value
        for key, value in arguments.items()
        if not (isinstance(value, str) and len(value.split()) > _FREE_TEXT_WORDS)
    }


def particular(call: ToolCall) -> bool:
    """Whether a call has arguments beside free text: a hand-over with a summary has none."""
    return bool(_comparable(call.arguments))


def _act_checks(acts: Sequence[ToolCall]) -> list[CheckSpec]:
    grouped: dict[bytes, list[ToolCall]] = {}
    for act in acts:
        grouped.setdefault(call_key(act.name, _comparable(act.arguments)), []).append(act)
    checks = []
    for number, same in enumerate(grouped.values()):
        rule = CallCheck(tool=same[0].name, arguments=_comparable(same[0].arguments), least=len(same))
        checks.append(_spec(f"act-{number}-{same[0].name}", CheckKind.FUNCTIONAL, rule))
    return checks


def _bounds(acts: Sequence[ToolCall], successes: Sequence[RecordedEpisode], writes: Collection[str]) -> list[CheckSpec]:
    """For each changing tool, at most as many calls as the reference or any success made."""
    allowed = Counter(act.name for act in acts)
    for episode in successes:
        for name, count in Counter(act.name for act in _done(episode, writes)).items():
            allowed[name] = max(allowed[name], count)
    return [
        _spec(f"no-other-{name}", CheckKind.CONSTRAINT, CallCheck(tool=name, least=0, most=allowed[name]))
        for name in sorted(writes)
        if name != DECLINE.name
    ]


def _oracle(episode: RecordedEpisode) -> tuple[ToolCall, ...]:
    """The calls of a success, without those that failed: they changed nothing."""
    good = [call for call in episode.calls if not call.is_error]
    return tuple(ToolCall(id=f"oracle-{n}", name=c.name, arguments=c.arguments) for n, c in enumerate(good))


# ------------------------------------------------------------------------------------------------ answers


def _output_checks(outputs: Sequence[str]) -> list[CheckSpec]:
    return [_spec("answer", CheckKind.FUNCTIONAL, AnswerCheck(contains=tuple(outputs)))] if outputs else []


def _answer(best: RecordedEpisode | None, outputs: Sequence[str]) -> str:
    recorded = "" if best is None else _last_words(best)
    if all(output.casefold() in recorded.casefold() for output in outputs) and recorded:
        return recorded
    return " ".join(outputs) or "Done."


def _last_words(episode: RecordedEpisode) -> str:
    texts = [m.content for m in episode.messages if m.role == "assistant" and m.content and not m.tool_calls]
    return texts[-1] if texts else ""


def _facts(successes: Sequence[RecordedEpisode]) -> tuple[str, ...]:
    """Numbers and ids that every success read from a tool and told at the end, and that the instruction lacks."""
    common: set[str] | None = None
    order: list[str] = []
    for episode in successes:
        read = {fact.strip(".:/-") for call in episode.calls for fact in _FACT.findall(call.text)}
        told = [fact.strip(".:/-") for fact in _FACT.findall(_last_words(episode))]
        known = set(_FACT.findall(episode.instruction))
        facts = [fact for fact in told if fact in read and fact not in known]
        order = order or list(dict.fromkeys(facts))
        common = set(facts) if common is None else common & set(facts)
    return tuple(fact for fact in order if fact in (common or ()))[:_MOST_FACTS]


# ------------------------------------------------------------------------------------------------ abstaining


def _justified(
    acts: tuple[ToolCall, ...],
    successes: Sequence[RecordedEpisode],
    oracle: tuple[ToolCall, ...],
    effects: Mapping[str, Effect],
) -> tuple[_Wanted | None, str]:
    """A task that is ended by an act without particulars: it counts only after the reads that justify it."""
    exact = _shared(successes)
    grounds = [call for call in exact if effects.get(call.name) is Effect.READ][-_MOST_GROUNDS:]
    if not grounds:
        return None, "giving up is right, but no read that all successes share justifies it"
    if not acts:
        acts = tuple(act for act in _shared(successes, by_name=True) if effects.get(act.name) is Effect.SEND)[:1]
    if not acts:
        reads = tuple(call for call in oracle if effects.get(call.name) is Effect.READ)
        acts = (ToolCall(id="oracle-decline", name=DECLINE.name, arguments={"reason": _DECLINE_REASON}),)
        oracle = (*reads, *acts)
    checks = _act_checks([msgspec.structs.replace(act, arguments={}) for act in acts])
    for number, read in enumerate(grounds):
        rule = CallCheck(tool=read.name, arguments=read.arguments, before=acts[0].name)
        checks.append(_spec(f"grounds-{number}-{read.name}", CheckKind.FUNCTIONAL, rule))
    return _Wanted(acts=acts, checks=tuple(checks), oracle=oracle, answer=_answer(successes[0], ())), ""


def _shared(successes: Sequence[RecordedEpisode], *, by_name: bool = False) -> list[ToolCall]:
    """Successful calls that every success made, in the order of the shortest; by name alone or with arguments."""

    def keys(episode: RecordedEpisode) -> dict[bytes, RecordedCall]:
        good = [call for call in episode.calls if call.complete and not call.is_error]
        return {call_key(call.name, {} if by_name else call.arguments): call for call in good}

    found = [keys(episode) for episode in successes]
    common = [call for key, call in found[0].items() if all(key in other for other in found)] if found else []
    return [ToolCall(id=call.id, name=call.name, arguments=call.arguments) for call in common]


def _spec(check_id: str, kind: CheckKind, rule: CheckRule) -> CheckSpec:
    return CheckSpec(id=check_id, kind=kind, rule=rule, author="traces")
