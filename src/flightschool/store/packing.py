"""Records as compressed msgpack, written in pieces where they are long.

A record of a hundred thousand items is some 50 MB of msgpack for a moment, and as much again while it is built. Long
sequences are therefore encoded and compressed slice by slice: the bytes that are decompressed again are the same, and
what is held at a time is a slice and the compressed rest.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
import zstandard

__all__ = ["compress", "pack"]

SLICE: Final = 4_096
"""Items of a sequence that are encoded at a time; a record without a longer one is encoded whole."""

_encode = msgspec.msgpack.encode


def pack(record: msgspec.Struct) -> bytes:
    """A record as compressed msgpack: one map of its fields."""
    if not _is_long(record):
        return compress(_encode(record))
    size = sum(len(piece) for piece in _pieces(record))  # stands in the frame's head, so that readers need not guess
    packer = _compressor().compressobj(size=size)
    return b"".join([*(packer.compress(piece) for piece in _pieces(record)), packer.flush()])


def compress(data: bytes) -> bytes:
    """Bytes as one zstandard frame with a checksum."""
    return _compressor().compress(data)


def _compressor() -> zstandard.ZstdCompressor:
    # Compressors are not safe to share between threads and cheap to make.
    return zstandard.ZstdCompressor(level=3, write_checksum=True)


def _is_long(record: msgspec.Struct) -> bool:
    settings = record.__struct_config__
    if settings.array_like or settings.omit_defaults or settings.tag is not None:
        return False  # not a plain map of all fields
    return any(_is_long_sequence(getattr(record, name)) for name in record.__struct_fields__)


def _is_long_sequence(value: object) -> bool:
    return isinstance(value, (tuple, list)) and len(value) > SLICE


def _pieces(record: msgspec.Struct) -> Iterator[bytes]:
    """What ``msgspec.msgpack.encode`` gives, in pieces (https://github.com/msgpack/msgpack/blob/master/spec.md)."""
    fields = msgspec.structs.fields(record)
    yield _head(len(fields), 0x80, b"\xde", b"\xdf")
    for field in fields:
        yield _encode(field.encode_name)
        value = getattr(record, field.name)
        if _is_long_sequence(value):
            yield from _sequence(value)
        else:
            yield _encode(value)


def _sequence(values: Sequence[object]) -> Iterator[bytes]:
    yield _head(len(values), 0x90, b"\xdc", b"\xdd")
    for start in range(0, len(values), SLICE):
        yield b"".join([_encode(value) for value in values[start : start + SLICE]])


def _head(length: int, short: int, medium: bytes, long: bytes) -> bytes:
    """Begin of a map or an array of so many entries."""
    if length < 16:
        return bytes([short | length])
    return medium + struct.pack(">H", length) if length < 1 << 16 else long + struct.pack(">I", length)
