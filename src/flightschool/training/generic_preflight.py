"""What can be known to fail before anything is loaded, for models that only transformers knows.

Names and shapes come from the architecture without its weights; no weight is touched.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flightschool.engines.settings import EngineSettings
from flightschool.errors import ConfigError, ModelFolderError
from flightschool.training.settings import TrainingSettings

__all__ = ["ModelSizes", "generic_preflight"]


@dataclass(frozen=True)
class ModelSizes:
    """What of a model is held against settings and tokenizer."""

    vocab: int
    """Rows of the output."""
    hidden: int
    num_layers: int
    max_context: int
    ends: tuple[int, ...]
    """Ids that end a turn, as its configuration says."""


def generic_preflight(settings: TrainingSettings, model: Path, engine: EngineSettings, names: set[str]) -> ModelSizes:
    """Refuse what the generic trainer does not do; returns what is left to be checked as for every model.

    Args:
        settings: of the run.
        model: its folder.
        engine: what will sample.
        names: of the tensors in the folder's files.

    Raises:
        InputError: transformers is not installed.
        ModelFolderError: no causal language model that transformers knows.
        ConfigError: a setting asks for what only our own transformer does.
    """
    from flightschool.engines.hf_folders import context_of, sketch_hf_model

    sketch = sketch_hf_model(model)
    head, text = sketch.get_output_embeddings(), sketch.config.get_text_config()
    if head is None:
        raise ModelFolderError(
            "the model has no output head",
            where=str(model),
            expected="a causal language model",
            mend="name a folder whose architecture ends in ForCausalLM",
        )
    for key, value, wrong, expected, mend in _refusals(settings, engine, sketch, names):
        if wrong:
            raise ConfigError(
                f"{key} = {value} with {sketch.config.model_type!r}, which is trained by way of transformers",
                where=key,
                expected=expected,
                mend=mend,
            )
    return ModelSizes(
        int(head.weight.shape[0]),
        int(text.hidden_size),
        int(text.num_hidden_layers),
        context_of(sketch.config),
        _ends(text),
    )


def _refusals(
    settings: TrainingSettings, engine: EngineSettings, sketch: Any, names: set[str]
) -> list[tuple[str, object, bool, str, str]]:
    """(key, value, whether refused, expected, mend)."""
    from flightschool.engines.plain_pass import layers_of, num_experts, trained_parameters
    from flightschool.training.lora import foreign_targets

    trained = trained_parameters(sketch, settings.trained_layers)
    adapted = foreign_targets(sketch, trained, sketch.get_output_embeddings()) if settings.lora_rank else {"": None}
    own_names = {name for name, _ in sketch.named_parameters()}
    experts = num_experts(sketch.config.get_text_config())
    return [
        (
            "training.num_trainers",
            settings.num_trainers,
            settings.num_trainers > 1,
            "1: only our own transformer is sharded",
            "set training.num_trainers = 1",
        ),
        (
            "training.routing_replay",
            "true",
            experts > 0 and settings.routing_replay,
            "false for a mixture of experts: the generic engine does not record which experts it chose",
            "set training.routing_replay = false, and look at models check: engine and trainer must route alike",
        ),
        (
            "training.trained_layers",
            settings.trained_layers,
            settings.trained_layers is not None and layers_of(sketch) is None,
            "none: the layers of this architecture do not stand in one list",
            "leave training.trained_layers out",
        ),
        (
            "training.lora_rank",
            settings.lora_rank,
            not adapted,
            "0: no trained layer of this architecture is linear",
            "set training.lora_rank = 0, which trains the weights",
        ),
        (
            "training.gradient_checkpointing",
            "true",
            settings.gradient_checkpointing and not sketch.supports_gradient_checkpointing,
            "false: transformers cannot compute layers of this architecture again",
            "set training.gradient_checkpointing = false",
        ),
        (
            "engine.kind",
            repr(engine.kind),
            engine.is_served and not own_names <= names,
            "'hf': the files name their tensors otherwise than the model does, and a server reads them by their names",
            "set engine.kind = 'hf'",
        ),
    ]


def _ends(text: Any) -> tuple[int, ...]:
    named = getattr(text, "eos_token_id", None)
    return tuple(named) if isinstance(named, list) else () if named is None else (int(named),)
