"""Which beginnings of prompts are computed once: a tree of shared prefixes. Pure, imports no torch.

Members of one group share all they can. Prompts of different groups are only joined where that saves at least
``LEAST_JOINED`` tokens a level: every level of the tree is one more attention call a layer, and two order numbers that
happen to begin with the same digit are not worth one.

By hand, with a least of 3: two members of one group have the prompt ``s t u a b``, one of another has ``s t u c``. The
tree is ``s t u``, below it ``a b`` for both members of the first; the third goes on from ``s t u`` by itself: six
tokens instead of fourteen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

__all__ = ["LEAST_JOINED", "Branch", "Key", "num_pairs", "num_tree_pairs", "num_tree_tokens", "prefix_tree"]

LEAST_JOINED = 16
"""Tokens that joining groups must save."""


@dataclass(frozen=True)
class Key:
    """The beginning of a member's tokens that may be shared."""

    tokens: tuple[int, ...]
    group: int
    apart: bool = False
    """Whether it may only be shared within its group."""


@dataclass(frozen=True)
class Branch:
    """A prefix and what follows it."""

    start: int
    end: int
    """Tokens ``start`` to ``end`` of each of its keys stand here, those before it further up; equal: nothing stands
    here."""
    keys: tuple[int, ...]
    """Places of all keys that go through it."""
    below: tuple[Branch | int, ...]
    """Further prefixes, and keys that share no more."""


def prefix_tree(keys: Sequence[Key], least: int = LEAST_JOINED) -> Branch:
    """The tree of all keys.

    Args:
        keys: in any order.
        least: tokens that a level must save for groups to be joined in it.
    """
    return _branch(keys, list(range(len(keys))), 0, least)


def num_tree_tokens(keys: Sequence[Key], least: int = LEAST_JOINED) -> int:
    """Tokens of all keys when they stand as a tree."""
    return sum(end - start for start, end in _stretches(prefix_tree(keys, least), keys))


def num_tree_pairs(keys: Sequence[Key], least: int = LEAST_JOINED) -> int:
    """Pairs of one of these tokens and one that it sees, itself too."""
    return sum(num_pairs(start, end) for start, end in _stretches(prefix_tree(keys, least), keys))


def num_pairs(start: int, end: int) -> int:
    """Pairs of a token at the places ``start`` to ``end`` of a sequence and one before it or itself.

    By hand: the tokens at 2 and 3 see three and four, seven pairs.
    """
    return (end * (end + 1) - start * (start + 1)) // 2


def _stretches(branch: Branch, keys: Sequence[Key]) -> Iterator[tuple[int, int]]:
    """Where tokens stand in the tree, each stretch once: first and last place in its own sequence."""
    yield branch.start, branch.end
    for child in branch.below:
        if isinstance(child, Branch):
            yield from _stretches(child, keys)
        else:
            yield branch.end, len(keys[child].tokens)


def _branch(keys: Sequence[Key], places: Sequence[int], start: int, least: int) -> Branch:
    chosen = [keys[place] for place in places]
    common = _common_length(chosen)
    groups = {key.group for key in chosen}
    joined = common - start >= (1 if len(groups) == 1 else least) and not (
        len(groups) > 1 and any(key.apart for key in chosen)
    )
    end = common if joined and len(places) > 1 else start
    below: list[Branch | int] = []
    for part in _parts(keys, places, common):
        alone = len(part) == 1 or len(part) == len(places)  # nothing that could be shared tells these apart
        below += part if alone else [_branch(keys, part, end, least)]
    return Branch(start, end, tuple(places), tuple(below))


def _parts(keys: Sequence[Key], places: Sequence[int], common: int) -> list[list[int]]:
    """Keys by the token that follows what all have in common; keys that end there, by their group."""
    parts: dict[tuple[str, int], list[int]] = {}
    for place in places:
        key = keys[place]
        name = ("token", key.tokens[common]) if common < len(key.tokens) else ("end", key.group)
        parts.setdefault(name, []).append(place)
    return list(parts.values())


def _common_length(keys: Sequence[Key]) -> int:
    """Tokens that all begin with."""
    first = keys[0].tokens if keys else ()
    return min((_common_with(first, key.tokens) for key in keys), default=0)


def _common_with(left: tuple[int, ...], right: tuple[int, ...]) -> int:
    low, high = 0, min(len(left), len(right))
    if left[:high] == right[:high]:
        return high
    while low < high:
        middle = (low + high + 1) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
