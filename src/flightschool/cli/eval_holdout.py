"""``eval accept``: opening the sealed holdout at the very end."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

import msgspec
import typer

from flightschool.cli import output
from flightschool.cli.candidates import candidate_digest
from flightschool.cli.references import actor, fault_profile, is_path, policy, reopen_environment, workspace
from flightschool.cli.verb import verb

if TYPE_CHECKING:
    from flightschool.evaluation import Acceptance, AttemptRunner
    from flightschool.evaluation.acceptance import Opens
    from flightschool.protocols import Environment, RewardComposition
    from flightschool.rollouts import Policy
    from flightschool.store import Workspace

__all__ = ["register"]


def register(evaluation: typer.Typer) -> None:
    """Add the verb to the group ``eval``."""
    verb(
        evaluation,
        "accept",
        example='flightschool eval accept checkride --policy run:my-run --reason "release 4" --target 0.8',
    )(accept)


def accept(
    suite: str = typer.Argument(..., metavar="S", help="The suite whose sealed part is opened."),
    policy_text: str = typer.Option(..., "--policy", help="The candidate, see rollout --help."),
    reason: str = typer.Option(..., "--reason", help="Why it is opened; written to the audit log."),
    role: str = typer.Option("evaluation", "--role", help="Role in which it is opened."),
    target: float | None = typer.Option(None, "--target", min=0.0, max=1.0, help="Least success that is accepted."),
    perturb: str | None = typer.Option(None, "--perturb", help="Fault profile: clean, noisy, storm, or a path."),
    repeats: int = typer.Option(1, "--repeats", min=1, help="Attempts at each task."),
    temperature: float = typer.Option(
        0.0, "--temperature", min=0.0, help="Sampling temperature of a model; 0 = greedy."
    ),
    seed: int = typer.Option(0, "--seed", help="Seed of the evaluation."),
) -> None:
    """Open the sealed holdout for final acceptance: spends one of its few looks.

    Ends with 1 when the interval does not lie at or above the target. Each look has its share of the error
    probability, so that trying again does not make a candidate pass.
    """
    from flightschool.evaluation import RunRules, load_design
    from flightschool.evaluation import accept as open_and_measure
    from flightschool.evaluation.acceptance import Asked
    from flightschool.governance import KeyRing

    with workspace() as space:
        where, digest, total, composition = _sealed(space, suite)
        design = load_design(space.store, suite.removesuffix("-holdout"))
        candidate, opens = _candidate(space, policy_text, temperature)
        asked = Asked(
            actor=actor(),
            role=role,
            reason=reason,
            candidate_digest=candidate_digest(policy_text, space),
            target=target,
        )
        with output.progress(f"{policy_text} on the sealed part of {suite}", total * repeats) as bar:
            found = open_and_measure(
                space.store,
                suite,
                candidate,
                ring=KeyRing(outside=space.root),
                asked=asked,
                base=lambda: reopen_environment(where, digest, space, whole=True),
                opens=opens,
                composition=composition,
                rules=RunRules() if design is None else design.rules,
                weather_profile=fault_profile(perturb),
                repeats=repeats,
                seed=seed,
                progress=bar.tick,
            )
    _tell_acceptance(found)
    output.finish({**msgspec.to_builtins(found)}, fell_short=found.accepted is False)


def _sealed(space: Workspace, suite: str) -> tuple[str, str, int, RewardComposition]:
    """Name and digest of the environment that the sealed part came from, its tasks, and what composes their grades."""
    from flightschool.evaluation import load_sealed
    from flightschool.records import Suite
    from flightschool.rollouts.terminal import OwnVerdict
    from flightschool.verification import current_reward

    listed = next((n for n in (suite, f"{suite}-holdout") if space.store.has("holdout", n)), None)
    if listed is not None:
        named = space.store.get("holdout", listed, Suite)
        return named.environment, named.environment_digest, len(named.task_digests), current_reward(space.store)
    card = load_sealed(space.store, suite)
    composition = OwnVerdict() if is_path(card.environment) else current_reward(space.store)
    return card.environment, card.environment_digest, card.num_tasks, composition


def _candidate(space: Workspace, text: str, temperature: float) -> tuple[Callable[[Environment], Policy], Opens]:
    """The candidate in an environment that was opened, and what makes its attempts there."""
    from flightschool.cli.eval_folders import folder_policy, is_folders
    from flightschool.rollouts import Sampling

    sampling = Sampling(temperature=temperature, shared="opening")

    def candidate(world: Environment) -> Policy:
        if is_folders(world):
            return folder_policy(text, world, space, sampling, sealed=True)[0]
        return policy(text, world, space, sampling)

    def opens(world: Environment) -> Callable[[str], AbstractAsyncContextManager[AttemptRunner]] | None:
        return folder_policy(text, world, space, sampling, sealed=True)[1] if is_folders(world) else None

    return candidate, opens


def _tell_acceptance(found: Acceptance) -> None:
    rows = [
        (m.name, f"{m.value:.3g}", f"{m.low:.3g} to {m.high:.3g}", m.num_items)
        for m in found.measurements
        if m.name.startswith("success/") or m.name.endswith("/weighted")
    ]
    level = f"{1 - found.alpha:.1%} interval"
    output.table(f"{found.policy} on the sealed part of {found.suite}", ("metric", "#value", f"#{level}", "#n"), rows)
    for note in found.notes:
        output.say(f"note: {note}")
    output.say(f"look {found.look} of {found.looks}; {found.statement}")
    if found.accepted is not None:
        verdict = "accepted" if found.accepted else "NOT accepted"
        output.say(f"{verdict}: success is at least {found.accuracy.low:.3f}, the target is {found.target:.3f}")
