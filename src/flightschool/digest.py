"""Content digests: SHA-256 over canonical JSON.

Canonical means: keys sorted, no white space, UTF-8, records as objects in field order made canonical by sorting.
Floats are written by Python's shortest round-trip form, so equal values have equal digests. NaN is refused,
since it is equal to nothing and would make a digest that no one can check.
"""

from __future__ import annotations

import hashlib
import json
import random
from typing import Any

import msgspec

__all__ = ["canonical_json", "derive_random", "derive_seed", "digest"]


def canonical_json(value: Any) -> bytes:
    """Bytes of ``value`` (records, builtins) as canonical JSON.

    Raises:
        ValueError: the value holds NaN or an infinity.
    """
    plain = msgspec.to_builtins(value, order="sorted", str_keys=True)
    return json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def digest(value: Any) -> str:
    """``sha256:`` plus the hex digest of ``value``; bytes are digested as they are."""
    data = value if isinstance(value, bytes) else canonical_json(value)
    return "sha256:" + hashlib.sha256(data).hexdigest()


def derive_seed(*parts: str | int) -> int:
    """A 63-bit seed from named parts: equal parts give equal seeds on every machine and version."""
    data = "\x1f".join(str(part) for part in parts).encode()
    return int.from_bytes(hashlib.sha256(data).digest()[:8], "big") >> 1


def derive_random(*parts: str | int) -> random.Random:
    """A generator of its own for the named parts (see ``derive_seed``)."""
    return random.Random(derive_seed(*parts))
