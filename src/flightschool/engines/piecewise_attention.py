"""Attention of one engine step by the native kernel: caches are read where they lie, whatever their lengths.

Decoding rows that share a prefix read it together, once for all of them; then each goes on with its own tail. Rows
that fill in, and lone ones, see prefix and tail at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from torch import Tensor

from flightschool.engines.kernels import Run, Span, Work, attend_cached
from flightschool.engines.kv_cache import KvSlots
from flightschool.engines.segments import Segment, rows_of

__all__ = ["PiecewiseAttention"]

_TAILS, _SHARED = 0, 1
"""Numbers of the two stores."""


class PiecewiseAttention:
    """The ``Attention`` of one step; arguments as for ``CachedAttention``."""

    def __init__(
        self,
        decoding: Sequence[Segment],
        filling: Sequence[Segment],
        prefixes: Sequence[Segment],
        tails: KvSlots,
        shared: KvSlots,
    ) -> None:
        self._stores = tails, shared
        own = [*decoding, *filling]
        tails.reserve(max((segment.end for segment in own), default=0))
        shared.reserve(max((segment.end for segment in prefixes), default=0))
        self.tokens_N, self.positions_N = rows_of([*own, *prefixes], tails.keys[0].device)
        spans = [*self._decoding(decoding), *self._filling(len(decoding), filling, prefixes)]
        places = [*self._places(_TAILS, own), *self._places(_SHARED, prefixes)]
        self._work = Work(spans, places)

    def __call__(self, layer: int, q_NHF: Tensor, k_NKF: Tensor, v_NKF: Tensor) -> Tensor:
        """See ``transformer.Attention``."""
        pairs = [(store.keys[layer], store.values[layer]) for store in self._stores]
        return attend_cached(q_NHF, k_NKF, v_NKF, pairs, self._work)

    def _first(self, store: int, slot: int) -> int:
        """Where a slot begins, in tokens of one head."""
        _, num_kv, capacity, _ = self._stores[store].keys[0].shape
        return slot * int(num_kv * capacity)

    def _places(self, store: int, segments: Sequence[Segment]) -> Iterator[tuple[int, int]]:
        for segment in segments:
            first = self._first(store, segment.slot)
            yield from ((store, first + position) for position in range(segment.offset, segment.end))

    def _decoding(self, segments: Sequence[Segment]) -> Iterator[Span]:
        for prefix_slot, members in groupby(enumerate(segments), key=lambda member: member[1].prefix_slot):
            rows = list(members)
            prefix = self._prefix(rows[0][1])
            together = prefix_slot >= 0 and len(rows) > 1
            if together:
                yield Span(rows[0][0], len(rows), prefix)
            for row, segment in rows:
                tail = Run(self._first(_TAILS, segment.slot), segment.end)
                yield Span(row, 1, (tail,) if together else (*prefix, tail), resumes=together)

    def _filling(self, row: int, own: Sequence[Segment], prefixes: Sequence[Segment]) -> Iterator[Span]:
        for store, segments in ((_TAILS, own), (_SHARED, prefixes)):
            for segment in segments:
                new = Run(self._first(store, segment.slot), segment.end, segment.offset + 1, store)
                yield Span(row, len(segment.tokens), (*self._prefix(segment), new))
                row += len(segment.tokens)

    def _prefix(self, segment: Segment) -> tuple[Run, ...]:
        if segment.prefix_slot < 0:
            return ()
        return (Run(self._first(_SHARED, segment.prefix_slot), segment.prefix_length, store=_SHARED),)
