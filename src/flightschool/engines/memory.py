"""Giving freed memory back, so that another process can have it.

The allocator of the C library keeps freed blocks below its growing threshold (32 MB at most, which holds most weights
and caches of a small model) for the process that freed them, and torch keeps those of an accelerator. A process that
measured a model and then only samples would sit on them: 1.8 GB after the measurements of the quickstart.
"""

from __future__ import annotations

import ctypes
import gc
import sys

__all__ = ["give_back_memory", "trim"]


def give_back_memory() -> None:
    """Return what is free to the system. Where an allocator offers no way to ask for it, nothing happens."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()
    trim()


def trim() -> None:
    """Return the holes between blocks in use: what grew, or was computed and dropped, leaves them behind."""
    if sys.platform == "linux":
        malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it, musl has not
        if malloc_trim is not None:
            malloc_trim(0)
