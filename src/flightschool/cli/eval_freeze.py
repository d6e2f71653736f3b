"""``eval freeze``: taking a suite and sealing a holdout, before the training begins."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import msgspec
import typer

from flightschool.cli import output
from flightschool.cli.references import actor, check_name, open_environment, workspace
from flightschool.cli.verb import verb
from flightschool.errors import InputError

if TYPE_CHECKING:
    from flightschool.evaluation import Frozen, RunRules, SealedHoldout, SuiteDesign, Terms
    from flightschool.protocols import Environment
    from flightschool.records import Task
    from flightschool.store import Workspace

__all__ = ["register"]

SEALED_KIND = "sealed-holdout"
DEFAULT_HOLDOUT = 0.1
MOST_OFF = 0.01
"""How far shares of traffic may be from summing to 1: people round."""

_REALISM = typer.Option(
    [],
    "--realism",
    help="DIMENSION=WORD: tools, latency, users, state_size, permissions, faults; matched, scaled or ignored.",
)
_TARGET = typer.Option(
    [],
    "--target",
    help="NAME=VALUE: success, violations, denied, cost_usd, virtual_p95_ms and others; may be repeated.",
)
_OVERRIDE = typer.Option(
    "", "--override", metavar="REASON", help="Seal tasks without a sound audit all the same; logged and shown."
)


def register(evaluation: typer.Typer) -> None:
    """Add the verb to the group ``eval``."""
    verb(evaluation, "freeze", example="flightschool eval freeze desk --name checkride --strata stratum --holdout 0.1")(
        freeze
    )


def freeze(
    environment: str = typer.Argument(..., metavar="E", help="Environment: a name, a path, or task folders."),
    name: str = typer.Option(..., "--name", help="Name of the suite; the sealed part is called NAME-holdout."),
    strata: str = typer.Option("stratum", "--strata", help="Attribute of tasks that names the stratum."),
    weights: Path | None = typer.Option(None, "--weights", help="TOML or JSON file: stratum = share of traffic."),
    holdout: float | None = typer.Option(
        None,
        "--holdout",
        min=0.0,
        max=0.9,
        help="Share of families to seal: 0.1; of task folders none unless asked for.",
    ),
    fraction: float = typer.Option(0.25, "--fraction", min=0.01, max=0.9, help="Share of families to measure on."),
    trained: list[str] = typer.Option([], "--trained", help="Stratum that the training will train; may be repeated."),
    per_family: int | None = typer.Option(None, "--per-family", min=1, help="Most tasks of one family."),
    seed: int = typer.Option(0, "--seed", help="Which families are taken."),
    looks: int = typer.Option(3, "--looks", min=1, help="How often the sealed part may be opened."),
    alpha: float = typer.Option(0.05, "--alpha", min=1e-6, max=0.5, help="Error probability of all looks together."),
    role: str = typer.Option("evaluation", "--role", help="Role that holds the key of the sealed part."),
    realism: list[str] = _REALISM,
    target: list[str] = _TARGET,
    max_tokens: int | None = typer.Option(None, "--max-tokens", min=1, help="Most tokens that an attempt may sample."),
    max_calls: int | None = typer.Option(None, "--max-calls", min=1, help="Most tool calls of an attempt."),
    max_seconds: float | None = typer.Option(None, "--max-seconds", help="Most real seconds of an attempt."),
    max_cost: float | None = typer.Option(None, "--max-cost", help="Most US dollars that an attempt may cost."),
    retries: int = typer.Option(2, "--retries", min=0, help="New attempts after a failure of the infrastructure."),
    follows: str | None = typer.Option(None, "--follows", help="The suite that this one is the next version of."),
    because: str = typer.Option("", "--because", help="Why, for the changelog."),
    override: str = _OVERRIDE,
) -> None:
    """Freeze a suite and seal a holdout, by family; what is left is the training pool.

    The sealed tasks leave the workspace: they are encrypted, their key lies in $FLIGHTSCHOOL_KEYS (by default
    flightschool/keys in the user's configuration folder), and the environment goes on without them.
    """
    from flightschool.evaluation import Limits, RunRules, Terms
    from flightschool.evaluation import freeze as take

    check_name(name, "--name")
    limits = Limits(max_tokens=max_tokens, max_calls=max_calls, max_s=max_seconds, max_cost_usd=max_cost)
    rules = RunRules(max_retries=retries, limits=limits)
    declared = _Declared(realism=_realism(realism), targets=_targets(target), rules=rules, because=because)
    with workspace() as space:
        if _went_on(space, f"{name}-holdout", role):
            return
        previous = _previous(space, follows)
        world = open_environment(environment, space, folders=True)
        frozen = take(
            world,
            name,
            strata=strata,
            weights=_weights(weights) if weights is not None else None,
            suite_fraction=fraction,
            holdout_fraction=_holdout(holdout, world),
            seed=seed,
            trained=trained,
            max_tasks_per_family=per_family,
            keep=_anchors(space, previous),
        )
        _refuse_trained(space, world, frozen)
        frozen, card = _kept(space, world, frozen, Terms(role=role, looks=looks, alpha=alpha), override)
        design = _designed(space, environment, frozen, world, declared, previous)
    _tell_frozen(frozen, design, card)


# ------------------------------------------------------------------------------------------------ parts


def _holdout(asked: float | None, world: Environment) -> float:
    """What is sealed of folders leaves them, so that is done on demand alone."""
    from flightschool.cli.eval_folders import is_folders

    if not is_folders(world):
        return DEFAULT_HOLDOUT if asked is None else asked
    return asked or 0.0


def _faults() -> dict[str, str]:
    """The named fault profiles as they are now, so that a run under another of the same name is refused."""
    from flightschool.perturbation import profile

    found = [profile(name) for name in ("noisy", "storm")]
    return {one.label: one.digest for one in found}


def _refuse_trained(space: Workspace, world: Environment, frozen: Frozen) -> None:
    """What is to be measured must not have been trained on before the freeze either."""
    from flightschool.cli.ancestry import every_run
    from flightschool.evaluation import refuse_kin, suite_texts

    trained = every_run(space)
    for part in (frozen.suite, frozen.holdout):
        if part is not None and trained.texts:
            refuse_kin(part, suite_texts(part, world), trained)


def _kept(
    space: Workspace, world: Environment, frozen: Frozen, terms: Terms, override_reason: str
) -> tuple[Frozen, SealedHoldout | None]:
    """The freeze as it is kept: sealed, where a part was set aside."""
    from flightschool.cli.eval_folders import forget_images, is_folders
    from flightschool.evaluation import save_frozen, seal_holdout
    from flightschool.governance import KeyRing

    if frozen.holdout is None:
        save_frozen(space.store, frozen, actor=actor())
        return frozen, None

    if is_folders(world):
        forget_images(space)
    return seal_holdout(
        space.store,
        frozen,
        world,
        ring=KeyRing(outside=space.root),
        actor=actor(),
        terms=terms,
        root=space.root,
        unaudited=lambda tasks: _unaudited(space, world, tasks),
        override_reason=override_reason,
    )


def _unaudited(space: Workspace, world: Environment, tasks: Sequence[Task]) -> list[str]:
    from flightschool.audit import AuditIndex
    from flightschool.cli.eval_folders import is_folders, unaudited_folders

    if is_folders(world):
        return unaudited_folders(space.store, tasks)
    sound = {task.id for task in AuditIndex(space.store, world).sound(tasks)}
    return [task.id for task in tasks if task.id not in sound]


class _Declared(TypedDict):
    """What is said beforehand, beside what is drawn."""

    realism: dict[str, str]
    targets: dict[str, float]
    rules: RunRules
    because: str


def _designed(
    space: Workspace,
    environment: str,
    frozen: Frozen,
    whole: Environment,
    declared: _Declared,
    previous: SuiteDesign | None,
) -> SuiteDesign:
    """The design of what was frozen, kept."""
    from flightschool.cli.eval_folders import composition_of
    from flightschool.evaluation import design_suite, save_design, save_texts

    left = open_environment(environment, space, folders=True)  # what is left is found again by the same words
    design = design_suite(
        frozen.suite,
        left,
        composition=composition_of(space.store, left),
        faults=_faults(),
        whole=whole.tasks(),
        previous=previous,
        **declared,
    )
    save_design(space.store, design, actor=actor())
    save_texts(space.store, frozen.suite, left, actor=actor())
    return design


def _realism(texts: Sequence[str]) -> dict[str, str]:
    return {name: word for name, _, word in (text.partition("=") for text in texts)}


def _targets(texts: Sequence[str]) -> dict[str, float]:
    from flightschool.evaluation import check_targets

    found: dict[str, float] = {}
    for text in texts:
        name, _, value = text.partition("=")
        try:
            found[name.strip()] = float(value)
        except ValueError:
            raise InputError(
                f"{text!r} is no target", where="--target", expected="NAME=NUMBER", mend="for instance success=0.8"
            ) from None
    return check_targets(found)


def _previous(space: Workspace, name: str | None) -> SuiteDesign | None:
    from flightschool.evaluation import lineage_of

    return None if name is None else lineage_of(space.store, name)[-1]


def _anchors(space: Workspace, previous: SuiteDesign | None) -> tuple[str, ...]:
    """Tasks that the next version keeps: as upkeep proposes, else all that it had."""
    from flightschool.evaluation import load_runs, upkeep
    from flightschool.records import Suite

    if previous is None:
        return ()
    suite = space.store.get("suite", previous.suite, Suite)
    runs = load_runs(space.store)
    own = [run for run in runs if run.suite_digest == suite.digest]
    if not own:
        return tuple(previous.tasks)
    found = upkeep(suite, own)
    return tuple(task for task in previous.tasks if task not in found.retire)


def _went_on(space: Workspace, name: str, role: str) -> bool:
    """Go on with a sealing that was cut short; whether there was one."""
    from flightschool.evaluation import SealedHoldout, finish_sealing
    from flightschool.governance import KeyRing

    if not space.store.has(SEALED_KIND, name):
        return False
    card = space.store.get(SEALED_KIND, name, SealedHoldout)
    if card.complete:
        return False
    finish_sealing(space.store, name, KeyRing(outside=space.root).take(card.key_id, role=role), space.root)
    output.say(f"the sealing of {name}, which had been cut short, is finished")
    output.finish({"suite": card.suite, "holdout": name, "finished": True})
    return True


def _weights(path: Path) -> Mapping[str, float]:
    """Shares of traffic from a file: one table of numbers."""
    expected = 'one table: stratum = share, for instance "lookup" = 0.4'
    try:
        text = path.read_text(encoding="utf-8")
        table = msgspec.json.decode(text) if path.suffix == ".json" else tomllib.loads(text)
        shares = msgspec.convert(table, dict[str, float])
    except FileNotFoundError:
        raise InputError(
            "file of weights not found", where=str(path), expected=expected, mend="check the path"
        ) from None
    except (UnicodeDecodeError, msgspec.MsgspecError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(
            f"not weights: {error}", where=str(path), expected=expected, mend="correct the file"
        ) from error
    if abs(sum(shares.values()) - 1.0) > MOST_OFF:
        raise InputError(
            f"the shares sum to {sum(shares.values()):g}",
            where=str(path),
            expected="shares of traffic that sum to 1",
            mend="divide each by their sum, or add the stratum that is missing",
        )
    return shares


def _tell_frozen(frozen: Frozen, design: SuiteDesign, card: SealedHoldout | None) -> None:
    suite = frozen.suite
    rows = [(s.name, f"{s.weight:.0%}", s.num_tasks, len(s.families), "yes" if s.trained else "") for s in suite.strata]
    output.table(f"Suite {suite.name}", ("stratum", "#traffic", "#tasks", "#families", "trained"), rows)
    sealed = card.num_tasks if card is not None else 0
    output.say(f"{len(suite.task_digests)} tasks frozen, {sealed} sealed, {len(frozen.pool)} left to train on")
    output.say(
        f"{design.effective_tasks:.1f} effective tasks; a comparison shows differences of {design.mde:.2f} or more "
        f"(80 % power, if policies differ on 30 % of tasks; a difference of 0.1 takes {design.pairs_for_a_tenth})"
    )
    for note in design.notes:
        output.say(f"note: {note}")
    if card is not None:
        from flightschool.evaluation.acceptance import SEALED_AGAINST

        output.say(f"{card.name}: {card.looks} looks, key {card.key_id} held by role {card.role}; {SEALED_AGAINST}")
        if card.num_unaudited:
            output.say(
                f"OVERRIDE: {card.num_unaudited} of {card.num_tasks} sealed tasks had no sound audit and can no longer "
                f"be audited; acceptance will say so. Reason given: {card.override_reason}"
            )
    output.finish(
        {
            "suite": suite,
            "digest": suite.digest,
            "holdout": card.name if card is not None else None,
            "num_tasks": len(suite.task_digests),
            "num_holdout": sealed,
            "num_pool": len(frozen.pool),
            "design": {
                "digest": design.digest,
                "effective_tasks": design.effective_tasks,
                "mde": design.mde,
                "pairs_for_a_tenth": design.pairs_for_a_tenth,
                "cannot_speak_for": design.silent,
                "thin_strata": design.thin,
                "realism": design.realism,
                "rules": design.rules,
                "targets": design.targets,
                "version": design.version,
                "follows": design.follows,
                "anchors": len(design.anchors),
                "tasks": design.tasks,
            },
            "sealed": None
            if card is None
            else {
                "looks": card.looks,
                "alpha": card.alpha,
                "role": card.role,
                "key": card.key_id,
                "algorithm": card.box.algorithm,
                "environment_digest": card.successor,
                "num_unaudited": card.num_unaudited,
                "override": card.override_reason,
            },
        }
    )
