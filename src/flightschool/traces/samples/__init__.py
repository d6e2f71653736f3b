"""One small file of each format that can be imported: what it looks like, and something to try an import on."""

from __future__ import annotations

from importlib.resources import files

from flightschool.traces.importing import IMPORT_FORMATS, check_format

__all__ = ["sample_trace"]


def sample_trace(format: str) -> bytes:  # noqa: A002  the word that users type
    """A file of a format, with one episode in it.

    Raises:
        InputError: there is no such format.
    """
    check_format(format, IMPORT_FORMATS)
    folder = files("flightschool.traces.samples")
    return next(file for file in folder.iterdir() if file.name.rpartition(".")[0] == format).read_bytes()
