"""Log-probabilities are made a chunk of logits at a time: memory does not grow with tokens times vocabulary."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from flightschool.training.algorithms import ALGORITHMS, LossShape
from flightschool.training.head import HEAD_CHUNK, PackTensors, head_losses, score_all

VOCABULARY, HIDDEN = 5000, 16


class WideTensors(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts bytes of living tensors that are as wide as the vocabulary, whoever keeps them."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.peak = 0
        self._alive: dict[StorageWeakRef, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # Any: torch's own
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else (out,):
            if isinstance(tensor, Tensor) and tensor.ndim == 2 and tensor.shape[1] == VOCABULARY:
                storage = tensor.untyped_storage()
                gone = [ref for ref in self._alive if ref.expired()]  # type: ignore[no-untyped-call]
                for ref in gone:
                    del self._alive[ref]
                self._alive[StorageWeakRef(storage)] = storage.nbytes()  # type: ignore[no-untyped-call]
                self.peak = max(self.peak, sum(self._alive.values()))
        return out


def targets(num: int) -> PackTensors:
    generator = torch.Generator().manual_seed(num)
    return PackTensors(
        torch.arange(num),
        torch.randint(0, VOCABULARY, (num,), generator=generator),
        torch.full((num,), -8.5),
        torch.randn(num, generator=generator),
        torch.ones(num),
        torch.zeros(num, dtype=torch.long),
        torch.ones(num, dtype=torch.bool),
    )


def peak(num: int, shape: LossShape) -> int:
    """Bytes of vocabulary-wide tensors alive at once, for ``num`` trained tokens."""
    generator = torch.Generator().manual_seed(0)
    head = (torch.randn(VOCABULARY, HIDDEN, generator=generator) * 0.1).requires_grad_(True)
    leaf = torch.randn(num, HIDDEN, generator=generator).requires_grad_(True)
    logits: Callable[[Tensor], Tensor] = lambda hidden: hidden @ head.T  # noqa: E731
    seen = WideTensors()
    with seen:
        head_losses(logits, leaf, targets(num), shape)
        score_all(logits, leaf.detach(), targets(num))
    return seen.peak


@pytest.mark.parametrize("algorithm", ["grpo", "gspo"])
def test_peak_memory_does_not_grow_with_the_tokens(algorithm: str) -> None:
    shape = ALGORITHMS[algorithm].shape
    few, many = peak(2 * HEAD_CHUNK, shape), peak(16 * HEAD_CHUNK, shape)
    assert many <= 1.05 * few
    assert many <= 6 * HEAD_CHUNK * VOCABULARY * 4
    assert many < 16 * HEAD_CHUNK * VOCABULARY * 4 / 2  # all logits together would take twice that, copies not counted
