"""Whether two texts stand under different house rules, plain or under a key.

One instruction under two rules ("buy the part", where parts come from a listed supplier, and where purchases need an
approval) is two tasks. A rule with a word put in is still the same rule, so rules are compared by similarity as
instructions are: they are apart only if they share fewer than ``SAME_RULES`` of their masked words (Jaccard) and
neither quotes ``COVERED`` of the other's ``NGRAM``-word runs. Doubt makes kin: rules that are not known rule nothing
apart.

Under a key the share of words is estimated by a keyed MinHash (standard error .044), so pairs close to the threshold
may be decided differently than in plain.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from functools import lru_cache

from flightschool.lineage.minhash import minhash
from flightschool.lineage.texts import masked, pieces
from flightschool.records import Record

__all__ = ["COVERED", "NGRAM", "SAME_RULES", "SignedRules", "quoted", "ruled_apart", "sign_rules"]

NGRAM = 8
"""Words of a run; shorter runs were found to accuse the innocent, 13 (a common choice) to miss short tasks."""
COVERED = 0.5
"""Share of a text's runs that make it quoted."""
SAME_RULES = 0.5
"""Share of words from which two rules count as one. A rule of three words stays itself with three more; with a sentence
that changes what is right ("purchases need an approval") it is another."""


class SignedRules(Record, frozen=True, kw_only=True):
    """The house rules of a sealed item, under its key."""

    words: tuple[int, ...]
    """Keyed MinHash of the masked words."""
    runs: tuple[bytes, ...] = ()
    """Of ``NGRAM`` words each; empty for rules of fewer."""


def ruled_apart(one: str, other: str) -> bool:
    """Whether the two are different rules; False where one of them is not known."""
    words, others = _parts(one), _parts(other)
    if not words[0] or not others[0] or words[0] == others[0]:
        return False
    if len(words[0] & others[0]) >= SAME_RULES * len(words[0] | others[0]):
        return False
    return not quoted(words[1], others[1])


def quoted(runs: AbstractSet[object], others: AbstractSet[object]) -> bool:
    """Whether half of the runs of one of two texts stand in the other."""
    few = min(len(runs), len(others))
    return bool(few) and len(runs & others) >= COVERED * few


def sign_rules(text: str, key: bytes, mac: Callable[[str], bytes]) -> SignedRules | None:
    """The rules under a key; None where there are none.

    Args:
        key: of the MinHash.
        mac: keyed digest of a run.
    """
    words, runs = _parts(text)
    if not words:
        return None
    return SignedRules(words=minhash(words, key), runs=tuple(sorted(mac(" ".join(run)) for run in runs)))


@lru_cache(maxsize=4096)
def _parts(text: str) -> tuple[frozenset[str], frozenset[tuple[str, ...]]]:
    """Distinct masked words, and their runs where there are enough words for one."""
    words = masked(text).split()
    return frozenset(words), frozenset(pieces(words, NGRAM)) if len(words) >= NGRAM else frozenset()
