"""Attention over a pack pads little, however unequal the episodes are."""

from __future__ import annotations

from flightschool.training.packing import Pack, Segment
from flightschool.training.shared_prefix import _Padded


def test_a_short_segment_is_not_padded_to_a_long_one() -> None:
    lengths = (20, 100, 10, 95, 21)
    starts = [30 + sum(lengths[:place]) for place in range(len(lengths))]
    members = [Segment(start, length, (0,)) for start, length in zip(starts, lengths, strict=True)]
    pack = Pack([0] * (30 + sum(lengths)), [0] * (30 + sum(lengths)), [Segment(0, 30, ()), *members], [])
    shapes = [tuple(bucket.queries_BT.shape) for bucket in _Padded(pack, "cpu").buckets]
    assert shapes == [(1, 30), (2, 100), (2, 21), (1, 10)]
