"""Token-exact generation: model folders, tokenizers, the catalogue of downloads, and the engine.

Importing this package imports no torch; names resolve when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flightschool.engines.architecture import RopeScaling, TransformerConfig
    from flightschool.engines.catalogue import get_model
    from flightschool.engines.folders import LoadedModel, load_model, save_model
    from flightschool.engines.hf_engine import HfEngine, load_hf_model
    from flightschool.engines.memory import give_back_memory
    from flightschool.engines.opening import OpenedEngine, open_engine
    from flightschool.engines.served import ServedEngine, SglangWire, VllmWire
    from flightschool.engines.settings import EngineSettings
    from flightschool.engines.tokenizer import ChatTokenizer
    from flightschool.engines.torch_engine import EngineMetrics, TorchEngine
    from flightschool.engines.transformer import Attention, CausalAttention, Transformer

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

_HOMES = {
    "Attention": "transformer",
    "CausalAttention": "transformer",
    "ChatTokenizer": "tokenizer",
    "EngineMetrics": "torch_engine",
    "EngineSettings": "settings",
    "HfEngine": "hf_engine",
    "LoadedModel": "folders",
    "OpenedEngine": "opening",
    "RopeScaling": "architecture",
    "ServedEngine": "served",
    "SglangWire": "served",
    "TorchEngine": "torch_engine",
    "Transformer": "transformer",
    "TransformerConfig": "architecture",
    "VllmWire": "served",
    "get_model": "catalogue",
    "give_back_memory": "memory",
    "load_hf_model": "hf_engine",
    "load_model": "folders",
    "open_engine": "opening",
    "save_model": "folders",
}


def __getattr__(name: str) -> object:
    """Import the module of a public name when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
