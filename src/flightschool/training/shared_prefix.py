"""Attention over a pack: every segment sees itself causally and the segments above it, with gradients into both.

A prompt that eight members share is computed once, forward and backward; its keys and values are read by all eight,
and their gradients meet in it. Segments of equal depth and similar length are padded into one batch: queries
``[B, T]``, keys and values ``[B, C + T]`` gathered by index from the flat pack, ``C`` the longest path above. Only the
small attention tensors are ever padded; all linear layers run on the flat tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from flightschool.training.packing import Pack, Segment

__all__ = ["SharedPrefixAttention"]

_LEAST_SHARE = 0.9
"""Of the longest segment's length: shorter ones are not padded to it."""


@dataclass(frozen=True)
class _Bucket:
    """Segments that are attended in one call."""

    queries_BT: Tensor
    """Flat index of each query; padding points at the segment's first token."""
    keys_BC: Tensor
    """Flat index of each key: the path above, then the segment itself."""
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
    """

    def __init__(self, pack: Pack, device: torch.device | str = "cpu") -> None:
        self._buckets = [_bucket(pack, segments, device) for depth in _by_depth(pack) for segments in _by_length(depth)]
        self._order_N = _flat_order(pack, self._buckets).to(device)

    def __call__(self, layer: int, q_NHF: Tensor, k_NKF: Tensor, v_NKF: Tensor) -> Tensor:
        """Attend; ``[N, H, F]``."""
        del layer
        outs = [self._attend(bucket, q_NHF, k_NKF, v_NKF) for bucket in self._buckets]
        return torch.cat(outs).index_select(0, self._order_N)

    def _attend(self, bucket: _Bucket, q_NHF: Tensor, k_NKF: Tensor, v_NKF: Tensor) -> Tensor:
        num_kv, size = k_NKF.shape[1:]
        num_shared = q_NHF.shape[1] // num_kv  # query heads that read one key head: folded into the query axis,
        num_rows, length = bucket.queries_BT.shape  # so keys and values are not copied for each of them
        q = q_NHF.flatten(1).index_select(0, bucket.queries_BT.flatten())
        q = q.view(num_rows, length, num_kv, num_shared, size).permute(0, 2, 3, 1, 4).flatten(2, 3)
        k, v = (
            x.flatten(1).index_select(0, bucket.keys_BC.flatten()).view(num_rows, -1, num_kv, size).transpose(1, 2)
            for x in (k_NKF, v_NKF)
        )
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=bucket.bias_of(num_shared, q.dtype))
        out = out.view(num_rows, num_kv, num_shared, length, size).permute(0, 3, 1, 2, 4)
        return out.reshape(num_rows * length, -1, size)


def _by_depth(pack: Pack) -> Iterator[list[Segment]]:
    depths: dict[int, list[Segment]] = {}
    for segment in pack.segments:
        if segment.length:
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
    above = [[pack.segments[parent] for parent in segment.parents] for segment in segments]
    num_above = [sum(parent.length for parent in parents) for parents in above]
    longest, deepest = max(segment.length for segment in segments), max(num_above)
    queries = torch.empty(len(segments), longest, dtype=torch.long)
    keys = torch.zeros(len(segments), deepest + longest, dtype=torch.long)
    mask = torch.zeros(len(segments), 1, longest, deepest + longest, dtype=torch.bool)
    causal = torch.ones(longest, longest, dtype=torch.bool).tril()
    for b, (segment, parents) in enumerate(zip(segments, above, strict=True)):
        queries[b] = torch.arange(longest).clamp(max=segment.length - 1) + segment.start
        if parents:
            path = torch.cat([torch.arange(p.start, p.start + p.length) for p in parents])
            keys[b, : len(path)] = path
        keys[b, deepest:] = queries[b]
        mask[b, 0, :, : num_above[b]] = True
        mask[b, 0, :, deepest:] = causal
    return _Bucket(queries.to(device), keys.to(device), mask.to(device))


def _flat_order(pack: Pack, buckets: list[_Bucket]) -> Tensor:
    """Where each flat token's output stands among the concatenated outputs of the buckets."""
    order = torch.empty(pack.num_tokens, dtype=torch.long)
    rows: Callable[[Tensor], Tensor] = lambda index: torch.arange(index.numel())  # noqa: E731
    offset = 0
    for bucket in buckets:
        flat = bucket.queries_BT.flatten().cpu()
        # Padding repeats a segment's last token *after* it: written in reverse, the true place is what remains.
        order[flat.flip(0)] = offset + rows(flat).flip(0)
        offset += flat.numel()
    return order
