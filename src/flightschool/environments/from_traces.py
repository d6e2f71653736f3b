"""Build an environment from recorded traces.

With code that gives a whole environment, that one is used, and the traces measure its traffic and its truth. With
plain tool functions they are run on a fresh copy of the initial state. Tools without a function are answered by what is
inferred of them, or by the recordings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec

from flightschool.digest import digest as content_digest
from flightschool.environments.built import BuiltEnvironment, LeftOut
from flightschool.environments.code_world import load_code, source_digest, tool_functions
from flightschool.environments.coded import ToolFunction, executions
from flightschool.environments.declared import Declaration, DeclaredEnvironment, load_declaration
from flightschool.environments.fidelity import Fidelity, verify_fidelity
from flightschool.environments.grouping import OTHER, families, sort_trials, strata
from flightschool.environments.inferred import Base, Program, infer
from flightschool.environments.inventory import InventoryEntry, take_inventory
from flightschool.environments.json_state import JsonBase, load_state
from flightschool.environments.long_numbers import without_long_numbers
from flightschool.environments.peopling import peopled
from flightschool.environments.recorded import DECLINE
from flightschool.environments.recordings import Coverage, Recording, ScopeOf, coverage, record_answers
from flightschool.environments.subsets import find_subsets
from flightschool.environments.tasking import Drafted, draft
from flightschool.environments.traced import RenamedEnvironment, TracedContent, TracedEnvironment, Waiting
from flightschool.environments.users import ASK_USER
from flightschool.errors import ConfigError, TraceError
from flightschool.protocols import Environment
from flightschool.records import CheckKind, CheckSpec, DiffCheck, Effect, Json, Reference, Task
from flightschool.traces import RecordedEpisode, TraceSet
from flightschool.verification.differences import json_changes

__all__ = ["build_from_traces", "open_code", "traffic_of"]


def build_from_traces(
    trace_set: TraceSet,
    name: str,
    *,
    state: Path | None = None,
    code: str | None = None,
    checks: Path | None = None,
    user: str = "",
    imitation: str = "",
) -> BuiltEnvironment:
    """An environment of the recorded episodes, with its fidelity measured.

    Args:
        trace_set: what was recorded.
        name: name of the environment.
        state: folder of JSON files with the state that *every* recorded episode started from.
        code: module or ``.py`` file with ``build_environment`` or tool functions (see ``code_world``).
        checks: TOML file of checks that judge the tasks too (see ``declared``). Recorded outcomes are held against the
            checks that are then in force, unless these ask models or start sandboxes.
        user: ``scripted``, or the endpoint of a language model that plays the user; empty: the whole brief is told.
        imitation: endpoint of a language model that invents answers of reads which nothing else knows; empty: none.

    Raises:
        TraceError: no task can be made of the traces.
        ConfigError: state, code or checks cannot be used.
    """
    declaration = None if checks is None else load_declaration(checks)
    judging = _Judging(declaration, (ASK_USER.name,) if user else ())
    usable = without_long_numbers(trace_set)
    built = _built(usable, name, state, code, judging)
    if usable is not trace_set:
        built = msgspec.structs.replace(built, traces_digest=trace_set.digest)
    if user or imitation:
        built = peopled(built, trace_set, user, imitation)
    if declaration is None:
        return built
    return msgspec.structs.replace(built, environment=DeclaredEnvironment(built.environment, declaration))


class _Judging(NamedTuple):
    """What judges the tasks beside the checks that are drafted."""

    declaration: Declaration | None
    later: tuple[str, ...]
    """Tools that the environment gets after it was measured."""

    def fidelity(
        self,
        environment: Environment,
        episodes: Sequence[RecordedEpisode],
        task_of: Callable[[RecordedEpisode], str],
        *,
        waiting: Sequence[Task] = (),
        coverage: Coverage | None = None,
        num_conflicts: int = 0,
    ) -> Fidelity:
        """Of an environment without declared checks, judged with them (see ``verify_fidelity``)."""
        declared = self.declaration
        return verify_fidelity(
            environment if declared is None else DeclaredEnvironment(environment, declared, later=self.later),
            episodes,
            task_of,
            waiting=waiting,
            outcomes=declared is None or not declared.waits,
            coverage=coverage,
            num_conflicts=num_conflicts,
        )


def traffic_of(trace_set: TraceSet, known: Collection[str] = ()) -> dict[str, float]:
    """Stratum → share of the recorded episodes, derived as an environment of these traces would have it.

    ``known``: strata by these names stand however few families they have here. What an environment calls ``other``
    follows from how much of each was recorded, so two sets of traces of one traffic would else differ by name alone.

    Raises:
        TraceError: no task can be made of the traces.
    """
    effects = {entry.spec.name: entry.spec.effect for entry in take_inventory(trace_set.episodes)}
    groups, _, scope_of = sort_trials(trace_set.episodes, one_state=False)
    drafts = [draft(task_id, trials, effects, scope_of(trials[0])) for task_id, trials in groups.items()]
    tasks, _, _ = _placed(drafts, trace_set, known)
    return _shares(tasks, groups)


def _built(trace_set: TraceSet, name: str, state: Path | None, code: str | None, judging: _Judging) -> BuiltEnvironment:
    episodes = trace_set.episodes
    inventory = take_inventory(episodes)
    tables = None if state is None else load_state(state)
    if code is not None:
        module = load_code(code)
        if callable(getattr(module, "build_environment", None)):
            return _whole(trace_set, name, code, inventory, judging)
        recorded = [entry.spec.name for entry in inventory if entry.num_calls]
        functions = tool_functions(module, recorded, f"--code {code}", some=True)
        return _drafted(trace_set, name, inventory, tables, (code, source_digest(module), functions), judging)
    return _drafted(trace_set, name, inventory, tables, None, judging)


def open_code(code: str, *, where: str = "") -> Environment:
    """The environment that a module's ``build_environment`` gives.

    Args:
        code: the module, as ``load_code`` takes it.
        where: how the user named it, for errors; by default the option ``--code``.

    Raises:
        ConfigError: it is missing, fails, or gives no environment.
    """
    where = where or f"--code {code}"
    build: Callable[[], Any] | None = getattr(load_code(code, where=where), "build_environment", None)
    if not callable(build):
        raise ConfigError(
            "the module has no function build_environment()",
            where=where,
            expected="build_environment() that returns an environment (protocols.Environment)",
            mend="add it; task folders are named by their path, tool functions go to flightschool env build --code",
        )
    try:
        made = build()
        is_one = isinstance(made, Environment)  # looks at properties, which run code of the module too
        if is_one:
            made.tasks()
    except (Exception, SystemExit) as error:
        raise ConfigError(
            f"build_environment() failed: {type(error).__name__}: {error}",
            where=where,
            expected="an environment that gives its tasks",
            mend="run it by hand and mend what it says",
        ) from error
    if not is_one:
        raise ConfigError(
            f"build_environment() gave a {type(made).__name__}",
            where=where,
            expected="an object with name, digest, tasks(), tools(), open(), … (protocols.Environment)",
            mend="return an environment",
        )
    return cast("Environment", made)


# ------------------------------------------------------------------------------------------------ whole environments


def _whole(
    trace_set: TraceSet, name: str, code: str, inventory: tuple[InventoryEntry, ...], judging: _Judging
) -> BuiltEnvironment:
    inner = open_code(code)
    stratum_of = {task.id: task.stratum for task in inner.tasks()}
    seen = Counter(stratum_of[e.hint.id] for e in trace_set.episodes if e.hint.id in stratum_of)
    if not seen:
        raise ConfigError(
            "no recorded episode belongs to a task of this environment",
            where=f"--code {code}",
            expected="episodes whose metadata name a task id of the environment",
            mend="record metadata.task, or leave --code out to build from recordings",
        )
    shares = {stratum: seen[stratum] / seen.total() for stratum in inner.strata if seen[stratum]}
    environment = RenamedEnvironment(name, inner, shares)
    fidelity = judging.fidelity(environment, trace_set.episodes, lambda episode: episode.hint.id)
    return BuiltEnvironment(
        environment=environment,
        fidelity=fidelity,
        inventory=inventory,
        left_out=(),
        traces_digest=trace_set.digest,
        code=code,
    )


# ------------------------------------------------------------------------------------------------ drafted ones


def _drafted(
    trace_set: TraceSet,
    name: str,
    inventory: tuple[InventoryEntry, ...],
    tables: dict[str, Json] | None,
    code: tuple[str, str, dict[str, ToolFunction]] | None,
    judging: _Judging,
) -> BuiltEnvironment:
    episodes = trace_set.episodes
    effects = {entry.spec.name: entry.spec.effect for entry in inventory}
    writes = frozenset(tool for tool, effect in effects.items() if effect is not Effect.READ)
    groups, task_of, scope_of = sort_trials(episodes, one_state=tables is not None)
    drafts = [draft(task_id, trials, effects, scope_of(trials[0])) for task_id, trials in groups.items()]
    tasks, references, waiting = _placed(drafts, trace_set)
    functions = {} if code is None else code[2]
    bare = {call.name for episode in episodes for call in episode.calls} - set(functions)
    coded = tuple(sorted(set(functions) & set(effects))) if bare else ()
    whole = code is not None and not bare
    rows = Base({} if tables is None else tables)
    given = {name: functions[name] for name in coded}
    answers = _Answers() if whole else _answered(episodes, rows, writes, scope_of, given)
    declines = DECLINE.name not in effects and any(reference.abstain for reference in references)
    content = TracedContent(
        policy_text=_commonest(episode.guidance for episode in episodes),
        strata=_shares(tasks, groups),
        tasks=tasks,
        references=references,
        waiting=waiting,
        tools=(*(entry.spec for entry in inventory), *((DECLINE,) if declines else ())),
        declines=declines,
        recordings=answers.recordings,
        programs=answers.programs,
        subsets=find_subsets(answers.recordings),
        state_digest="" if tables is None else content_digest(tables),
        code=code[0] if code else "",
        code_digest=code[1] if code else "",
        coded=coded,
    )
    base = None if tables is None or not whole else JsonBase(tables)
    environment = TracedEnvironment(name, content, functions if code else None, base, rows=rows)
    if code is not None:
        environment = environment.with_content(
            msgspec.structs.replace(content, references=_with_bounds(environment, references))
        )
    rates = None if whole else coverage(episodes, writes, scope_of)
    return BuiltEnvironment(
        environment=environment,
        fidelity=judging.fidelity(
            environment,
            episodes,
            task_of,
            waiting=[one.task for one in waiting],
            coverage=rates,
            num_conflicts=answers.num_conflicts,
        ),
        inventory=inventory,
        left_out=tuple(LeftOut(task=d.id, reason=d.problem) for d in drafts if d.reference is None),
        traces_digest=trace_set.digest,
        code=code[0] if code else "",
        state=tables,
    )


class _Answers(NamedTuple):
    """What answers calls for which there is no code."""

    recordings: tuple[Recording, ...] = ()
    programs: tuple[Program, ...] = ()
    num_conflicts: int = 0
    """Keys under which recordings differ."""


def _answered(
    episodes: Sequence[RecordedEpisode],
    rows: Base,
    writes: frozenset[str],
    scope_of: ScopeOf,
    given: Mapping[str, ToolFunction],
) -> _Answers:
    """Recorded and inferred answers of all tools but those that are ``given`` as code."""
    recordings, num_conflicts = record_answers(episodes, writes, scope_of)
    programs = infer(episodes, rows, writes, executions(given))
    return _Answers(tuple(one for one in recordings if one.name not in given), programs, num_conflicts)


def _placed(
    drafts: Sequence[Drafted], trace_set: TraceSet, known: Collection[str] = ()
) -> tuple[tuple[Task, ...], tuple[Reference, ...], tuple[Waiting, ...]]:
    """Tasks with family and stratum, their references, and the tasks that have none yet."""
    usable = [d for d in drafts if d.reference is not None]
    if not usable:
        reasons = Counter(d.problem for d in drafts).most_common(1)
        raise TraceError(
            f"no task can be made of {len(drafts)} recorded ones: {reasons[0][0] if reasons else 'none recorded'}",
            where=f"traces in format {trace_set.format}",
            expected="recorded outcomes (metadata.success or metadata.reward) or ground truth (metadata.actions)",
            mend="record outcomes with the traces, or give code with tasks of its own (--code)",
        )
    family_of = families([(d, d.task) for d in drafts])
    stratum_of = strata([(d, d.task) for d in usable], family_of, known)
    tasks = tuple(msgspec.structs.replace(d.task, family=family_of[d.id], stratum=stratum_of[d.id]) for d in usable)
    waiting = tuple(
        Waiting(
            task=msgspec.structs.replace(d.task, family=family_of[d.id], stratum=_named_stratum(d)),
            reason=d.problem,
            num_episodes=len(d.episodes),
            acts=d.truth,
        )
        for d in drafts
        if d.reference is None
    )
    return tasks, tuple(d.reference for d in usable if d.reference is not None), waiting


def _named_stratum(drafted: Drafted) -> str:
    """The recorded stratum of a task without a reference; what must be called is not known, so none is derived."""
    return next((e.hint.stratum for e in drafted.episodes if e.hint.stratum), OTHER)


def _shares(tasks: Sequence[Task], groups: dict[str, list[RecordedEpisode]]) -> dict[str, float]:
    seen: Counter[str] = Counter()
    for task in tasks:
        seen[task.stratum] += len(groups[task.id])
    return {stratum: count / seen.total() for stratum, count in sorted(seen.items())}


def _commonest(texts: Any) -> str:
    ranked = Counter(texts).most_common(1)
    return ranked[0][0] if ranked else ""


def _with_bounds(environment: TracedEnvironment, references: Sequence[Reference]) -> tuple[Reference, ...]:
    """References with a constraint on the end state: no more rows may change than the oracle changes.

    Where tool functions answer, the oracle can be run; what it changes is the measure of collateral damage.
    """
    bounded = []
    for reference in references:
        world = environment.open(environment.task(reference.task_id))
        before = world.snapshot()
        for call in reference.oracle:
            world.execute(call)
        after = world.snapshot()
        world.close()
        changes = {} if before == after else json_changes(before, after)
        rule = DiffCheck(allowed={table: change.total for table, change in changes.items() if change.total})
        check = CheckSpec(id="no-other-change", kind=CheckKind.CONSTRAINT, rule=rule, author="traces")
        bounded.append(msgspec.structs.replace(reference, checks=(*reference.checks, check)))
    return tuple(bounded)
