"""Where keys and values are kept: slots for what one session adds, shared entries for prompts of whole groups.

A sequence's cache is ``prefix + tail``. The prefix (a group's common prompt) is computed once and referenced by all
members; the tail (what the member sampled and observed) lies in the member's own slot. So eight members of a group
hold their prompt once, and attention reads it once for all of them. Prompts that only begin alike, as those of one
environment do, lie in entries of their own, but what they begin with is computed once and copied.

Shape letters: ``S`` slots, ``K`` key/value heads, ``C`` capacity in tokens, ``F`` head size.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from flightschool.engines.architecture import TransformerConfig
from flightschool.engines.memory import trim

__all__ = ["KvSlots", "Prefix", "PrefixPool", "Session", "common_length"]

_BLOCK = 64  # capacity grows in multiples of this
LEAST_COPIED = 16
"""Tokens that two prompts must have in common for one to wait for the other: it waits for a whole pass."""
_MOST_IDLE = 8
"""Prefixes that nobody uses and that are kept all the same, before memory is taken for more."""


class KvSlots:
    """A pool of equal slots in one tensor a layer; it grows with use, so that memory follows the work at hand.

    Args:
        config: shape of the model.
        max_slots: most slots ever taken at once.
        dtype: type of keys and values.
        device: where they lie.
    """

    def __init__(self, config: TransformerConfig, max_slots: int, dtype: torch.dtype, device: torch.device) -> None:
        self._max_slots = max_slots
        self._free: list[int] = []
        self._num_slots = 0
        self._capacity = 0
        self._new = {"dtype": dtype, "device": device}
        empty = (0, config.num_kv_heads, 0, config.head_dim)
        self.keys = [torch.zeros(empty, **self._new) for _ in range(config.num_layers)]  # type: ignore[call-overload]
        """By layer, ``[S, K, C, F]``."""
        self.values = [torch.zeros(empty, **self._new) for _ in range(config.num_layers)]  # type: ignore[call-overload]
        """By layer, ``[S, K, C, F]``."""

    def take(self) -> int | None:
        """The lowest free slot, or None when all are taken."""
        if self._free:
            return heapq.heappop(self._free)
        if self._num_slots == self._max_slots:
            return None
        self._num_slots += 1
        return self._num_slots - 1

    def give(self, slot: int) -> None:
        """Return a slot."""
        heapq.heappush(self._free, slot)

    def reserve(self, length: int) -> None:
        """Make room for all taken slots to hold ``length`` tokens each. Tensors are replaced when they grow."""
        slots, capacity = self.keys[0].shape[0], self._capacity
        if length <= capacity and self._num_slots <= slots:
            return
        if length > capacity:
            capacity = -(-max(length, capacity + capacity // 4) // _BLOCK) * _BLOCK
        if self._num_slots > slots:
            slots = min(self._max_slots, max(self._num_slots, slots + slots // 4, 8))
        for store in (self.keys, self.values):
            for layer, old in enumerate(store):
                store[layer] = self._grown(old, slots, capacity)
        self._capacity = capacity
        trim()  # what was outgrown; it happens a dozen times in the life of an engine

    @torch.inference_mode()  # as the passes that made the tensors
    def copy(self, source: int, target: int, length: int) -> None:
        """The first ``length`` tokens of a taken slot into another."""
        self.reserve(length)
        for store in (self.keys, self.values):
            for layer in store:
                layer[target, :, :length] = layer[source, :, :length]

    def free(self) -> None:
        """Let all memory go; contents are lost."""
        for store in (self.keys, self.values):
            store[:] = [old[:0, :, :0].clone() for old in store]
        self._capacity = 0

    def _grown(self, old: Tensor, slots: int, capacity: int) -> Tensor:
        # Zeros, not empty: unwritten positions are masked, yet must be finite for the mask to hold.
        new = torch.zeros((slots, old.shape[1], capacity, old.shape[3]), **self._new)  # type: ignore[call-overload]
        new[: old.shape[0], :, : old.shape[2]] = old
        return new  # type: ignore[no-any-return]


@dataclass(eq=False)
class Prefix:
    """Keys and values that several sessions begin with."""

    tokens: tuple[int, ...]
    slot: int
    done: int = 0
    """Tokens computed so far."""
    num_users: int = 0
    kv_step: int | None = None
    """Oldest weights step it holds; None while nothing is computed."""
    routes: list[bytes] = field(default_factory=list)
    """Experts of each computed token; empty for dense models."""
    forgotten: bool = False
    """Whether new sessions may not take it any more (the weights changed)."""


class PrefixPool:
    """Shared prefixes by their tokens; of unused ones a few are kept, the least recently used are dropped.

    Args:
        slots: storage of the prefixes, apart from that of the tails.
    """

    def __init__(self, slots: KvSlots) -> None:
        self.slots = slots
        self._known: OrderedDict[tuple[int, ...], Prefix] = OrderedDict()

    def acquire(self, tokens: tuple[int, ...]) -> tuple[Prefix | None, bool]:
        """The entry of these tokens and whether it was there already; None when every slot is in use."""
        if tokens in self._known:
            self._known.move_to_end(tokens)
            self._known[tokens].num_users += 1
            return self._known[tokens], True
        if sum(known.num_users == 0 for known in self._known.values()) >= _MOST_IDLE:
            self._drop_oldest()
        slot = self.slots.take()
        if slot is None:
            self._drop_oldest()
            slot = self.slots.take()
        if slot is None:
            return None, False
        self._known[tokens] = Prefix(tokens=tokens, slot=slot, num_users=1)
        return self._known[tokens], False

    def kin(self, prefix: Prefix) -> tuple[Prefix | None, int]:
        """The other known entry that has most tokens in common with this one, and how many; None if that is few."""
        others = [(common_length(other.tokens, prefix.tokens), other) for other in self._known.values()]
        length, found = max(
            ((length, other) for length, other in others if other is not prefix),
            key=lambda row: (row[0], row[1].done),
            default=(0, prefix),
        )
        return (found, length) if length >= LEAST_COPIED else (None, 0)

    def begin_with(self, prefix: Prefix, kin: Prefix, length: int) -> None:
        """Take over what is computed of another entry; nothing may be computed of this one yet."""
        self.slots.copy(kin.slot, prefix.slot, length)
        prefix.done = length
        prefix.kv_step = kin.kv_step
        prefix.routes[:] = kin.routes[:length]

    def release(self, prefix: Prefix) -> None:
        """One user less."""
        prefix.num_users -= 1
        if prefix.forgotten and prefix.num_users == 0:
            self.slots.give(prefix.slot)

    def forget(self) -> None:
        """The weights changed: sessions that begin from now on compute their prefix anew."""
        for prefix in self._known.values():
            prefix.forgotten = True
            if prefix.num_users == 0:
                self.slots.give(prefix.slot)
        self._known.clear()

    def _drop_oldest(self) -> None:
        for tokens, prefix in self._known.items():
            if prefix.num_users == 0:
                del self._known[tokens]
                self.slots.give(prefix.slot)
                return


@dataclass(eq=False)
class Session:
    """What is cached of one session."""

    name: str
    slot: int
    prefix: Prefix | None = None
    tail: list[int] = field(default_factory=list)
    """Tokens after the prefix whose keys and values lie in the slot."""
    routes: list[bytes] = field(default_factory=list)
    """Experts of each token of the tail; empty for dense models."""
    kv_step: int | None = None
    """Oldest weights step under the tail; None while it is empty."""
    active: bool = False
    """Whether a request of it is running."""

    @property
    def prefix_length(self) -> int:
        """Tokens of the prefix, computed or not."""
        return 0 if self.prefix is None else len(self.prefix.tokens)

    def oldest_step(self) -> int | None:
        """Oldest weights step under anything cached; None while nothing is."""
        steps = [self.kv_step, None if self.prefix is None else self.prefix.kv_step]
        return min((step for step in steps if step is not None), default=None)

    def keep(self, tokens: list[int]) -> bool:
        """Cut the cache back to what it shares with ``tokens``; False if even the prefix differs."""
        if self.prefix is not None and tuple(tokens[: self.prefix_length]) != self.prefix.tokens:
            return False
        del self.tail[common_length(self.tail, tokens[self.prefix_length :]) :]
        del self.routes[len(self.tail) :]
        if not self.tail:
            self.kv_step = None
        return True

    def all_routes(self) -> tuple[bytes, ...]:
        """Experts of everything cached, the prefix first."""
        return (*(self.prefix.routes if self.prefix else ()), *self.routes)


def common_length(left: Sequence[int], right: Sequence[int]) -> int:
    """Length of the longest common beginning; both of one type."""
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
