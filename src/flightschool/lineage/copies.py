"""Near copies of measured items among what was trained on, from certain to suspected.

* ``exact``: the same characters.
* ``normalised``: the same words.
* ``masked``: the same template; only numbers, ids and dates differ.
* ``ngram``: ``COVERED`` or more of the item's ``NGRAM``-word runs stand in one training text, so an item quoted
  inside a long text is found. Runs that stand in many training texts (a policy's boilerplate) prove nothing and do
  not count.
* ``minhash``: the sets of three-word runs have an estimated Jaccard similarity of ``ALIKE`` or more (A. Broder 1997):
  the same text with words put in or left out.

Texts under different house rules (``rules``) are no copies, whatever their wording. Every item is looked for in every
text of every origin, and a finding names the strongest kind for each pair. Paraphrase
is not found: for that people (or embeddings) must look.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from enum import StrEnum

from flightschool.lineage.minhash import NUM_HASHES, minhash, similarity
from flightschool.lineage.rules import COVERED, NGRAM, ruled_apart
from flightschool.lineage.texts import Origin, Text, masked, normalised, pieces, words_of
from flightschool.records import Record

__all__ = ["ALIKE", "COVERED", "NGRAM", "CopyKind", "NearCopy", "near_copies"]

ALIKE = 0.7
SHINGLE = 3
FEWEST_WORDS = 5
"""Shorter texts are copies only if they are equal."""
_BANDS = 32
"""Of 4 hashes each: a pair of similarity .7 shares a band with probability 1 − (1 − .7⁴)³² > .999."""


class CopyKind(StrEnum):
    """How a copy was recognised, strongest first."""

    EXACT = "exact"
    NORMALISED = "normalised"
    MASKED = "masked"
    NGRAM = "ngram"
    MINHASH = "minhash"


class NearCopy(Record, frozen=True, kw_only=True):
    """A measured item and a training text that are one, or nearly."""

    item: str
    source: str
    """Id of the training text."""
    origin: Origin
    kind: CopyKind
    score: float
    """1 for the certain kinds; share of runs covered, or estimated Jaccard similarity."""

    def __str__(self) -> str:
        return f"{self.item} in {self.origin} {self.source} ({self.kind}, {self.score:.2f})"


def near_copies(items: Sequence[Text], training: Iterable[Text]) -> tuple[NearCopy, ...]:
    """All pairs that are kin, in the order of the items, then of the training texts."""
    texts = [text for text in training if text.text.strip()]
    wanted = [item for item in items if item.text.strip()]
    found: dict[tuple[int, int], NearCopy] = {}

    def add(one: int, other: int, kind: CopyKind, score: float) -> None:
        item, text = wanted[one], texts[other]
        if (one, other) not in found and not ruled_apart(item.context, text.context):  # kinds come strongest first
            found[one, other] = NearCopy(
                item=item.id, source=text.id, origin=text.origin, kind=kind, score=round(score, 4)
            )

    for kind, form in ((CopyKind.EXACT, str.strip), (CopyKind.NORMALISED, normalised), (CopyKind.MASKED, masked)):
        index: defaultdict[str, list[int]] = defaultdict(list)
        for place, text in enumerate(texts):
            index[form(text.text)].append(place)
        for one, item in enumerate(wanted):
            key = form(item.text)
            for other in index.get(key, ()) if key else ():
                add(one, other, kind, 1.0)
    words_I, words_T = [_comparable(i) for i in wanted], [_comparable(t) for t in texts]
    for one, other, score in _covered(words_I, words_T):
        add(one, other, CopyKind.NGRAM, score)
    for one, other, score in _alike(words_I, words_T):
        add(one, other, CopyKind.MINHASH, score)
    return tuple(found[key] for key in sorted(found))


def _comparable(text: Text) -> list[str]:
    """Masked words, so that a copy with other numbers is one; none for texts too short to judge."""
    words = masked(text.text).split()
    return words if len(words_of(text.text)) >= FEWEST_WORDS else []


def _covered(items: Sequence[Sequence[str]], texts: Sequence[Sequence[str]]) -> Iterable[tuple[int, int, float]]:
    runs_I = [set(pieces(words, NGRAM)) for words in items]
    index: defaultdict[tuple[str, ...], set[int]] = defaultdict(set)
    wanted = set().union(*runs_I) if runs_I else set()
    for place, words in enumerate(texts):
        for run in set(pieces(words, NGRAM)) & wanted:
            index[run].add(place)
    common = max(10, math.ceil(0.2 * len(texts)))
    for one, runs in enumerate(runs_I):
        telling = [run for run in runs if len(index.get(run, ())) <= common]
        hits = Counter(place for run in telling for place in index.get(run, ()))
        for other, count in sorted(hits.items()):
            # measured against all runs of the item: what is common to many texts shrinks no denominator
            if count / len(runs) >= COVERED:
                yield one, other, count / len(runs)


def _alike(items: Sequence[Sequence[str]], texts: Sequence[Sequence[str]]) -> Iterable[tuple[int, int, float]]:
    signs_I = [minhash([" ".join(p) for p in pieces(words, SHINGLE)]) for words in items]
    signs_T = [minhash([" ".join(p) for p in pieces(words, SHINGLE)]) for words in texts]
    width = NUM_HASHES // _BANDS
    buckets: defaultdict[tuple[int, tuple[int, ...]], list[int]] = defaultdict(list)
    for place, sign in enumerate(signs_T):
        for band in range(_BANDS if sign else 0):
            buckets[band, sign[band * width : (band + 1) * width]].append(place)
    for one, sign in enumerate(signs_I):
        near = {
            place
            for band in range(_BANDS if sign else 0)
            for place in buckets.get((band, sign[band * width : (band + 1) * width]), ())
        }
        for other in sorted(near):
            score = similarity(sign, signs_T[other])
            if score >= ALIKE:
                yield one, other, score
