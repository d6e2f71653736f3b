"""Slots and shared prefixes: memory follows the work at hand."""

from __future__ import annotations

import torch

from flightschool.engines.architecture import TransformerConfig
from flightschool.engines.kv_cache import KvSlots, PrefixPool

CONFIG = TransformerConfig(
    vocab=8, hidden=16, intermediate=16, num_layers=1, num_heads=4, num_kv_heads=2, head_dim=4, attention_bias=False
)


def slots(most: int) -> KvSlots:
    return KvSlots(CONFIG, most, torch.float32, torch.device("cpu"))


def test_prompts_of_the_past_take_no_more_than_a_few_slots() -> None:
    pool = PrefixPool(slots(32))
    used = []
    for number in range(100):
        prefix, known = pool.acquire((number,))
        assert prefix is not None
        assert not known
        used.append(prefix.slot)
        pool.release(prefix)
    assert max(used) == 7  # the one at hand and seven idle ones
    assert pool.acquire((99,))[1]
    assert not pool.acquire((0,))[1]


def test_prefixes_in_use_take_what_they_need_and_stay() -> None:
    pool = PrefixPool(slots(12))
    held = [pool.acquire((number,))[0] for number in range(12)]
    assert [prefix.slot for prefix in held if prefix is not None] == list(range(12))
    assert pool.acquire((12,)) == (None, False)
    assert held[3] is not None
    pool.release(held[3])
    taken, known = pool.acquire((13,))
    assert taken is not None
    assert (taken.slot, known) == (3, False)
    assert pool.acquire((0,)) == (held[0], True)


def test_what_was_written_survives_growth() -> None:
    store = slots(4)
    first = store.take()
    assert first == 0
    store.reserve(3)
    store.keys[0][0, :, :3] = 7.0
    for _ in range(3):
        store.take()
    store.reserve(200)
    assert store.keys[0].shape[2] >= 200
    assert torch.equal(store.keys[0][0, :, :3], torch.full((2, 3, 4), 7.0))
    assert float(store.keys[0][0, :, 3:].abs().sum()) == 0.0
