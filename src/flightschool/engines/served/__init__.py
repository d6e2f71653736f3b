"""Engines that run elsewhere and are spoken to over HTTP: vLLM and SGLang. Imports no torch."""

from flightschool.engines.served.client import ServedEngine
from flightschool.engines.served.export import FolderExporter
from flightschool.engines.served.sglang import SglangWire
from flightschool.engines.served.vllm import VllmWire
from flightschool.engines.served.wire import Ask, Delta, Wire

__all__ = ["Ask", "Delta", "FolderExporter", "ServedEngine", "SglangWire", "VllmWire", "Wire"]
