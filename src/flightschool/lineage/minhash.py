"""MinHash: the Jaccard similarity of two sets from short signatures, plain or under a key.

Each of ``NUM_HASHES`` hash functions maps a set to its smallest value; two sets agree on it with probability J (A.
Broder, "On the resemblance and containment of documents", 1997), so the share of agreements estimates J with standard
error √(J(1−J)/NUM_HASHES), at most .044. One keyed 32-bit hash an element (BLAKE2b) is spread to all functions by
(a·h + b) mod 2³²−5, whose products fit 64 bits; texts have far fewer runs than would make 32 bits collide. Under a
secret key a signature tells nothing about its text to who has no key, and nothing to who guesses texts without it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING

from flightschool.digest import derive_random
from flightschool.errors import InputError

if TYPE_CHECKING:
    from numpy import uint64
    from numpy.typing import NDArray

__all__ = ["NUM_HASHES", "minhash", "similarity"]

NUM_HASHES = 128
_PRIME = (1 << 32) - 5
_PIECE = 4096


def minhash(elements: Iterable[str], key: bytes = b"") -> tuple[int, ...]:
    """Signature of a set of texts; empty for the empty set.

    Args:
        elements: the set.
        key: up to 64 secret bytes; without, anyone can compute the signature.

    Raises:
        InputError: a key of more than 64 bytes.
    """
    if len(key) > hashlib.blake2b.MAX_KEY_SIZE:
        raise InputError("a key of more than 64 bytes", where="minhash", expected="at most 64", mend="hash it first")
    import numpy as np

    hashes = {
        int.from_bytes(hashlib.blake2b(element.encode(), digest_size=4, key=key).digest(), "big")
        for element in elements
    }
    if not hashes:
        return ()
    values = np.fromiter(sorted(hashes), dtype=np.uint64, count=len(hashes))
    a_H, b_H = _functions()
    smallest = np.full(NUM_HASHES, _PRIME, dtype=np.uint64)
    for start in range(0, len(values), _PIECE):
        spread = (values[start : start + _PIECE, None] * a_H + b_H) % np.uint64(_PRIME)
        smallest = np.minimum(smallest, spread.min(axis=0))
    return tuple(int(value) for value in smallest)


def similarity(one: Sequence[int], other: Sequence[int]) -> float:
    """Share of equal minima, an estimate of the Jaccard similarity; 0 if either set was empty."""
    if not one or not other:
        return 0.0
    return sum(a == b for a, b in zip(one, other, strict=True)) / len(one)


@cache
def _functions() -> tuple[NDArray[uint64], NDArray[uint64]]:
    import numpy as np

    random = derive_random("flightschool minhash", NUM_HASHES)
    a = [random.randrange(1, _PRIME) for _ in range(NUM_HASHES)]
    b = [random.randrange(_PRIME) for _ in range(NUM_HASHES)]
    return np.array(a, dtype=np.uint64), np.array(b, dtype=np.uint64)
