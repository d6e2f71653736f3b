"""The trainer of our own transformer. It does not know which algorithm runs; what all trainers do is ``trainer_base``.

Members share what they have in common: packs are forests of prefixes (``packing``), and what all packs of a step begin
with is computed once (``stem``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from flightschool.engines import Attention, Transformer
from flightschool.engines.experts import ReplayedRouting
from flightschool.engines.folders import LoadedModel, load_model, read_state, save_model
from flightschool.engines.grammar import GrammarBook
from flightschool.engines.products import accumulate_in_place
from flightschool.rollouts.routes import routes_of
from flightschool.training.folders import BlobFolder, RunFolder
from flightschool.training.head import PackTensors, score_all
from flightschool.training.lora import targets_of
from flightschool.training.messages import TrainerSpec, TrainGroup
from flightschool.training.packing import Pack, pack_groups
from flightschool.training.settings import TrainingSettings
from flightschool.training.shared_prefix import SharedPrefixAttention
from flightschool.training.stem import pack_over_stem
from flightschool.training.stem_attention import Stem
from flightschool.training.trainer_base import WEIGHTS_FILE, TrainerBase, warmed_up, write_checkpoint
from flightschool.training.weights import PlainWeights, Weights, make_weights

__all__ = ["WEIGHTS_FILE", "TorchTrainer", "own_weights", "trained_names", "warmed_up", "write_checkpoint"]


class TorchTrainer(TrainerBase):
    """See ``TrainerBase``.

    Args:
        spec: where everything is.

    Raises:
        ModelFolderError: the model cannot be loaded.
    """

    _in_place = True
    """Whether the backward pass may add to gradients itself (see ``engines.products``)."""
    _may_stem = True
    """Whether what all packs begin with may be a pass of its own."""
    model: Transformer
    _reference: Transformer

    def __init__(self, spec: TrainerSpec) -> None:
        super().__init__(spec)
        if self._in_place and isinstance(self._weights, PlainWeights):
            accumulate_in_place(self.model)
        read = lru_cache(maxsize=2)(BlobFolder(RunFolder(self._run_dir).routing).get)  # an attempt's spans share one
        replays = self._loaded.config.num_experts > 0 and self.settings.routing_replay
        self._routes = (lambda reference: routes_of(reference, read)) if replays else None

    def _load(self) -> GrammarBook:
        self._loaded: LoadedModel = load_model(self._spec.model, device=self._device, dtype=self._dtype)
        self.model = self._prepared(self._loaded.model)
        self.model.checkpointing = self.settings.gradient_checkpointing
        return GrammarBook(self._loaded.tokenizer, self._loaded.config.vocab)

    def _prepared(self, model: Transformer) -> Transformer:
        return model

    def _make_weights(self) -> Weights:
        trained = trained_names(self._parameters, self._loaded.config.num_layers, self.settings.trained_layers)
        return own_weights(self.model, trained, self.settings, Path(self._spec.model))

    def _load_reference(self) -> None:
        loaded = load_model(self._spec.model, device=self._device, dtype=self._dtype)
        self._reference = loaded.model.requires_grad_(False)

    def _packed(self, *groups: TrainGroup) -> tuple[tuple[int, ...], list[Pack]]:
        """What all packs begin with, and the packs."""
        if not self._may_stem or self._routes is not None or self.model.checkpointing:
            return (), self._packs(*groups)
        return pack_over_stem(groups, newest_step=self.step_number, max_tokens=self.settings.max_pack_tokens)

    def _stems(self, tokens: Sequence[int]) -> tuple[Stem | None, Stem | None]:
        """The stem through the model, and through the one that the run began with where the loss asks for it."""
        if not tokens:
            return None, None
        reference = Stem(self._reference, tokens, self._device) if self._has_reference else None
        return Stem(self.model, tokens, self._device), reference

    def _packs(self, *groups: TrainGroup) -> list[Pack]:
        return pack_groups(
            groups, newest_step=self.step_number, max_tokens=self.settings.max_pack_tokens, routes=self._routes
        )

    def _hidden(self, pack: Pack, stem: Stem | None) -> Tensor:
        tokens_N, positions_N = self._tensors(pack)
        routing = None
        if self._routes is not None:
            routing = ReplayedRouting(pack.routes_N, self._loaded.config, self._device)
            self._num_replayed += routing.num_replayed
        attention = SharedPrefixAttention(pack, self._device, stem)
        hidden_ND: Tensor = self.model(tokens_N, positions_N, attention, routing)
        return hidden_ND

    def _logits(self, hidden_MD: Tensor) -> Tensor:
        return self.model.logits(hidden_MD)

    @torch.no_grad()
    def _reference_logprobs(self, pack: Pack, stem: Stem | None, targets: PackTensors) -> Tensor:
        tokens_N, positions_N = self._tensors(pack)
        attention: Attention = SharedPrefixAttention(pack, self._device, stem)
        return score_all(self._reference.logits, self._reference(tokens_N, positions_N, attention), targets)

    def _tensors(self, pack: Pack) -> tuple[Tensor, Tensor]:
        """Token ids and positions, ``[N]`` each."""
        tokens_N, positions_N = (
            torch.tensor(row, dtype=torch.long, device=self._device) for row in (pack.tokens_N, pack.positions_N)
        )
        return tokens_N, positions_N

    def export(self, directory: Path) -> str:
        """See ``TrainerBase``."""
        return save_model(self._loaded, directory)


def own_weights(model: Transformer, trained: Sequence[str], settings: TrainingSettings, folder: Path) -> Weights:
    """``make_weights`` of our own transformer, loaded from ``folder``."""
    return make_weights(model, trained, settings, lambda: (targets_of(model, trained), read_state(folder).__getitem__))


def trained_names(names: Iterable[str], num_layers: int, trained_layers: int | None) -> list[str]:
    """Parameters that are trained, in order: all, or those of the topmost layers and of the final norm.

    Args:
        names: all parameters, as Hugging Face names them.
        num_layers: layers of the model.
        trained_layers: how many of them are trained; None or more than there are: everything.
    """
    names = [name for name in names if not name.endswith("e_score_correction_bias")]  # balances load, no gradient
    if trained_layers is None or trained_layers >= num_layers:
        return names
    first = num_layers - trained_layers
    layer = re.compile(r"^model\.layers\.(\d+)\.")
    matches = ((name, layer.match(name)) for name in names)
    return [
        name
        for name, match in matches
        if (match is not None and int(match.group(1)) >= first) or name.startswith("model.norm.")
    ]
