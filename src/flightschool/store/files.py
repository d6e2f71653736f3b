"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

__all__ = ["fresh_file", "write_whole"]


@contextmanager
def fresh_file(path: Path) -> Iterator[IO[bytes]]:
    """A file that takes the place of ``path`` at the end, for everybody to read; an error leaves what was there.

    Raises:
        OSError: the folder is not there or cannot be written.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        Path(name).chmod(0o644)  # a temporary file is its owner's alone
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def write_whole(path: Path, data: bytes) -> None:
    """Write a file at once (see ``fresh_file``). Raises ``OSError``."""
    with fresh_file(path) as file:
        file.write(data)
