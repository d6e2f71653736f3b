"""Decoding over shared prefixes: groups of any sizes give what each row gives by itself, whoever attends."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from flightschool.engines.architecture import TransformerConfig
from flightschool.engines.cached_attention import CachedAttention
from flightschool.engines.kv_cache import KvSlots
from flightschool.engines.piecewise_attention import PiecewiseAttention
from flightschool.engines.segments import Segment, order_decoding

Attend = type[CachedAttention] | type[PiecewiseAttention]

CONFIG = TransformerConfig(
    vocab=8, hidden=16, intermediate=16, num_layers=1, num_heads=4, num_kv_heads=2, head_dim=4, attention_bias=False
)


def filled(num_slots: int, length: int, seed: int) -> KvSlots:
    store = KvSlots(CONFIG, num_slots, torch.float32, torch.device("cpu"))
    for _ in range(num_slots):
        store.take()
    store.reserve(length)
    generator = torch.Generator().manual_seed(seed)
    for part in (store.keys, store.values):
        part[0][:, :, :length] = torch.randn(num_slots, 2, length, 4, generator=generator)
    return store


def by_itself(q_HF: Tensor, segment: Segment, tails: KvSlots, shared: KvSlots) -> Tensor:
    """One row, keys and values copied out."""

    def seen(tail: list[Tensor], front: list[Tensor]) -> Tensor:
        parts = [tail[0][segment.slot, :, : segment.end]]
        if segment.prefix_slot >= 0:
            parts.insert(0, front[0][segment.prefix_slot, :, : segment.prefix_length])
        return torch.cat(parts, dim=1).repeat_interleave(2, dim=0)

    k, v = seen(tails.keys, shared.keys), seen(tails.values, shared.values)
    weights = torch.einsum("hf,hcf->hc", q_HF, k).div(2.0).softmax(-1)
    return torch.einsum("hc,hcf->hf", weights, v)


@pytest.mark.parametrize("attend", [CachedAttention, PiecewiseAttention])
@pytest.mark.parametrize(
    "groups",
    [
        {0: 3, 1: 3, 2: 3},  # as full as a table can be
        {0: 3, 1: 2, 2: 4},
        {0: 2, 1: 1, 2: 3, 3: 2},  # one by itself between others
        {0: 2, 2: 2, 3: 1, 5: 3, 6: 2},  # slots that do not follow one another
        {-1: 3, 1: 2},  # rows without a prefix
        {4: 1},
    ],
)
def test_rows_of_all_groups_see_their_own_prefix_and_tail(groups: dict[int, int], attend: Attend) -> None:
    lengths = {slot: 3 + 2 * slot for slot in range(7)}
    tails, shared = filled(12, 9, 1), filled(7, 16, 2)
    segments = [
        Segment(slot=row, offset=row % 4, tokens=(1,), prefix_slot=slot, prefix_length=lengths.get(slot, 0))
        for row, slot in enumerate(slot for slot, num in groups.items() for _ in range(num))
    ]
    segments.sort(key=order_decoding)
    attention = attend(segments, [], [], tails, shared)
    generator = torch.Generator().manual_seed(3)
    q, k, v = (torch.randn(len(segments), heads, 4, generator=generator) for heads in (4, 2, 2))
    found = attention(0, q, k, v)  # writes the new keys and values first
    expected = torch.stack([by_itself(q[row], segment, tails, shared) for row, segment in enumerate(segments)])
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("attend", [CachedAttention, PiecewiseAttention])
def test_rows_that_fill_in_see_what_was_there_and_themselves(attend: Attend) -> None:
    """A prefix grows by two tokens, two sequences by three behind it, one of them decodes beside them."""
    tails, shared = filled(12, 9, 1), filled(7, 16, 2)
    decoding = [Segment(slot=0, offset=4, tokens=(1,), prefix_slot=2, prefix_length=6)]
    filling = [
        Segment(slot=1, offset=0, tokens=(1, 2, 3), prefix_slot=2, prefix_length=6),
        Segment(slot=2, offset=5, tokens=(1, 2, 3)),
    ]
    prefixes = [Segment(slot=2, offset=4, tokens=(1, 2))]
    attention = attend(decoding, filling, prefixes, tails, shared)
    assert attention.positions_N.tolist() == [10, 6, 7, 8, 5, 6, 7, 4, 5]
    generator = torch.Generator().manual_seed(3)
    q, k, v = (torch.randn(9, heads, 4, generator=generator) for heads in (4, 2, 2))
    found = attention(0, q, k, v)
    rows = [(segment, place) for segment in [*decoding, *filling] for place in range(len(segment.tokens))]
    for row, (segment, place) in enumerate(rows):
        cut = Segment(segment.slot, segment.offset + place, (1,), segment.prefix_slot, segment.prefix_length)
        torch.testing.assert_close(found[row], by_itself(q[row], cut, tails, shared))
    for row, place in ((7, 4), (8, 5)):
        cut = Segment(slot=2, offset=place, tokens=(1,))
        torch.testing.assert_close(found[row], by_itself(q[row], cut, shared, shared))
