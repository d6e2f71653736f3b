"""The engine that a configuration names, opened for a model folder."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from flightschool.engines.config_values import ConfigTable, ConfigValueError
from flightschool.engines.served import FolderExporter, ServedEngine, SglangWire, VllmWire, Wire
from flightschool.engines.served.wire import Http
from flightschool.engines.settings import EngineSettings
from flightschool.engines.tokenizer import ChatTokenizer
from flightschool.errors import ConfigError, InfrastructureError, InputError, ModelFolderError
from flightschool.protocols import TrainedEngine
from flightschool.records import WeightsVersion

if TYPE_CHECKING:
    from torch import nn

__all__ = [
    "OpenedEngine",
    "check_server",
    "local_kind",
    "longest_context",
    "model_sizes",
    "open_engine",
    "server_key",
]

_CHECK_S = 30.0
"""Seconds that a server has to say that it lives; before anything is loaded, so nobody waits longer."""


@dataclass(frozen=True)
class OpenedEngine:
    """An engine with the tokenizer of its model."""

    engine: TrainedEngine
    tokenizer: ChatTokenizer
    digest: str
    """Of the model folder."""
    model: nn.Module | None = None
    """What an engine in this process computes with; None: it runs elsewhere."""
    routed: bool = False
    """Whether the engine tells which experts saw each token."""
    renew: Callable[[WeightsVersion | None], TrainedEngine] | None = None
    """Makes another engine over the same module, after this one died, in which weights of the given version lie; None:
    only whoever runs the server can."""

    async def connect(self) -> None:
        """Raises unless the engine can be used: health, and what only a server can be wrong about."""
        if isinstance(self.engine, ServedEngine):
            await self.engine.connect()
        else:
            await self.engine.check_health()

    async def serve(self, name: str, folder: Path) -> None:
        """Have a server serve the folder, verified; an engine in this process does already."""
        if isinstance(self.engine, ServedEngine):
            await self.engine.connect()
            version = WeightsVersion(run=name, incarnation=0, step=0, digest=self.digest)
            await self.engine.load_folder(version, folder.resolve(), keep_cache=False)


def local_kind(folder: Path) -> Literal["torch", "hf"]:
    """Which engine in this process runs a folder: our own where it knows the architecture, else the generic one.

    Raises:
        ModelFolderError: the configuration cannot be read, or holds values that no engine could use.
    """
    from flightschool.engines.architecture import TransformerConfig

    table = _config(folder)
    try:
        TransformerConfig.from_hf(table, where=str(folder / "config.json"))
    except ConfigValueError:
        raise
    except ModelFolderError:
        return "hf"
    return "torch"


def longest_context(folder: Path) -> int:
    """Longest sequence of a folder's model, from its configuration alone.

    Raises:
        ModelFolderError: the configuration cannot be read.
    """
    from flightschool.engines.architecture import TransformerConfig

    table = _config(folder)
    try:
        return TransformerConfig.from_hf(table, where=str(folder / "config.json")).max_context
    except ModelFolderError:
        return model_sizes(folder)[1]


def open_engine(
    settings: EngineSettings,
    folder: Path,
    *,
    run: str = "",
    device: str = "cpu",
    dtype: str = "float32",
    max_context: int = 1024,
    max_prefixes: int = 32,
    num_threads: int | None = None,
    publish_to: Path | None = None,
) -> OpenedEngine:
    """Open an engine.

    Args:
        settings: which.
        folder: model folder.
        run: run that the first weights version is of.
        device: of engines in this process.
        dtype: of their weights and caches, as torch names it.
        max_context: longest sequence; never above the model's own.
        max_prefixes: most shared prompts that the own engine keeps.
        num_threads: threads of torch in this process; left alone if not given.
        publish_to: where weights for a server are written, if the settings name no folder.

    Raises:
        ModelFolderError: the folder cannot be used.
        ConfigError: the server's key is not in the environment.
    """
    if settings.is_served:
        return _open_served(settings, folder, run=run, max_context=max_context, publish_to=publish_to)
    if settings.kind == "hf":
        return _open_generic(folder, run, device, dtype, max_context, num_threads)
    import torch

    from flightschool.engines.folders import load_model
    from flightschool.engines.torch_engine import TorchEngine

    loaded = load_model(folder, device=device, dtype=getattr(torch, dtype))

    def make(version: WeightsVersion | None = None) -> TorchEngine:
        engine = TorchEngine(
            loaded,
            run=run,
            max_context=max_context,
            max_prefixes=max_prefixes,
            num_threads=num_threads,
            packed_weights=settings.packed_weights,
        )
        if version is not None:
            engine.update_weights(version, None)  # the module holds them already
        return engine

    routed = loaded.config.num_experts > 0
    return OpenedEngine(make(), loaded.tokenizer, loaded.digest, loaded.model, routed=routed, renew=make)


def _open_generic(
    folder: Path, run: str, device: str, dtype: str, max_context: int, num_threads: int | None
) -> OpenedEngine:
    import torch

    from flightschool.engines.hf_engine import HfEngine
    from flightschool.engines.hf_folders import load_hf_model

    loaded = load_hf_model(folder, device=device, dtype=getattr(torch, dtype))

    def make(version: WeightsVersion | None = None) -> HfEngine:
        return HfEngine(loaded, run=run, max_context=max_context, num_threads=num_threads, version=version)

    return OpenedEngine(make(), loaded.tokenizer, loaded.digest, loaded.model, renew=make)


def _open_served(
    settings: EngineSettings, folder: Path, *, run: str, max_context: int, publish_to: Path | None
) -> OpenedEngine:
    from flightschool.engines.folders import digest_folder

    wire = _wire(settings)
    vocab, longest = model_sizes(folder)
    target = settings.publish_to or publish_to
    digest = digest_folder(folder)
    engine = ServedEngine(
        wire,
        vocab=vocab,
        max_context=min(max_context, longest),
        run=run,
        digest=digest,
        exporter=None if target is None else FolderExporter(folder, target.resolve()),
        key=server_key(settings.key_env, "engine"),
        timeout_s=settings.timeout_s,
    )
    return OpenedEngine(engine, ChatTokenizer.from_folder(folder), digest)


def _wire(settings: EngineSettings) -> Wire:
    url = settings.url or ""
    return VllmWire(url, settings.served_model) if settings.kind == "vllm" else SglangWire(url)


def check_server(settings: EngineSettings) -> None:
    """Ask the server whether it lives, if the settings name one; nothing is loaded into it.

    Raises:
        ConfigError: none answers there, or it wants another key.
    """
    if not settings.is_served:
        return
    wire = _wire(settings)
    http = Http(wire.kind, wire.url, server_key(settings.key_env, "engine"), min(settings.timeout_s, _CHECK_S))

    async def ask() -> None:
        try:
            await wire.check_health(http)
        finally:
            await http.aclose()

    try:
        asyncio.run(ask())
    except (InfrastructureError, InputError) as error:
        raise ConfigError(
            f"no {settings.kind} server is ready there: {error.what}",
            where="engine.url",
            expected=f"a running server at {settings.url}",
            mend="start it first and wait until it is ready, or correct engine.url and engine.key_env",
        ) from error


def server_key(key_env: str, table: str) -> str:
    """The key in an environment variable; empty if none is named.

    Args:
        key_env: the variable.
        table: of the configuration, for the error.

    Raises:
        ConfigError: the variable is not set.
    """
    if not key_env:
        return ""
    key = os.environ.get(key_env, "").strip()
    if not key:
        raise ConfigError(
            f"no key in the environment variable {key_env}",
            where=f"{table}.key_env",
            expected="a key in the environment; keys are read from nowhere else",
            mend=f"export {key_env}=…, or leave key_env out if the server wants no key",
        )
    return key


def model_sizes(folder: Path) -> tuple[int, int]:
    """Rows of the model's output and its longest sequence, as its configuration says."""
    where, table = str(folder / "config.json"), _config(folder)
    text = ConfigTable(ConfigTable(table, where).inner("text_config") or table, where)
    older = text.size("n_positions", 2048)  # GPT-2's name of it
    return text.size("vocab_size"), text.size("max_position_embeddings", older)


def _config(folder: Path) -> dict[str, Any]:
    from flightschool.engines.weight_files import read_json

    return read_json(folder / "config.json")
