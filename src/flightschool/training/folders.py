"""Where a run keeps what, and how a folder becomes durable. Imports no torch.

::

    run_dir/
      run.json            what the run was started with
      run.lock            held by the process that trains the run; its id (see ``run_lock``)
      journal.bin         write-ahead journal (see ``journal``)
      checkpoints/step-000004/   weights, optimizer, manifest: present whole or not at all (see ``checkpoints``)
      kept/               batches whose step was not finite, kept for inspection
      metrics.jsonl       one line a step
      credits.jsonl       one line a consumed group: advantages by term, of attempts and of spans
      incidents.jsonl     what failed and was mended
      routing/            experts chosen during generation (mixture of experts only)
      model/              the trained model, Hugging Face layout, once the run is finished
      result.json         the final manifest and result
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from flightschool.errors import NotFoundError, StoreError
from flightschool.training.checkpoints import newest_whole, read_checkpoint
from flightschool.training.messages import Manifest

__all__ = [
    "BlobFolder",
    "RunFolder",
    "durable_folder",
    "remove_all_published",
    "remove_published",
    "shared_path",
    "write_durably",
]

_KEPT_CHECKPOINTS = 2


@dataclass(frozen=True)
class RunFolder:
    """Names inside a run's folder."""

    root: Path

    @property
    def journal(self) -> Path:
        """The write-ahead journal."""
        return self.root / "journal.bin"

    @property
    def start(self) -> Path:
        """What the run was started with."""
        return self.root / "run.json"

    @property
    def lock(self) -> Path:
        """Locked while a process trains the run."""
        return self.root / "run.lock"

    @property
    def metrics(self) -> Path:
        """One JSON line a step."""
        return self.root / "metrics.jsonl"

    @property
    def credits(self) -> Path:
        """One JSON line a consumed group (see ``credits``)."""
        return self.root / "credits.jsonl"

    @property
    def model(self) -> Path:
        """The trained model."""
        return self.root / "model"

    @property
    def kept(self) -> Path:
        """Batches whose step was not finite (see ``kept``)."""
        return self.root / "kept"

    @property
    def incidents(self) -> Path:
        """What failed and was mended."""
        return self.root / "incidents.jsonl"

    @property
    def routing(self) -> Path:
        """Experts chosen during generation, a file an attempt, by digest."""
        return self.root / "routing"

    @property
    def result(self) -> Path:
        """Written last."""
        return self.root / "result.json"

    @property
    def log(self) -> Path:
        """What the trainer process wrote to its standard error."""
        return self.root / "trainer.log"

    def checkpoint(self, step: int) -> Path:
        """Folder of the checkpoint of a step."""
        return self.root / "checkpoints" / f"step-{step:06d}"

    def checkpoints(self) -> list[Path]:
        """Checkpoints, oldest first; half-written ones and those that were set aside are not among them."""
        return sorted(path for path in self.root.glob("checkpoints/step-*") if path.is_dir())

    def newest_checkpoint(self, *, thorough: bool = False) -> tuple[Path, Manifest] | None:
        """The newest checkpoint that is whole, with its manifest; None where there is none at all.

        Args:
            thorough: compare check sums, which reads all files; else sizes.

        Raises:
            StoreError: all of them are damaged.
        """
        return newest_whole(self.checkpoints(), thorough=thorough)[0]

    def kept_checkpoint(self, step: int | None) -> Path:
        """The checkpoint of a step, or the newest that is whole.

        Raises:
            NotFoundError: it is not kept.
            StoreError: it is damaged.
        """
        kept = self.checkpoints()
        if step is None and (newest := self.newest_checkpoint(thorough=True)) is not None:
            return newest[0]
        if step is not None and self.checkpoint(step) in kept:
            read_checkpoint(self.checkpoint(step), thorough=True)
            return self.checkpoint(step)
        named = ", ".join(str(int(path.name.removeprefix("step-"))) for path in kept) or "none"
        raise NotFoundError(
            f"run {self.root.name!r} keeps no weights" + ("" if step is None else f" of step {step}"),
            where=str(self.root),
            expected=f"a kept step: {named}",
            mend="name one of these, or the run alone for its final model",
        )

    def prune_checkpoints(self) -> None:
        """Remove all but the newest two, and what a killed writer left."""
        for old in self.checkpoints()[:-_KEPT_CHECKPOINTS]:
            shutil.rmtree(old)
        for half in self.root.glob("checkpoints/.*"):
            shutil.rmtree(half, ignore_errors=True)


def shared_path(run_dir: Path, incarnation: int) -> Path:
    """Where the weights of an incarnation pass: shared memory where there is some, else the run's folder.

    The name is the incarnation's own, so a trainer that outlives its parent for a moment, and removes the file when it
    notices, never removes that of its successor.
    """
    return _shared_folder(run_dir) / f"{_shared_name(run_dir)}-{incarnation}.weights"


def remove_published(weights: Path) -> None:
    """Remove what passed by way of a ``shared_path``, whichever way of publication: each puts its own suffix there."""
    _remove(weights.parent.glob(f"*{weights.stem}.*"))


def remove_all_published(run_dir: Path) -> None:
    """The same for all incarnations of a run. Only for who holds the run: another one's weights would go as well."""
    _remove(_shared_folder(run_dir).glob(f"*{_shared_name(run_dir)}-*"))


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _shared_folder(run_dir: Path) -> Path:
    memory = Path("/dev/shm")
    return memory if memory.is_dir() and os.access(memory, os.W_OK) else run_dir


def _shared_name(run_dir: Path) -> str:
    return "flightschool-" + hashlib.sha256(str(run_dir.resolve()).encode()).hexdigest()[:16]


@contextmanager
def durable_folder(final: Path) -> Iterator[Path]:
    """A folder that appears under its name whole, synced to disk, or not at all."""
    final.parent.mkdir(parents=True, exist_ok=True)
    fresh = final.parent / f".{final.name}.{os.getpid()}"
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    try:
        yield fresh
        for path in fresh.rglob("*"):
            if path.is_file():
                _sync(path)
        _sync(fresh)
        if final.exists():  # of a dead lineage: the same step was reached again
            shutil.rmtree(final)
        fresh.rename(final)
        _sync(final.parent)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def write_durably(path: Path, data: bytes) -> None:
    """Replace a file at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.write_bytes(data)
    _sync(fresh)
    fresh.replace(path)
    _sync(path.parent)


class BlobFolder:
    """Bytes by their digest, a file each; durable before the digest is known to anyone."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, data: bytes) -> str:
        """Keep; returns the digest."""
        name = hashlib.sha256(data).hexdigest()
        if not (self._folder / name).is_file():
            write_durably(self._folder / name, data)
        return name

    def get(self, digest: str) -> bytes:
        """What was kept.

        Raises:
            StoreError: it is gone.
        """
        try:
            return (self._folder / digest).read_bytes()
        except OSError as error:
            raise StoreError(
                f"kept bytes are gone: {error}",
                where=str(self._folder / digest),
                expected="the file that the run wrote",
                mend="restore the run's folder",
            ) from error


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
