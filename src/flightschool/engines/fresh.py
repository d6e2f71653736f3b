"""Folders that appear whole or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["fresh_folder"]


@contextmanager
def fresh_folder(final: Path) -> Iterator[Path]:
    """An empty folder beside ``final`` that becomes ``final`` when the block ends well and vanishes when it does not.

    Replacing an existing folder takes two renames; killed between them, the old content stands in ``.NAME.old``.
    """
    final.parent.mkdir(parents=True, exist_ok=True)
    fresh = final.parent / f".{final.name}.{os.getpid()}.new"
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    try:
        yield fresh
        if final.exists():
            old = final.parent / f".{final.name}.old"
            shutil.rmtree(old, ignore_errors=True)
            final.rename(old)
            fresh.rename(final)
            shutil.rmtree(old)
        else:
            fresh.rename(final)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
