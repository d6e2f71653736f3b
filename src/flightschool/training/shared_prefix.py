"""Attention over a pack: every segment sees itself causally and the segments above it, with gradients into both.

A prompt that eight members share is computed once, forward and backward; its keys and values are read by all eight,
and their gradients meet in it. On CPUs and in float32 the native kernel reads keys as they lie (``engines.kernels``).
Elsewhere segments of equal depth and similar length are padded into one batch: queries ``[B, T]``, keys and values
``[B, C + T]`` gathered by index from the flat pack, ``C`` the longest path above. Only the small attention tensors are
ever padded; all linear layers run on the flat tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor

from flightschool.engines.kernels import Run, Span, Work, attend, has_kernels
from flightschool.training.packing import Pack, Segment
from flightschool.training.rows import Layout, deal, gather_up, repeat
from flightschool.training.stem_attention import Stem

__all__ = ["SharedPrefixAttention"]

_LEAST_SHARE = 0.9
"""Of the longest segment's length: shorter ones are not padded to it."""


@dataclass(frozen=True)
class _Bucket:
    """Segments that are attended in one call."""

    queries_BT: Tensor
    """Flat index of each query; padding points at the segment's first token."""
    keys_BC: Tensor
    """Index of each key, counted from the stem's first: the path above, then the segment itself."""
    mask_BTC: Tensor
    """``[B, 1, T, C]``: True where a query may look."""
    bias: dict[tuple[int, torch.dtype], Tensor] = field(default_factory=dict)
    """The mask as summand (0 or −∞), by query heads a key head: made once, not in every layer."""

    def bias_of(self, num_shared: int, dtype: torch.dtype) -> Tensor:
        """``[B, 1, num_shared · T, C]``: what is added to the scores of queries folded by head."""
        key = (num_shared, dtype)
        if key not in self.bias:
            zero = torch.zeros(self.mask_BTC.shape, dtype=dtype, device=self.mask_BTC.device)
            self.bias[key] = zero.masked_fill_(~self.mask_BTC, -torch.inf).repeat(1, 1, num_shared, 1)
        return self.bias[key]


class SharedPrefixAttention:
    """The ``Attention`` strategy of one pack.

    Args:
        pack: whose tokens the model is run on, unchanged in order.
        device: where indices and masks live.
        stem: what stands before the pack's tokens, if the pack was cut off one (see ``stem``).
    """

    def __init__(self, pack: Pack, device: torch.device | str = "cpu", stem: Stem | None = None) -> None:
        self._pack, self._device, self._stem = pack, device, stem

    def __call__(self, layer: int, q_NHF: Tensor, k_NKF: Tensor, v_NKF: Tensor) -> Tensor:
        """Attend; ``[N, H, F]``."""
        if self._stem is not None:
            k_NKF, v_NKF = self._stem.before(layer, k_NKF, v_NKF)
        if has_kernels(q_NHF.device, q_NHF.dtype, q_NHF.shape[2]):
            return attend(q_NHF, k_NKF, v_NKF, self._work)
        return self._padded.attend(q_NHF, k_NKF, v_NKF)

    @cached_property
    def _work(self) -> Work:
        return Work(list(_spans(self._pack)))

    @cached_property
    def _padded(self) -> _Padded:
        return _Padded(self._pack, self._device)


def _spans(pack: Pack) -> Iterator[Span]:
    before = pack.stem_length  # whose keys stand in front
    for segment in pack.segments:
        if segment.length and segment.start >= 0:
            above = [pack.segments[parent] for parent in segment.parents]
            runs = [Run(parent.start + before, parent.length) for parent in above if parent.length]
            own = Run(segment.start + before, segment.length, first_sees=1)
            yield Span(segment.start, segment.length, (*runs, own))


class _Padded:
    """A pack as padded batches."""

    def __init__(self, pack: Pack, device: torch.device | str) -> None:
        self.buckets = [_bucket(pack, segments, device) for depth in _by_depth(pack) for segments in _by_length(depth)]
        self._layout = _layout(pack, self.buckets, device)
        self._keys_R = torch.cat([bucket.keys_BC.flatten() for bucket in self.buckets])

    def attend(self, q_NHF: Tensor, k_NKF: Tensor, v_NKF: Tensor) -> Tensor:
        """See ``SharedPrefixAttention``; keys of the stem stand in front."""
        num_kv, size = k_NKF.shape[1:]
        queries = torch.split(
            deal(q_NHF.flatten(1), self._layout), [bucket.queries_BT.numel() for bucket in self.buckets]
        )
        widths = [bucket.keys_BC.numel() for bucket in self.buckets]
        keys, values = (torch.split(repeat(x.flatten(1), self._keys_R), widths) for x in (k_NKF, v_NKF))
        rows = zip(self.buckets, queries, keys, values, strict=True)
        outs_RX = torch.cat([_attend(*one, num_kv, size) for one in rows])
        return gather_up(outs_RX, self._layout).view(q_NHF.shape)


def _attend(bucket: _Bucket, q_RX: Tensor, k_RX: Tensor, v_RX: Tensor, num_kv: int, size: int) -> Tensor:
    """One bucket: rows of queries, keys and values to rows of the outcome."""
    num_rows, length = bucket.queries_BT.shape
    # Query heads that read one key head are folded into the query axis, so keys are not copied for each of them.
    q = q_RX.view(num_rows, length, num_kv, -1, size).permute(0, 2, 3, 1, 4)
    num_shared = q.shape[2]
    k, v = (x_RX.view(num_rows, -1, num_kv, size).transpose(1, 2) for x_RX in (k_RX, v_RX))
    bias = bucket.bias_of(num_shared, q.dtype)
    out = F.scaled_dot_product_attention(q.flatten(2, 3), k, v, attn_mask=bias)
    return out.view(q.shape).permute(0, 3, 1, 2, 4).reshape(num_rows * length, -1)


def _by_depth(pack: Pack) -> Iterator[list[Segment]]:
    depths: dict[int, list[Segment]] = {}
    for segment in pack.segments:
        if segment.length and segment.start >= 0:
            depths.setdefault(len(segment.parents), []).append(segment)
    for depth in sorted(depths):
        yield depths[depth]


def _by_length(segments: list[Segment]) -> Iterator[list[Segment]]:
    """Segments that are padded together, longest first.

    Work grows with the padded area, and episodes of several turns differ tenfold in length; one more call in a layer
    costs no more than some thousand pairs of tokens.
    """
    batch: list[Segment] = []
    for segment in sorted(segments, key=lambda segment: -segment.length):
        if batch and segment.length < _LEAST_SHARE * batch[0].length:
            yield batch
            batch = []
        batch.append(segment)
    yield batch


def _bucket(pack: Pack, segments: list[Segment], device: torch.device | str) -> _Bucket:
    """Segments with what is above them."""
    above = [[pack.segments[parent] for parent in segment.parents] for segment in segments]
    num_above = [sum(parent.length for parent in parents) for parents in above]
    longest, deepest = max(segment.length for segment in segments), max(num_above)
    queries = torch.empty(len(segments), longest, dtype=torch.long)
    keys = torch.zeros(len(segments), deepest + longest, dtype=torch.long)
    mask = torch.zeros(len(segments), 1, longest, deepest + longest, dtype=torch.bool)
    causal = torch.ones(longest, longest, dtype=torch.bool).tril()
    before = pack.stem_length  # whose keys stand in front
    for b, (segment, parents) in enumerate(zip(segments, above, strict=True)):
        queries[b] = torch.arange(longest).clamp(max=segment.length - 1) + segment.start
        if parents:
            path = torch.cat([torch.arange(p.start, p.start + p.length) for p in parents])
            keys[b, : len(path)] = path + before
        keys[b, deepest:] = queries[b] + before
        mask[b, 0, :, : num_above[b]] = True
        mask[b, 0, :, deepest:] = causal
    return _Bucket(queries.to(device), keys.to(device), mask.to(device))


def _layout(pack: Pack, buckets: list[_Bucket], device: torch.device | str) -> Layout:
    """Where the queries of all buckets stand one after the other."""
    tokens = torch.cat([bucket.queries_BT.flatten().cpu() for bucket in buckets])
    places = torch.arange(tokens.numel())
    rows = torch.empty(pack.num_tokens, dtype=torch.long)
    # Padding repeats a segment's last token *after* it: written in reverse, the true place is what remains.
    rows[tokens.flip(0)] = places.flip(0)
    padding = places[rows[tokens] != places]
    return Layout(tokens.to(device), rows.to(device), padding.to(device))
