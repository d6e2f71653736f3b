"""Frames on a stream socket: two lengths, a JSON header, raw bytes. Both sides check lengths before believing them."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import Any, Final

__all__ = ["MOST_BODY_BYTES", "FrameReader", "pack"]

MOST_BODY_BYTES: Final = 64 << 20
_MOST_HEADER_BYTES: Final = 1 << 20
_LENGTHS: Final = struct.Struct("<II")

Header = dict[str, Any]


def pack(header: Header, body: bytes | memoryview = b"") -> bytes:
    """One frame.

    Raises:
        ValueError: the header or the body is too long.
    """
    head = json.dumps(header, separators=(",", ":")).encode("utf-8", "surrogatepass")
    if len(head) > _MOST_HEADER_BYTES or len(body) > MOST_BODY_BYTES:
        raise ValueError("frame too long")
    return b"".join((_LENGTHS.pack(len(head), len(body)), head, body))


class FrameReader:
    """Puts frames together from pieces as they arrive."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[Header, bytes]]:
        """Whole frames so far.

        Raises:
            ValueError: the peer sent what is no frame; the stream cannot be read on.
        """
        self._buffer += data
        while len(self._buffer) >= _LENGTHS.size:
            head, body = _LENGTHS.unpack_from(self._buffer)
            if head > _MOST_HEADER_BYTES or body > MOST_BODY_BYTES:
                raise ValueError("frame announces too many bytes")
            end = _LENGTHS.size + head + body
            if len(self._buffer) < end:
                return
            header = json.loads(bytes(self._buffer[_LENGTHS.size : _LENGTHS.size + head]))
            if not isinstance(header, dict):
                raise ValueError("frame header is no object")
            content = bytes(self._buffer[end - body : end])
            del self._buffer[:end]
            yield header, content
