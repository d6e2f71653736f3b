"""The trainer of any causal language model that transformers loads: exact and simple rather than fast.

Every root-leaf path of a member goes through the model as a plain sequence of its own (``packing.pack_paths``,
``engines.plain_pass``), so what members share is computed for each of them; a token of a shared span is trained in one
path only. Losses, weights and what is published are those of every trainer (``trainer_base``).
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from flightschool.engines.grammar import GrammarBook
from flightschool.engines.hf_folders import HfModel, load_hf_model, save_hf_model
from flightschool.engines.plain_pass import PlainPass, checkpoint_layers, trained_parameters
from flightschool.training.head import PackTensors, score_all
from flightschool.training.lora import foreign_targets, originals
from flightschool.training.messages import TrainGroup
from flightschool.training.packing import Pack, pack_paths
from flightschool.training.settings import TrainingSettings
from flightschool.training.stem_attention import Stem
from flightschool.training.trainer_base import TrainerBase
from flightschool.training.weights import Weights, make_weights

__all__ = ["GenericTrainer", "foreign_weights"]


class GenericTrainer(TrainerBase):
    """See ``TrainerBase``.

    Args:
        spec: where everything is.

    Raises:
        InputError: transformers is not installed.
        ModelFolderError: the model cannot be loaded.
    """

    def _load(self) -> GrammarBook:
        self._loaded = self._loaded_anew()
        self.model = self._loaded.model
        if self.settings.gradient_checkpointing:
            checkpoint_layers(self.model)
        self._pass = PlainPass(self.model)
        return GrammarBook(self._loaded.tokenizer, self._loaded.vocab)

    def _loaded_anew(self) -> HfModel:
        return load_hf_model(self._spec.model, device=self._device, dtype=self._dtype)

    def _make_weights(self) -> Weights:
        return foreign_weights(self._loaded, self.settings)

    def _load_reference(self) -> None:
        self._reference = PlainPass(self._loaded_anew().model)

    def _packed(self, *groups: TrainGroup) -> tuple[tuple[int, ...], list[Pack]]:
        return (), pack_paths(groups, newest_step=self.step_number, max_tokens=self.settings.max_pack_tokens)

    def _hidden(self, pack: Pack, stem: Stem | None) -> Tensor:
        assert stem is None
        return self._through(self._pass, pack)

    def _logits(self, hidden_MD: Tensor) -> Tensor:
        return self._pass.logits(hidden_MD)

    @torch.no_grad()
    def _reference_logprobs(self, pack: Pack, stem: Stem | None, targets: PackTensors) -> Tensor:
        assert stem is None
        return score_all(self._reference.logits, self._through(self._reference, pack), targets)

    def _through(self, plain: PlainPass, pack: Pack) -> Tensor:
        tokens_N = torch.tensor(pack.tokens_N, dtype=torch.long, device=self._device)
        paths = (tokens_N[segment.start : segment.start + segment.length] for segment in pack.segments)
        return torch.cat([plain.hidden(tokens_T) for tokens_T in paths])

    def export(self, directory: Path) -> str:
        """See ``TrainerBase``."""
        return save_hf_model(self._loaded, directory)


def foreign_weights(loaded: HfModel, settings: TrainingSettings) -> Weights:
    """``make_weights`` of a model of transformers; its weights must still be those of its folder."""
    model = loaded.model
    names = trained_parameters(model, settings.trained_layers)
    targets = foreign_targets(model, names, model.get_output_embeddings()) if settings.lora_rank else {}
    return make_weights(model, names, settings, lambda: (targets, originals(targets).__getitem__))
