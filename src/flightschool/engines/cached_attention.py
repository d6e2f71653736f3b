"""Attention of one engine step over cached keys and values: many sequences, each with its own past.

A step's rows stand in three parts: *decoding* rows (one new token of a sequence), *filling* rows (several new tokens
of a sequence), and rows that compute a shared prefix. Each layer first writes all new keys and values, then attends;
so a prefix and the sequences that begin with it can be computed in the same step.

What the native kernel cannot (other devices and types) is done here by torch; see ``piecewise_attention`` for the rest.

Decoding is where the time goes, and its cost is reading the cache. The part of the scores that falls on a shared
prefix is one matrix product for all members of the group, which reads the prefix once (compare cascade or "hydragen"
attention), and prefixes in neighbouring slots are one batched product; the part on the tails, and on prefixes that only
one sequence uses now, is a batched product over runs of neighbouring slots. Keys and values are never copied. All parts
are joined in one softmax, so the result is the plain one.

Shape letters: ``N`` rows, ``B`` decoding rows, ``H`` query heads, ``K`` key/value heads, ``G`` = H / K,
``F`` head size.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
import torch.nn.functional as F
from torch import Tensor

from flightschool.engines.kv_cache import KvSlots
from flightschool.engines.segments import Segment, rows_of

__all__ = ["CachedAttention"]


@dataclass(frozen=True)
class _Stretch:
    """Decoding rows ``low`` … ``high`` that share a prefix, or whose slots follow one another from ``slot``."""

    low: int
    high: int
    slot: int
    length: int


@dataclass(frozen=True)
class _Cohort:
    """Groups of decoding rows ``low`` … ``high`` whose shared prefixes lie in slots that follow one another."""

    low: int
    high: int
    slot: int
    num_groups: int
    length: int
    """Of the longest prefix."""
    rows: Tensor | None
    """Row in each place of a table of groups and members, counted from ``low``; None where it is as full as can be."""
    places: Tensor | None
    """Place of each row in that table."""

    def laid_out(self, x: Tensor) -> Tensor:
        """``[rows, K, G, X]`` → ``[groups · K, members · G, X]``."""
        if self.rows is not None:
            x = x.index_select(0, self.rows)
        x = x.view(self.num_groups, -1, *x.shape[1:]).transpose(1, 2)
        return x.reshape(self.num_groups * x.shape[1], -1, x.shape[-1])

    def as_rows(self, x: Tensor, num_shared: int) -> Tensor:
        """The way back; ``num_shared`` is ``G``."""
        x = x.view(self.num_groups, -1, x.shape[1] // num_shared, num_shared, x.shape[2]).transpose(1, 2)
        rows = x.reshape(-1, *x.shape[2:])
        return rows if self.places is None else rows.index_select(0, self.places)


class CachedAttention:
    """The ``Attention`` of one step.

    Args:
        decoding: one-token segments; ``order_decoding`` gives the order that makes them cheapest.
        filling: other segments of sequences.
        prefixes: segments of shared prefixes.
        tails: storage of the sequences' own tokens.
        shared: storage of the prefixes.
    """

    def __init__(
        self,
        decoding: Sequence[Segment],
        filling: Sequence[Segment],
        prefixes: Sequence[Segment],
        tails: KvSlots,
        shared: KvSlots,
    ) -> None:
        self._tails, self._shared = tails, shared
        self._num_decoding = len(decoding)
        own = [*decoding, *filling]
        tails.reserve(max((segment.end for segment in own), default=0))
        shared.reserve(max((segment.end for segment in prefixes), default=0))
        device = tails.keys[0].device
        self._own_places = _places(own, device)
        self._shared_places = _places(prefixes, device)
        self.tokens_N, self.positions_N = rows_of([*own, *prefixes], device)
        groups, self._lone_runs = _prefix_groups(decoding)
        self._cohorts = [_cohort(run, device) for run in _neighbours(groups)]
        self._runs = _slot_runs(enumerate(decoding))
        self._prefix_width = max((segment.prefix_length for segment in decoding), default=0)
        self._tail_width = max((run.length for run in self._runs), default=0)
        self._prefix_mask = _beyond([segment.prefix_length for segment in decoding], self._prefix_width, device)
        self._tail_mask = _beyond([segment.end for segment in decoding], self._tail_width, device)
        self._fills = [(segment, tails, _causal_mask(segment, device)) for segment in filling]
        self._fills += [(segment, shared, _causal_mask(segment, device)) for segment in prefixes]

    def __call__(self, layer: int, q_NHF: Tensor, k_NKF: Tensor, v_NKF: Tensor) -> Tensor:
        """See ``transformer.Attention``."""
        own = len(self._own_places[0])
        for store, places, rows in (
            (self._tails, self._own_places, slice(0, own)),
            (self._shared, self._shared_places, slice(own, None)),
        ):
            if len(places[0]):
                store.keys[layer][places[0], :, places[1]] = k_NKF[rows]
                store.values[layer][places[0], :, places[1]] = v_NKF[rows]
        out = torch.empty_like(q_NHF)
        low = self._num_decoding
        if low:
            out[:low] = self._decode(layer, q_NHF[:low], k_NKF.shape[1])
        for segment, store, mask in self._fills:
            high = low + len(segment.tokens)
            out[low:high] = self._fill(layer, q_NHF[low:high], segment, store, mask)
            low = high
        return out

    def _decode(self, layer: int, q_BHF: Tensor, num_kv_heads: int) -> Tensor:
        """One query a sequence: scores on prefixes and tails side by side, one softmax over both."""
        num, heads, size = q_BHF.shape
        q = (q_BHF * size**-0.5).view(num, num_kv_heads, -1, size)
        width = self._prefix_width
        scores = q.new_empty((*q.shape[:3], width + self._tail_width), dtype=torch.float32)
        for cohort in self._cohorts:
            rows = slice(cohort.low, cohort.high)
            part = cohort.laid_out(q[rows]) @ _slots(self._shared.keys[layer], cohort).transpose(1, 2)
            scores[rows, ..., : cohort.length] = cohort.as_rows(part, q.shape[2])
        for run in self._lone_runs:
            scores[run.low : run.high, ..., : run.length] = _scores(q, self._shared.keys[layer], run)
        for run in self._runs:
            scores[run.low : run.high, ..., width : width + run.length] = _scores(q, self._tails.keys[layer], run)
        # The masks also cover what a shorter prefix or run left unset.
        scores[..., :width].masked_fill_(self._prefix_mask, float("-inf"))
        scores[..., width:].masked_fill_(self._tail_mask, float("-inf"))
        weights = scores.softmax(dim=-1).to(q.dtype)
        out = torch.empty_like(q)
        for run in self._runs:
            values = self._tails.values[layer][run.slot : run.slot + run.high - run.low, :, : run.length]
            out[run.low : run.high] = weights[run.low : run.high, ..., width : width + run.length] @ values
        for run in self._lone_runs:
            values = self._shared.values[layer][run.slot : run.slot + run.high - run.low, :, : run.length]
            out[run.low : run.high] += weights[run.low : run.high, ..., : run.length] @ values
        for cohort in self._cohorts:
            rows = slice(cohort.low, cohort.high)
            part = cohort.laid_out(weights[rows, ..., : cohort.length]) @ _slots(self._shared.values[layer], cohort)
            out[rows] += cohort.as_rows(part, q.shape[2])
        return out.view(num, heads, size)

    def _fill(self, layer: int, q_NHF: Tensor, segment: Segment, store: KvSlots, mask: Tensor) -> Tensor:
        """Several queries of one sequence; the query heads of one key head are laid end to end."""
        keys, values = (part[layer][segment.slot, :, : segment.end] for part in (store.keys, store.values))
        if segment.prefix_slot >= 0:
            front = slice(0, segment.prefix_length)
            keys = torch.cat((self._shared.keys[layer][segment.prefix_slot, :, front], keys), dim=1)
            values = torch.cat((self._shared.values[layer][segment.prefix_slot, :, front], values), dim=1)
        num, heads, size = q_NHF.shape
        num_kv_heads = keys.shape[0]
        q = q_NHF.view(num, num_kv_heads, -1, size).permute(1, 2, 0, 3).reshape(num_kv_heads, -1, size)
        tiled = mask.repeat(heads // num_kv_heads, 1)
        out = F.scaled_dot_product_attention(q[None], keys[None], values[None], attn_mask=tiled)[0]
        return out.view(num_kv_heads, -1, num, size).permute(2, 0, 1, 3).reshape(num, heads, size)


def _places(segments: Sequence[Segment], device: torch.device) -> tuple[Tensor, Tensor]:
    """Slot and position of every row."""
    slots = [segment.slot for segment in segments for _ in segment.tokens]
    positions = [position for segment in segments for position in range(segment.offset, segment.end)]
    return torch.tensor(slots, device=device, dtype=torch.long), torch.tensor(
        positions, device=device, dtype=torch.long
    )


def _scores(q_BKGF: Tensor, keys_SKCF: Tensor, run: _Stretch) -> Tensor:
    """Scores of the rows of a run on the slots that follow one another with them, ``[n, K, G, length]``."""
    keys = keys_SKCF[run.slot : run.slot + run.high - run.low, :, : run.length]
    return q_BKGF[run.low : run.high] @ keys.transpose(2, 3)


def _beyond(lengths: Sequence[int], width: int, device: torch.device) -> Tensor:
    """``[B, 1, 1, width]``: True at columns that are not of the row."""
    ends = torch.tensor(lengths, device=device, dtype=torch.long)
    return (torch.arange(width, device=device) >= ends.unsqueeze(1))[:, None, None, :]


def _prefix_groups(decoding: Sequence[Segment]) -> tuple[list[_Stretch], list[_Stretch]]:
    """Rows that share a prefix, and runs of rows whose prefix no other row uses."""
    groups: list[_Stretch] = []
    lone: list[tuple[int, Segment]] = []
    for slot, members in groupby(enumerate(decoding), key=lambda item: item[1].prefix_slot):
        rows = list(members)
        if slot >= 0 and len(rows) == 1:
            row, segment = rows[0]
            lone.append((row, Segment(slot, segment.prefix_length, ())))  # only where it lies and ends counts
        elif slot >= 0:
            groups.append(_Stretch(rows[0][0], rows[-1][0] + 1, slot, rows[0][1].prefix_length))
    return groups, _slot_runs(lone)


def _neighbours(groups: Sequence[_Stretch]) -> Iterator[list[_Stretch]]:
    """Groups whose rows and slots follow one another."""
    run: list[_Stretch] = []
    for group in groups:
        if run and (group.slot, group.low) != (run[-1].slot + 1, run[-1].high):
            yield run
            run = []
        run.append(group)
    if run:
        yield run


def _cohort(groups: Sequence[_Stretch], device: torch.device) -> _Cohort:
    low, sizes = groups[0].low, [group.high - group.low for group in groups]
    most = max(sizes)
    rows = places = None
    if min(sizes) < most:
        first = [group.low - low for group in groups]
        table = [
            [start + min(place, size - 1) for place in range(most)] for start, size in zip(first, sizes, strict=True)
        ]
        taken = [number * most + place for number, size in enumerate(sizes) for place in range(size)]
        rows, places = torch.tensor(table, device=device).flatten(), torch.tensor(taken, device=device)
    length = max(group.length for group in groups)
    return _Cohort(low, groups[-1].high, groups[0].slot, len(groups), length, rows, places)


def _slots(store_SKCF: Tensor, cohort: _Cohort) -> Tensor:
    """Keys or values of a cohort's prefixes, ``[groups · K, length, F]``."""
    return store_SKCF[cohort.slot : cohort.slot + cohort.num_groups, :, : cohort.length].flatten(0, 1)


def _slot_runs(numbered: Iterable[tuple[int, Segment]]) -> list[_Stretch]:
    """Runs of rows that follow one another, as their slots do."""
    runs = []
    places = enumerate(numbered)  # a row's distance to its place tells where rows are left out
    for _, run in groupby(places, key=lambda item: (item[1][1].slot - item[1][0], item[1][0] - item[0])):
        rows = [numbered_row for _, numbered_row in run]
        longest = max(segment.end for _, segment in rows)
        runs.append(_Stretch(rows[0][0], rows[-1][0] + 1, rows[0][1].slot, longest))
    return runs


def _causal_mask(segment: Segment, device: torch.device) -> Tensor:
    """``[n, prefix + end]``: a new token sees the prefix, the slot's past and the new tokens up to itself."""
    num, width = len(segment.tokens), segment.prefix_length + segment.end
    return torch.ones((num, width), dtype=torch.bool, device=device).tril(width - num)
