"""Giving freed memory back, so that another process can have it.

The allocator of the C library keeps freed blocks below its growing threshold (32 MB at most, which holds most weights
and caches of a small model) for the process that freed them, and torch keeps those of an accelerator. A process that
measured a model and then only samples would sit on them: 1.8 GB after the measurements of the quickstart.
"""

from __future__ import annotations

import ctypes
import gc
import sys

__all__ = ["give_back_memory", "keep_freed_memory", "trim"]

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Numbers of glibc's ``mallopt``."""
_MOST_KEPT, _LARGEST_KEPT = 2**31 - 1, 2**30
"""Bytes at the end of the heap that are kept, and of a block that comes from the heap at all."""
_keeping = False


def give_back_memory() -> None:
    """Return what is free to the system. Where an allocator offers no way to ask for it, nothing happens."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()
    trim()


def trim() -> None:
    """Return the holes between blocks in use: what grew, or was computed and dropped, leaves them behind.

    Nothing happens in a process that was told to keep them.
    """
    if not _keeping:
        _of_glibc("malloc_trim", 0)


def keep_freed_memory(*, always: bool) -> None:
    """Keep what is freed for the next pass: for a process that computes pass after pass.

    By itself the C library returns the end of its heap at each pass's end and fetches large blocks anew, page by page:
    two hundred thousand faults a pass of a thousand tokens, a twentieth of its time.

    Args:
        always: also when somebody trims; else until then. The process keeps to what it was told last.
    """
    global _keeping  # noqa: PLW0603 - the allocator is the process's, and so is what is done with it
    _keeping = always
    _of_glibc("mallopt", _TRIM_THRESHOLD, _MOST_KEPT)
    _of_glibc("mallopt", _MMAP_THRESHOLD, _LARGEST_KEPT)


def _of_glibc(name: str, *arguments: int) -> None:
    """Call what only glibc has; elsewhere nothing happens."""
    if sys.platform == "linux":
        function = getattr(ctypes.CDLL(None), name, None)
        if function is not None:
            function(*arguments)
