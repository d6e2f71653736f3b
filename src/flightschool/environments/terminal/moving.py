"""Task folders packed into bytes, taken away, and laid out again elsewhere: what sealing a holdout does with them."""

from __future__ import annotations

import io
import shutil
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

import zstandard

from flightschool.environments.terminal.as_tasks import TerminalFolders, Told
from flightschool.environments.terminal.folders import read_folder
from flightschool.errors import InputError
from flightschool.records import Record

__all__ = ["MOST_BYTES", "PackedFolders", "lay_out_folders", "pack_folders", "take_folders_away"]

MOST_BYTES = 1 << 30
"""Of all folders that are packed together: the box is held in memory."""


class PackedFolders(Record, frozen=True, kw_only=True):
    """Folders with all that is in them."""

    root: str
    """Folder that they lay below."""
    task_ids: tuple[str, ...]
    told: Told
    """Of all tasks that there were, so that the environment can be known again by its digest."""
    archive: bytes
    """Tar, compressed with zstandard."""


def pack_folders(folders: TerminalFolders, task_ids: Sequence[str]) -> PackedFolders:
    """Pack some of the tasks. Nothing is taken away.

    Raises:
        InputError: they are too large together, or one cannot be taken away since it is all that was named.
    """
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for task_id in task_ids:
            place = Path(folders.folder(task_id).folder)
            if place.resolve() == folders.path:
                raise InputError(
                    "the folder that was named is itself the task",
                    where=str(place),
                    expected="a folder that holds tasks",
                    mend="name the folder above it",
                )
            tar.add(place, arcname=task_id)
            if packed.tell() > MOST_BYTES:
                raise InputError(
                    f"the folders to be sealed hold more than {MOST_BYTES >> 20} MiB",
                    where=str(folders.path),
                    expected="task folders of ordinary size",
                    mend="seal a smaller share",
                )
    archive = zstandard.compress(packed.getvalue())
    return PackedFolders(root=str(folders.path), task_ids=tuple(task_ids), told=folders.told, archive=archive)


def lay_out_folders(packed: PackedFolders, into: Path) -> TerminalFolders:
    """The packed tasks below another folder, as the environment that they were taken from.

    Raises:
        InputError: a folder does not come out as it was packed.
    """
    into.mkdir(parents=True, exist_ok=True)
    data = zstandard.decompress(packed.archive, max_output_size=MOST_BYTES + (64 << 20))
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        tar.extractall(into, filter="fully_trusted")  # our own, and links of tasks are kept as they are
    return TerminalFolders(into, told=packed.told, named=packed.root)


def take_folders_away(packed: PackedFolders) -> None:
    """Remove the packed folders from where they lay; those that are gone already are passed over.

    Raises:
        InputError: one is another task now, or the packed copy does not hold it: nothing is removed then.
    """
    places = [(task_id, Path(packed.root, task_id)) for task_id in packed.task_ids]
    left = [(task_id, place) for task_id, place in places if place.exists()]
    with tempfile.TemporaryDirectory(prefix="flightschool-") as scratch:
        copy = lay_out_folders(packed, Path(scratch, "tasks"))
        for task_id, place in left:
            if read_folder(place, Path(packed.root)).digest != copy.folder(task_id).digest:
                raise InputError(
                    f"task {task_id!r} is another one than was packed",
                    where=str(place),
                    expected=f"a folder of digest {copy.folder(task_id).digest}",
                    mend="restore it, then run the same command again: it goes on where it was",
                )
    for _, place in left:
        shutil.rmtree(place)
