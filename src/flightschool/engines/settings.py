"""What a user may set about generation. Imports no torch."""

from __future__ import annotations

from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from flightschool.config import Settings
from flightschool.engines.devices import DEVICE_PATTERN

__all__ = ["EngineSettings", "is_address"]


def is_address(url: str | None) -> bool:
    """Whether a text is the base address of a server: no user, no query."""
    parts = urlsplit(url or "")
    return parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc and not parts.query


class EngineSettings(Settings):
    """``[engine]``: what samples completions."""

    kind: Literal["torch", "hf", "vllm", "sglang"] = "torch"
    """``torch``: our own engine, in this process (Llama, SmolLM2, Qwen2, Qwen3). ``hf``: any causal language model of
    transformers, in this process, slower. ``vllm``, ``sglang``: a server that runs already."""
    url: str | None = None
    """Base address of the server, for instance ``http://127.0.0.1:8000``."""
    served_model: str = ""
    """``vllm``: name under which the server serves the model; empty: the one that it names first."""
    key_env: str = ""
    """Environment variable that holds the server's key; empty: it wants none."""
    device: str | None = Field(default=None, pattern=DEVICE_PATTERN)
    """Where an engine in this process computes, for instance ``cuda:1``. None: where the trainer does (but see
    ``training.placing`` for publication by broadcast)."""
    timeout_s: float = Field(default=120.0, gt=0.0)
    """Seconds without a byte after which a server counts as gone."""
    publish_to: Path | None = None
    """Folder through which weights reach a server, which must see it under the same path; two copies of the model lie
    there. None: ``published`` in the run's folder."""
    keep_cache: bool = True
    """Whether running sequences keep keys and values of older weights when new ones arrive (and say so), or compute
    them anew."""
    constrain_calls: bool = False
    """Whether completions follow a grammar: prose, or calls of the tools shown with valid arguments. Needs llguidance,
    and an engine in this process."""

    packed_weights: bool = False
    """Whether the own engine keeps a second copy of float32 weights on a CPU, laid out for its kernel: passes are about
    a quarter faster, for the memory of the copy."""

    @property
    def is_served(self) -> bool:
        """Whether the engine runs elsewhere."""
        return self.kind in ("vllm", "sglang")

    @model_validator(mode="after")
    def _addressed(self) -> EngineSettings:
        if not self.is_served:
            if self.url is not None:
                raise ValueError(f"no url with kind {self.kind!r}: that engine runs in this process")
            return self
        if not is_address(self.url):
            raise ValueError(f"a url with kind {self.kind!r}: http://HOST:PORT, without user or query")
        if self.device is not None:
            raise ValueError(f"no device with kind {self.kind!r}: a server computes where it was started to")
        if self.constrain_calls:
            raise ValueError(f"constrain_calls false with kind {self.kind!r}: servers do not tell the kept mass")
        return self
