"""Checkpoints as a restart finds them: whole, or damaged since they were written. Imports no torch.

A checkpoint appears by one rename, so a crash of the writer leaves none that is half. A disk, a copy or a hand may
still spoil one, and then the one before it is gone on with: the manifest names every file with its size and check sum.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import msgspec

from flightschool.errors import StoreError
from flightschool.training.messages import Manifest, StoredFile

__all__ = ["newest_whole", "read_checkpoint", "set_aside", "write_manifest"]

_MANIFEST = "manifest.json"


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write a checkpoint's manifest beside its files, as the last of them."""
    from flightschool.training.sums import file_digest

    files = tuple(
        StoredFile(name=path.name, num_bytes=path.stat().st_size, digest=file_digest(path))
        for path in sorted(folder.iterdir())
    )
    (folder / _MANIFEST).write_bytes(msgspec.json.encode(msgspec.structs.replace(manifest, files=files)))


def read_checkpoint(folder: Path, *, thorough: bool) -> Manifest:
    """The manifest of a checkpoint whose files are those that were written.

    Args:
        folder: of the checkpoint.
        thorough: read all files and compare their sums, at the speed of the disk; else their sizes alone.

    Raises:
        StoreError: it is damaged. Manifests of older versions name no files: then only the manifest is looked at.
    """
    try:
        manifest = msgspec.json.decode((folder / _MANIFEST).read_bytes(), type=Manifest)
        faults = [fault for file in manifest.files if (fault := _fault(folder, file, thorough))]
    except (OSError, msgspec.MsgspecError, ValueError) as error:
        faults = [f"{_MANIFEST}: {error}"]
    if faults:
        raise StoreError(
            f"checkpoint {folder.name} is damaged: {'; '.join(faults)}",
            where=str(folder),
            expected="the files that the trainer wrote, with the sizes and check sums of manifest.json",
            mend="restore the folder, or take another step",
        )
    return manifest


def _fault(folder: Path, file: StoredFile, thorough: bool) -> str:
    path = folder / file.name
    try:
        size = path.stat().st_size
        if size != file.num_bytes:
            return f"{file.name} has {size} bytes of {file.num_bytes}"
        if thorough:
            from flightschool.training.sums import file_digest

            return "" if file_digest(path) == file.digest else f"{file.name} has another check sum"
    except OSError as error:
        return f"{file.name}: {error.strerror}"
    return ""


def newest_whole(
    folders: Sequence[Path], *, thorough: bool
) -> tuple[tuple[Path, Manifest] | None, tuple[StoreError, ...]]:
    """The newest checkpoint that is whole (None where there is none at all), and what is wrong with newer ones.

    Args:
        folders: of checkpoints, oldest first.
        thorough: as for ``read_checkpoint``.

    Raises:
        StoreError: there are checkpoints, and none of them is whole.
    """
    damaged: list[StoreError] = []
    for folder in reversed(folders):
        try:
            return (folder, read_checkpoint(folder, thorough=thorough)), tuple(damaged)
        except StoreError as error:
            damaged.append(error)
    if damaged:
        place = folders[-1].parent
        raise StoreError(
            f"no checkpoint of the run can be used: {'; '.join(error.what for error in damaged)}",
            where=str(place),
            expected="at least one checkpoint as the trainer wrote it",
            mend=f"restore one of them, or remove {place} to train again from step 0 with --resume",
        )
    return None, ()


def set_aside(folder: Path) -> Path:
    """Rename a damaged checkpoint so that it is never chosen again; returns where it lies now."""
    aside = folder.with_name(f"damaged-{folder.name}")
    shutil.rmtree(aside, ignore_errors=True)
    return folder.rename(aside)
