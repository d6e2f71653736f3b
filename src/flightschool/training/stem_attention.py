"""A stem (see ``stem``) through the model: keys and values that packs see, and the gradients that come back for it.

Shape letters as in ``engines.transformer``; ``S`` tokens of the stem.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from flightschool.engines import CausalAttention, Transformer

__all__ = ["Stem"]


class Stem:
    """Computed forward when it is made, and backward once all packs have been.

    Args:
        model: whose keys and values.
        tokens: of the stem.
        device: where the model is.
    """

    def __init__(self, model: Transformer, tokens: Sequence[int], device: torch.device) -> None:
        keeping = _Keeping(len(tokens))
        tokens_S = torch.tensor(tokens, dtype=torch.long, device=device)
        model(tokens_S, torch.arange(len(tokens), device=device), keeping)
        self._made = keeping.made
        self._leaves = [
            (k.detach().requires_grad_(k.requires_grad), v.detach().requires_grad_(v.requires_grad))
            for k, v in keeping.made
        ]
        self.length = len(tokens)

    def before(self, layer: int, k_NKF: Tensor, v_NKF: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of a pack with the stem's in front: ``[S + N, K, F]``."""
        k_SKF, v_SKF = self._leaves[layer]
        return torch.cat((k_SKF, k_NKF)), torch.cat((v_SKF, v_NKF))

    def backward(self) -> None:
        """Take what the packs have left in keys and values through the model."""
        pairs = [
            (made, leaf.grad)
            for layer, leaves in zip(self._made, self._leaves, strict=True)
            for made, leaf in zip(layer, leaves, strict=True)
            if leaf.grad is not None
        ]
        if pairs:
            torch.autograd.backward([made for made, _ in pairs], [grad for _, grad in pairs])


class _Keeping:
    """Attends causally and keeps each layer's keys and values."""

    def __init__(self, length: int) -> None:
        self._causal = CausalAttention([length])
        self.made: list[tuple[Tensor, Tensor]] = []

    def __call__(self, layer: int, q_NHF: Tensor, k_NKF: Tensor, v_NKF: Tensor) -> Tensor:
        self.made.append((k_NKF, v_NKF))
        return self._causal(layer, q_NHF, k_NKF, v_NKF)
