"""The steps of a build plan, done to a tree one after the other. What RUN asks for is run in a sandbox, never here."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import msgspec

from flightschool.environments.terminal.plan_records import (
    BuildPlan,
    BuildStep,
    CopyStep,
    RunStep,
    UserStep,
    WorkdirStep,
)
from flightschool.environments.terminal.trees.accounts import find_account
from flightschool.environments.terminal.trees.copies import copy_onto
from flightschool.environments.terminal.trees.laying import Tree
from flightschool.environments.terminal.trees.presence import STAND_INS
from flightschool.environments.terminal.trees.records import Account, BuildError
from flightschool.errors import InputError
from flightschool.sandbox import (
    DEFAULT_ENV,
    ExecResult,
    ImageTree,
    Limits,
    NativeProvider,
    ReadOnlyMount,
    SandboxSpec,
)

__all__ = ["BUILD_LIMITS", "Builders", "account_env", "replay", "tail"]

BUILD_LIMITS: Final = Limits(
    cpu_s=3600, wall_s=1800, memory_bytes=4 << 30, pids=512, open_files=4096, disk_bytes=2 << 30, inodes=200_000
)
_SCRIPT: Final = "/tmp/.build-script"
_OWN: Final = (STAND_INS, _SCRIPT)
TAIL_BYTES: Final = 2000
_RESOLVING: Final = ("/etc/resolv.conf", "/etc/hosts")
_PROXIES: Final = ("http_proxy", "https_proxy", "ftp_proxy", "no_proxy", "all_proxy")
"""Variables that a builder hands to RUN by itself, in small and in capital letters."""


class Builders(msgspec.Struct, frozen=True, kw_only=True):
    """Who makes the sandboxes of a build."""

    plain: NativeProvider
    networked: NativeProvider | None = None
    """For steps that fetch: shares this machine's network. None: nothing is fetched."""
    stand_ins: Path
    """Folder of ``write_stand_ins``; a step that fetches finds the real programs instead."""


async def replay(
    plan: BuildPlan, tree: Tree, context: Path, builders: Builders, *, where: str, timeout_s: float = 600.0
) -> None:
    """Do every step to ``tree``, which holds the base.

    Args:
        context: the build context on this machine.
        where: the Dockerfile's path, for errors.
        timeout_s: of the whole build, of which each command gets what is left.

    Raises:
        BuildError: a command failed; file, line and the end of its output are in it.
        InputError: a copy or an account is impossible.
    """
    account = Account()
    for step in plan.steps:
        place = f"{where}:{step.line}"
        if isinstance(step, UserStep):
            account = find_account(tree, step.user, place)
        elif isinstance(step, WorkdirStep):
            tree.make_folder(step.path, owner=(account.uid, account.gid))
        elif isinstance(step, CopyStep):
            _copy(tree, step, context, place)
        elif isinstance(step, RunStep):
            timeout_s -= await _run(step, tree, account, builders, place, timeout_s)


def _copy(tree: Tree, step: CopyStep, context: Path, place: str) -> None:
    try:
        copy_onto(tree, step, context, place)
    except InputError as error:
        raise InputError(
            f"{_short(step)}: {error.what} ({error.where})", where=place, expected=error.expected, mend=error.mend
        ) from error


async def _run(step: RunStep, tree: Tree, account: Account, builders: Builders, place: str, timeout_s: float) -> float:
    if timeout_s <= 0:
        raise BuildError("the build ran out of time", where=place, expected="a quicker build", mend="raise its limit")
    for folder in step.scratch:
        tree.make_folder(folder)
    fetching = builders.networked if step.obstacles else None
    mounts = [ReadOnlyMount(source=str(builders.stand_ins), target=STAND_INS)]
    path = f"{STAND_INS}/bin:{step.env.get('PATH', DEFAULT_ENV['PATH'])}"
    more = {"PATH": path}
    if fetching is not None:
        mounts += [ReadOnlyMount(source=name, target=name) for name in _RESOLVING if Path(name).is_file()]
        more = {**_proxies(), "APT_CONFIG": f"{STAND_INS}/apt.conf", "PATH": path.partition(":")[2]}
    spec = SandboxSpec(
        root=ImageTree(path=str(tree.root), over_host=tree.over_host),
        limits=changed_limits(BUILD_LIMITS, timeout_s),
        env={**account_env(account), **step.env},
        uid=account.uid,
        gid=account.gid,
        workdir=step.workdir,
        mounts=tuple(mounts),
        changes=True,
        file_powers=True,
    )
    async with (fetching or builders.plain).open(spec) as box:
        argv = list(step.argv)
        if step.script:
            await box.put(_SCRIPT, step.script.encode(), mode=0o755)
            argv = [_SCRIPT]
        result = await box.exec(argv, timeout_s=timeout_s, env=more)
        if not result.ok:
            raise BuildError(
                f"{_short(step)} ended with {_ending(result)}: {tail(result)}",
                where=place,
                expected="a step that succeeds without a network and Docker",
                mend="run it where the base image itself is at hand, or install what it lacks",
            )
        written = await box.written(most_bytes=BUILD_LIMITS.disk_bytes, most_entries=BUILD_LIMITS.inodes)
    own = (*_OWN, *(_RESOLVING if fetching is not None else ()), *(f"{folder}/" for folder in step.scratch))
    tree.apply(change for change in written if not change.path.startswith(own))
    return result.wall_s


def _proxies() -> dict[str, str]:
    names = [name for plain in _PROXIES for name in (plain, plain.upper())]
    return {name: os.environ[name] for name in names if name in os.environ}


def changed_limits(limits: Limits, wall_s: float) -> Limits:
    """The same with another wall clock, and a little for what surrounds the command."""
    return msgspec.structs.replace(limits, wall_s=wall_s + 60)


def account_env(account: Account) -> dict[str, str]:
    """Variables that follow from who one is, and from whose programs stand in for an image's.

    Some systems' pip installs nothing beside the system's packages unless told; an image's own has no such rule.
    """
    own = {"HOME": account.home, "USER": account.name, "LOGNAME": account.name}
    return {**own, "PIP_BREAK_SYSTEM_PACKAGES": "1"}


def _short(step: BuildStep) -> str:
    return step.text if len(step.text) <= 120 else step.text[:117] + "..."


def _ending(result: ExecResult) -> str:
    if result.failed_to_start:
        return f"exit code {result.exit_code} ({result.failed_to_start})"
    if result.stopped:
        return f"its {result.stopped.value} limit"
    return f"signal {result.signal}" if result.signal else f"exit code {result.exit_code}"


def tail(result: ExecResult, most: int = TAIL_BYTES) -> str:
    """The end of what a command said, errors last."""
    text = (result.stdout[-most:] + result.stderr[-most:]).decode(errors="replace").strip()
    return text[-most:] or "no output"
