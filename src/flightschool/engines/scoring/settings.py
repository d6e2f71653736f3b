"""What a user may set about a teacher. Imports no torch."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from flightschool.config import Settings
from flightschool.engines.settings import is_address

__all__ = ["TeacherSettings"]


class TeacherSettings(Settings):
    """``[teacher]``: the model whose word on sampled tokens trains (see ``training/algorithms/distill.py``)."""

    kind: Literal["folder", "vllm", "sglang"] = "folder"
    """``folder``: a model folder, computed in the process of the run, on the run's device. ``vllm``, ``sglang``: a
    server that runs already."""
    model: str = ""
    """``folder``: its path. ``vllm``: name under which the server serves the model; empty: the one that it names
    first."""
    url: str | None = None
    """Base address of the server."""
    key_env: str = ""
    """Environment variable that holds the server's key; empty: it wants none."""
    tokenizer: Path | None = None
    """Folder with the server's ``tokenizer.json``, for servers without ``/tokenize``; None: the server is asked."""
    timeout_s: float = Field(default=120.0, gt=0.0)
    """Seconds without a byte after which a server counts as gone."""
    concurrency: int = Field(default=8, ge=1)
    """Sequences that are scored at the same time; a folder scores one after the other."""

    @property
    def is_served(self) -> bool:
        """Whether the teacher runs elsewhere."""
        return self.kind != "folder"

    @model_validator(mode="after")
    def _found(self) -> TeacherSettings:
        if self.is_served and not is_address(self.url):
            raise ValueError(f"a url with kind {self.kind!r}: http://HOST:PORT, without user or query")
        if not self.is_served and not self.model:
            raise ValueError("a model with kind 'folder': the path of the teacher's folder")
        if not self.is_served and (self.url is not None or self.key_env or self.tokenizer is not None):
            raise ValueError("no url, key_env or tokenizer with kind 'folder': that teacher is computed here")
        return self
