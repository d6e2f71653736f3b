"""What all packs of a step begin with, cut off so that it is computed once. Pure, imports no torch.

Groups of one environment begin alike: system turn, tools, worked examples. Within a pack that stands once; a step of
several packs computed it once for each of them. A *stem* is computed by itself, forward first and backward last, and
packs see its keys and values (``stem_attention``).

By hand: the packs ``a b c d | x`` and ``a b c e | y`` with a least of two have the stem ``a b c``; what is left are
``d | x`` and ``e | y``, at positions 3 and up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from flightschool.training.messages import TrainGroup
from flightschool.training.packing import Pack, Segment, pack_groups

__all__ = ["LEAST_STEM", "cut_stem", "pack_over_stem"]

LEAST_STEM = 128
"""Tokens from which a pass of their own, forward and backward, is worth its calls."""
_TRIES = 3
"""To find wider packs that a long stem still fits beside."""


def pack_over_stem(
    groups: Sequence[TrainGroup], *, newest_step: int, max_tokens: int
) -> tuple[tuple[int, ...], list[Pack]]:
    """Pack groups; see ``pack_groups`` and ``cut_stem``.

    A pack and the stem together hold ``max_tokens``; beside a stem that leaves less than half of that, a pack holds
    half of it. (As anywhere, a pack of one member may be longer.)

    Returns:
        The stem (empty: there is none) and the packs.
    """
    packs = pack_groups(groups, newest_step=newest_step, max_tokens=max_tokens)
    length, half = _stem_length(packs), max_tokens // 2
    limit = length + half
    for _ in range(_TRIES if length > half else 0):
        wider = pack_groups(groups, newest_step=newest_step, max_tokens=limit)
        found = _stem_length(wider)
        if found >= LEAST_STEM and _fits_beside(wider, found, max_tokens):
            return cut_stem(wider)
        # fewer packs have less in common, and a single one has no stem
        limit = found + half if found >= LEAST_STEM else max(pack.num_tokens for pack in wider) - 1
    return cut_stem(packs)


def _fits_beside(packs: Sequence[Pack], length: int, max_tokens: int) -> bool:
    """Whether packs, but for those of one member, are as long beside a stem as they may be."""
    room = length + max(max_tokens - length, max_tokens // 2)
    return all(pack.num_tokens <= room or len({target.member for target in pack.targets}) == 1 for pack in packs)


def cut_stem(packs: Sequence[Pack]) -> tuple[tuple[int, ...], list[Pack]]:
    """What several packs begin with, and the packs without it.

    Each pack's first segment is then the stem: its ``start`` is negative, since its tokens stand before the pack's.
    """
    length = _stem_length(packs)
    if length < LEAST_STEM:
        return (), list(packs)
    return tuple(packs[0].tokens_N[:length]), [_without(pack, length) for pack in packs]


def _stem_length(packs: Sequence[Pack]) -> int:
    """Tokens that the first segments of all packs begin with; 0 for a single pack.

    None where experts were recorded: those of the same tokens may differ from pack to pack.
    """
    if len(packs) < 2 or any(pack.routes_N or not pack.segments for pack in packs):
        return 0
    first = packs[0].tokens_N
    longest = min(_num_silent(pack) for pack in packs)
    differ = (place for place in range(longest) if any(pack.tokens_N[place] != first[place] for pack in packs))
    return max(0, next(differ, longest))


def _num_silent(pack: Pack) -> int:
    """First tokens of a pack that predict no trained one; at least one of the first segment's stays its own."""
    return min([pack.segments[0].length - 1, *(target.predictor for target in pack.targets)])


def _without(pack: Pack, length: int) -> Pack:
    segments = [Segment(-length, length, ())]
    for place, segment in enumerate(pack.segments):
        start, size = (0, segment.length - length) if place == 0 else (segment.start - length, segment.length)
        above = (0,) if place == 0 or segment.parents[:1] == (0,) else ()  # other roots do not see the stem
        segments.append(Segment(start, size, (*above, *(parent + 1 for parent in segment.parents))))
    return Pack(
        tokens_N=pack.tokens_N[length:],
        positions_N=pack.positions_N[length:],
        segments=segments,
        targets=[replace(target, predictor=target.predictor - length) for target in pack.targets],
    )
