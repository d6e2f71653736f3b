"""Where packages lie: which folders may be written, what of them is ours, and how they follow the environment."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from flightschool.environments.packages.layout import EPISODES, MANIFEST, is_package
from flightschool.environments.packages.manifest import Manifest, file_digest, read_file, read_manifest
from flightschool.errors import InputError

if TYPE_CHECKING:
    from flightschool.environments.registry import EnvironmentRecord
    from flightschool.protocols import Store

__all__ = [
    "check_place",
    "default_place",
    "edited_files",
    "left_behind",
    "package_files",
    "package_folder",
    "recorded_place",
    "refresh_package",
    "remove_package",
]

FOLDER = "environments"
"""Beside ``flightschool.toml``."""
FOLDERS = ("state", "code", "verifiers")
"""Folders of a package."""


def default_place(root: Path, name: str) -> Path:
    """Where the package of an environment lies unless told otherwise."""
    return root / FOLDER / name


def recorded_place(root: Path, folder: Path) -> str:
    """How a record names the place: inside the workspace relative to it, so that it may move as a whole."""
    whole = folder.resolve()
    return str(whole.relative_to(root.resolve())) if whole.is_relative_to(root.resolve()) else str(whole)


def package_folder(root: Path, record: EnvironmentRecord) -> Path | None:
    """The package that follows an environment; None: it has none, or it was moved away."""
    if not record.package:
        return None
    folder = root / record.package
    return folder if is_package(folder) else None


def package_files(folder: Path) -> list[Path]:
    """All files that belong to a package, its manifest among them."""
    return [folder / MANIFEST, *(folder / name for name in read_manifest(folder).files)]


def edited_files(folder: Path) -> list[str]:
    """Files of a package that are no longer as they were written; of one whose writing was cut short none is ours."""
    manifest = read_manifest(folder)
    return [] if not manifest.complete else [name for name in manifest.files if not _as_written(folder, name, manifest)]


def _as_written(folder: Path, name: str, manifest: Manifest) -> bool:
    try:
        return file_digest(read_file(folder, name)) == manifest.files[name]
    except InputError:
        return False


def left_behind(folder: Path) -> list[str]:
    """Files that an older package left there."""
    return list(read_manifest(folder).files) if is_package(folder) else []


def remove_package(folder: Path) -> None:
    """Remove the files of a package, and its folders where nothing else lies in them."""
    if not is_package(folder):
        return
    for file in reversed(package_files(folder)):
        file.unlink(missing_ok=True)
    for place in (*(folder / below for below in FOLDERS), folder):
        if place.is_dir() and not any(place.iterdir()):
            place.rmdir()


def check_place(folder: Path) -> None:
    """Refuse to write over what is not a package as it was written.

    Raises:
        InputError: something else lies there, or somebody changed it.
    """
    for place in (folder, *(folder / below for below in FOLDERS)):
        if place.is_symlink():
            raise InputError("a link", where=str(place), expected="a folder", mend="remove it, or give --out DIR")
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    if not is_package(folder):
        raise InputError(
            "the folder holds something else",
            where=str(folder),
            expected="a new or empty folder, or a package that is written anew",
            mend="name another one: --out DIR",
        )
    edited = edited_files(folder)
    if edited:
        raise InputError(
            f"{edited[0]} was changed by hand" + (f", and {len(edited) - 1} more files" if len(edited) > 1 else ""),
            where=str(folder),
            expected="a package as it was written: what is changed by hand would be lost",
            mend="move the folder away (or remove it), then do this again",
        )


def refresh_package(store: Store, root: Path, record: EnvironmentRecord) -> Manifest | None:
    """Write the package of a changed environment anew where it lies; None where there is none.

    Raises:
        InputError: it was changed by hand.
    """
    from flightschool.environments.packages.writing import write_package

    folder = package_folder(root, record)
    if folder is None:
        return None
    before = read_manifest(folder)
    return write_package(store, record, folder, episodes=EPISODES in before.files or not before.complete)
