"""Sealed boxes: they open with their key and with nothing else."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flightschool.errors import GateError, InputError
from flightschool.governance import seal, unseal

KEY = bytes(range(32))


@pytest.mark.parametrize("text", [b"", b"a", b"\0" * 33, b"order two seals" * 1000])
def test_what_was_sealed_comes_back(text: bytes) -> None:
    box = seal(text, KEY, "holdout s")
    assert box.algorithm == "AES-256-GCM"
    assert unseal(box, KEY) == text
    assert len(text) < 8 or text not in box.ciphertext
    assert seal(text, KEY, "holdout s").nonce != box.nonce


def test_another_key_and_any_change_are_refused() -> None:
    box = seal(b"order two seals", KEY, "holdout s")
    changed: list[dict[str, Any]] = [
        {"label": "holdout t"},
        {"nonce": bytes(12)},
        {"ciphertext": box.ciphertext[:-1]},
        {"ciphertext": b""},
    ]
    changed += [
        {"ciphertext": box.ciphertext[:i] + bytes([box.ciphertext[i] ^ 1]) + box.ciphertext[i + 1 :]}
        for i in range(len(box.ciphertext))
    ]
    for change in changed:
        with pytest.raises(GateError, match="does not open"):
            unseal(msgspec.structs.replace(box, **change), KEY)
    with pytest.raises(GateError, match="does not open"):
        unseal(box, bytes(32))


def test_a_known_answer_of_the_standard() -> None:
    """Test case 14 of McGrew and Viega, "The Galois/Counter Mode of Operation": no other authenticated data there, so
    the ciphertext alone is compared, which does not depend on it."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    known = AESGCM(bytes(32)).encrypt(bytes(12), bytes(16), None)
    assert known.hex() == "cea7403d4d606b6e074ec5d3baf39d18" + "d0d1c8a799996bf0265b98b5d48ab919"
    box = seal(bytes(16), bytes(32), "x")
    stream = AESGCM(bytes(32)).encrypt(box.nonce, bytes(16), None)[:16]
    assert box.ciphertext[:16] == stream


@settings(max_examples=30, deadline=None)
@given(text=st.binary(max_size=300), label=st.text(max_size=20))
def test_any_bytes_under_any_label(text: bytes, label: str) -> None:
    assert unseal(seal(text, KEY, label), KEY) == text


def test_keys_of_another_length_and_unknown_algorithms() -> None:
    with pytest.raises(InputError, match="a key of 3 bytes"):
        seal(b"x", b"abc", "x")
    box = msgspec.structs.replace(seal(b"x", KEY, "x"), algorithm="ROT13")
    with pytest.raises(InputError, match="ROT13"):
        unseal(box, KEY)
