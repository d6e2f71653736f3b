"""The whole examination of an environment from traces: what ``env check`` tells.

Two questions are kept apart. *In sample*: does it answer its own recordings as recorded? *Held out*: does what was
built without an episode answer that episode? The first must be near one and proves little; the second is what a new
policy will meet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from flightschool.digest import derive_random
from flightschool.environments.checking import check_environment
from flightschool.environments.declared import DeclaredEnvironment
from flightschool.environments.driving import call_now
from flightschool.environments.fidelity import Fidelity, verify_fidelity
from flightschool.environments.grouping import sort_trials
from flightschool.environments.held_out import HeldOut, hold_out
from flightschool.environments.inferred import Base, Drift, drifts
from flightschool.environments.recordings import Share
from flightschool.environments.tasking import particular
from flightschool.environments.traced import TracedEnvironment, Waiting
from flightschool.protocols import Environment
from flightschool.records import CheckKind, Effect, Evidence, Finding, Json, Record, Task, ToolCall
from flightschool.tools import ToolBoundary
from flightschool.traces import RecordedEpisode
from flightschool.verification import CheckVerifier

__all__ = ["Examination", "StratumCoverage", "examine", "underlying"]

_RANDOM_CALLS = 6
_DETERMINISM = frozenset({"environment-determinism", "environment-reset", "environment-leak", "environment-digest"})


class StratumCoverage(Record, frozen=True, kw_only=True):
    """One stratum of the recorded traffic and what became of it."""

    traffic: float
    """Share of all recorded episodes."""
    num_tasks: int
    num_families: int
    num_waiting: int
    """Tasks without a reference."""


class Examination(Record, frozen=True, kw_only=True):
    """What is known of an environment from traces. Shares are between 0 and 1; None: nothing to measure it on."""

    reads_reproduced: float | None
    writes_reproduced: float | None
    loo_reads: float | None
    """Reads that are answered as recorded by what never saw their episode."""
    loo_writes: float | None
    coverage: dict[str, float]
    """Rung → share of the recorded calls that it answers, in sample."""
    loo_coverage: dict[str, float]
    """Rung → share of the recorded calls that it answers, held out; ``L4`` answers nothing."""
    read_your_writes: float | None
    """Reads after a write of their episode that show what was written."""
    idempotent_reads: bool
    """Whether no read changed anything or answered twice differently."""
    deterministic: bool
    """Whether fresh worlds are equal, equal calls give equal worlds, and nothing leaks into the next episode."""
    noop_score: float | None
    """Share of the tasks whose end state is reached by doing nothing: what a verifier by end state alone would pay."""
    noop_tasks: tuple[str, ...]
    """These tasks. Their checks must ask for more than the end state."""
    barred: tuple[str, ...]
    """Tasks that a no-op passes by their checks as they are, or that have none: barred from training."""
    random_score: float | None
    reference_score: float | None
    """Share of the tasks with a reference whose reference passes its own checks."""
    label_agreement: float | None
    """Share of the recorded outcomes that the checks give again, judged anew on the end state here."""
    drift: tuple[Drift, ...]
    strata: dict[str, StratumCoverage]
    num_waiting: int
    held_out: HeldOut | None
    fidelity: Fidelity | None


def examine(
    environment: Environment,
    episodes: Sequence[RecordedEpisode] | None,
    findings: Sequence[Finding] | None = None,
    *,
    state: dict[str, Json] | None = None,
    num_folds: int = 8,
    fidelity: Fidelity | None = None,
) -> Examination:
    """Examine an environment.

    Args:
        environment: what to examine.
        episodes: the recordings that it was built from; None: only what needs none is measured.
        findings: of ``check_environment``, if they are known.
        state: tables of the initial state, if one was given.
        num_folds: parts of the held-out measurement; 0 leaves it out.
        fidelity: to the same episodes, if it was just measured.
    """
    findings = check_environment(environment) if findings is None else findings
    traced = underlying(environment)
    waiting = traced.content.waiting if traced is not None else ()
    held = None
    if episodes is not None:
        one_state = bool(traced.content.state_digest) if traced is not None else False
        trials = sort_trials(episodes, one_state=one_state)
        if fidelity is None:
            fidelity = verify_fidelity(environment, episodes, trials.task_of, waiting=[one.task for one in waiting])
        if traced is not None and (traced.content.coded or not traced.content.code) and num_folds:
            writes = {spec.name for spec in environment.tools() if spec.effect is not Effect.READ}
            held = hold_out(
                episodes,
                Base(state or {}),
                writes,
                trials.scope_of,
                num_folds=num_folds,
                functions=traced.functions,
            )
    noop = _noop_tasks(environment)
    return Examination(
        reads_reproduced=_value(fidelity.reads if fidelity else None),
        writes_reproduced=_value(fidelity.writes if fidelity else None),
        loo_reads=_value(held.reads if held else None),
        loo_writes=_value(held.writes if held else None),
        coverage=_shares({} if fidelity is None else fidelity.by_rung),
        loo_coverage=_shares({} if held is None else held.by_rung),
        read_your_writes=_value(fidelity.after_writes if fidelity else None),
        idempotent_reads=not any(finding.probe == "environment-reads" for finding in findings),
        deterministic=not any(finding.probe in _DETERMINISM for finding in findings),
        noop_score=_noop_score(environment, noop),
        noop_tasks=noop,
        barred=_barred(environment),
        random_score=_mean(
            [_passes(environment, task, _random_calls(environment, task)) for task in environment.tasks()]
        ),
        reference_score=_mean([_passes(environment, task, None) for task in _referenced(environment)]),
        label_agreement=_agreement(fidelity),
        drift=_drift(traced, fidelity),
        strata=_strata(environment, episodes),
        num_waiting=len(waiting),
        held_out=held,
        fidelity=fidelity,
    )


def underlying(environment: Environment) -> TracedEnvironment | None:
    """The environment from traces that this one is, with or without declared checks; None: it is none."""
    inner = environment.inner if isinstance(environment, DeclaredEnvironment) else environment
    return inner if isinstance(inner, TracedEnvironment) else None


def _waiting(environment: Environment) -> tuple[Waiting, ...]:
    traced = underlying(environment)
    return () if traced is None else traced.content.waiting


def _value(share: Share | None) -> float | None:
    return None if share is None or not share.total else share.value


def _mean(values: Sequence[bool]) -> float | None:
    return sum(values) / len(values) if values else None


def _shares(by_rung: dict[str, Share]) -> dict[str, float]:
    total = sum(share.total for share in by_rung.values())
    return {rung: share.total / total for rung, share in by_rung.items()} if total else {}


def _agreement(fidelity: Fidelity | None) -> float | None:
    if fidelity is None:
        return None
    parts = (fidelity.agreement.successes, fidelity.agreement.failures)
    return _value(Share(hits=sum(part.hits for part in parts), total=sum(part.total for part in parts)))


def _drift(traced: TracedEnvironment | None, fidelity: Fidelity | None) -> tuple[Drift, ...]:
    found = {one: None for program in (traced.content.programs if traced else ()) for one in drifts(program)}
    found.update(dict.fromkeys(fidelity.renamed if fidelity else ()))
    return tuple(found)


# ------------------------------------------------------------------------------------------------ scores


def _referenced(environment: Environment) -> list[Task]:
    return [task for task in environment.tasks() if environment.reference(task.id).oracle]


def _passes(environment: Environment, task: Task, calls: Sequence[ToolCall] | None) -> bool:
    """Whether calls pass the task's checks; None: those of its reference, with the reference's answer."""
    reference = environment.reference(task.id)
    wanted = reference.oracle if calls is None else calls
    world = environment.open(task)
    initial = world.snapshot()
    boundary = ToolBoundary(
        world,
        environment.tools(),
        environment.permissions(task),
        shown=task.tools,
        max_calls=len(wanted) + 1,
    )
    for call in wanted:
        call_now(boundary, call)
    evidence = Evidence(
        initial_state=initial,
        end_state=world.snapshot(),
        events=boundary.events,
        answer=reference.oracle_answer if calls is None else "",
    )
    boundary.close()
    world.close()
    verdict = CheckVerifier(reference.checks).verify(evidence)
    return all(check.passed for check in verdict.checks if check.kind is not CheckKind.PROCESS)


def _random_calls(environment: Environment, task: Task) -> list[ToolCall]:
    """A few calls as the references of other tasks make them."""
    pool = [
        call for other in environment.tasks() if other.id != task.id for call in environment.reference(other.id).oracle
    ]
    draw = derive_random("random calls", task.id)
    return [draw.choice(pool) for _ in range(min(_RANDOM_CALLS, len(pool)))]


def _noop_tasks(environment: Environment) -> tuple[str, ...]:
    """Tasks in which nothing with particulars is to be done: the end state is the initial one."""
    changing = {spec.name for spec in environment.tools() if spec.effect is not Effect.READ} - {"decline"}
    found = [
        task.id
        for task in environment.tasks()
        if not any(call.name in changing and particular(call) for call in environment.reference(task.id).oracle)
    ]
    waiting = _waiting(environment)
    found += [
        one.task.id
        for one in waiting
        if one.acts is not None and not any(call.name in changing and particular(call) for call in one.acts)
    ]
    return tuple(found)


def _noop_score(environment: Environment, noop: Sequence[str]) -> float | None:
    waiting = _waiting(environment)
    known = len(environment.tasks()) + sum(one.acts is not None for one in waiting)
    return len(noop) / known if known else None


def _barred(environment: Environment) -> tuple[str, ...]:
    passed = [task.id for task in environment.tasks() if _passes(environment, task, ())]
    waiting = _waiting(environment)
    return (*passed, *(one.task.id for one in waiting))


# ------------------------------------------------------------------------------------------------ diversity


def _strata(environment: Environment, episodes: Sequence[RecordedEpisode] | None) -> dict[str, StratumCoverage]:
    waiting = _waiting(environment)
    stratum_of = {task.id: task.stratum for task in (*environment.tasks(), *(one.task for one in waiting))}
    seen: Counter[str] = Counter()
    if episodes is not None:
        trials = sort_trials(episodes, one_state=True)
        seen.update(stratum_of.get(trials.task_of(episode), "") for episode in episodes)
    total = seen.total()
    return {
        name: StratumCoverage(
            traffic=seen[name] / total if total else environment.strata.get(name, 0.0),
            num_tasks=sum(task.stratum == name for task in environment.tasks()),
            num_families=len({task.family for task in environment.tasks() if task.stratum == name}),
            num_waiting=sum(one.task.stratum == name for one in waiting),
        )
        for name in sorted(set(stratum_of.values()))
    }
