"""``eval freeze · run · compare``: measuring on a suite that was frozen before the training began."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import typer

from flightschool.cli import output
from flightschool.cli.references import (
    actor,
    check_name,
    fault_profile,
    open_environment,
    policy,
    reopen_environment,
    workspace,
)
from flightschool.cli.verb import group, verb
from flightschool.errors import InputError, NotFoundError

if TYPE_CHECKING:
    from flightschool.evaluation import Comparison, EvaluationRun, Summary
    from flightschool.perturbation import FaultProfile
    from flightschool.protocols import Environment
    from flightschool.records import Suite
    from flightschool.store import Workspace

__all__ = ["register"]

EVALUATION_KIND = "evaluation"


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    evaluation = group(app, "eval", "Measure on a suite that was frozen before the training began.")
    verb(evaluation, "freeze", example="flightschool eval freeze desk --name checkride --strata stratum --holdout 0.1")(
        freeze
    )
    verb(evaluation, "list", example="flightschool eval list")(list_)
    verb(evaluation, "run", example="flightschool eval run checkride --policy run:my-run --perturb noisy")(run)
    verb(evaluation, "compare", example="flightschool eval compare checkride model:./before run:my-run")(compare)


def freeze(
    environment: str = typer.Argument(..., metavar="E", help="Environment: a name, or a path."),
    name: str = typer.Option(..., "--name", help="Name of the suite; the sealed part is called NAME-holdout."),
    strata: str = typer.Option("stratum", "--strata", help="Attribute of tasks that names the stratum."),
    weights: Path | None = typer.Option(None, "--weights", help="TOML or JSON file: stratum = share of traffic."),
    holdout: float = typer.Option(0.1, "--holdout", min=0.0, max=0.9, help="Share of families to seal."),
    fraction: float = typer.Option(0.25, "--fraction", min=0.01, max=0.9, help="Share of families to measure on."),
    trained: list[str] = typer.Option([], "--trained", help="Stratum that the training will train; may be repeated."),
    per_family: int | None = typer.Option(None, "--per-family", min=1, help="Most tasks of one family."),
    seed: int = typer.Option(0, "--seed", help="Which families are taken."),
) -> None:
    """Freeze a suite and a sealed holdout, by family; what is left is the training pool."""
    from flightschool.evaluation import freeze as take
    from flightschool.evaluation import save_frozen

    check_name(name, "--name")
    with workspace() as space:
        frozen = take(
            open_environment(environment, space),
            name,
            strata=strata,
            weights=_weights(weights) if weights is not None else None,
            suite_fraction=fraction,
            holdout_fraction=holdout,
            seed=seed,
            trained=trained,
            max_tasks_per_family=per_family,
        )
        save_frozen(space.store, frozen, actor=actor())
    suite = frozen.suite
    rows = [(s.name, f"{s.weight:.0%}", s.num_tasks, len(s.families), "yes" if s.trained else "") for s in suite.strata]
    output.table(f"Suite {name}", ("stratum", "#traffic", "#tasks", "#families", "trained"), rows)
    sealed = len(frozen.holdout.task_digests) if frozen.holdout is not None else 0
    output.say(f"{len(suite.task_digests)} tasks frozen, {sealed} sealed, {len(frozen.pool)} left to train on")
    output.finish(
        {
            "suite": suite,
            "digest": suite.digest,
            "holdout": frozen.holdout.name if frozen.holdout is not None else None,
            "num_tasks": len(suite.task_digests),
            "num_holdout": sealed,
            "num_pool": len(frozen.pool),
        }
    )


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
    suite: str = typer.Argument(..., metavar="S", help="A frozen suite, or a holdout with --reason."),
    policy_text: str = typer.Option(..., "--policy", help="What is measured, see rollout --help."),
    perturb: str | None = typer.Option(None, "--perturb", help="Fault profile: clean, noisy, storm, or a path."),
    repeats: int = typer.Option(1, "--repeats", min=1, help="Attempts at each task."),
    temperature: float = typer.Option(
        0.0, "--temperature", min=0.0, help="Sampling temperature of a model; 0 = greedy."
    ),
    seed: int = typer.Option(0, "--seed", help="Equal seeds pair two evaluations."),
    reason: str = typer.Option("", "--reason", help="Why a sealed holdout is opened; written to the audit log."),
) -> None:
    """Measure a policy on a frozen suite, with intervals."""
    from flightschool.evaluation import summarise

    with workspace() as space:
        frozen, world = _suite(space, suite, reason)
        measured = _measure(space, frozen, world, policy_text, fault_profile(perturb), repeats, temperature, seed)
    summary = summarise(measured)
    _tell(summary)
    output.finish(
        {"id": measured.id, "policy": policy_text, "summary": summary, "digest": measured.digest},
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
    from flightschool.evaluation import EvaluationRun
    from flightschool.evaluation import compare as pair

    with workspace() as space:
        frozen, world = _suite(space, suite, "")
        profile = fault_profile(perturb)

        def found(reference: str) -> EvaluationRun:
            if space.store.has(EVALUATION_KIND, reference):
                return space.store.get(EVALUATION_KIND, reference, EvaluationRun)
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


def _suite(space: Workspace, name: str, reason: str) -> tuple[Suite, Environment]:
    from flightschool.evaluation import load_suite, open_holdout
    from flightschool.records import Suite

    kind = "holdout" if space.store.has("holdout", name) else "suite"
    named = space.store.get(kind, name, Suite)
    world = reopen_environment(named.environment, named.environment_digest, space)
    if kind == "holdout" and reason:
        return open_holdout(space.store, name, world, actor=actor(), reason=reason), world
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
    from flightschool.cli.runbook import PROFILE_KIND
    from flightschool.evaluation import evaluate
    from flightschool.records import Attempt
    from flightschool.rollouts import Sampling
    from flightschool.verification import current_reward

    chosen = policy(policy_text, world, space, Sampling(temperature=temperature, shared="opening"))
    attempts: list[Attempt] = []
    if profile is not None:
        space.store.put(PROFILE_KIND, profile.label, profile)
    with output.progress(f"{policy_text} on {suite.name}", len(suite.task_digests) * repeats) as bar:
        measured = evaluate(
            suite,
            world,
            chosen,
            composition=current_reward(space.store),
            run=_free_id(space),
            weather_profile=profile,
            repeats=repeats,
            seed=seed,
            progress=bar.tick,
            on_attempt=attempts.append,
        )
    space.store.put_many(("attempt", attempt.id, attempt) for attempt in attempts)
    space.store.put(EVALUATION_KIND, measured.id, measured)
    return measured


def _free_id(space: Workspace) -> str:
    number = len(space.store.keys(EVALUATION_KIND)) + 1
    while space.store.has(EVALUATION_KIND, f"eval-{number:04d}"):
        number += 1
    return f"eval-{number:04d}"


def _weights(path: Path) -> Mapping[str, float]:
    """Shares of traffic from a file: one table of numbers."""
    expected = 'one table: stratum = share, for instance "lookup" = 0.4'
    try:
        text = path.read_text(encoding="utf-8")
        table = msgspec.json.decode(text) if path.suffix == ".json" else tomllib.loads(text)
        return msgspec.convert(table, dict[str, float])
    except FileNotFoundError:
        raise InputError(
            "file of weights not found", where=str(path), expected=expected, mend="check the path"
        ) from None
    except (UnicodeDecodeError, msgspec.MsgspecError, tomllib.TOMLDecodeError) as error:
        raise InputError(
            f"not weights: {error}", where=str(path), expected=expected, mend="correct the file"
        ) from error


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
    judged = "reliable" if comparison.reliable else "NOT reliable"
    output.say(
        f"success {comparison.diff:+.3f} ({comparison.low:+.3f} to {comparison.high:+.3f}), {judged}; "
        f"differences below {comparison.mde:.3f} would be missed"
    )
