"""Nearly equal episodes by MinHash (Broder 1997, doi:10.1109/SEQUEN.1997.666900) with banding, 256 bytes an episode.

An episode is the set of its requests' word triples and its calls (tool with arguments). The share of equal hashes
estimates the Jaccard similarity of two sets, with a standard error of at most 1/16 for 64 hashes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

from flightschool.digest import canonical_json, derive_random
from flightschool.traces.records import RecordedEpisode

__all__ = ["Duplicates"]

_NUM_HASHES = 64
_ROWS = 4
_LEAST = 0.9
_MOST_BUCKET = 50
_WORD = re.compile(r"\w+")


class Duplicates:
    """Collects episodes; ``groups`` tells which are nearly the same."""

    def __init__(self) -> None:
        import numpy as np

        random = derive_random("minhash")
        numbers = [[random.randrange(1 << 63) * 2 + 1 for _ in range(_NUM_HASHES)] for _ in range(2)]
        self._multiply, self._add = (np.array(row, dtype=np.uint64) for row in numbers)
        self._ids: list[str] = []
        self._signatures: list[bytes] = []

    def add(self, episode: RecordedEpisode) -> None:
        """One more episode. One without words and calls is like no other."""
        import numpy as np

        elements = sorted(set(_elements(episode)))
        if not elements:
            return
        values = np.array(elements, dtype=np.uint64)
        with np.errstate(over="ignore"):
            hashed = (values[:, None] * self._multiply + self._add) >> np.uint64(32)
        self._ids.append(episode.id)
        self._signatures.append(hashed.min(axis=0).astype(np.uint32).tobytes())

    def groups(self) -> tuple[tuple[str, ...], ...]:
        """Groups of at least two, each and all in the order of the episodes."""
        parent = list(range(len(self._ids)))

        def root(index: int) -> int:
            while parent[index] != index:
                parent[index] = parent[parent[index]]
                index = parent[index]
            return index

        for left, right in self._candidates():
            if root(left) != root(right) and self._likeness(left, right) >= _LEAST:
                parent[max(root(left), root(right))] = min(root(left), root(right))
        members: dict[int, list[str]] = {}
        for index, name in enumerate(self._ids):
            members.setdefault(root(index), []).append(name)
        return tuple(tuple(names) for names in members.values() if len(names) > 1)

    def _candidates(self) -> Iterator[tuple[int, int]]:
        """Pairs that agree in a whole band. In a crowded bucket each is compared with the first ones only."""
        width = _ROWS * 4
        for band in range(_NUM_HASHES // _ROWS):
            buckets: dict[bytes, list[int]] = {}
            for index, signature in enumerate(self._signatures):
                bucket = buckets.setdefault(signature[band * width : (band + 1) * width], [])
                yield from ((other, index) for other in bucket)
                if len(bucket) < _MOST_BUCKET:
                    bucket.append(index)

    def _likeness(self, left: int, right: int) -> float:
        import numpy as np

        one, other = (np.frombuffer(self._signatures[index], dtype=np.uint32) for index in (left, right))
        return float((one == other).mean())


def _elements(episode: RecordedEpisode) -> Iterator[int]:
    words = [word.casefold() for m in episode.messages if m.role == "user" for word in _WORD.findall(m.content)]
    if episode.hint.instruction:
        words += [word.casefold() for word in _WORD.findall(episode.hint.instruction)]
    for start in range(max(len(words) - 2, min(len(words), 1))):
        yield _hash("w " + " ".join(words[start : start + 3]))
    for call in episode.calls:
        yield _hash(f"c {call.name} " + canonical_json(call.arguments).decode())


def _hash(text: str) -> int:
    """32 bits: the multiply-shift of ``add`` needs room above them."""
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=4).digest(), "big")
