"""Episodes in terminal tasks: a fresh sandbox for the policy, its end state, a fresh sandbox for the grader.

Who could have caused an end decides what follows, as in ``rollouts.runner``: a program that fails, runs on or fills the
place up is the policy's doing and is graded on what it left; a lost sandbox, a build that breaks and a grader without a
verdict are nobody's score, unless it has one on what no policy touched (``controls``).
"""

from __future__ import annotations

import contextlib
import posixpath
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import msgspec

from flightschool.digest import derive_seed
from flightschool.environments.terminal import TaskStep, TerminalTask
from flightschool.environments.terminal.end_state import EndState, beneath
from flightschool.environments.terminal.grading import (
    Graded,
    UnplaceableError,
    files_of,
    grade,
    lay_out,
    place_files,
    sieve_of,
)
from flightschool.environments.terminal.rooms import MOST_ENTRIES, Rooms, host_variables, rooms_env
from flightschool.environments.terminal.trees import (
    Account,
    BuildError,
    Image,
    ImageStore,
    NotRunnable,
    Tree,
    find_account,
    tail,
)
from flightschool.errors import InfrastructureError, InputError
from flightschool.records import INFRA_REASONS, EndReason
from flightschool.rollouts.terminal.controls import Controls, Grade, graded_or_why
from flightschool.rollouts.terminal.course import Course
from flightschool.rollouts.terminal.policies import PROGRAM_FOLDER, Move, TerminalPolicy
from flightschool.rollouts.terminal.programs import UNTYPED, is_typed, scripts_of, text_of
from flightschool.rollouts.terminal.records import Episode, NotRun, StageResult
from flightschool.rollouts.terminal.recounting import recount
from flightschool.rollouts.terminal.scoring import Scores
from flightschool.rollouts.terminal.shell import SHELL_TOOL, ShellPolicy
from flightschool.sandbox import Enforcement, ExecResult, NativeProvider, Stopped
from flightschool.sandbox.live import AgentSandbox
from flightschool.sandbox.written import Written

__all__ = ["TerminalRunner"]

AGENT_TIMEOUT_S: Final = 900.0
SETUP_TIMEOUT_S: Final = 120.0
"""Where the task names none."""
OUTPUT_BYTES: Final = 1 << 20
_ENDINGS: Final = {
    Stopped.TIMEOUT: EndReason.TIME_LIMIT,
    Stopped.MEMORY: EndReason.RESOURCE_LIMIT,
    Stopped.CPU: EndReason.RESOURCE_LIMIT,
    Stopped.WALL: EndReason.TIME_LIMIT,
}
KeepBlob = Callable[[bytes], str]


class _Ended(msgspec.Struct, frozen=True, kw_only=True):
    """How a stage of the policy ended."""

    reason: EndReason
    detail: str = ""
    output: str = ""
    changes: tuple[Written, ...] | None = None
    """What was written over what the stage began with; None: there is nothing to grade."""
    words: tuple[str, ...] = ()
    """The command that ran; none where nothing did."""
    program: bytes = b""
    """What it ran."""
    enforcement: tuple[Enforcement, ...] = ()
    """How the limits of its sandbox were kept."""


class TerminalRunner:
    """Runs attempts at terminal tasks.

    Args:
        store: builds and keeps images.
        provider: makes the sandboxes; the one of ``store``. Owned by the caller.
        run: id of the run that attempts belong to.
        keep_blob: keeps end states (bytes → digest), so that they can be graded again.
        controlled: whether a grading without a verdict is the policy's failure where the tests have a verdict on an
            untouched state; False: it always is the grader's (an audit wants to see it).
        grade: judges an end state.
    """

    def __init__(
        self,
        store: ImageStore,
        provider: NativeProvider,
        *,
        run: str,
        keep_blob: KeepBlob | None = None,
        controlled: bool = True,
        grade: Grade = grade,
    ) -> None:
        self.run = run
        self._store = store
        self._provider = provider
        self._keep_blob = keep_blob
        self._controls = Controls(store, provider) if controlled else None
        self._judge = grade

    async def attempt(
        self, task: TerminalTask, policy: TerminalPolicy, *, group: str, index: int, seed: int, number: int = 0
    ) -> Episode | NotRun:
        """One attempt. Failures of any kind come back as attempts; only what cannot be attempted is ``NotRun``.

        Raises:
            InputError: the folder is broken in a way that every builder would refuse.
        """
        course = Course(
            task=task,
            run=self.run,
            policy=policy.name,
            group=group,
            index=index,
            number=number,
            seed=seed,
            scores=Scores(task),
        )
        asked = host_variables(task.environment_env, task.verifier_env)
        if asked:
            reason = f"the task wants the host's variable {asked[0]}, and no variable is handed in"
            return NotRun(task=task.id, task_digest=task.digest, need="variable", reason=reason)
        try:
            not_run = await self._make_ready(policy, course)
            if not_run is not None:
                return not_run
            if isinstance(policy, ShellPolicy):
                course.take_seat(policy.seat(task.id, seed, group, index, number))
            reason, detail = await self._stages(course.seat or policy, course)
        except _NoSolutionError as error:
            return NotRun(task=task.id, task_digest=task.digest, need="solution", reason=str(error))
        except (InfrastructureError, OSError) as error:
            reason, detail = EndReason.WORLD_ERROR, str(error)
            course.build_failed = isinstance(error, BuildError)
        finally:
            if course.seat is not None:
                course.seat.close()
        return course.episode(reason, detail)

    async def _make_ready(self, policy: TerminalPolicy, course: Course) -> NotRun | None:
        """Build the image; what keeps the policy from acting in it on this machine."""
        task = course.task
        built = await self._store.build(task)
        if isinstance(built, NotRunnable):
            return NotRun.of(task.id, task.digest, built)
        course.image = built
        if is_typed(task, policy) and not await self._store.has_python(built):
            return NotRun(task=task.id, task_digest=task.digest, need="solution", reason=UNTYPED)
        scripts = scripts_of(task, policy)
        lacking = await self._store.fetches(task, built, scripts)
        if lacking is not None:
            return NotRun.of(task.id, task.digest, lacking)
        course.stood_in = await self._store.stood_in(task, built, scripts)
        return None

    # -------------------------------------------------------------------------------------------- stages

    async def _stages(self, policy: TerminalPolicy, course: Course) -> tuple[EndReason, str]:
        """Walk through the stages; the reason and detail of the first end that was no ordinary one."""
        task, image, scores, results, events = course.task, course.image, course.scores, course.stages, course.events
        assert image is not None, "no stage begins before the image is built"
        ending, details = EndReason.FINISHED, []
        state = untouched = EndState(entries=())
        for place, stage in enumerate(task.stages):
            given = _given(task, stage, image)
            begun, untouched = state.then(given), untouched.then(given)
            ended = await self._policy_stage(task, stage, policy, image, begun, untouched, course.seed)
            turn = events[-1].turn if events and ended.words == (SHELL_TOOL.name,) else place
            events += recount(ended.words, ended.program, ended.changes or (), stage=turn, first=len(events))
            if ended.detail:
                details.append(f"{stage.name}: {ended.detail}" if stage.name else ended.detail)
            ending = ended.reason if ending is EndReason.FINISHED else ending
            if ended.reason in INFRA_REASONS:  # a model whose engine died
                return ended.reason, ended.detail
            result = StageResult(name=stage.name, end_state="", output=ended.output, enforcement=ended.enforcement)
            if ended.changes is None:
                results.append(result)
                scores.nothing(stage, "the end state could not be graded")
                break
            state = begun.then(ended.changes)
            result = msgspec.structs.replace(result, end_state=state.digest)
            try:
                graded, is_the_policys = await self._grade(task, place, image, state, untouched)
            except UnplaceableError as error:
                results.append(result)
                scores.nothing(stage, error.what)
                return EndReason.RESOURCE_LIMIT, error.what
            blob = self._keep_blob(state.to_bytes()) if self._keep_blob else ""
            results.append(msgspec.structs.replace(result, blob=blob, graded=graded))
            if is_the_policys:
                why = f"{graded.problem}; on what no policy touched the same tests have a verdict"
                scores.nothing(stage, why)
                return EndReason.UNGRADABLE, why
            if graded.reward is None:
                return EndReason.GRADER_ERROR, graded.problem
            scores.add(stage, graded)
            if place + 1 < len(task.stages) and not scores.may_go_on(stage, graded):
                break
        return ending, "; ".join(details)

    async def _grade(
        self, task: TerminalTask, place: int, image: Image, state: EndState, untouched: EndState
    ) -> tuple[Graded, bool]:
        """The verdict on a stage, and where there is none, whether the policy's state is what keeps it away."""
        graded = await graded_or_why(task, place, image, state, self._store, self._provider, judge=self._judge)
        if graded.reward is not None or self._controls is None or state == untouched:
            return graded, False
        if not await self._controls.judge(task, place, image, untouched):
            return graded, False
        again = await graded_or_why(task, place, image, state, self._store, self._provider, judge=self._judge)
        return again, again.reward is None

    # -------------------------------------------------------------------------------------------- the policy

    async def _policy_stage(
        self,
        task: TerminalTask,
        stage: TaskStep,
        policy: TerminalPolicy,
        image: Image,
        begun: EndState,
        untouched: EndState,
        seed: int,
    ) -> _Ended:
        """A fresh sandbox over the image and what was written so far. Processes of earlier stages do not live on.

        What an earlier stage left can keep this one from starting: the policy's doing, if it starts without that.
        """
        try:
            move = policy.move(stage)
        except InputError as error:
            raise _NoSolutionError(error.what) from error
        try:
            return await self._run_stage(task, stage, move, image, begun, seed)
        except UnplaceableError as error:
            return _Ended(reason=EndReason.RESOURCE_LIMIT, detail=error.what)
        except _NoStartError:
            if begun == untouched or self._controls is None:
                raise
        await self._run_stage(task, stage, Move(), image, untouched, seed)
        try:
            return await self._run_stage(task, stage, move, image, begun, seed)
        except _NoStartError as error:
            return _Ended(reason=EndReason.UNGRADABLE, detail=f"it could not begin on what was left: {error.what}")

    async def _run_stage(
        self, task: TerminalTask, stage: TaskStep, move: Move, image: Image, begun: EndState, seed: int
    ) -> _Ended:
        timeout_s = stage.limits.agent_s or AGENT_TIMEOUT_S
        tree = Tree(Path(image.tree), over_host=image.over_host)
        account = find_account(tree, stage.agent_user, "agent.user") if stage.agent_user else image.account
        leave_out = [PROGRAM_FOLDER, *(placement.target for placement in move.placements)]
        with self._store.scratch(tree, begun.entries) as folder:
            room = tree
            if move.placements or begun.entries:
                room = tree.copy_to(folder)
                lay_out(room, (await sieve_of(task, stage, image, self._store)).carry(begun.entries)[0])
                place_files(room, task, move.placements)
            rooms = Rooms(task=task, image=image, stand_ins=self._store.stand_ins(image))
            spec = rooms.spec(room, account, timeout_s + SETUP_TIMEOUT_S)
            async with contextlib.AsyncExitStack() as stack:
                env = _env(task, stage, image, account, move, seed)
                try:
                    box = await stack.enter_async_context(self._provider.open(spec))
                    await _set_up(box, task, stage, image, env)
                    if move.program_path:
                        await box.put(move.program_path, move.program, mode=0o755)
                except (InfrastructureError, InputError) as error:
                    raise _NoStartError(
                        error.what, where=error.where, expected=error.expected, mend=error.mend
                    ) from error
                if move.act is not None:
                    reason, detail = await move.act(_runs(box, env), timeout_s)
                    ended = await _ended(box, None, tuple(leave_out), spec.limits.disk_bytes)
                    if ended.changes is not None:
                        ended = msgspec.structs.replace(ended, reason=reason, detail=detail)
                else:
                    result = await _act(box, move, env, timeout_s)
                    ended = await _ended(box, result, tuple(leave_out), spec.limits.disk_bytes)
        words = (SHELL_TOOL.name,) if move.act is not None else move.command
        return msgspec.structs.replace(ended, words=words, program=text_of(task, move), enforcement=box.enforcement)


def _given(task: TerminalTask, stage: TaskStep, image: Image) -> list[Written]:
    """What a step lays into the working directory, for whom the image is made."""
    if not stage.workdir_files:
        return []
    return files_of(task, stage.workdir_files, image.workdir, image.account)


async def _set_up(box: AgentSandbox, task: TerminalTask, stage: TaskStep, image: Image, env: dict[str, str]) -> None:
    """Run the step's own set-up, if it brings one, before the policy sees the place."""
    if not stage.workdir_files or not Path(task.folder, stage.workdir_files, "setup.sh").is_file():
        return
    command = ["bash", posixpath.join(image.workdir, "setup.sh")]
    result = await box.exec(command, timeout_s=SETUP_TIMEOUT_S, env=env, sweep_on_timeout=True)
    if not result.ok:
        raise InfrastructureError(
            f"setup.sh of step {stage.name!r} failed: {tail(result)}",
            where=f"{stage.workdir_files}/setup.sh",
            expected="exit code 0",
            mend="mend the task",
        )


def _runs(box: AgentSandbox, env: dict[str, str]) -> Callable[[str, float], Awaitable[ExecResult]]:
    async def run(command: str, timeout_s: float) -> ExecResult:
        return await box.exec(command, timeout_s=timeout_s, output_bytes=OUTPUT_BYTES, env=env, sweep_on_timeout=True)

    return run


async def _act(box: AgentSandbox, move: Move, env: dict[str, str], timeout_s: float) -> ExecResult | None:
    if not move.command:
        return None
    return await box.exec(move.command, timeout_s=timeout_s, output_bytes=OUTPUT_BYTES, env=env, sweep_on_timeout=True)


async def _ended(box: AgentSandbox, result: ExecResult | None, leave_out: tuple[str, ...], most_bytes: int) -> _Ended:
    """Kill what still runs, read what was written, and say whose doing the end was."""
    reason, detail, output = EndReason.FINISHED, "", ""
    if result is not None:
        output = (result.stdout + result.stderr)[-8000:].decode(errors="replace")
        reason, detail = _reason(result)
    try:
        written = await box.written(most_bytes=most_bytes, most_entries=MOST_ENTRIES)
    except InputError as error:
        return _Ended(reason=EndReason.RESOURCE_LIMIT, detail=f"{error.what} at {error.where[:200]}", output=output)
    changes = tuple(entry for entry in written if not any(beneath(entry.path, path) for path in leave_out))
    return _Ended(reason=reason, detail=detail, output=output, changes=changes)


def _reason(result: ExecResult) -> tuple[EndReason, str]:
    if result.stopped:
        return _ENDINGS[result.stopped], f"ended by its {result.stopped.value} limit"
    if result.failed_to_start:
        return EndReason.POLICY_ERROR, f"could not be started: {result.failed_to_start}"
    if result.signal is not None:
        return EndReason.POLICY_ERROR, f"killed by signal {result.signal}"
    return EndReason.FINISHED, f"exit code {result.exit_code}" if result.exit_code else ""


def _env(task: TerminalTask, stage: TaskStep, image: Image, account: Account, move: Move, seed: int) -> dict[str, str]:
    more = {**task.environment_env, **(task.solution_env if move.with_solution_env else {})}
    own = {"FLIGHTSCHOOL_SEED": str(derive_seed("policy", seed))}
    return {**rooms_env(image, account, more), **own, **({"FLIGHTSCHOOL_STEP": stage.name} if stage.name else {})}


class _NoSolutionError(Exception):
    """The policy cannot act in this task."""


class _NoStartError(InfrastructureError):
    """A stage could not begin."""
