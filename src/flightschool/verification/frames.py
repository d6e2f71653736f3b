"""Messages between a grader process and the one that asked: length-prefixed msgpack frames."""

from __future__ import annotations

import struct
from typing import BinaryIO, TypeVar

import msgspec

from flightschool.records import CheckSpec, Evidence, Record, Verdict

__all__ = ["MAX_FRAME", "GradeItem", "GradeReply", "read_frame", "write_frame"]

MAX_FRAME = 1 << 30
"""Longest frame in bytes; a longer one is a corrupt stream."""

_HEAD = struct.Struct(">I")
R = TypeVar("R", bound=msgspec.Struct)


class GradeItem(Record, frozen=True, kw_only=True):
    """One attempt to judge: what a verifier may see, and by which checks."""

    checks: tuple[CheckSpec, ...]
    evidence: Evidence


class GradeReply(Record, frozen=True, kw_only=True):
    """The verdict, or the error that prevented one."""

    verdict: Verdict | None = None
    error: dict[str, str] | None = None
    """An error as ``FlightschoolError.as_dict`` gives it."""


def write_frame(stream: BinaryIO, record: msgspec.Struct) -> None:
    """Write one record.

    Raises:
        OSError: the other side is gone.
        ValueError: the record is longer than a frame may be.
    """
    data = msgspec.msgpack.encode(record)
    if len(data) > MAX_FRAME:
        raise ValueError(f"a record of {len(data)} bytes is longer than a frame may be")
    stream.write(_HEAD.pack(len(data)))
    stream.write(data)
    stream.flush()


def read_frame(stream: BinaryIO, kind: type[R]) -> R | None:
    """Read one record; None at a clean end of the stream.

    Raises:
        EOFError: the stream ends inside a frame.
        ValueError: the bytes are no record of this kind.
    """
    head = stream.read(_HEAD.size)
    if not head:
        return None
    if len(head) < _HEAD.size:
        raise EOFError("the stream ends inside a frame")
    (length,) = _HEAD.unpack(head)
    if length > MAX_FRAME:
        raise ValueError(f"a frame of {length} bytes is longer than any record")
    data = stream.read(length)
    if len(data) < length:
        raise EOFError("the stream ends inside a frame")
    return msgspec.msgpack.decode(data, type=kind)
