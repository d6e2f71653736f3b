"""Audits of many task folders: one at a time in memory, several sandboxes at once, finished ones kept in a journal."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

from msgspec.structs import replace

from flightschool.audit.terminal.examination import NEEDS
from flightschool.audit.terminal.examining import REPEATS, examine_folder
from flightschool.audit.terminal.journal import Journal
from flightschool.audit.terminal.merging import merged
from flightschool.audit.terminal.proposing import Readers, consult
from flightschool.audit.terminal.records import FolderAudit
from flightschool.audit.terminal.static import StaticPass, examine_static
from flightschool.audit.terminal.verdicts import folder_verdict
from flightschool.environments.terminal import TerminalTask, UnreadableTask
from flightschool.environments.terminal.trees import ImageStore
from flightschool.errors import FlightschoolError
from flightschool.records import AuditVerdict
from flightschool.sandbox import NativeProvider, require_native

__all__ = ["ReadPass", "audit_folders", "read_only_audit", "unreadable_audit"]

SIDE_BY_SIDE: Final = 4
"""Folders that are examined at the same time, so that a slow one does not hold up the next; the sandboxes of all of
them share one bound."""
_NO_NATIVE: Final = "see flightschool doctor for what to enable, or read only with --static"
ReadPass: TypeAlias = Callable[[TerminalTask], StaticPass]
"""The static pass."""


def audit_folders(
    tasks: Iterable[TerminalTask | UnreadableTask],
    *,
    images: Path,
    base_trees: Path | None = None,
    journal: Journal | None = None,
    read: ReadPass | None = None,
    static_only: bool = False,
    repeats: int = REPEATS,
    however_slow: bool = False,
    seed: int = 0,
    concurrency: int | None = None,
    readers: Readers | None = None,
    readers_journal: Journal | None = None,
    build_network: bool = False,
    on_audit: Callable[[FolderAudit], None],
) -> None:
    """Audit folders in their order; each finished audit goes to the journal and to ``on_audit``.

    Args:
        tasks: read as they are needed, so that thousands do not fill the memory.
        images: folder in which built images are kept.
        base_trees: folder with unpacked base images.
        journal: audits that are there already are not made again.
        read: the static pass, if another one than ``examine_static``.
        static_only: run nothing; no task is called sound then.
        repeats: plays of each reference.
        however_slow: make them all; otherwise slow references are played less often.
        seed: of all plays.
        concurrency: sandboxes at a time; one for each processor where it is None.
        readers: models that are asked after what is run; None: none are.
        readers_journal: the same as ``journal``, for what the readers had their say on.
        build_network: whether steps of builds that fetch share this machine's network. Nothing that is played or
            graded ever does.

    Raises:
        InfrastructureError: no sandbox can be made here, and ``static_only`` is not set.
    """

    async def run() -> None:
        provider = None if static_only else await require_native("auditing by running needs", mend=_NO_NATIVE)
        networked = NativeProvider(without=["network"]) if build_network and provider is not None else None
        try:
            store = None
            if provider is not None:
                store = ImageStore(images, provider, base_trees=base_trees, networked=networked)
            gate = asyncio.Semaphore(concurrency or os.cpu_count() or 1)
            examine = partial(examine_folder, repeats=repeats, however_slow=however_slow, seed=seed)

            async def one(task: TerminalTask | UnreadableTask) -> FolderAudit:
                audit = await _audit(task, store, provider, gate, journal, read, examine)
                if readers is None or store is None or provider is None or isinstance(task, UnreadableTask):
                    return audit
                return await _consult(task, audit, store, provider, gate, readers, readers_journal, seed)

            at_once = SIDE_BY_SIDE if readers is None else max(SIDE_BY_SIDE, readers.at_once)
            async for audit in _in_order(tasks, one, at_once):
                on_audit(audit)
        finally:
            for opened in (provider, networked):
                if opened is not None:
                    await opened.aclose()

    asyncio.run(run())


async def _in_order(
    tasks: Iterable[TerminalTask | UnreadableTask],
    one: Callable[[TerminalTask | UnreadableTask], Coroutine[None, None, FolderAudit]],
    at_once: int,
) -> AsyncIterator[FolderAudit]:
    """Results in the order of the tasks, a few under way at a time."""
    waiting: deque[asyncio.Task[FolderAudit]] = deque()
    try:
        for task in tasks:
            waiting.append(asyncio.create_task(one(task)))
            if len(waiting) >= at_once:
                yield await waiting.popleft()
        while waiting:
            yield await waiting.popleft()
    finally:
        for rest in waiting:
            rest.cancel()


async def _audit(
    task: TerminalTask | UnreadableTask,
    store: ImageStore | None,
    provider: NativeProvider | None,
    gate: asyncio.Semaphore,
    journal: Journal | None,
    read: ReadPass | None,
    examine: Callable[..., Coroutine[None, None, FolderAudit]],
) -> FolderAudit:
    if isinstance(task, UnreadableTask):
        return unreadable_audit(task)
    kept = journal.find(task.digest, task.id) if journal is not None else None
    if kept is not None and not kept.unaudited_because.startswith(NEEDS):
        return kept
    if store is None or provider is None:
        audit = read_only_audit(task, read)
    else:
        static = (read or examine_static)(task)
        audit = await examine(task, store, provider, gate=gate, static=static)
    if journal is not None and not audit.unaudited_because.startswith(NEEDS):  # what is lacking may be given meanwhile
        journal.add(audit)
    return audit


async def _consult(
    task: TerminalTask,
    audit: FolderAudit,
    store: ImageStore,
    provider: NativeProvider,
    gate: asyncio.Semaphore,
    readers: Readers,
    journal: Journal | None,
    seed: int,
) -> FolderAudit:
    """What the readers make of a finished audit. Models that do not answer leave the task unaudited, and no line."""
    kept = journal.find(task.digest, task.id) if journal is not None else None
    if kept is not None:
        return kept
    try:
        asked = await consult(task, audit, store, provider, readers, gate=gate, seed=seed)
    except (FlightschoolError, OSError) as error:
        because = f"the readers could not be asked: {error}"
        return replace(audit, verdict=folder_verdict(audit.findings, unaudited=True), unaudited_because=because)
    if journal is not None:
        journal.add(asked)
    return asked


def read_only_audit(task: TerminalTask, read: ReadPass | None = None) -> FolderAudit:
    """The audit of a folder that was only read: never sound, and nothing is called exploitable."""
    findings = merged((read or examine_static)(task).findings, (), was_run=False)
    return FolderAudit(
        id=task.id,
        path=task.folder,
        digest=task.digest,
        verdict=folder_verdict(findings, unaudited=True),
        findings=tuple(findings),
        unaudited_because="only its text was read (--static)",
    )


def unreadable_audit(task: UnreadableTask) -> FolderAudit:
    """The audit of a folder that is no task that can be read."""
    return FolderAudit(
        id=task.id,
        path=task.folder,
        digest="",
        verdict=AuditVerdict.UNAUDITED,
        unaudited_because=f"it cannot be read: {task.error()}",
    )
