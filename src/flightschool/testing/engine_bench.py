"""The bench of ``engine_contract`` for models of ours: plain passes of the same weights beside the engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from flightschool.engines.folders import LoadedModel
from flightschool.engines.grammar import GrammarBook, unpack
from flightschool.engines.transformer import CausalAttention
from flightschool.protocols import TrainedEngine

__all__ = ["ModelBench"]


class ModelBench:
    """Implements ``engine_contract.EngineBench``.

    Args:
        engine: under test, on the weights of step 0.
        models: by step; other instances than the engine's own, which is written to.
        generated: tokens that the engine has sampled so far.
    """

    tolerance = 1e-5

    def __init__(self, engine: TrainedEngine, models: Mapping[int, LoadedModel], generated: Callable[[], int]) -> None:
        self.engine = engine
        self.generated = generated
        self.grammars = self.replays = True
        self.recomputes = False
        self.vocab = models[0].config.vocab
        self._models = {step: loaded.model for step, loaded in models.items()}
        self._book = GrammarBook(models[0].tokenizer, self.vocab)

    def state(self, step: int) -> Mapping[str, Tensor]:
        """See ``EngineBench``."""
        return dict(self._models[step].named_parameters())

    def score(self, step: int, context: Sequence[int], new: Sequence[int], temperature: float = 1.0) -> list[float]:
        """See ``EngineBench``."""
        tokens = torch.tensor([*context, *new])
        model = self._models[step]
        with torch.no_grad():
            hidden = model(tokens, torch.arange(len(tokens)), CausalAttention([len(tokens)]))
            logits = model.logits(hidden[len(context) - 1 : -1]).double() / temperature
        picked = logits.log_softmax(-1).gather(1, torch.tensor(new).unsqueeze(1))
        return [float(value) for value in picked.squeeze(1)]

    def allowed(self, grammar: str, new: Sequence[int]) -> list[list[int]]:
        """See ``EngineBench``."""
        walk = self._book.walk(grammar)
        found = []
        for token in new:
            mask = unpack(np.frombuffer(walk.packed(), dtype=np.uint8)[None], self.vocab)[0]
            found.append([int(place) for place in mask.nonzero().squeeze(1)])
            walk.advance(token)
        return found
