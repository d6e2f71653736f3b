"""``eval list · run · compare``: measuring on a suite that was frozen before the training began."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
import typer

from flightschool.cli import eval_holdout, eval_upkeep, eval_validity, output
from flightschool.cli.candidates import candidate_digest
from flightschool.cli.references import actor, fault_profile, policy, reopen_environment, workspace
from flightschool.cli.verb import group, verb
from flightschool.errors import GateError, NotFoundError
from flightschool.records import Record

if TYPE_CHECKING:
    from flightschool.evaluation import Comparison, EvaluationRun, Summary
    from flightschool.lineage import KinCounts
    from flightschool.perturbation import FaultProfile
    from flightschool.protocols import Environment
    from flightschool.records import Attempt, Suite
    from flightschool.store import Workspace

__all__ = ["register"]

EVALUATION_KIND = "evaluation"
SUMMARY_KIND = "evaluation-summary"
STARTED_KIND = "evaluation-started"
BATCH = 256


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    evaluation = group(app, "eval", "Measure on a suite that was frozen before the training began.")
    eval_holdout.register(evaluation)
    verb(evaluation, "list", example="flightschool eval list")(list_)
    verb(evaluation, "run", example="flightschool eval run checkride --policy run:my-run --perturb noisy")(run)
    verb(evaluation, "compare", example="flightschool eval compare checkride model:./before run:my-run")(compare)
    eval_validity.register(evaluation)
    eval_upkeep.register(evaluation)


def list_() -> None:
    """List suites and evaluations of the workspace."""
    from flightschool.evaluation import EvaluationRun
    from flightschool.records import Suite

    with workspace() as space:
        suites = [suite for _, suite in space.store.items("suite", Suite)]
        runs = [run for _, run in space.store.items(EVALUATION_KIND, EvaluationRun)]
    output.table(
        "Suites",
        ("suite", "environment", "#tasks", "frozen at"),
        [(s.name, s.environment, len(s.task_digests), s.frozen_at) for s in suites],
    )
    output.table(
        "Evaluations", ("id", "suite", "policy", "weather"), [(r.id, r.suite, r.policy, r.noise) for r in runs]
    )
    output.finish(
        {
            "suites": suites,
            "evaluations": [{"id": r.id, "suite": r.suite, "policy": r.policy, "noise": r.noise} for r in runs],
        }
    )


def run(
    suite: str = typer.Argument(..., metavar="S", help="A frozen suite."),
    policy_text: str = typer.Option(..., "--policy", help="What is measured, see rollout --help."),
    perturb: str | None = typer.Option(None, "--perturb", help="Fault profile: clean, noisy, storm, or a path."),
    repeats: int = typer.Option(1, "--repeats", min=1, help="Attempts at each task."),
    temperature: float = typer.Option(
        0.0, "--temperature", min=0.0, help="Sampling temperature of a model; 0 = greedy."
    ),
    seed: int = typer.Option(0, "--seed", help="Equal seeds pair two evaluations."),
) -> None:
    """Measure a policy on a frozen suite, with intervals."""
    from flightschool.evaluation import latency, summarise
    from flightschool.governance import known_error

    with workspace() as space:
        frozen, world = _suite(space, suite)
        measured = _measure(space, frozen, world, policy_text, fault_profile(perturb), repeats, temperature, seed)
        sealed_kin = _sealed_kin(space, frozen, policy_text)
        known = known_error(space.store, measured.environment_digest)
    summary = summarise(measured, error=None if known is None else (known.rho0, known.rho1))
    _tell(summary)
    if known is not None:
        output.say(
            f"the verifier errs, by {known.num_reviewed} reviewed attempts (sheet {known.sheet}): passes wrong work "
            f"with ρ0 = {known.rho0.value:.3f}, refuses right work with ρ1 = {known.rho1.value:.3f}"
        )
    output.say(f"lineage: {measured.lineage}" + (f"; {sealed_kin}" if isinstance(sealed_kin, str) else ""))
    output.finish(
        {
            "id": measured.id,
            "suite": measured.suite,
            "policy": policy_text,
            "accuracy": _figure(summary, "success/weighted"),
            "accuracy_corrected": _figure(summary, "success_corrected/weighted"),
            "verifier_error": known,
            "latency": {**latency(measured), "mean": _figure(summary, "virtual_ms/weighted")},
            "risk": {
                "violations": _figure(summary, "violations/weighted"),
                "num_violations": sum(len(item.violations) for item in measured.items),
            },
            "strata": {name: _figure(summary, f"success/stratum:{name}") for name in measured.weights},
            "infra": {"missing": summary.num_missing, "low_bound": summary.low_bound, "high_bound": summary.high_bound},
            "lineage": {
                "statement": measured.lineage,
                "num_suspected": len({item.task for item in measured.items if item.suspected}),
                "sealed": sealed_kin,
            },
            "log_head": measured.log_head,
            "summary": summary,
            "digest": measured.digest,
        },
        fell_short=not measured.graded,
    )


def compare(
    suite: str = typer.Argument(..., metavar="S", help="A frozen suite."),
    baseline: str = typer.Argument(..., metavar="BASELINE", help="An evaluation's id, or a policy to measure now."),
    candidate: str = typer.Argument(..., metavar="CANDIDATE", help="An evaluation's id, or a policy to measure now."),
    perturb: str | None = typer.Option(None, "--perturb", help="Fault profile of what is measured now."),
    repeats: int = typer.Option(1, "--repeats", min=1, help="Attempts at each task of what is measured now."),
    temperature: float = typer.Option(
        0.0, "--temperature", min=0.0, help="Sampling temperature of what is measured now."
    ),
    seed: int = typer.Option(0, "--seed", help="Seed of what is measured now."),
) -> None:
    """Compare two policies on one suite, paired; the difference is CANDIDATE - BASELINE.

    Ends with 1 when the candidate is worse, or when the comparison is not reliable.
    """
    from flightschool.evaluation import compare as pair
    from flightschool.evaluation import load_run

    with workspace() as space:
        frozen, world = _suite(space, suite)
        profile = fault_profile(perturb)

        def found(reference: str) -> EvaluationRun:
            if space.store.has(EVALUATION_KIND, reference):
                return load_run(space.store, reference)
            if ":" not in reference and reference not in ("oracle", "noop", "random"):
                known = ", ".join(space.store.keys(EVALUATION_KIND)) or "none yet"
                raise NotFoundError(
                    f"{reference!r} is no evaluation and no policy",
                    where="eval compare",
                    expected=f"an evaluation ({known}) or a policy such as model:DIR",
                    mend="see flightschool eval list",
                )
            return _measure(space, frozen, world, reference, profile, repeats, temperature, seed)

        comparison = pair(found(baseline), found(candidate))
    _tell_comparison(comparison)
    output.finish(
        {**msgspec.to_builtins(comparison)},
        fell_short=comparison.winner == "baseline" or not comparison.reliable,
    )


# ------------------------------------------------------------------------------------------------ parts


def _suite(space: Workspace, name: str) -> tuple[Suite, Environment]:
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


def _measure(
    space: Workspace,
    suite: Suite,
    world: Environment,
    policy_text: str,
    profile: FaultProfile | None,
    repeats: int,
    temperature: float,
    seed: int,
) -> EvaluationRun:
    """Measure, and keep the evaluation with all its attempts."""
    from flightschool.cli.ancestry import ancestry
    from flightschool.cli.runbook import PROFILE_KIND
    from flightschool.evaluation import evaluate, keep_run, kinship, load_design, require_design, summarise
    from flightschool.governance import AuditLog, known_error
    from flightschool.rollouts import Sampling
    from flightschool.verification import current_reward

    chosen = policy(policy_text, world, space, Sampling(temperature=temperature, shared="opening"))
    attempts: list[Attempt] = []
    composition = current_reward(space.store)
    design = load_design(space.store, suite.name)
    if design is not None:
        faults = {} if profile is None else {profile.label: profile.digest}
        require_design(design, suite, world, composition=composition, faults=faults)

    started = Started(
        suite=suite.digest,
        candidate=candidate_digest(policy_text, space),
        noise="" if profile is None else profile.digest,
        composition=composition.digest,
        repeats=repeats,
        temperature=temperature,
        seed=seed,
    )
    run_id, kept = _begun(space, started)

    def keep() -> None:
        space.store.put_many(("attempt", attempt.id, attempt) for attempt in attempts)
        attempts.clear()

    def note(attempt: Attempt) -> None:
        """Attempts go to the store in batches: a long run neither fills memory nor loses much when it is killed."""
        attempts.append(attempt)
        if len(attempts) >= BATCH:
            keep()

    if profile is not None:
        space.store.put(PROFILE_KIND, profile.label, profile)
    with output.progress(f"{policy_text} on {suite.name}", len(suite.task_digests) * repeats) as bar:
        measured = evaluate(
            suite,
            world,
            chosen,
            composition=composition,
            run=run_id,
            weather_profile=profile,
            repeats=repeats,
            seed=seed,
            progress=bar.tick,
            on_attempt=note,
            kin=kinship(suite, world, ancestry(policy_text, space)),
            log_head=AuditLog(space.store).head().digest,
            kept=kept,
        )
    keep()
    keep_run(space.store, measured, actor=actor())
    space.store.delete(STARTED_KIND, run_id)
    if measured.graded:
        known = known_error(space.store, measured.environment_digest)
        summary = summarise(measured, error=None if known is None else (known.rho0, known.rho1))
        space.store.put(SUMMARY_KIND, measured.id, summary)  # opens at once, however long the run was
    return measured


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


def _begun(space: Workspace, started: Started) -> tuple[str, dict[tuple[str, int], Attempt]]:
    """The id to measure under, and what is kept of an evaluation of just this kind that was killed."""
    from flightschool.records import Attempt

    for run_id, known in list(space.store.items(STARTED_KIND, Started)):
        if known == started and not space.store.has(EVALUATION_KIND, run_id):
            attempts = [attempt for _, attempt in space.store.items("attempt", Attempt, f"{run_id}:")]
            output.say(f"{run_id} was cut short: going on with its {len(attempts)} attempts")
            return run_id, {(attempt.task, attempt.index): attempt for attempt in attempts}
    run_id = _free_id(space)
    space.store.put(STARTED_KIND, run_id, started)
    return run_id, {}


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


def _figure(summary: Summary, name: str) -> dict[str, float] | None:
    """One measurement in the keys of the contract; None where it could not be made."""
    found = next((m for m in summary.measurements if m.name == name), None)
    return None if found is None else {"mean": found.value, "low": found.low, "high": found.high, "n": found.num_items}


def _free_id(space: Workspace) -> str:
    taken = {*space.store.keys(EVALUATION_KIND), *space.store.keys(STARTED_KIND)}
    number = len(taken) + 1
    while f"eval-{number:04d}" in taken:
        number += 1
    return f"eval-{number:04d}"


def _headline(name: str) -> bool:
    """Success in every scope, the other metrics over all traffic: --json gives the rest."""
    metric, _, scope = name.partition("/")
    return metric == "success" or scope == "weighted"


def _tell(summary: Summary) -> None:
    rows = [
        (m.name, f"{m.value:.3g}", f"{m.low:.3g} to {m.high:.3g}", m.num_items)
        for m in summary.measurements
        if _headline(m.name)
    ]
    title = f"{summary.policy} on {summary.suite} ({summary.noise})"
    output.table(title, ("metric", "#value", "#95 % interval", "#n"), rows)
    for note in summary.notes:
        output.say(f"note: {note}")


def _tell_comparison(comparison: Comparison) -> None:
    shown: Sequence[tuple[object, ...]] = [
        (
            d.name,
            f"{d.before:.3g}",
            f"{d.after:.3g}",
            f"{d.diff:+.3g}",
            f"{d.low:+.3g} to {d.high:+.3g}",
            d.winner or "open",
        )
        for d in comparison.differences
        if _headline(d.name)
    ]
    output.table(
        f"{comparison.candidate} - {comparison.baseline} on {comparison.suite} ({comparison.noise})",
        ("metric", "#baseline", "#candidate", "#difference", "95 %", "better"),
        shown,
    )
    judged = "reliable" if comparison.reliable else f"NOT reliable ({'; '.join(comparison.doubts)}): no winner"
    output.say(
        f"success {comparison.diff:+.3f} ({comparison.low:+.3f} to {comparison.high:+.3f}), {judged}; "
        f"differences below {comparison.mde:.3f} would be missed"
    )
