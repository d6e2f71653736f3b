"""Keyed signatures: near copies of *sealed* items are found without their text, by who holds the key.

For each item: HMAC-SHA-256 of its exact, normalised and masked form, of its ``NGRAM``-word runs (cut to 8 bytes), and
a keyed MinHash. Without the key none of it can be matched against guessed texts. Comparing is done where the key is,
and what comes back is counts alone: names would tell the training side which of its texts to reword.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Iterable, Sequence

from flightschool.lineage.copies import ALIKE, COVERED, FEWEST_WORDS, NGRAM, SHINGLE, CopyKind
from flightschool.lineage.minhash import minhash, similarity
from flightschool.lineage.texts import Text, masked, normalised, pieces, words_of
from flightschool.records import Record

__all__ = ["KinCounts", "Signature", "count_kin", "sign"]

_RUN_BYTES = 8


class Signature(Record, frozen=True, kw_only=True):
    """One sealed item under a key."""

    exact: bytes
    normalised: bytes
    masked: bytes
    runs: tuple[bytes, ...]
    """Empty for items too short to judge by their parts."""
    minhash: tuple[int, ...]
    context: bytes = b""
    """Of the masked house rules; empty where none are known."""


class KinCounts(Record, frozen=True, kw_only=True):
    """How many sealed items have kin among the texts: counts, no names."""

    num_items: int
    num_texts: int
    by_kind: dict[str, int]
    """Strongest kind of each item that has kin."""

    @property
    def total(self) -> int:
        """Items with kin of any kind."""
        return sum(self.by_kind.values())


def sign(text: str, key: bytes, context: str = "") -> Signature:
    """The signature of a text and the house rules it stands under (see ``Text.context``)."""
    mac = _mac(key)
    words = masked(text).split() if len(words_of(text)) >= FEWEST_WORDS else []
    return Signature(
        exact=mac(text.strip()),
        normalised=mac(normalised(text)),
        masked=mac(masked(text)),
        runs=tuple(sorted({mac(" ".join(run))[:_RUN_BYTES] for run in pieces(words, NGRAM)})),
        minhash=minhash([" ".join(run) for run in pieces(words, SHINGLE)], hashlib.sha256(key).digest()),
        context=mac(masked(context)) if context else b"",
    )


def count_kin(signatures: Sequence[Signature], texts: Iterable[Text], key: bytes) -> KinCounts:
    """Sealed items that have a near copy among the texts, by the strongest kind (see ``copies``)."""
    signed = [sign(text.text, key, text.context) for text in texts if text.text.strip()]
    runs = [frozenset(one.runs) for one in signed]
    counts: dict[str, int] = {}
    for item in signatures:
        kinds = [
            kind
            for one, known in zip(signed, runs, strict=True)
            if not (item.context and one.context and item.context != one.context)
            if (kind := _kind(item, one, known)) is not None
        ]
        if kinds:
            strongest = min(kinds, key=list(CopyKind).index)
            counts[strongest] = counts.get(strongest, 0) + 1
    return KinCounts(num_items=len(signatures), num_texts=len(signed), by_kind=counts)


def _kind(item: Signature, one: Signature, runs: frozenset[bytes]) -> CopyKind | None:
    for kind, same in (
        (CopyKind.EXACT, item.exact == one.exact),
        (CopyKind.NORMALISED, item.normalised == one.normalised),
        (CopyKind.MASKED, item.masked == one.masked),
    ):
        if same:
            return kind
    if item.runs and sum(run in runs for run in item.runs) >= COVERED * len(item.runs):
        return CopyKind.NGRAM
    if similarity(item.minhash, one.minhash) >= ALIKE:
        return CopyKind.MINHASH
    return None


def _mac(key: bytes) -> Callable[[str], bytes]:
    def mac(text: str) -> bytes:
        return hmac.digest(key, b"flightschool lineage\0" + text.encode(), hashlib.sha256)

    return mac
