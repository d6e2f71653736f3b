"""Could an environment built from the *other* episodes have answered? Nothing that answers has seen the episode.

For each recorded call: recordings of all other episodes, and tools inferred from the episodes of all other folds (the
call's own fold, its episode included, is unseen). The state before a call is that of its own episode, as recorded, so
that one wrong answer is counted once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from flightschool.digest import canonical_json, derive_random
from flightschool.environments.coded import ToolFunction, executions, run_function
from flightschool.environments.inferred import Answer, Base, learn_all, observe
from flightschool.environments.inferred.credible import credible
from flightschool.environments.ladder import RUNGS, Ladder, find_answer
from flightschool.environments.recordings import (
    Key,
    Recording,
    ScopeOf,
    Share,
    call_key,
    histories,
    record_answers,
)
from flightschool.environments.subsets import SubsetIndex, find_subsets
from flightschool.records import Json, Record, ToolCall
from flightschool.tools.schema import json_equal
from flightschool.traces import RecordedCall, RecordedEpisode

__all__ = ["HeldOut", "hold_out"]

DEFAULT_FOLDS = 8


class HeldOut(Record, frozen=True, kw_only=True):
    """Shares of recorded calls that are answered as recorded by what never saw their episode."""

    reads: Share
    writes: Share
    """All tools that change something."""
    by_tool: dict[str, Share]
    by_rung: dict[str, Share]
    """Rung → of the calls that it answered, those answered as recorded; ``L4`` answers nothing."""
    num_folds: int


def hold_out(
    episodes: Sequence[RecordedEpisode],
    base: Base,
    writes: Collection[str],
    scope_of: ScopeOf,
    *,
    num_folds: int = DEFAULT_FOLDS,
    functions: Mapping[str, ToolFunction] | None = None,
) -> HeldOut:
    """Leave-one-episode-out shares.

    Args:
        episodes: what was recorded; incomplete and faulted calls are not counted.
        base: the state that the episodes started from; an empty one where none is known.
        writes: names of the tools that change state.
        scope_of: initial state of each episode.
        num_folds: into how many parts the episodes fall for inference; at most one part an episode.
        functions: tools that code answers, which has seen no episode at all.
    """
    executed = executions(functions or {})
    num_folds = max(2, min(num_folds, len(episodes)))
    fold_of = [index % num_folds for index in range(len(episodes))]
    derive_random("held-out folds", len(episodes)).shuffle(fold_of)
    others = _Others(episodes, writes, scope_of)
    tally = _Tally(writes)
    for fold in range(num_folds):
        unseen = [index for index, own in enumerate(fold_of) if own == fold]
        if not unseen:
            continue
        rest = [episode for index, episode in enumerate(episodes) if fold_of[index] != fold]
        recordings, _ = record_answers(rest, writes, scope_of)
        shared = SubsetIndex(find_subsets(recordings), recordings)
        learnt = learn_all(rest, base, writes, executed)
        programs = {tool: one for tool, one in learnt.items() if credible(one, writes=tool in writes)}
        for index in unseen:
            ladder = Ladder(
                recordings=others.of(index),
                subsets=shared,
                programs=programs,
                writes=frozenset(writes),
                functions=functions or {},
            )
            _examine(ladder, episodes[index], base, scope_of, tally)
    return tally.report(num_folds)


def _examine(ladder: Ladder, episode: RecordedEpisode, base: Base, scope_of: ScopeOf, tally: _Tally) -> None:
    writes = ladder.writes
    known = {tool: one.changes for tool, one in ladder.programs.items()}
    observations = observe((episode,), base, writes, known, executions(ladder.functions))
    before = {call.id: history for history, call in histories(episode, writes)}
    asked = [call for call in episode.calls if call.complete and not call.fault]
    for one, call in zip(observations, asked, strict=True):
        if call.id not in before:
            continue  # an earlier write's effect is not known
        wanted = ToolCall(id=call.id, name=call.name, arguments=call.arguments)
        if call.name in ladder.functions:
            executed = run_function(ladder.functions[call.name], wanted, one.scope["db"].fork())
            tally.count(call, _told(executed, call), "code")
            continue
        found, served_by = find_answer(ladder, scope_of(episode), before[call.id], wanted, one.scope["db"])
        tally.count(call, found, served_by)


def _told(answer: Answer, call: RecordedCall) -> Answer:
    """What code answers; an error that is worded as recorded may stand in ``{"error": …}``."""
    value = answer.value
    worded = answer.is_error and isinstance(value, dict) and json_equal(value.get("error"), call.value)
    return Answer(call.value, True) if worded else answer


class _Tally:
    def __init__(self, writes: Collection[str]) -> None:
        self._writes = writes
        self._tools: dict[str, Counter[bool]] = {}
        self._rungs: dict[str, Counter[bool]] = {}

    def count(self, call: RecordedCall, found: Answer | None, served_by: str) -> None:
        """Count one call."""
        same = found is not None and found.is_error is call.is_error and json_equal(found.value, call.value)
        self._tools.setdefault(call.name, Counter())[same] += 1
        self._rungs.setdefault(RUNGS[served_by], Counter())[same] += 1

    def report(self, num_folds: int) -> HeldOut:
        """The report."""
        reads = [count for tool, count in self._tools.items() if tool not in self._writes]
        writes = [count for tool, count in self._tools.items() if tool in self._writes]
        return HeldOut(
            reads=_share(reads),
            writes=_share(writes),
            by_tool={tool: _share([count]) for tool, count in sorted(self._tools.items())},
            by_rung={rung: _share([count]) for rung, count in sorted(self._rungs.items())},
            num_folds=num_folds,
        )


def _share(counts: Sequence[Counter[bool]]) -> Share:
    return Share(hits=sum(count[True] for count in counts), total=sum(count.total() for count in counts))


# ------------------------------------------------------------------------------------------------ recordings of others


class _Others:
    """Recordings of all episodes, looked up without those of one."""

    def __init__(self, episodes: Sequence[RecordedEpisode], writes: Collection[str], scope_of: ScopeOf) -> None:
        self.answers: dict[Key, list[tuple[int, bytes, RecordedCall]]] = {}
        for index, episode in enumerate(episodes):
            for history, call in histories(episode, writes):
                if call.complete and not call.fault:
                    key = (scope_of(episode), history, call_key(call.name, call.arguments))
                    answer = canonical_json([call.value, call.is_error])
                    self.answers.setdefault(key, []).append((index, answer, call))

    def of(self, index: int) -> _Without:
        """The view that does not have this episode."""
        return _Without(self, index)


class _Without:
    def __init__(self, others: _Others, index: int) -> None:
        self._others = others
        self._index = index

    def find(self, scope: str, history: str, name: str, arguments: Mapping[str, Json]) -> Recording | None:
        """The most frequent answer of the other episodes, of equals the first; None: they have none."""
        key = (scope, history, call_key(name, arguments))
        seen = [(answer, call) for index, answer, call in self._others.answers.get(key, []) if index != self._index]
        if not seen:
            return None
        best, count = Counter(answer for answer, _ in seen).most_common(1)[0]
        call = next(call for answer, call in seen if answer == best)
        return Recording(
            scope=scope,
            history=history,
            name=name,
            arguments=call.arguments,
            value=call.value,
            is_error=call.is_error,
            seen=count,
        )
