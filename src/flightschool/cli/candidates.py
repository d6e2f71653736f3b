"""What a candidate is: a digest of its content, so that a look at the holdout names exactly what was measured."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from flightschool.cli.references import run_model
from flightschool.digest import digest

if TYPE_CHECKING:
    from flightschool.store import Workspace

__all__ = ["candidate_digest"]

_PIECE = 1 << 20


def candidate_digest(policy: str, space: Workspace) -> str:
    """Digest of the files behind a policy; of its words where there are none (an endpoint is known by its address).

    Raises:
        NotFoundError: ``run:`` names no run or step.
    """
    kind, _, rest = policy.partition(":")
    if kind == "run":
        return _folder_digest(run_model(rest, space))
    if kind in ("model", "constant", "script") and Path(rest).exists():
        return _folder_digest(Path(rest))
    return digest({"policy": policy})


def _folder_digest(path: Path) -> str:
    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    return digest({str(p.relative_to(path)) if path.is_dir() else p.name: _file_digest(p) for p in files})


def _file_digest(path: Path) -> str:
    hasher = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            hasher.update(piece)
    return hasher.hexdigest()
