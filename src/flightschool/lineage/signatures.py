"""Keyed signatures: near copies of *sealed* items are found without their text, by who holds the key.

For each item: HMAC-SHA-256 of its exact, normalised and masked form, of its ``NGRAM``-word runs (cut to 8 bytes), a
keyed MinHash, and runs and MinHash of the house rules that it stands under. Without the key none of it can be matched
against guessed texts. Comparing is done where the key is, and what comes back is counts alone: names would tell the
training side which of its texts to reword.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Iterable, Sequence

from flightschool.lineage.copies import ALIKE, FEWEST_WORDS, SHINGLE, CopyKind
from flightschool.lineage.minhash import minhash, similarity
from flightschool.lineage.rules import COVERED, NGRAM, SAME_RULES, SignedRules, quoted, sign_rules
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
    rules: SignedRules | None = None
    """The parts of the house rules; None where there are none, or in a signature made before they were kept: then rules
    that differ may be the same rules in other words, so equal wording is kin all the same."""


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
    mac, hash_key = _mac(key), hashlib.sha256(key).digest()
    words = masked(text).split() if len(words_of(text)) >= FEWEST_WORDS else []
    return Signature(
        exact=mac(text.strip()),
        normalised=mac(normalised(text)),
        masked=mac(masked(text)),
        runs=tuple(sorted({mac(" ".join(run))[:_RUN_BYTES] for run in pieces(words, NGRAM)})),
        minhash=minhash([" ".join(run) for run in pieces(words, SHINGLE)], hash_key),
        context=mac(masked(context)) if context else b"",
        rules=sign_rules(context, hash_key, lambda run: mac(run)[:_RUN_BYTES]),
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
            if (kind := _kind(item, one, known)) is not None and not _ruled_apart(item, one, kind)
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


def _ruled_apart(item: Signature, one: Signature, kind: CopyKind) -> bool:
    """As ``rules.ruled_apart``."""
    if not item.context or not one.context or item.context == one.context:
        return False
    if item.rules is None or one.rules is None:
        return kind not in (CopyKind.EXACT, CopyKind.NORMALISED)
    if similarity(item.rules.words, one.rules.words) >= SAME_RULES:
        return False
    return not quoted(frozenset(item.rules.runs), frozenset(one.rules.runs))


def _mac(key: bytes) -> Callable[[str], bytes]:
    def mac(text: str) -> bytes:
        return hmac.digest(key, b"flightschool lineage\0" + text.encode(), hashlib.sha256)

    return mac
