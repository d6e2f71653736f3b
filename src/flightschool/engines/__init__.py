"""Token-exact generation: model folders, tokenizers, the catalogue of downloads, and the engine.

Importing this package imports no torch; names resolve when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flightschool.lazy import on_first_use

if TYPE_CHECKING:
    from flightschool.engines.architecture import RopeScaling, TransformerConfig
    from flightschool.engines.catalogue import get_model
    from flightschool.engines.folders import LoadedModel, load_model, save_model
    from flightschool.engines.hf_engine import HfEngine
    from flightschool.engines.hf_folders import load_hf_model
    from flightschool.engines.memory import give_back_memory
    from flightschool.engines.opening import OpenedEngine, open_engine
    from flightschool.engines.served import ServedEngine, SglangWire, VllmWire
    from flightschool.engines.settings import EngineSettings
    from flightschool.engines.tokenizer import ChatTokenizer
    from flightschool.engines.torch_engine import EngineMetrics, TorchEngine
    from flightschool.engines.transformer import Attention, CausalAttention, Transformer
else:
    __getattr__ = on_first_use(__name__)

__all__ = [
    "Attention",
    "CausalAttention",
    "ChatTokenizer",
    "EngineMetrics",
    "EngineSettings",
    "HfEngine",
    "LoadedModel",
    "OpenedEngine",
    "RopeScaling",
    "ServedEngine",
    "SglangWire",
    "TorchEngine",
    "Transformer",
    "TransformerConfig",
    "VllmWire",
    "get_model",
    "give_back_memory",
    "load_hf_model",
    "load_model",
    "open_engine",
    "save_model",
]
