"""``eval export · import``: evaluations in the formats of others."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from flightschool.cli import output
from flightschool.cli.eval_run import EVALUATION_KIND, free_id, keep_summary, open_suite
from flightschool.cli.references import actor, existing_path, reopen_environment, workspace
from flightschool.cli.verb import verb
from flightschool.errors import GateError, InputError

if TYPE_CHECKING:
    from flightschool.evaluation import EvaluationRun
    from flightschool.evaluation.exchange import InspectLog
    from flightschool.protocols import Environment
    from flightschool.records import Suite
    from flightschool.store import Workspace

__all__ = ["register"]

FORMATS = ("inspect", "harbor", "csv", "parquet", "card")


def register(evaluation: typer.Typer) -> None:
    """Add the verbs to the group ``eval``."""
    verb(evaluation, "export", example="flightschool eval export eval-0001 --format inspect --out eval-0001.eval")(
        export
    )
    verb(evaluation, "import", example="flightschool eval import logs/run.eval --suite checkride")(import_)


def export(
    evaluation: str = typer.Argument(..., metavar="EVALUATION", help="Id of an evaluation."),
    format_: str = typer.Option(
        ..., "--format", help="inspect (.eval), harbor (job folder), csv, parquet, card (Markdown)."
    ),
    out: Path = typer.Option(..., "--out", help="File or folder to write; must not exist."),
) -> None:
    """Write an evaluation for Inspect, Harbor, a spreadsheet or a model card.

    Everything that leaves carries the suite's canary or its digest: what ends up in a training corpus is recognised.
    """
    from flightschool.evaluation import load_run

    if format_ not in FORMATS:
        raise InputError(
            f"no format {format_!r}", where="--format", expected=", ".join(FORMATS), mend="choose one of these"
        )
    if out.exists():
        raise InputError("it exists", where=str(out), expected="a new file or folder", mend="choose another --out")
    with workspace() as space:
        run = load_run(space.store, evaluation)
        out.parent.mkdir(parents=True, exist_ok=True)
        number = _write(space, run, format_, out)
    output.say(f"{out}: {number} {'samples' if format_ == 'inspect' else 'rows'}")
    output.finish({"evaluation": evaluation, "format": format_, "out": str(out), "num": number, "digest": run.digest})


def import_(
    path: str = typer.Argument(..., metavar="PATH", help="An Inspect log, or the folder of a Harbor job."),
    suite: str | None = typer.Option(None, "--suite", help="The frozen suite, for logs that Inspect wrote on it."),
    score: str = typer.Option("", "--score", help="Which score of an Inspect log is the grade."),
) -> None:
    """Take in an evaluation that was measured elsewhere.

    Our own exports come back as they were, or are refused if a byte of a score was edited. Logs of our Inspect task are
    judged again from the recorded calls. Of others the suite's digest is made of inputs and truths, and what ended in
    an error has no grade.
    """
    from flightschool.evaluation import keep_run

    place = existing_path(path, "log or job")
    with workspace() as space:
        run = _harbor(space, place) if place.is_dir() else _inspect(space, place, suite, score)
        if space.store.has(EVALUATION_KIND, run.id):
            raise GateError(
                f"an evaluation {run.id!r} is kept here already",
                where=str(place),
                expected="one that is new to this workspace",
                mend="see flightschool eval list",
            )
        keep_run(space.store, run, actor=actor())
        keep_summary(space, run)
    output.say(f"{run.id}: {run.policy} on {run.suite}, {len(run.items)} items, {run.num_missing} without a grade")
    output.finish(
        {
            "id": run.id,
            "suite": run.suite,
            "suite_digest": run.suite_digest,
            "policy": run.policy,
            "num_items": len(run.items),
            "num_missing": run.num_missing,
            "digest": run.digest,
        },
        fell_short=not run.graded,
    )


# ------------------------------------------------------------------------------------------------ out


def _write(space: Workspace, run: EvaluationRun, format_: str, out: Path) -> int:
    from flightschool.evaluation import held_against, load_design, summarise
    from flightschool.evaluation.exchange import (
        model_card,
        write_csv,
        write_harbor_job,
        write_inspect_log,
        write_parquet,
    )
    from flightschool.records import Attempt, Suite

    if format_ == "inspect":
        world = reopen_environment(run.environment, run.environment_digest, space)
        return write_inspect_log(run, world, lambda key: space.store.get("attempt", key, Attempt), out)
    if format_ == "harbor":
        digests = space.store.get("suite", run.suite, Suite).task_digests if space.store.has("suite", run.suite) else {}
        return write_harbor_job(run, digests, out)
    if format_ in ("csv", "parquet"):
        return write_csv(run, out) if format_ == "csv" else write_parquet(run, out)
    design = load_design(space.store, run.suite)
    summary = summarise(run)
    rows = held_against(design.targets if design is not None else {}, run, summary)
    out.write_text(model_card(run, summary, design=design, targets=rows), encoding="utf-8")
    return len(summary.measurements)


# ------------------------------------------------------------------------------------------------ in


def _harbor(space: Workspace, folder: Path) -> EvaluationRun:
    from flightschool.evaluation.exchange import read_harbor_job

    return _known(space, read_harbor_job(folder, free_id(space)), folder)


def _inspect(space: Workspace, path: Path, suite: str | None, score: str) -> EvaluationRun:
    from flightschool.evaluation.exchange import read_inspect_log

    frozen, world = open_suite(space, suite) if suite is not None else (None, None)
    log = read_inspect_log(path, free_id(space), suite=frozen, environment=world, score=score)
    if not log.attempts or frozen is None or world is None:
        return _known(space, log.run, path)
    return _judged_again(space, log, frozen, world)


def _judged_again(space: Workspace, log: InspectLog, frozen: Suite, world: Environment) -> EvaluationRun:
    """The attempts of a log are kept, and graded from the calls that they record."""
    import msgspec

    from flightschool.cli.runbook import recorded_profile
    from flightschool.evaluation import regrade_run
    from flightschool.verification import current_reward

    space.store.put_many(("attempt", attempt.id, attempt) for attempt in log.attempts)
    found = regrade_run(
        space.store,
        log.run,
        frozen,
        world,
        composition=current_reward(space.store),
        run_id=log.run.id,
        weather_profile=recorded_profile(space.store, log.run.noise) if log.run.noise_digest else None,
    )
    for item, how in found.turned.items():
        output.say(f"the log's own grade of {item} does not stand: {how}")
    return msgspec.structs.replace(found.run, regraded="")


def _known(space: Workspace, run: EvaluationRun, path: Path) -> EvaluationRun:
    """A run that this workspace measured itself must be what it measured."""
    from flightschool.evaluation import logged_digest

    logged = logged_digest(space.store, run.id)
    if logged not in ("", run.digest):
        raise GateError(
            f"evaluation {run.id!r} was measured here, and this is not it",
            where=str(path),
            expected=f"digest {logged}, as in the audit log",
            mend="export it again",
        )
    return run
