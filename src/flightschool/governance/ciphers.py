"""Authenticated encryption of what is sealed: AES-256-GCM (NIST SP 800-38D) of the ``cryptography`` library.

A ``Sealed`` names its algorithm, so that a later one can stand beside it. Nonces are random; a key seals a handful of
things in its life. The library is imported when something is sealed or opened, since few commands do either.
"""

from __future__ import annotations

import os

from flightschool.digest import canonical_json
from flightschool.errors import GateError, InputError
from flightschool.records import Record

__all__ = ["KEY_BYTES", "Sealed", "seal", "unseal"]

KEY_BYTES = 32
NONCE_BYTES = 12
AES = "AES-256-GCM"


class Sealed(Record, frozen=True, kw_only=True):
    """Ciphertext with all that opening it needs but the key."""

    algorithm: str
    label: str
    """What it is; authenticated, so that one box cannot be passed off as another."""
    nonce: bytes
    ciphertext: bytes
    """With its tag at the end."""


def seal(plaintext: bytes, key: bytes, label: str) -> Sealed:
    """Encrypt ``plaintext`` under ``key`` (32 bytes). Raises ``InputError`` for a key of another length."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    _check_key(key)
    nonce = os.urandom(NONCE_BYTES)
    body = AESGCM(key).encrypt(nonce, plaintext, _header(AES, label))
    return Sealed(algorithm=AES, label=label, nonce=nonce, ciphertext=body)


def unseal(box: Sealed, key: bytes) -> bytes:
    """The plaintext.

    Raises:
        InputError: the key has another length, or the algorithm is not at hand.
        GateError: the key is another one, or the box was changed.
    """
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    _check_key(key)
    if box.algorithm != AES:
        raise InputError(
            f"what is sealed with {box.algorithm!r} cannot be opened here",
            where=box.label,
            expected=AES,
            mend="open it with the version of flightschool that sealed it",
        )
    try:
        return AESGCM(key).decrypt(box.nonce, box.ciphertext, _header(box.algorithm, box.label))
    except InvalidTag as error:
        raise _does_not_open(box) from error


def _check_key(key: bytes) -> None:
    if len(key) != KEY_BYTES:
        raise InputError(
            f"a key of {len(key)} bytes", where="key", expected=f"{KEY_BYTES} bytes", mend="take the key that was made"
        )


def _header(algorithm: str, label: str) -> bytes:
    return canonical_json({"algorithm": algorithm, "label": label})


def _does_not_open(box: Sealed) -> GateError:
    return GateError(
        f"{box.label} does not open",
        where=box.label,
        expected="the key that sealed it, and a box that nobody changed",
        mend="fetch the right key from whoever holds it; if it is the right one, restore the workspace from a copy",
    )
