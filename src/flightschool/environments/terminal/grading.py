"""Grading of terminal tasks: the end state, sifted, in a second fresh sandbox with tests that the first never had.

The verdict is a number that the tests wrote, or there is none: a grader that ran out of time, crashed, or said nothing
that is a number in 0..1 is a failure of the infrastructure, never a score.
"""

from __future__ import annotations

import errno
import posixpath
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from flightschool.environments.terminal.contents import EntryKind, list_contents
from flightschool.environments.terminal.end_state import EndState
from flightschool.environments.terminal.records import Placement, TaskStep, TerminalTask, VerdictSource
from flightschool.environments.terminal.reward import (
    RewardMalformed,
    RewardMissing,
    RewardNumber,
    RewardReading,
    read_pytest_summary,
    read_reward,
)
from flightschool.environments.terminal.rooms import VERDICT_FOLDER, Rooms, rooms_env
from flightschool.environments.terminal.sifting import LeftOut, Sieve
from flightschool.environments.terminal.spoken import own_verdicts, speaks_of
from flightschool.environments.terminal.trees import Account, Image, ImageStore, Tree, find_account
from flightschool.environments.terminal.trees.copies import MOST_BYTES, read_plain
from flightschool.environments.terminal.unasked import GIT_HOOKS_OFF, GIT_QUIET
from flightschool.errors import InfrastructureError, InputError
from flightschool.records import Record
from flightschool.sandbox import NativeProvider
from flightschool.sandbox.written import Written, WrittenKind
from flightschool.verification.isolated import AfterStop, VerifierRun, run_isolated

__all__ = [
    "GRADE_TIMEOUT_S",
    "Graded",
    "UnplaceableError",
    "files_of",
    "grade",
    "grader_env",
    "lay_out",
    "place_files",
    "place_grader",
    "run_grader",
    "sieve_of",
]

OUTPUT_CHARACTERS: Final = 8000
GRADE_TIMEOUT_S: Final = 600.0
"""Where the task names no limit of its own."""
LOGS: Final = ("/logs", "/logs/agent", "/logs/artifacts", VERDICT_FOLDER)
_HYGIENE: Final = {"PYTHONNOUSERSITE": "1", "PIP_NO_INDEX": "1"}
"""Set for the tests alone: what a home holds is not put in front of the system's modules."""
_REWARD_FILES: Final = (f"{VERDICT_FOLDER}/reward.json", f"{VERDICT_FOLDER}/reward.txt")


class UnplaceableError(InputError):
    """An end state that no sandbox can be made of, by the policy's own doing."""


class Graded(Record, frozen=True, kw_only=True):
    """One grading of one stage."""

    reward: float | None
    """0..1; None: there is no verdict, and ``problem`` says why."""
    lost: bool = False
    """Whether there is none since the sandbox of the tests could not be made or was lost: they had no say."""
    rewards: dict[str, float] = msgspec.field(default_factory=dict)
    """All numbers by key."""
    source: str = ""
    problem: str = ""
    left_out: tuple[LeftOut, ...] = ()
    output: str = ""
    """End of what the tests printed."""
    wall_s: float = 0.0
    cpu_s: float = 0.0


async def grade(
    task: TerminalTask, stage: TaskStep, image: Image, state: EndState, store: ImageStore, provider: NativeProvider
) -> Graded:
    """Grade an end state.

    Raises:
        InfrastructureError: the sandbox of the grader cannot be made or was lost.
        UnplaceableError: the end state cannot be laid out, by the policy's doing.
        InputError: the task's tests cannot be placed.
    """
    tree = Tree(Path(image.tree), over_host=image.over_host)
    kept, left_out = (await sieve_of(task, stage, image, store)).sift(state.entries)
    with store.scratch(tree, kept) as folder:
        room = tree.copy_to(folder)
        lay_out(room, kept)
        place_grader(room, task, stage)
        return await run_grader(task, stage, image, room, store, provider, left_out=tuple(left_out))


def place_grader(room: Tree, task: TerminalTask, stage: TaskStep) -> None:
    """The folders of logs, and the tests: whatever an end state put in their place makes way.

    Raises:
        InputError: the task's tests cannot be placed.
    """
    for place in LOGS:
        try:
            room.make_folder(place)
        except InputError:  # the policy's doing, which must not end without a verdict
            room.remove(place)
            room.make_folder(place)
    place_files(room, task, stage.tests)


async def run_grader(
    task: TerminalTask,
    stage: TaskStep,
    image: Image,
    room: Tree,
    store: ImageStore,
    provider: NativeProvider,
    *,
    left_out: tuple[LeftOut, ...] = (),
    after_stop: AfterStop | None = None,
) -> Graded:
    """Run the tests over a tree in which everything lies, and read their verdict.

    Args:
        after_stop: looks at the sandbox once everything in it is dead.

    Raises:
        InfrastructureError: the sandbox of the grader cannot be made or was lost.
    """
    account = verifier_account(Tree(Path(image.tree), over_host=image.over_host), stage, image)
    _make_verdict_folder(room, account)
    timeout_s = stage.limits.verifier_s or GRADE_TIMEOUT_S
    rooms = Rooms(task=task, image=image, stand_ins=store.stand_ins(image))
    run = await run_isolated(
        provider,
        rooms.spec(room, account, timeout_s),
        stage.test_command,
        env=grader_env(task, stage, image, account),
        timeout_s=timeout_s,
        read=_REWARD_FILES,
        after_stop=after_stop,
    )
    return _graded(task, run, left_out)


def lay_out(room: Tree, entries: Sequence[Written]) -> None:
    """Put an end state into a tree.

    Raises:
        UnplaceableError: the state's own doing.
        InfrastructureError: this machine's: no room, no descriptors.
    """
    try:
        room.apply(entries)
    except (InputError, FileExistsError, FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
        raise UnplaceableError(
            f"the end state cannot be laid out: {error}", where="end state", expected="files and folders", mend="see it"
        ) from error
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EXDEV, errno.ENAMETOOLONG, errno.ENOTEMPTY, errno.EINVAL):
            raise UnplaceableError(
                f"the end state cannot be laid out: {error}", where="end state", expected="plain paths", mend="see it"
            ) from error
        raise InfrastructureError(
            f"the end state cannot be laid out: {error}", where=str(room.root), expected="room on the disk", mend="free"
        ) from error


async def sieve_of(task: TerminalTask, stage: TaskStep, image: Image, store: ImageStore) -> Sieve:
    """The sieve of one stage."""
    reserved = [placement.target for placement in (*stage.tests, *stage.solution)]
    reserved += [posixpath.dirname(placement.target) for placement in stage.tests if _is_file(task, placement)]
    return Sieve(
        Tree(Path(image.tree), over_host=image.over_host),
        await store.base_tree(image),
        workdir=image.workdir,
        path=_program_folders(task, stage, image),
        homes=_homes(stage, image),
        reserved=tuple(dict.fromkeys([*reserved, VERDICT_FOLDER])),
        instruction=f"{task.instruction}\n{stage.instruction}",
    )


def _program_folders(task: TerminalTask, stage: TaskStep, image: Image) -> str:
    """The search path of the tests, with the folders at home that tests often put in front of it themselves."""
    homes = [f"{home}/.local/bin" for home in _homes(stage, image)]
    return ":".join([grader_env(task, stage, image, image.account)["PATH"], *homes])


def _homes(stage: TaskStep, image: Image) -> tuple[str, ...]:
    accounts = (image.account, verifier_account(Tree(Path(image.tree), over_host=image.over_host), stage, image))
    return tuple(dict.fromkeys(account.home.rstrip("/") for account in accounts))


def verifier_account(tree: Tree, stage: TaskStep, image: Image) -> Account:
    """Whom the tests run as: by the tree that the task built, whatever the policy did to the accounts."""
    return find_account(tree, stage.verifier_user, "verifier.user") if stage.verifier_user else image.account


def grader_env(task: TerminalTask, stage: TaskStep, image: Image, account: Account) -> dict[str, str]:
    """Variables of the tests."""
    env = {**rooms_env(image, account, {**task.environment_env, **task.verifier_env}), **_HYGIENE}
    if "GIT_CONFIG_COUNT" in env:  # the task's own way of telling git
        return env
    about_hooks = "hook" in f"{task.instruction}\n{stage.instruction}".lower() or speaks_of(task, "hook")
    settings = GIT_QUIET if about_hooks else {**GIT_QUIET, **GIT_HOOKS_OFF}
    told = {"GIT_CONFIG_COUNT": str(len(settings))}
    for number, (key, value) in enumerate(settings.items()):
        told |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return {**env, **told}


def _is_file(task: TerminalTask, placement: Placement) -> bool:
    return Path(task.folder, placement.source).is_file()


def _make_verdict_folder(room: Tree, account: Account) -> None:
    """The folder of the verdict belongs to whom the tests run as."""
    room.remove(VERDICT_FOLDER)
    room.make_folder(VERDICT_FOLDER, owner=(account.uid, account.gid))


def place_files(room: Tree, task: TerminalTask, placements: Sequence[Placement]) -> None:
    """Put files of the task's folder into a tree, later placements over earlier ones; links by their text.

    Raises:
        InputError: something is in the way, or a file is no ordinary one any more.
    """
    contents = list_contents(Path(task.folder))
    with contents.opened() as folder:
        for placement in placements:
            if placement.content:
                room.write(placement.target, placement.content.encode(), mode=0o755)
                continue
            if contents.is_file(placement.source):
                _place(room, folder, placement.source, placement.target, contents.entries[placement.source].executable)
                continue
            room.make_folder(placement.target)
            for entry in contents.below(placement.source):
                target = f"{placement.target}/{entry.path.removeprefix(placement.source).lstrip('/')}"
                if entry.kind is EntryKind.FOLDER:
                    room.make_folder(target)
                elif entry.kind is EntryKind.LINK:
                    room.link(target, entry.target)
                else:
                    _place(room, folder, entry.path, target, entry.executable)


def files_of(task: TerminalTask, folder: str, target: str, account: Account) -> list[Written]:
    """What a folder of the task is once it lies at ``target`` and belongs to an account, as changes.

    Raises:
        InputError: a file is no ordinary one any more.
    """
    contents = list_contents(Path(task.folder))
    found = []
    with contents.opened() as fd:
        for entry in contents.below(folder):
            data, modified_ns = read_plain(fd, entry.path, MOST_BYTES) if entry.kind is EntryKind.FILE else (b"", 0)
            found.append(
                Written(
                    path=posixpath.join(target, entry.path.removeprefix(folder).lstrip("/")),
                    kind=WrittenKind(entry.kind.value),
                    mode=0o755 if entry.executable or entry.kind is EntryKind.FOLDER else 0o644,
                    uid=account.uid,
                    gid=account.gid,
                    target=entry.target,
                    data=data,
                    modified_ns=modified_ns,
                )
            )
    return found


def _place(room: Tree, folder: int, path: str, target: str, executable: bool) -> None:
    data, modified_ns = read_plain(folder, path, MOST_BYTES)
    room.write(target, data, mode=0o755 if executable else 0o644, modified_ns=modified_ns)


def _graded(task: TerminalTask, run: VerifierRun, left_out: tuple[LeftOut, ...]) -> Graded:
    run, foreign = _own(task, run)
    left_out = (*foreign, *left_out)
    text = (run.stdout + run.stderr).decode(errors="replace")
    problem, reading = (run.problem, None) if run.problem else _read(task, run, text)
    number = reading if isinstance(reading, RewardNumber) else None
    return Graded(
        reward=number.value if number else None,
        rewards=number.rewards if number else {},
        source=number.source if number else "",
        problem="" if number else problem or _problem(reading, run),
        left_out=left_out,
        output=text[-OUTPUT_CHARACTERS:],
        wall_s=run.wall_s,
        cpu_s=run.cpu_s,
    )


def _own(task: TerminalTask, run: VerifierRun) -> tuple[VerifierRun, list[LeftOut]]:
    """The run without verdicts that no file of the task speaks of: code of the policy that the tests ran wrote them."""
    by_name = {path.rpartition("/")[2]: path for path in (*run.files, *run.odd_files)}
    _, foreign = own_verdicts(task, by_name)
    if not foreign:
        return run, []
    apart = {by_name[name] for name in foreign}
    files = {path: data for path, data in run.files.items() if path not in apart}
    odd_files = {path: why for path, why in run.odd_files.items() if path not in apart}
    told = [LeftOut(path=path, why="a verdict that no file of the task speaks of") for path in sorted(apart)]
    return msgspec.structs.replace(run, files=files, odd_files=odd_files), told


def _read(task: TerminalTask, run: VerifierRun, text: str) -> tuple[str, RewardReading | None]:
    if task.verdict_source is VerdictSource.UNKNOWN_PARSER:
        return "the task's parser of test output is not known here", None
    if task.verdict_source is VerdictSource.PYTEST_SUMMARY:
        if run.output_truncated:
            return "the tests printed more than is read, so their summary may be cut off", None
        return "", read_pytest_summary(text)
    if run.odd_files:
        path, why = next(iter(run.odd_files.items()))
        return f"the verdict {path} was refused: {why}", None
    return "", read_reward({path.rpartition("/")[2]: data for path, data in run.files.items()})


def _problem(reading: RewardReading | None, run: VerifierRun) -> str:
    if isinstance(reading, RewardMalformed):
        return f"the verdict in {reading.source} is malformed ({reading.problem.value}): {reading.detail}"
    looked_for = " or ".join(reading.looked_for) if isinstance(reading, RewardMissing) else ""
    return f"the tests ended with exit code {run.exit_code} and left no verdict ({looked_for})"
