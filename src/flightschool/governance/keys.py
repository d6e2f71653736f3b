"""The key ring: keys of sealed holdouts, in a folder outside every workspace, held by a role.

A key file remembers what must not be forgotten with the workspace: the role that may use it, the budget of looks and
how many were spent. Restoring an older workspace therefore gives no look back. On one account whoever runs the
workspace can read the folder as well: this guards against accident, not against the operator. A team keeps the folder
on the evaluation owner's account or machine.
"""

from __future__ import annotations

import os
import re
import secrets
import tempfile
from pathlib import Path

import msgspec

from flightschool.errors import GateError, InputError, NotFoundError, StoreError
from flightschool.governance.ciphers import KEY_BYTES
from flightschool.records import Record

__all__ = ["EVALUATION_ROLE", "HoldoutKey", "KeyRing"]

EVALUATION_ROLE = "evaluation"
"""The role that holds the keys of holdouts unless another is named."""
_FOLDER_VARIABLE = "FLIGHTSCHOOL_KEYS"
_KEY_ID = re.compile(r"[0-9a-f]{16}")


class HoldoutKey(Record, frozen=True, kw_only=True):
    """A key with what it guards, as kept in its file."""

    id: str
    holdout: str
    role: str
    """Only this role opens with it."""
    secret: bytes
    """32 bytes."""
    budget: int
    """Looks in all."""
    spent: int = 0
    """Looks that were taken, also by workspaces since restored from a copy."""


class KeyRing:
    """Keys by id, one file each, readable by their owner alone.

    Args:
        folder: where they lie; by default ``$FLIGHTSCHOOL_KEYS``, else ``flightschool/keys`` in the user's
            configuration folder.
        outside: a workspace in which the keys must not lie.

    Raises:
        InputError: the folder lies inside the workspace.
    """

    def __init__(self, folder: Path | None = None, *, outside: Path | None = None) -> None:
        self.folder = (folder or _default_folder()).expanduser().resolve()
        if outside is not None and self.folder.is_relative_to(outside.resolve()):
            raise InputError(
                "the keys would lie in the workspace that they seal",
                where=str(self.folder),
                expected="a folder outside the workspace",
                mend=f"name another with {_FOLDER_VARIABLE}",
            )

    def create(self, holdout: str, *, role: str = EVALUATION_ROLE, budget: int) -> HoldoutKey:
        """Make a key and keep it.

        Raises:
            InputError: no role, or a budget below 1.
            StoreError: the file cannot be written.
        """
        if not role.strip() or budget < 1:
            raise InputError(
                f"a key for role {role!r} with {budget} looks",
                where=f"holdout {holdout}",
                expected="a role and at least one look",
                mend="name both",
            )
        key = HoldoutKey(
            id=secrets.token_hex(8), holdout=holdout, role=role, secret=secrets.token_bytes(KEY_BYTES), budget=budget
        )
        self._write(key)
        return key

    def has(self, key_id: str) -> bool:
        """Whether the key lies here."""
        return bool(_KEY_ID.fullmatch(key_id)) and self._path(key_id).is_file()

    def take(self, key_id: str, *, role: str) -> HoldoutKey:
        """The key, for a role.

        Raises:
            NotFoundError: it does not lie here.
            GateError: another role holds it.
        """
        key = self._read(key_id)
        if role != key.role:
            raise GateError(
                f"the key of {key.holdout} is not held by role {role!r}",
                where=f"key {key_id}",
                expected=f"role {key.role!r}",
                mend="let that role open it",
            )
        return key

    def spend(self, key_id: str, look: int) -> None:
        """Remember that look number ``look`` was taken."""
        key = self._read(key_id)
        if look > key.spent:
            self._write(msgspec.structs.replace(key, spent=look))

    def _path(self, key_id: str) -> Path:
        return self.folder / f"{key_id}.json"

    def _read(self, key_id: str) -> HoldoutKey:
        path = self._path(key_id)
        if not _KEY_ID.fullmatch(key_id) or not path.is_file():
            raise NotFoundError(
                f"the key {key_id} is not here",
                where=str(self.folder),
                expected=f"the file {key_id}.json from whoever holds it",
                mend=f"ask the evaluation role for it, or set {_FOLDER_VARIABLE} to the folder that holds it",
            )
        try:
            return msgspec.json.decode(path.read_bytes(), type=HoldoutKey)
        except (OSError, msgspec.MsgspecError) as error:
            raise StoreError(
                f"the key file cannot be read: {error}",
                where=str(path),
                expected="a key file of this version",
                mend="restore it from a copy: without it the holdout stays shut",
            ) from error

    def _write(self, key: HoldoutKey) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle, name = tempfile.mkstemp(dir=self.folder, prefix=".new-")  # made with mode 0600
            with os.fdopen(handle, "wb") as file:
                file.write(msgspec.json.encode(key))
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(self._path(key.id))
        except OSError as error:
            raise StoreError(
                f"the key cannot be kept: {error.strerror}",
                where=str(self.folder),
                expected="a folder that can be written",
                mend=f"name another with {_FOLDER_VARIABLE}",
            ) from error


def _default_folder() -> Path:
    named = os.environ.get(_FOLDER_VARIABLE)
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config") / "flightschool" / "keys"
