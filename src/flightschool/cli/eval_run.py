"""``eval run · regrade``: measuring on a frozen suite, and judging stored attempts again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

import typer

from flightschool.cli import output
from flightschool.cli.candidates import candidate_digest
from flightschool.cli.eval_telling import headline, result, tell_regraded, tell_run
from flightschool.cli.references import actor, fault_profile, policy, reopen_environment, workspace
from flightschool.cli.verb import verb
from flightschool.errors import GateError, InputError
from flightschool.records import Record

if TYPE_CHECKING:
    from flightschool.evaluation import EvaluationRun, How, Prices
    from flightschool.governance import KnownError
    from flightschool.lineage import KinCounts
    from flightschool.perturbation import FaultProfile
    from flightschool.protocols import Environment
    from flightschool.records import Attempt, Suite
    from flightschool.rollouts import Policy
    from flightschool.store import Workspace

__all__ = [
    "EVALUATION_KIND",
    "Asked",
    "free_id",
    "keep_summary",
    "keeping",
    "measure",
    "open_suite",
    "prepared",
    "register",
]

EVALUATION_KIND = "evaluation"
SUMMARY_KIND = "evaluation-summary"
STARTED_KIND = "evaluation-started"
BATCH = 256
SOON_S = 0.1
"""Seconds that an attempt waits at most before it is kept."""


class Asked(Record, frozen=True, kw_only=True):
    """How a policy is to be measured, as the command line says."""

    perturb: str | None = None
    repeats: int = 1
    temperature: float = 0.0
    seed: int = 0
    concurrency: int = 64
    price_in: float | None = None
    price_out: float | None = None
    budget: float | None = None
    enforcement: bool = True
    keep_states: bool = False


class Started(Record, frozen=True, kw_only=True):
    """An evaluation that has begun and may have been killed; gone when it is finished."""

    suite: str
    candidate: str
    """Digest of the candidate's content: other weights under the same name are another evaluation."""
    noise: str
    composition: str
    repeats: int
    temperature: float
    seed: int
    enforced: bool = True


def register(evaluation: typer.Typer) -> None:
    """Add the verbs to the group ``eval``."""
    verb(evaluation, "run", example="flightschool eval run checkride --policy run:my-run --perturb noisy --clean")(run)
    verb(evaluation, "regrade", example="flightschool eval regrade eval-0001 --suite checkride-2")(regrade)


def run(
    suite: str = typer.Argument(..., metavar="S", help="A frozen suite."),
    policy_text: str = typer.Option(..., "--policy", help="What is measured, see rollout --help."),
    perturb: str | None = typer.Option(None, "--perturb", help="Fault profile: clean, noisy, storm, or a path."),
    clean: bool = typer.Option(False, "--clean", help="With --perturb: clear weather as well, side by side."),
    repeats: int = typer.Option(1, "--repeats", min=1, help="Attempts at each task."),
    temperature: float = typer.Option(
        0.0, "--temperature", min=0.0, help="Sampling temperature of a model; 0 = greedy."
    ),
    seed: int = typer.Option(0, "--seed", help="Equal seeds pair two evaluations."),
    concurrency: int = typer.Option(64, "--concurrency", min=1, help="Attempts at a time."),
    price_in: float | None = typer.Option(None, "--price-in", min=0.0, help="US dollars for a million tokens read."),
    price_out: float | None = typer.Option(
        None, "--price-out", min=0.0, help="US dollars for a million tokens sampled."
    ),
    budget: float | None = typer.Option(
        None, "--budget", min=0.0, help="Most US dollars that the evaluation may cost."
    ),
    enforcement: bool = typer.Option(
        True, "--enforcement/--no-enforcement", help="Refuse calls that no permission allows, or only count them."
    ),
    keep_states: bool = typer.Option(False, "--keep-states", help="Keep end states, so that regrading need not act."),
) -> None:
    """Measure a policy on a frozen suite, with intervals.

    Limits, retries and targets are those that the freeze registered. Ends with 1 when a target is missed; that nothing
    was graded is an error.
    """
    from flightschool.evaluation import load_design
    from flightschool.governance import known_error

    asked = Asked(
        perturb=perturb,
        repeats=repeats,
        temperature=temperature,
        seed=seed,
        concurrency=concurrency,
        price_in=price_in,
        price_out=price_out,
        budget=budget,
        enforcement=enforcement,
        keep_states=keep_states,
    )
    with workspace() as space:
        frozen, world = open_suite(space, suite)
        beside = None
        if clean and fault_profile(perturb) is not None:
            beside = measure(space, frozen, world, policy_text, _clear(asked))
        measured = measure(space, frozen, world, policy_text, asked)
        sealed_kin = _sealed_kin(space, frozen, policy_text)
        design = load_design(space.store, frozen.name)
        known = known_error(space.store, measured.environment_digest)
    _tell_and_finish(policy_text, measured, beside, {} if design is None else design.targets, known, sealed_kin)


def regrade(
    evaluation: str = typer.Argument(..., metavar="EVALUATION", help="Id of an evaluation whose attempts are kept."),
    suite: str | None = typer.Option(None, "--suite", help="Judge by this version of the suite; its own by default."),
) -> None:
    """Judge the stored attempts of an evaluation again, without flying them anew.

    For corrected truths (a new version of the suite), another reward, an exchanged judge. Ends with 1 when a grade
    turned or was lost.
    """
    from flightschool.cli.eval_folders import composition_of, folder_judge, is_folders
    from flightschool.cli.runbook import recorded_profile
    from flightschool.evaluation import keep_run, load_run, regrade_run, summarise

    with workspace() as space:
        flown = load_run(space.store, evaluation)
        frozen, world = open_suite(space, suite or flown.suite)
        profile = None if not flown.noise_digest else recorded_profile(space.store, flown.noise)
        with output.progress(f"{evaluation} again, on {frozen.name}", len(flown.items)) as bar:
            found = regrade_run(
                space.store,
                flown,
                frozen,
                world,
                composition=composition_of(space.store, world),
                run_id=free_id(space),
                weather_profile=profile,
                open_judge=folder_judge(space, world) if is_folders(world) else None,
                progress=bar.tick,
            )
        keep_run(space.store, found.run, actor=actor())
        if found.run.graded:
            space.store.put(SUMMARY_KIND, found.run.id, summarise(found.run))
    tell_regraded(found)
    output.finish(
        {
            "id": found.run.id,
            "of": evaluation,
            "suite": found.run.suite,
            "num_items": len(found.run.items),
            "turned": found.turned,
            "lost": found.lost,
            "accuracy": headline(summarise(found.run), "success/weighted") if found.run.graded else None,
            "digest": found.run.digest,
        },
        fell_short=bool(found.turned or found.lost),
    )


# ------------------------------------------------------------------------------------------------ for other verbs too


def open_suite(space: Workspace, name: str) -> tuple[Suite, Environment]:
    """A frozen suite with its environment, both as they were. Raises ``GateError`` for a sealed or changed one."""
    from flightschool.evaluation import load_sealed, load_suite
    from flightschool.records import Suite

    if not space.store.has("suite", name) and space.store.has("sealed-holdout", name):
        sealed = load_sealed(space.store, name)
        raise GateError(
            f"{name!r} is sealed",
            where=f"holdout {name}",
            expected="final acceptance",
            mend=f"measure on {sealed.suite}; when all is decided: flightschool eval accept {sealed.suite} --policy P",
        )
    kind = "holdout" if space.store.has("holdout", name) else "suite"
    named = space.store.get(kind, name, Suite)
    world = reopen_environment(named.environment, named.environment_digest, space)
    return load_suite(space.store, name, world), world


def measure(space: Workspace, suite: Suite, world: Environment, policy_text: str, asked: Asked) -> EvaluationRun:
    """Measure, and keep the evaluation with all its attempts."""
    from flightschool.evaluation import evaluate, keep_run

    chosen, how = prepared(space, suite, world, policy_text, asked)
    profile = how.get("weather_profile")
    run_id, kept = _begun(space, _started(space, suite, policy_text, profile, how["composition"].digest, asked))
    with keeping(space) as keep, progress_of(policy_text, suite, asked) as bar:
        own: How = {**how, "run": run_id, "kept": kept, "on_attempt": keep, "progress": bar.tick}
        measured = evaluate(suite, world, chosen, **own)
    keep_run(space.store, measured, actor=actor())
    space.store.delete(STARTED_KIND, run_id)
    keep_summary(space, measured)
    return measured


def prepared(space: Workspace, suite: Suite, world: Environment, policy_text: str, asked: Asked) -> tuple[Policy, How]:
    """The policy, and how it is measured as the suite was frozen. Raises ``GateError`` for what has changed since."""
    from flightschool.cli.ancestry import ancestry
    from flightschool.cli.eval_folders import composition_of, folder_policy, is_folders, refuse_for_folders
    from flightschool.cli.runbook import PROFILE_KIND
    from flightschool.evaluation import RunRules, kinship, load_design, require_design, suite_texts
    from flightschool.governance import AuditLog
    from flightschool.rollouts import Sampling

    profile, composition = fault_profile(asked.perturb), composition_of(space.store, world)
    sampling, opened = Sampling(temperature=asked.temperature, shared="opening"), None
    if is_folders(world):
        refuse_for_folders(asked.perturb if profile is not None else None, asked.enforcement)
        chosen, opened = folder_policy(policy_text, world, space, sampling, keep_states=asked.keep_states)
    else:
        chosen = policy(policy_text, world, space, sampling)
    design = load_design(space.store, suite.name)
    if design is not None:
        faults = {} if profile is None else {profile.label: profile.digest}
        require_design(design, suite, world, composition=composition, faults=faults)
    if profile is not None:
        space.store.put(PROFILE_KIND, profile.label, profile)
    return chosen, {
        "composition": composition,
        "run": "",
        "weather_profile": profile,
        "repeats": asked.repeats,
        "seed": asked.seed,
        "concurrency": asked.concurrency,
        "keep_blob": space.store.put_blob if asked.keep_states else None,
        "open_runner": opened,
        "kin": kinship(suite, suite_texts(suite, world), ancestry(policy_text, space)),
        "log_head": AuditLog(space.store).head().digest,
        "rules": RunRules() if design is None else design.rules,
        "prices": _prices(asked),
        "budget_usd": asked.budget,
        "enforce": asked.enforcement,
    }


@contextmanager
def keeping(space: Workspace) -> Iterator[Callable[[Attempt], None]]:
    """Attempts go to the store in batches, soon after they ended: each may have cost money, and a run may be killed."""
    waiting: list[Attempt] = []

    def keep() -> None:
        space.store.put_many(("attempt", attempt.id, attempt) for attempt in waiting)
        waiting.clear()

    def note(attempt: Attempt) -> None:
        waiting.append(attempt)
        if len(waiting) >= BATCH:
            keep()
        elif len(waiting) == 1:  # the loop in which attempts end
            asyncio.get_running_loop().call_later(SOON_S, keep)

    try:
        yield note
    finally:
        keep()  # a spent budget or an interrupt loses nothing that was flown


def progress_of(policy_text: str, suite: Suite, asked: Asked) -> AbstractContextManager[output.Ticker]:
    return output.progress(f"{policy_text} on {suite.name}", len(suite.task_digests) * asked.repeats)


# ------------------------------------------------------------------------------------------------ parts


def _tell_and_finish(
    policy_text: str,
    measured: EvaluationRun,
    beside: EvaluationRun | None,
    targets: Mapping[str, float],
    known: KnownError | None,
    sealed_kin: KinCounts | str | None,
) -> None:
    """Say what was measured, beside clear weather where that was asked for, and end the verb."""
    from flightschool.evaluation import held_against, summarise

    summary = summarise(measured, error=None if known is None else (known.rho0, known.rho1))
    rows = held_against(targets, measured, summary)
    tell_run(measured, summary, rows, None if beside is None else summarise(beside))
    if known is not None:
        output.say(
            f"the verifier errs, by {known.num_reviewed} reviewed attempts (sheet {known.sheet}): passes wrong work "
            f"with ρ0 = {known.rho0.value:.3f}, refuses right work with ρ1 = {known.rho1.value:.3f}"
        )
    output.say(f"lineage: {measured.lineage}" + (f"; {sealed_kin}" if isinstance(sealed_kin, str) else ""))
    told = result(measured, summary, rows, policy_text, sealed_kin) | {"verifier_error": known}
    if beside is not None:
        told["clean"] = result(beside, summarise(beside), (), policy_text, sealed_kin)
    output.finish(told, fell_short=any(row.state == "missed" for row in rows))


def _clear(asked: Asked) -> Asked:
    import msgspec

    return msgspec.structs.replace(asked, perturb=None)


def _prices(asked: Asked) -> Prices | None:
    from flightschool.evaluation import Prices

    if (asked.price_in is None) != (asked.price_out is None):
        raise InputError(
            "one price of two", where="--price-in, --price-out", expected="both or none", mend="state the other as well"
        )
    if asked.price_in is None or asked.price_out is None:
        return None
    return Prices(input=asked.price_in, output=asked.price_out)


def _started(
    space: Workspace, suite: Suite, policy_text: str, profile: FaultProfile | None, composition: str, asked: Asked
) -> Started:
    return Started(
        suite=suite.digest,
        candidate=candidate_digest(policy_text, space),
        noise="" if profile is None else profile.digest,
        composition=composition,
        repeats=asked.repeats,
        temperature=asked.temperature,
        seed=asked.seed,
        enforced=asked.enforcement,
    )


def _begun(space: Workspace, started: Started) -> tuple[str, dict[tuple[str, int], Attempt]]:
    """The id to measure under, and what is kept of an evaluation of just this kind that was killed."""
    from flightschool.records import Attempt

    for run_id, known in list(space.store.items(STARTED_KIND, Started)):
        if known == started and not space.store.has(EVALUATION_KIND, run_id):
            attempts = [attempt for _, attempt in space.store.items("attempt", Attempt, f"{run_id}:")]
            output.say(f"{run_id} was cut short: going on with its {len(attempts)} attempts")
            return run_id, {(attempt.task, attempt.index): attempt for attempt in attempts}
    run_id = free_id(space)
    space.store.put(STARTED_KIND, run_id, started)
    return run_id, {}


def free_id(space: Workspace) -> str:
    taken = {*space.store.keys(EVALUATION_KIND), *space.store.keys(STARTED_KIND)}
    number = len(taken) + 1
    while f"eval-{number:04d}" in taken:
        number += 1
    return f"eval-{number:04d}"


def keep_summary(space: Workspace, measured: EvaluationRun) -> None:
    """So that it opens at once, however long the run was."""
    from flightschool.evaluation import summarise
    from flightschool.governance import known_error

    if measured.graded:
        known = known_error(space.store, measured.environment_digest)
        summary = summarise(measured, error=None if known is None else (known.rho0, known.rho1))
        space.store.put(SUMMARY_KIND, measured.id, summary)


def _sealed_kin(space: Workspace, suite: Suite, policy_text: str) -> KinCounts | str | None:
    """Counts of sealed tasks with kin in the policy's training, or why there are none; None without need."""
    from flightschool.cli.ancestry import ancestry
    from flightschool.evaluation import count_sealed_kin, load_sealed
    from flightschool.governance import KeyRing

    if not space.store.has("sealed-holdout", f"{suite.name}-holdout"):
        return None
    card, texts = load_sealed(space.store, suite.name), ancestry(policy_text, space).texts
    if not texts:
        return None
    try:
        return count_sealed_kin(card, texts, KeyRing(outside=space.root), role=card.role)
    except GateError as error:
        return f"not compared with the sealed part: {error.what}"
