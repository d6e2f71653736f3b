"""The workspace's key for pseudonyms: made once, readable by its owner only."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

from flightschool.errors import StoreError

__all__ = ["workspace_key"]

_NAME = "redaction.key"
_BYTES = 32


def workspace_key(data: Path) -> bytes:
    """The key in a workspace's data folder, made at first use; processes that meet there get the same one.

    Who holds the key can test guesses against pseudonyms (a phone number has few digits), so it stays beside the data,
    out of version control. Deleting it makes pseudonyms of later imports differ from earlier ones.

    Raises:
        StoreError: it cannot be read or made, or is damaged.
    """
    path = data / _NAME
    try:
        if not path.exists():
            _make(path)
        key = path.read_bytes()
    except OSError as error:
        raise StoreError(
            "the key for pseudonyms cannot be used", where=str(path), expected="a readable file", mend=str(error)
        ) from error
    if len(key) < _BYTES:
        raise StoreError(
            "the key for pseudonyms is damaged",
            where=str(path),
            expected=f"{_BYTES} bytes",
            mend="restore it from a backup; or delete it, and new imports will not join with older ones",
        )
    return key


def _make(path: Path) -> None:
    """Written beside and linked into place: the file is there whole or not at all, and the first to link it wins."""
    fresh = path.with_name(f"{_NAME}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(_BYTES))
        with contextlib.suppress(FileExistsError):
            os.link(fresh, path)
    finally:
        fresh.unlink(missing_ok=True)
