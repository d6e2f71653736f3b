"""``runs list · show · replay · report · export``: what ran here, and proof that it did."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from flightschool.cli import output
from flightschool.cli.references import reopen_environment, workspace
from flightschool.cli.runbook import ROLLOUT_KIND, RolloutRun, recorded_profile
from flightschool.cli.runs_export import export
from flightschool.cli.runs_training import (
    show_episode,
    show_kept,
    show_step,
    show_training,
    tell_overrides,
    training_folders,
    training_row,
)
from flightschool.cli.scans import finding_row, kept_scan, tell_findings
from flightschool.cli.usage import nearest
from flightschool.cli.verb import group, verb
from flightschool.cli.votes import tell_votes, votes_on
from flightschool.errors import InputError, NotFoundError

if TYPE_CHECKING:
    from flightschool.governance import Override
    from flightschool.records import Attempt
    from flightschool.rollouts import Replay
    from flightschool.store import Workspace

__all__ = ["register"]

REPORT_KIND = "report"
ENGINE_CONTEXT = 1024
"""Longest context of the built-in engine as policies open it; a replay must be cut at the same place."""


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    runs = group(app, "runs", "What ran in this workspace: list, look, replay, report, export.")
    verb(runs, "list", example="flightschool runs list")(list_)
    verb(runs, "show", example="flightschool runs show rollout-0001")(show)
    verb(runs, "replay", example="flightschool runs replay rollout-0001:oracle:desk-12:0:0")(replay)
    verb(runs, "report", example="flightschool runs report quickstart --out report.html")(report)
    verb(runs, "export", example="flightschool runs export quickstart-1a2b3c4d --out exported")(export)


def list_() -> None:
    """List rollouts and trainings, oldest first."""
    with workspace() as space:
        rollouts = [run for _, run in space.store.items(ROLLOUT_KIND, RolloutRun)]
        trainings = [training_row(folder) for folder in training_folders(space)]
    rows = [
        *(("rollout", run.id, run.environment, run.policy, run.noise, run.started_at) for run in rollouts),
        *(("training", run["id"], "", f"step {run['step']}", "", run["state"]) for run in trainings),
    ]
    output.table("Runs", ("kind", "run", "environment", "policy or step", "weather", "when or state"), rows)
    output.finish({"rollouts": rollouts, "trainings": trainings})


def show(
    run: str = typer.Argument(..., metavar="R", help="A run."),
    step: int | None = typer.Option(None, "--step", help="Training: the episodes that a step's figures are made of."),
    episode: str | None = typer.Option(
        None, "--episode", metavar="ID", help="Training: one episode, message by message."
    ),
    kept: bool = typer.Option(False, "--kept", help="Training: batches whose loss or gradient was not finite."),
) -> None:
    """Show one run: its settings, and its attempts or steps; of a training also the episodes behind a step."""
    with workspace() as space:
        folder = space.run_dir(run)
        _require_run(space, run)
        waived, findings = _overrides(space), kept_scan(space.store, run)
        if (folder / "run.json").is_file():
            if episode is not None:
                show_episode(folder, episode)
            elif kept:
                show_kept(folder)
            elif step is not None:
                show_step(folder, step)
            else:
                show_training(folder, waived, findings)
            return
        if step is not None or episode is not None or kept:
            raise InputError(
                f"{run!r} is no training",
                where="flightschool runs show",
                expected="--step, --episode and --kept with a run of kind 'training'",
                mend="leave them out",
            )
        record = space.store.get(ROLLOUT_KIND, run, RolloutRun)
        attempts = list(_attempts_of(space, run))
    from flightschool.cli.rollout import episode_row

    rows = [episode_row(attempt) for attempt in attempts]
    output.say(f"{record.id}: {record.policy} in {record.environment}, {record.noise}, seed {record.seed}")
    output.table(
        "",
        ("attempt", "outcome", "#reward"),
        [
            (row["id"], row["outcome"], "none" if row["reward"] is None else f"{row['reward']['total']:.2f}")
            for row in rows
        ],
    )
    votes = votes_on(attempts)
    tell_votes(votes)
    tell_overrides(waived)
    tell_findings(findings)
    scan = [finding_row(finding) for finding in findings]
    output.finish({"run": record, "episodes": rows, "votes": votes, "overrides": waived, "scan": scan})


def _require_run(space: Workspace, run: str) -> None:
    """Raise if neither a rollout nor a training bears the name.

    Raises:
        NotFoundError: with the nearest names of both kinds.
    """
    known = [*space.store.keys(ROLLOUT_KIND), *(folder.name for folder in training_folders(space))]
    if run not in known:
        raise NotFoundError(
            f"no run is named {run!r}",
            where=str(space.root),
            expected="a rollout or a training as flightschool runs list names it",
            mend=nearest(run, known) or "see flightschool runs list",
        )


def _overrides(space: Workspace) -> tuple[Override, ...]:
    """Every rule of the house that someone overrode in this workspace."""
    from flightschool.governance import AuditLog, distinct, overrides

    return distinct(overrides(AuditLog(space.store)))


def replay(attempt: str = typer.Argument(..., metavar="ID", help="An attempt, as `runs show` names it.")) -> None:
    """Run a recorded attempt again and compare it byte for byte; ends with 1 when it differs."""
    from flightschool.cli.review_pool import find_attempt

    with workspace() as space:
        recorded = find_attempt(space, attempt)
        again = _in_terminal(space, recorded) or _in_environment(space, recorded)
    told = "identical" if again.identical else "DIFFERENT"
    output.say(f"{attempt}: {told}", style="green" if again.identical else "red")
    output.finish(
        {
            "id": attempt,
            "identical": again.identical,
            "recorded_digest": again.recorded_digest,
            "replayed_digest": again.replayed_digest,
        },
        fell_short=not again.identical,
    )


def _in_environment(space: Workspace, recorded: Attempt) -> Replay:
    from flightschool.rollouts import replay as play_again
    from flightschool.verification import reward_of

    tokenizer, limits = _tokens(space, recorded)
    return play_again(
        recorded,
        reopen_environment(recorded.environment, recorded.environment_digest, space),
        reward_of(space.store, "" if recorded.reward is None else recorded.reward.composition_digest),
        tokenizer=tokenizer,
        weather_profile=recorded_profile(space.store, recorded.noise),
        **limits,
    )


def _in_terminal(space: Workspace, recorded: Attempt) -> Replay | None:
    """The replay of an attempt at a task folder; None: it is none."""
    from flightschool.rollouts.terminal import TerminalEpisode, parse_policy, replay_terminal

    if not space.store.has("terminal-episode", recorded.id):
        return None
    details = space.store.get("terminal-episode", recorded.id, TerminalEpisode)
    run = space.store.get(ROLLOUT_KIND, recorded.run, RolloutRun)
    return replay_terminal(recorded, details, parse_policy(run.policy), images=space.data / "images")


def report(
    run: str = typer.Argument(..., metavar="R", help="A run that was measured."),
    out: Path = typer.Option(Path("report.html"), "--out", help="File to write."),
) -> None:
    """Write the report of a run as one HTML file that needs no network."""
    from flightschool.reports import ReportData, write_report

    with workspace() as space:
        data = space.store.get(REPORT_KIND, run, ReportData)
    write_report(data, out)
    output.say(f"report written to {out}")
    output.finish({"run": run, "report": str(out.resolve())})


# ------------------------------------------------------------------------------------------------ attempts


def _attempts_of(space: Workspace, run: str) -> Iterator[Attempt]:
    from flightschool.records import Attempt

    for _, attempt in space.store.items("attempt", Attempt, f"{run}:"):
        yield attempt


def _tokens(space: Workspace, attempt: Attempt) -> tuple[Any, dict[str, Any]]:
    """Tokenizer and limits of the model that an attempt was sampled from; nothing for scripted attempts."""
    if not attempt.spans:
        return None, {}
    from flightschool.engines.opening import longest_context
    from flightschool.engines.tokenizer import ChatTokenizer
    from flightschool.rollouts import Sampling

    folder, sampling = _model_of(space, attempt), Sampling()
    config = folder / "config.json"
    if not config.is_file():
        raise NotFoundError(
            "the model that the attempt was sampled from is gone",
            where=str(folder),
            expected="its folder with config.json and tokenizer.json",
            mend="restore the folder; its weights are not needed",
        )
    limits = {"sampling": sampling, "max_context": min(ENGINE_CONTEXT, longest_context(folder))}
    return ChatTokenizer.from_folder(folder), limits


def _model_of(space: Workspace, attempt: Attempt) -> Path:
    """The model folder, from the policy's name: ``model:DIR``, ``run:RUN[@STEP]``, or the run that trained on it."""
    kind, _, reference = attempt.policy.partition(":")
    training = space.run_dir(reference.partition("@")[0]) / "run.json" if kind == "run" else None
    if kind == "model":
        return Path(reference)
    if training is not None and training.is_file():
        # All weights of a run share the tokenizer of the model that it began with.
        from flightschool.training import read_run

        return Path(read_run(training.parent).model)
    raise NotFoundError(
        f"attempts of policy {attempt.policy!r} hold tokens, but name no model folder",
        where=attempt.id,
        expected="model:DIR or run:RUN",
        mend="replay it where the model is known",
    )
