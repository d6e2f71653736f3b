"""``audit``: can the reward of these tasks be trusted?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from flightschool.cli import output
from flightschool.cli.audit_waived import tell_waivers, waived_row, waivers_of
from flightschool.cli.references import is_path, is_url, open_environment, will_write, workspace_if_any
from flightschool.cli.verb import verb

if TYPE_CHECKING:
    from flightschool.governance import Override
    from flightschool.records import Finding, Message, TaskAudit

__all__ = ["register"]

MOST_SHOWN = 25


def register(app: typer.Typer) -> None:
    """Add the verb."""
    verb(app, "audit", example="flightschool audit ./tasks --json")(audit)


def audit(
    paths: list[str] = typer.Argument(
        ...,
        metavar="E|PATH...",
        help="An environment (name, .py or URL of a server), or folders of tasks or of many tasks.",
    ),
    task: list[str] = typer.Option([], "--task", help="Audit only this task of an environment; may be repeated."),
    seed: int = typer.Option(0, "--seed", help="Seed of the mutants and random policies."),
    static: bool = typer.Option(False, "--static", help="Only read, run nothing; then no task is sound."),
    fix: Path | None = typer.Option(None, "--fix", help="Write repaired copies of task folders here, audited again."),
    admit: Path | None = typer.Option(None, "--admit", help="Write the list of task folders that may train here."),
    waive: list[str] = typer.Option([], "--waive", help="This task trains though it is not sound; may be repeated."),
    reason: str = typer.Option("", "--reason", help="Why tasks are waived, or a flaw of the pool; logged."),
    report: Path | None = typer.Option(None, "--report", help="Write findings and evidence as an HTML page here."),
    repeats: int | None = typer.Option(
        None, "--repeats", min=1, help="Plays of each reference solution; 20, fewer of slow ones."
    ),
    flake_rate: float | None = typer.Option(
        None, "--flake-rate", help="Play each reference as often as excludes this flake rate (95 %), however slow."
    ),
    proposer: str = typer.Option(
        "", "--proposer", help="A model that reads each folder and proposes programs to run: openai:URL#MODEL."
    ),
    checker: str = typer.Option(
        "", "--checker", help="A model that weighs what came of them; the proposer where none is named."
    ),
    build_network: bool = typer.Option(
        False, "--build-network", help="Lend this machine's network to builds of task folders that fetch."
    ),
    fresh: bool = typer.Option(
        False, "--fresh/--resume", help="Audit anew instead of going on after what was finished earlier."
    ),
) -> None:
    """Audit the reward of every task; ends with 1 when any task is not sound.

    In a workspace the verdicts are kept: only tasks that are sound as they are now may train.
    """
    num_repeats = _num_repeats(repeats, flake_rate)
    for file, option in ((report, "--report"), (admit, "--admit")):
        will_write(file, option)
    folders = [path for path in paths if _is_folder(path)]
    if not folders and len(paths) == 1:
        _refuse_options_of_folders(fix, admit, waive, reason, proposer or checker, build_network)
        _audit_environment(paths[0], task, seed=seed, repeats=num_repeats, static=static, fresh=fresh, report=report)
        return
    _refuse_mixtures(paths, folders, task)
    from flightschool.cli.audit_admitting import Admitting
    from flightschool.cli.audit_folders import Care, ReaderNames, audit_folders_verb

    readers = ReaderNames(proposer=proposer, checker=checker)
    care = Care(
        static=static,
        repeats=num_repeats,
        however_slow=flake_rate is not None,
        seed=seed,
        fresh=fresh,
        readers=readers,
        build_network=build_network,
    )
    admitting = Admitting(file=admit, waive=tuple(waive), reason=reason)
    audit_folders_verb(folders, care=care, fix=fix, admitting=admitting, report=report)


def _refuse_mixtures(paths: Sequence[str], folders: Sequence[str], tasks: Sequence[str]) -> None:
    """Folders are audited together with folders, and whole."""
    from flightschool.errors import InputError

    if len(folders) < len(paths):
        raise InputError(
            "environments and folders cannot be audited together",
            where=" ".join(paths),
            expected="one environment, or any number of folders",
            mend="audit them one after the other; a folder's path has a / or begins with a dot",
        )
    if tasks:
        raise InputError(
            "tasks of folders are named by their paths", where="--task", expected="paths", mend="name the folders"
        )


def _num_repeats(repeats: int | None, flake_rate: float | None) -> int:
    """Plays of each reference. Raises ``InputError``: both options were given, or no number does."""
    from flightschool.audit import repeats_to_exclude
    from flightschool.errors import InputError

    if flake_rate is None:
        return 20 if repeats is None else repeats
    if repeats is not None:
        raise InputError(
            "the flake rate says how often the reference is played",
            where="--repeats, --flake-rate",
            expected="one of them",
            mend="leave the other out",
        )
    return repeats_to_exclude(flake_rate)


def _refuse_options_of_folders(
    fix: Path | None, admit: Path | None, waive: Sequence[str], reason: str, readers: str, build_network: bool
) -> None:
    from flightschool.errors import InputError

    if readers:
        raise InputError(
            "models read folders of tasks, not environments",
            where="--proposer, --checker",
            expected="folders of tasks",
            mend="leave the options out; for an environment's checks, people label attempts: flightschool review",
        )
    if build_network:
        raise InputError(
            "an environment builds nothing", where="--build-network", expected="task folders", mend="leave it out"
        )
    if fix is not None:
        raise InputError(
            "the checks of an environment are not rewritten",
            where="--fix",
            expected="folders of tasks",
            mend="leave the option out; each finding proposes its mend",
        )
    if admit is not None or waive or reason:
        raise InputError(
            "tasks of an environment pass the gate when they train",
            where="--admit, --waive, --reason",
            expected="folders of tasks",
            mend="leave the options out; the table [waiver] of a training lets tasks train against the audit's advice",
        )


def _is_folder(path: str) -> bool:
    return is_path(path) and not is_url(path) and not path.partition("?")[0].endswith(".py")


def _audit_environment(
    environment: str,
    task: Sequence[str],
    *,
    seed: int,
    repeats: int,
    static: bool,
    fresh: bool,
    report: Path | None,
) -> None:
    from flightschool.audit import audit_environment, open_journal, save_audits, task_waiver, view_environment
    from flightschool.cli.audit_folders import data_folder
    from flightschool.cli.audit_report import write_page_of
    from flightschool.records import AuditVerdict
    from flightschool.verification import current_reward

    space = workspace_if_any()
    world = open_environment(environment, space)
    tasks = [world.task(name) for name in task] or list(world.tasks())
    reward = current_reward(None if space is None else space.store)
    if static:
        audits = view_environment(world, tasks, seed)
    else:
        journal = open_journal(
            data_folder(space), world, reward, repeats=repeats, seed=seed, source=_source(environment), fresh=fresh
        )
        with output.progress(f"auditing {world.name}", len(tasks)) as bar:
            audits = audit_environment(
                world,
                composition=reward,
                tasks=tasks,
                seed=seed,
                progress=bar.at,
                repeats=repeats,
                journal=journal,
            )
        if space is not None:  # what only was looked at must not replace what was played
            save_audits(space.store, audits)
        journal.forget()
    waived: list[Override | None] = [None] * len(audits)
    if space is not None:
        waived = [task_waiver(space.store, found) for found in audits]
        space.close()
    counts = Counter(found.verdict.value for found in audits)
    _tell(audits, counts)
    rows = [_row(found, environment, by) for found, by in zip(audits, waived, strict=True)]
    tell_waivers(rows)
    write_page_of(report, environment, rows, was_run=not static)
    told = {verdict.value: counts[verdict.value] for verdict in AuditVerdict if counts[verdict.value]}
    output.finish(
        {
            "env": world.name,
            "env_digest": world.digest,
            "tasks": rows,
            "counts": told,
            "summary": {"num_tasks": len(audits), "verdicts": told, "waivers": waivers_of(rows)},
        },
        fell_short=any(found.verdict is not AuditVerdict.SOUND for found in audits),
    )


def _source(environment: str) -> str:
    """What names an environment and its code as it is now: a module that was edited is audited anew."""
    path = Path(environment.partition("?")[0])
    return f"{environment} {path.stat().st_mtime_ns}" if is_path(environment) and path.is_file() else environment


def _row(found: TaskAudit, environment: str, waived: Override | None) -> dict[str, Any]:
    """One task in the shape of the command-line contract, with the fields of its record."""
    return {
        "id": found.task,
        "path": environment,
        "verdict": found.verdict.value,
        "findings": [_finding(one) for one in found.findings],
        "task": found.task,
        "environment": found.environment,
        "task_digest": found.task_digest,
        "verifier_digest": found.verifier_digest,
        "waived": waived_row(waived),
        "repeats": {"num": found.num_repeats, "flake_rate_below": found.flake_bound, "level": 0.95},
        "equivalent_mutants": list(found.equivalent_mutants),
    }


def _finding(found: Finding) -> dict[str, Any]:
    """A finding of an environment: its probe is its class, and its actions are turns as a script has them."""
    return {
        "class": found.probe,
        "severity": found.severity.value,
        "confirmed": found.severity.value == "barring",
        "what": found.what,
        "evidence": {"actions": [_turn(turn) for turn in found.actions], "observed": found.evidence or found.what},
        "confidence": found.confidence,
        "mend": found.mend,
        "probe": found.probe,
    }


def _turn(turn: Message) -> list[dict[str, Any]] | str:
    """As ``--policy script:FILE`` reads it."""
    if not turn.tool_calls:
        return turn.content
    return [{"name": call.name, "arguments": call.arguments} for call in turn.tool_calls]


def _tell(audits: Sequence[TaskAudit], counts: Counter[str]) -> None:
    wrong = [found for found in audits if found.verdict.value != "sound"]
    rows = [
        (found.task, found.verdict.value, found.findings[0].what if found.findings else "")
        for found in wrong[:MOST_SHOWN]
    ]
    if rows:
        output.table("Not sound", ("task", "verdict", "first finding"), rows)
    if len(wrong) > len(rows):
        output.say(f"… and {len(wrong) - len(rows)} more; --json gives all of them with their evidence")
    played = {found.num_repeats: found.flake_bound for found in audits if found.num_repeats}
    for num, bound in sorted(played.items()):
        output.say(f"{num} plays of each reference agree: a flake rate above {bound:.1%} is excluded (95 %)")
    output.say(", ".join(f"{count} {verdict}" for verdict, count in counts.most_common()) + f", of {len(audits)} tasks")
