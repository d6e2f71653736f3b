"""How true an environment is to the traces that it was built from.

Every recorded episode is run again, call by call, through the tool boundary in a fresh world of its task, and each
answer is compared with the recorded one *after parsing*, never as bytes. Calls that the recording marks as hit by a
fault are counted apart: their answer was the fault's, not the tool's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from flightschool.digest import canonical_json
from flightschool.environments.driving import call_now
from flightschool.environments.inferred import Drift
from flightschool.environments.ladder import RUNGS
from flightschool.environments.recorded import DECLINE
from flightschool.environments.recordings import Coverage, Share
from flightschool.protocols import Environment, World
from flightschool.records import CheckKind, Effect, Evidence, Json, Record, Task, ToolCall, ToolResult
from flightschool.tools import ToolBoundary
from flightschool.tools.schema import json_equal
from flightschool.traces import RecordedCall, RecordedEpisode, result_value
from flightschool.verification import CheckVerifier
from flightschool.verification.rules import FAULTS_THAT_TOOK_EFFECT

__all__ = ["Agreement", "Fidelity", "Mismatch", "verify_fidelity"]

_MOST_MISMATCHES = 10
_SHOWN = 160


class Mismatch(Record, frozen=True, kw_only=True):
    """One call that was answered otherwise than recorded."""

    episode: str
    call: str
    tool: str
    path: str
    """Place of the first difference in the answer; empty when the answers differ as a whole."""
    recorded: str
    """What was recorded at that place."""
    answered: str
    """What is answered there now."""


class Agreement(Record, frozen=True, kw_only=True):
    """Whether the environment's checks say of recorded episodes what was recorded about them.

    The checks are those in force: declared ones, with the drafted ones that these leave. Tasks whose reference demands
    the added ``decline`` are not counted: no recording can hold it.
    """

    successes: Share
    """Recorded successes that the checks accept."""
    failures: Share
    """Recorded failures that the checks turn down."""


class Fidelity(Record, frozen=True, kw_only=True):
    """Share of recorded calls that the environment reproduces."""

    calls: Share
    reads: Share
    writes: Share
    """All tools that change something."""
    by_tool: dict[str, Share]
    faulted: Share
    """Calls marked as faulted, and how many of them the tool itself would have answered alike. Not in the others."""
    num_incomplete: int
    """Calls whose recording is not whole; not compared."""
    num_unmatched: int
    """Episodes whose task the environment does not have; not compared."""
    mismatches: tuple[Mismatch, ...]
    """The first ten."""
    agreement: Agreement
    coverage: Coverage | None = None
    """Leave-one-episode-out hit rates, where answers come from recordings."""
    num_conflicts: int = 0
    """Keys under which recordings differ; the most frequent answer is kept."""
    by_rung: dict[str, Share] = msgspec.field(default_factory=dict)
    """Rung of the ladder → of the calls that it answered, those answered as recorded."""
    after_writes: Share = Share(hits=0, total=0)
    """Recorded reads after a successful write of their episode, and how many show what was written."""
    renamed: tuple[Drift, ...] = ()
    """Fields that the recordings and the answers call by other names."""
    num_episodes: int = 0
    """Episodes that were run again."""


def verify_fidelity(
    environment: Environment,
    episodes: Sequence[RecordedEpisode],
    task_of: Callable[[RecordedEpisode], str],
    *,
    waiting: Sequence[Task] = (),
    outcomes: bool = True,
    coverage: Coverage | None = None,
    num_conflicts: int = 0,
) -> Fidelity:
    """Run every recorded episode again and compare.

    Args:
        environment: what was built.
        episodes: the recorded episodes.
        task_of: id of the task that an episode attempted; unknown ids are counted as unmatched.
        waiting: tasks without a reference: their calls are compared, their outcome is not judged.
        outcomes: whether recorded outcomes are held against the checks.
        coverage: passed on to the report.
        num_conflicts: passed on to the report.

    Raises:
        InfrastructureError: the environment's own code broke.
    """
    tally = _Tally({spec.name: spec.effect for spec in environment.tools()})
    tasks = {task.id: task for task in environment.tasks()}
    unjudged = {task.id: task for task in waiting}
    initial: dict[str, bytes] = {}
    for episode in episodes:
        task = tasks.get(task_of(episode)) or unjudged.get(task_of(episode))
        if task is None:
            tally.num_unmatched += 1
            continue
        tally.num_episodes += 1
        world = environment.open(task)
        try:
            if task.initial_state not in initial:
                initial[task.initial_state] = world.snapshot()
            evidence = _rerun(episode, environment, task, world, initial, tally)
            if outcomes and task.id in tasks:
                tally.judge(episode, environment, task, evidence)
        finally:
            world.close()
    return tally.report(coverage, num_conflicts)


def _rerun(
    episode: RecordedEpisode,
    environment: Environment,
    task: Task,
    world: World,
    initial: Mapping[str, bytes],
    tally: _Tally,
) -> Evidence:
    # the boundary answers what it refused in the recording; shown tools and permissions are those of the task
    boundary = ToolBoundary(
        world,
        environment.tools(),
        environment.permissions(task),
        shown=task.tools,
        max_calls=len(episode.calls) + 1,
    )
    wrote = False
    for call in episode.calls:
        took_effect = not call.is_error or call.fault in FAULTS_THAT_TOOK_EFFECT
        if call.fault and not took_effect and tally.effects.get(call.name) is not Effect.READ:
            tally.skip_fault()
            continue
        asked = ToolCall(id=call.id, name=call.name, arguments=call.arguments)
        tally.compare(episode, call, call_now(boundary, asked), wrote)
        wrote |= took_effect and call.name != DECLINE.name and tally.effects.get(call.name) is not Effect.READ
    answer = next((m.content for m in reversed(episode.messages) if m.role == "assistant"), "")
    evidence = Evidence(
        initial_state=initial[task.initial_state],
        end_state=world.snapshot(),
        events=boundary.events,
        answer=answer,
    )
    boundary.close()
    return evidence


class _Tally:
    """Counts of one verification."""

    def __init__(self, effects: Mapping[str, Effect]) -> None:
        self.effects = effects
        self.num_unmatched = 0
        self.num_episodes = 0
        self._num_incomplete = 0
        self._by_tool: dict[str, list[int]] = {}
        self._faulted = [0, 0]
        self._mismatches: list[Mismatch] = []
        self._rungs: dict[str, list[int]] = {}
        self._after_writes = [0, 0]
        self._renamed: dict[Drift, None] = {}
        self._agreed = {True: [0, 0], False: [0, 0]}

    def skip_fault(self) -> None:
        """A faulted write that had no effect: not run again."""
        self._faulted[1] += 1

    def compare(self, episode: RecordedEpisode, call: RecordedCall, result: ToolResult, wrote: bool) -> None:
        """Count one call. ``wrote``: whether its episode changed something before it."""
        same = _same(call, result)
        if call.fault:
            self._faulted[0] += same
            self._faulted[1] += 1
        elif not call.complete:
            self._num_incomplete += 1
        else:
            count = self._by_tool.setdefault(call.name, [0, 0])
            count[0] += same
            count[1] += 1
            self._count_kind(call, result, same, wrote)
            if not same and len(self._mismatches) < _MOST_MISMATCHES:
                path, recorded, answered = _difference(call.value, result_value(result.content))
                self._mismatches.append(
                    Mismatch(
                        episode=episode.id,
                        call=call.id,
                        tool=call.name,
                        path=path,
                        recorded=recorded,
                        answered=answered,
                    )
                )

    def _count_kind(self, call: RecordedCall, result: ToolResult, same: bool, wrote: bool) -> None:
        rung = self._rungs.setdefault(RUNGS.get(result.served_by, result.served_by), [0, 0])
        rung[0] += same
        rung[1] += 1
        if wrote and self.effects.get(call.name) is Effect.READ:
            self._after_writes[0] += same
            self._after_writes[1] += 1
        if not same:
            for path, recorded, now in _renamed(call.value, result_value(result.content)):
                self._renamed.setdefault(Drift(tool=call.name, path=path, recorded=recorded, state=now))

    def judge(self, episode: RecordedEpisode, environment: Environment, task: Task, evidence: Evidence) -> None:
        """Count whether the checks agree with the recorded outcome."""
        reference = environment.reference(task.id)
        if episode.success is None or (reference.abstain and not _declined(evidence)):
            return
        verdict = CheckVerifier(reference.checks).verify(evidence)
        passed = all(c.passed for c in verdict.checks if c.kind is not CheckKind.PROCESS)
        count = self._agreed[episode.success]
        count[0] += passed is episode.success
        count[1] += 1

    def report(self, coverage: Coverage | None, num_conflicts: int) -> Fidelity:
        """The report."""
        reads = [n for n in self._by_tool if self.effects.get(n, Effect.READ) is Effect.READ]
        writes = [n for n in self._by_tool if n not in reads]
        return Fidelity(
            calls=self._sum(list(self._by_tool)),
            reads=self._sum(reads),
            writes=self._sum(writes),
            by_tool={name: self._sum([name]) for name in sorted(self._by_tool)},
            faulted=Share(hits=self._faulted[0], total=self._faulted[1]),
            num_incomplete=self._num_incomplete,
            num_unmatched=self.num_unmatched,
            num_episodes=self.num_episodes,
            mismatches=tuple(self._mismatches),
            agreement=Agreement(
                successes=Share(hits=self._agreed[True][0], total=self._agreed[True][1]),
                failures=Share(hits=self._agreed[False][0], total=self._agreed[False][1]),
            ),
            coverage=coverage,
            num_conflicts=num_conflicts,
            by_rung={rung: Share(hits=count[0], total=count[1]) for rung, count in sorted(self._rungs.items())},
            after_writes=Share(hits=self._after_writes[0], total=self._after_writes[1]),
            renamed=tuple(self._renamed),
        )

    def _sum(self, names: Sequence[str]) -> Share:
        return Share(hits=sum(self._by_tool[n][0] for n in names), total=sum(self._by_tool[n][1] for n in names))


def _declined(evidence: Evidence) -> bool:
    return any(event.call.name == "decline" and not event.result.is_error for event in evidence.events)


def _same(call: RecordedCall, result: ToolResult) -> bool:
    """Whether an answer is the recorded one, as JSON; an error may stand in the boundary's ``{"error": …}``."""
    now: Json = result_value(result.content)
    if json_equal(now, call.value):
        return True
    return result.is_error and call.is_error and isinstance(now, dict) and json_equal(now.get("error"), call.value)


def _difference(recorded: Json, answered: Json, path: str = "") -> tuple[str, str, str]:
    """Path of the first difference, depth first, and what stands there on both sides."""
    if isinstance(recorded, dict) and isinstance(answered, dict):
        for key in dict.fromkeys((*recorded, *answered)):
            left, right = recorded.get(key, _ABSENT), answered.get(key, _ABSENT)
            if left is _ABSENT or right is _ABSENT or not json_equal(left, right):
                return _difference(left, right, f"{path}.{key}" if path else str(key))
    if isinstance(recorded, list) and isinstance(answered, list) and len(recorded) == len(answered):
        for index, (left, right) in enumerate(zip(recorded, answered, strict=True)):
            if not json_equal(left, right):
                return _difference(left, right, f"{path}[{index}]")
    return path, _shown(recorded), _shown(answered)


def _renamed(recorded: Json, now: Json, path: str = "") -> Iterator[tuple[str, str, str]]:
    """Fields that one side lacks and the other has under another name: path of the object, both names."""
    if isinstance(recorded, dict) and isinstance(now, dict):
        gone = [key for key in recorded if key not in now]
        new = [key for key in now if key not in recorded]
        for key in gone:
            twin = next((name for name in new if json_equal(now[name], recorded[key])), "")
            yield path, str(key), twin
        for key in recorded:
            if key in now:
                yield from _renamed(recorded[key], now[key], f"{path}.{key}" if path else str(key))
    elif isinstance(recorded, list) and isinstance(now, list):
        for left, right in zip(recorded, now, strict=False):
            yield from _renamed(left, right, f"{path}[]")


_ABSENT = object()


def _shown(value: Json) -> str:
    return "(absent)" if value is _ABSENT else canonical_json(value).decode()[:_SHOWN]
