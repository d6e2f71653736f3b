"""Supports of restricted completions: the trainer's policy is renormalised over the tokens that the engine drew from.

    log π_θ(a | S) = log π_θ(a) − log Σ_{s ∈ S} π_θ(s),      S: what the grammar allowed before a

which is a log-softmax over the allowed logits alone. Compared on S, the ratio of two policies says how much likelier
the token became among the tokens that could be drawn; without it every ratio is off by the kept mass Σ_S μ(s).

By hand: logits log 1, log 2, log 5 with the first two allowed. π = (.125, .25, .625), the kept mass is .375, and the
second token has probability .25 / .375 = 2/3.

Masks repeat (within a string nearly all tokens are allowed, again and again), so equal ones are kept once, as bits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from flightschool.engines.grammar import GrammarBook, unpack
from flightschool.errors import InputError, TokenContractError
from flightschool.training.packing import Pack, Restriction

__all__ = ["SupportMasks"]


@dataclass(frozen=True)
class SupportMasks:
    """Allowed tokens of the targets of one pack."""

    rows_M: list[int]
    """Row of each target; −1: the full support."""
    packed_UB: np.ndarray
    """Distinct masks, a bit a token."""
    vocab: int

    @classmethod
    def of(cls, pack: Pack, book: GrammarBook) -> SupportMasks | None:
        """Masks of a pack; None if every target has the full support.

        Raises:
            TokenContractError: a recorded token is not allowed by the grammar that it is said to be sampled under.
            InputError: llguidance is not installed.
        """
        if not any(target.restriction is not None for target in pack.targets):
            return None
        known: dict[bytes, int] = {}
        walked: dict[int, list[bytes]] = {}
        rows_M = []
        for target in pack.targets:
            row = -1
            if target.restriction is not None:
                restriction, place = target.restriction
                if id(restriction) not in walked:
                    walked[id(restriction)] = _walk(book, restriction)
                row = known.setdefault(walked[id(restriction)][place], len(known))
            rows_M.append(row)
        packed_UB = np.frombuffer(b"".join(known), dtype=np.uint8).reshape(len(known), -1)
        return cls(rows_M, packed_UB, book.vocab)

    def part(self, part: slice, device: torch.device) -> Tensor | None:
        """Allowed tokens of some targets, ``[m, V]`` bool; None if all of them have the full support."""
        rows_m = self.rows_M[part]
        if all(row < 0 for row in rows_m):
            return None
        allowed_mV = torch.ones((len(rows_m), self.vocab), dtype=torch.bool)
        restricted = [place for place, row in enumerate(rows_m) if row >= 0]
        allowed_mV[restricted] = unpack(self.packed_UB[[rows_m[place] for place in restricted]], self.vocab)
        return allowed_mV.to(device)


def _walk(book: GrammarBook, restriction: Restriction) -> list[bytes]:
    """The mask before each token of a completion."""
    walk = book.walk(restriction.grammar)
    masks = []
    for token in restriction.token_ids_T:
        try:
            masks.append(walk.packed())
            walk.advance(token)
        except InputError as error:
            raise TokenContractError(
                f"a restricted completion does not follow its grammar: {error.what}",
                where=restriction.where,
                expected="tokens that the grammar allows under the trainer's tokenizer",
                mend="whoever wrote this span must report what was sampled, unchanged",
            ) from error
    return masks
