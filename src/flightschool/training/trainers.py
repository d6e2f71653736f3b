"""Which trainer trains a model folder: our own transformer's where it knows the architecture, else the generic one."""

from __future__ import annotations

from pathlib import Path

from flightschool.engines.opening import local_kind
from flightschool.training.messages import TrainerSpec
from flightschool.training.trainer_base import TrainerBase

__all__ = ["make_trainer"]


def make_trainer(spec: TrainerSpec) -> TrainerBase:
    """The trainer of one process. transformers is imported for models that need it, and only then.

    Raises:
        InputError: the model needs transformers, which is not installed.
        ModelFolderError: the model cannot be loaded.
    """
    if local_kind(Path(spec.model)) == "hf":
        from flightschool.training.generic import GenericTrainer

        return GenericTrainer(spec)
    from flightschool.training.trainer import TorchTrainer

    return TorchTrainer(spec)
