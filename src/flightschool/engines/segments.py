"""What one engine step computes: new tokens of sequences and of shared prefixes, end to end as flat rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Segment", "order_decoding", "rows_of"]


@dataclass(frozen=True)
class Segment:
    """Consecutive new tokens of one sequence, or of one shared prefix."""

    slot: int
    offset: int
    """Tokens already in the slot."""
    tokens: tuple[int, ...]
    prefix_slot: int = -1
    """Slot of the prefix in front; -1 if there is none."""
    prefix_length: int = 0

    @property
    def end(self) -> int:
        """Tokens in the slot after this step."""
        return self.offset + len(self.tokens)


def order_decoding(segment: Segment) -> tuple[int, int]:
    """Sort key: members of a group together, neighbouring slots in sequence."""
    return segment.prefix_slot, segment.slot


def rows_of(segments: Sequence[Segment], device: torch.device) -> tuple[Tensor, Tensor]:
    """Token id and position in its whole sequence of every row."""
    tokens = [token for segment in segments for token in segment.tokens]
    positions = [
        segment.prefix_length + position for segment in segments for position in range(segment.offset, segment.end)
    ]
    return torch.tensor(tokens, device=device), torch.tensor(positions, device=device)
