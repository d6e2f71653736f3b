"""A model folder as a scorer: one plain pass a sequence, logits of a few positions at a time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from flightschool.engines.folders import load_model
from flightschool.engines.opening import local_kind
from flightschool.engines.served.scores import LEAST_LOGPROB
from flightschool.engines.transformer import CausalAttention
from flightschool.errors import InputError

__all__ = ["FolderScorer"]

_ROWS = 256
"""Positions that go through the output head at once."""


class FolderScorer:
    """Implements ``scorer.Scorer`` in this process; passes run in a thread, one after the other.

    Args:
        folder: of the model: our own transformer where it knows the architecture, else transformers.
        device: where it computes.
        dtype: of its weights, as torch names it.
        num_threads: threads of a pass; left alone if not given.

    Raises:
        ModelFolderError: the folder cannot be loaded.
    """

    def __init__(
        self, folder: Path, *, device: str = "cpu", dtype: str = "float32", num_threads: int | None = None
    ) -> None:
        self.name = f"folder {folder}"
        self._device = torch.device(device)
        self._lock = threading.Lock()
        self._num_threads = num_threads
        load = _own if local_kind(folder) == "torch" else _generic
        self._hidden, self._head, self._vocab = load(folder, self._device, getattr(torch, dtype))

    async def logprobs(self, token_ids_T: tuple[int, ...], start: int) -> tuple[float, ...]:
        """See ``Scorer``."""
        if max(token_ids_T) >= self._vocab:
            raise InputError(
                f"token {max(token_ids_T)} is none of the teacher's {self._vocab}",
                where=self.name,
                expected="a teacher with a row for every token of the model that is trained",
                mend="take a teacher of the same family",
            )
        return await asyncio.to_thread(self._scored, token_ids_T, start)

    def _scored(self, token_ids_T: tuple[int, ...], start: int) -> tuple[float, ...]:
        tokens_N = torch.tensor(token_ids_T, dtype=torch.long, device=self._device)
        values: list[float] = []
        if self._num_threads is not None:
            torch.set_num_threads(self._num_threads)  # OpenMP counts for each thread that calls it, not for the process
        with self._lock, torch.inference_mode():
            hidden_ND = self._hidden(tokens_N)
            for first in range(start, len(token_ids_T), _ROWS):
                wanted_M = tokens_N[first : first + _ROWS]
                logits_MV = self._head(hidden_ND[first - 1 : first - 1 + len(wanted_M)]).float()
                log_MV = torch.log_softmax(logits_MV, dim=1)
                values += log_MV.gather(1, wanted_M[:, None])[:, 0].clamp(LEAST_LOGPROB, 0.0).tolist()
        return tuple(values)

    async def aclose(self) -> None:
        """See ``Scorer``; the weights go with the object."""


_Parts = tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor], int]
"""Tokens [N] → what the head reads; that → logits; rows of the output."""


def _own(folder: Path, device: torch.device, dtype: torch.dtype) -> _Parts:
    loaded = load_model(folder, device=device, dtype=dtype)
    model = loaded.model.requires_grad_(False)

    def hidden(tokens_N: Tensor) -> Tensor:
        positions_N = torch.arange(len(tokens_N), device=device)
        found: Tensor = model(tokens_N, positions_N, CausalAttention([len(tokens_N)]))
        return found

    return hidden, model.logits, loaded.config.vocab


def _generic(folder: Path, device: torch.device, dtype: torch.dtype) -> _Parts:
    from flightschool.engines.hf_folders import load_hf_model
    from flightschool.engines.plain_pass import PlainPass

    loaded = load_hf_model(folder, device=device, dtype=dtype)
    plain = PlainPass(loaded.model)
    return plain.hidden, plain.logits, loaded.vocab
