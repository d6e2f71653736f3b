"""One process a run: an exclusive lock that lives and dies with the process that holds it. Imports no torch.

``flock`` on a file of the run's folder. The kernel lets go of it when the process ends, however it ends. A child must
not go on holding it: the descriptor is closed by exec, and by hand in children that are forked without one.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flightschool.errors import InputError
from flightschool.training.folders import RunFolder

__all__ = ["held_run", "refuse_held"]

_held: set[int] = set()
"""Descriptors of the locks that this process holds."""


@contextmanager
def held_run(run_dir: Path) -> Iterator[None]:
    """Hold a run's lock, made with its folder where there is none.

    Raises:
        InputError: another process, or another call in this one, flies the run; or its folder cannot be locked.
    """
    path = RunFolder(run_dir).lock
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    _held.add(descriptor)
    try:
        _lock(descriptor, path)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        _held.discard(descriptor)
        os.close(descriptor)  # the file stays: whoever removed it could remove the lock of the next holder


def refuse_held(run_dir: Path) -> None:
    """Raise ``InputError`` if another process trains the run: before anything costly is done for it."""
    path = RunFolder(run_dir).lock
    if not path.exists():
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _lock(descriptor, path, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)


def _lock(descriptor: int, path: Path, kind: int = fcntl.LOCK_EX) -> None:
    run = path.parent.name
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno != errno.EWOULDBLOCK:
            raise InputError(
                f"run {run!r} cannot be locked against a second process: {error.strerror}",
                where=str(path),
                expected="a file system with file locks (flock)",
                mend="keep the workspace on a local disk",
            ) from error
        holder = os.pread(descriptor, 32, 0).decode("ascii", "replace")
        raise InputError(
            f"run {run!r} is being trained by process {holder or '(just starting)'}",
            where=str(path),
            expected="one process a run",
            mend="wait until that process ends, or end it, then go on with --resume",
        ) from error


def _let_go() -> None:
    """In a forked child: the parent's locks are none of its business."""
    for descriptor in _held:
        os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_let_go)
