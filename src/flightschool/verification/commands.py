"""Test commands on an end state, in a fresh sandbox of their own.

The files of the end state are laid into a folder that nothing else uses, the check's own files over them; the folder
is the tree of a sandbox (its system is the host's curated view), and the command runs there, after the policy's
processes are dead.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TypeAlias

from flightschool.errors import InfrastructureError
from flightschool.records import CommandCheck
from flightschool.sandbox import ImageTree, Limits, SandboxProvider, SandboxSpec, best_provider
from flightschool.sandbox.written import Written, WrittenKind
from flightschool.verification.files import files_of
from flightschool.verification.isolated import VerifierRun, run_isolated

__all__ = ["IsolatedCommands", "MakeRoom", "files_room"]

MakeRoom: TypeAlias = Callable[[CommandCheck, bytes], AbstractContextManager[SandboxSpec]]
"""(check, end state) → a sandbox that holds the state with the check's own files over it, for a block."""

_ENV: Mapping[str, str] = {"PYTHONNOUSERSITE": "1", "PYTHONDONTWRITEBYTECODE": "1", "PIP_NO_INDEX": "1"}


class IsolatedCommands:
    """Runs the commands of checks (``states.Resources.run_command``). Safe to share by threads.

    Args:
        make_room: how an end state becomes a sandbox; by default its files over the host's curated view. An environment
            with images of its own gives its own.
        make_provider: the sandboxes; by default the best mechanism of this machine. Made for each command and closed.
    """

    def __init__(
        self,
        make_room: MakeRoom | None = None,
        make_provider: Callable[[], Awaitable[SandboxProvider]] = best_provider,
    ) -> None:
        self._make_room = make_room or files_room
        self._make_provider = make_provider

    def __call__(self, rule: CommandCheck, end_state: bytes) -> VerifierRun:
        """Run one command to its end.

        Raises:
            InfrastructureError: no sandbox can be made, or it was lost.
        """
        # the caller may be inside an event loop, and a loop cannot be entered twice by one thread
        with ThreadPoolExecutor(max_workers=1) as pool:
            return pool.submit(asyncio.run, self._run(rule, end_state)).result()

    async def _run(self, rule: CommandCheck, end_state: bytes) -> VerifierRun:
        provider = await self._make_provider()
        try:
            with self._make_room(rule, end_state) as spec:
                read = [rule.junit] if rule.junit else []
                return await run_isolated(provider, spec, rule.command, env=_ENV, timeout_s=rule.timeout_s, read=read)
        finally:
            await provider.aclose()


@contextmanager
def files_room(rule: CommandCheck, end_state: bytes) -> Iterator[SandboxSpec]:
    """The files of an end state with the check's own over them, in a folder that is gone after the block.

    The folder of the report is empty and may be written by all; what else the state holds can only be read.

    Links that the policy left are laid last and only where nothing stands, so that no file is written through one.

    Raises:
        InfrastructureError: the state holds no files, or the folder cannot be made.
    """
    files = files_of(end_state) if end_state else files_of(b'{"files": {}}')
    with tempfile.TemporaryDirectory(prefix="flightschool-grade-") as name:
        root = Path(name) / "tree"
        try:
            root.mkdir()
            Path(name).chmod(0o755)  # the sandbox's own user must get at the tree
            root.chmod(0o755)
            own = [*rule.files, *([rule.junit.rpartition("/")[0]] if rule.junit else ())]
            kept = [entry for path, entry in sorted(files.entries.items()) if not _covered(path, own)]
            if rule.junit:
                place = _inside(root, rule.junit).parent
                place.mkdir(parents=True, exist_ok=True)
                place.chmod(0o777)
            _lay(root, kept, rule.files)
        except OSError as error:
            raise InfrastructureError(
                f"the end state cannot be laid out: {error}", where=name, expected="room on the disk", mend="free some"
            ) from error
        limits = Limits(wall_s=rule.timeout_s + 60, cpu_s=max(60.0, rule.timeout_s * 2))
        yield SandboxSpec(root=ImageTree(path=str(root), over_host=True), limits=limits)


def _covered(path: str, over: Sequence[str]) -> bool:
    """Whether a path of the policy's stands where, above or below which one of the check's files must lie."""
    return any(path == own or own.startswith(path + "/") or path.startswith(own + "/") for own in over)


def _lay(root: Path, entries: list[Written], over: Mapping[str, str]) -> None:
    for path, text in over.items():
        _write(root, path, text.encode(), 0o644)
    for entry in entries:
        if entry.kind is WrittenKind.FILE:
            _write(root, entry.path, entry.data, entry.mode or 0o644)
        elif entry.kind is WrittenKind.FOLDER:
            _inside(root, entry.path).mkdir(mode=0o755, parents=True, exist_ok=True)
    for entry in entries:
        place = _inside(root, entry.path)
        if entry.kind is WrittenKind.LINK and not os.path.lexists(place) and _plain(root, place.parent):
            place.symlink_to(entry.target)


def _write(root: Path, path: str, data: bytes, mode: int) -> None:
    place = _inside(root, path)
    place.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    place.write_bytes(data)
    place.chmod((mode & 0o777) | 0o444)


def _inside(root: Path, path: str) -> Path:
    """A path below the tree, lexically: the state's paths are data, ``..`` in them leads nowhere."""
    parts = [part for part in path.split("/") if part not in ("", ".", "..")]
    return root.joinpath(*parts) if parts else root


def _plain(root: Path, folder: Path) -> bool:
    """Whether a folder is there and no link leads to it."""
    while folder != root:
        if folder.is_symlink() or not folder.is_dir():
            return False
        folder = folder.parent
    return True
