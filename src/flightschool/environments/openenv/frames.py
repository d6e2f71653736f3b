"""WebSocket frames (RFC 6455), without any input or output of their own.

Both sides of the OpenEnv protocol need them: the client here and the server in ``serving``. Bytes that arrived go in,
messages and control frames come out; what is to be sent is made by functions. No extension is offered or accepted, so
nothing is ever compressed. Text stays bytes: JSON readers check its encoding anyway.
"""

from __future__ import annotations

import base64
import hashlib
import os
import struct
from enum import IntEnum
from typing import NamedTuple

__all__ = [
    "MOST_MESSAGE_BYTES",
    "Close",
    "Frame",
    "FrameError",
    "FrameReader",
    "Opcode",
    "accept_key",
    "close_frame",
    "frame",
    "new_key",
]

MOST_MESSAGE_BYTES = 100 << 20
"""Longest message; what clients of OpenEnv allow as well."""

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_MOST_CONTROL_BYTES = 125
_SHORT, _MEDIUM = 126, 127
_FIN, _MASKED = 0x80, 0x80


class Opcode(IntEnum):
    """What a frame is."""

    CONTINUATION = 0x0
    TEXT = 0x1
    BINARY = 0x2
    CLOSE = 0x8
    PING = 0x9
    PONG = 0xA


class Close(IntEnum):
    """Why a connection is closed."""

    NORMAL = 1000
    GOING_AWAY = 1001
    PROTOCOL_ERROR = 1002
    POLICY = 1008
    TOO_BIG = 1009
    INTERNAL_ERROR = 1011


class Frame(NamedTuple):
    """A whole message, or a control frame."""

    opcode: Opcode
    data: bytes

    @property
    def close_code(self) -> int:
        """Code of a close frame; 1005 if it names none."""
        return int.from_bytes(self.data[:2], "big") if len(self.data) >= 2 else 1005


class FrameError(Exception):
    """The other side broke the protocol; the connection ends with ``code``."""

    def __init__(self, code: Close, what: str) -> None:
        super().__init__(what)
        self.code = code


class FrameReader:
    """Makes messages of arriving bytes: one a connection.

    Args:
        masked: whether the other side must mask its frames: True where this side is the server.
        most_bytes: longest message.
    """

    def __init__(self, *, masked: bool, most_bytes: int = MOST_MESSAGE_BYTES) -> None:
        self._masked = masked
        self._most_bytes = most_bytes
        self._buffer = bytearray()
        self._parts: list[bytes] = []
        self._size = 0
        self._opcode = Opcode.CONTINUATION

    def feed(self, data: bytes) -> list[Frame]:
        """Everything that is whole now.

        Raises:
            FrameError: a frame that RFC 6455 forbids, or a message that is too long.
        """
        self._buffer += data
        found: list[Frame] = []
        while (taken := self._take()) is not None:
            whole = self._assemble(*taken)
            if whole is not None:
                found.append(whole)
        return found

    @property
    def is_idle(self) -> bool:
        """Whether no part of a further frame or message has arrived."""
        return not self._buffer and not self._parts

    def _take(self) -> tuple[bool, Opcode, bytes] | None:
        """The next frame (last of its message, opcode, payload), or None until more arrives."""
        buffer = self._buffer
        if len(buffer) < 2:
            return None
        first, second = buffer[0], buffer[1]
        masked, length, start = second & _MASKED, second & 0x7F, 2
        if length == _SHORT:
            if len(buffer) < 4:
                return None
            length, start = int.from_bytes(buffer[2:4], "big"), 4
        elif length == _MEDIUM:
            if len(buffer) < 10:
                return None
            length, start = int.from_bytes(buffer[2:10], "big"), 10
        opcode = self._check(first, bool(masked), length)
        end = start + length + (4 if masked else 0)
        if len(buffer) < end:
            return None
        if masked:
            payload = _unmask(bytes(buffer[start + 4 : end]), bytes(buffer[start : start + 4]))
        else:
            payload = bytes(buffer[start:end])
        del buffer[:end]
        return bool(first & _FIN), opcode, payload

    def _check(self, first: int, masked: bool, length: int) -> Opcode:
        if first & 0x70:
            raise FrameError(Close.PROTOCOL_ERROR, "reserved bits are set: no extension was agreed")
        if masked is not self._masked:
            raise FrameError(Close.PROTOCOL_ERROR, "clients mask their frames, servers do not")
        try:
            opcode = Opcode(first & 0x0F)
        except ValueError:
            raise FrameError(Close.PROTOCOL_ERROR, f"unknown opcode {first & 0x0F}") from None
        if opcode >= Opcode.CLOSE and (length > _MOST_CONTROL_BYTES or not first & _FIN):
            raise FrameError(Close.PROTOCOL_ERROR, "a control frame that is long or fragmented")
        if length + self._size > self._most_bytes:
            raise FrameError(Close.TOO_BIG, f"a message of more than {self._most_bytes} bytes")
        return opcode

    def _assemble(self, last: bool, opcode: Opcode, payload: bytes) -> Frame | None:
        if opcode >= Opcode.CLOSE:
            return Frame(opcode, payload)
        going = bool(self._parts) or self._opcode is not Opcode.CONTINUATION
        if (opcode is Opcode.CONTINUATION) is not going:
            raise FrameError(Close.PROTOCOL_ERROR, "a fragment that continues nothing, or a message within a message")
        if not going:
            if last:
                return Frame(opcode, payload)
            self._opcode = opcode
        self._parts.append(payload)
        self._size += len(payload)
        if not last:
            return None
        whole = Frame(self._opcode, b"".join(self._parts))
        self._parts, self._size, self._opcode = [], 0, Opcode.CONTINUATION
        return whole


def frame(opcode: Opcode, payload: bytes, *, masked: bool = False) -> bytes:
    """The bytes of one whole frame; ``masked`` where this side is the client."""
    length, bit = len(payload), _MASKED if masked else 0
    if length < _SHORT:
        head = bytes((_FIN | opcode, bit | length))
    elif length < 1 << 16:
        head = struct.pack("!BBH", _FIN | opcode, bit | _SHORT, length)
    else:
        head = struct.pack("!BBQ", _FIN | opcode, bit | _MEDIUM, length)
    if not masked:
        return head + payload
    mask = os.urandom(4)
    return head + mask + _unmask(payload, mask)


def close_frame(code: int, reason: str = "", *, masked: bool = False) -> bytes:
    """The bytes of a close frame; the reason is cut to what fits."""
    words = reason.encode()[: _MOST_CONTROL_BYTES - 2].decode(errors="ignore").encode()
    return frame(Opcode.CLOSE, struct.pack("!H", code) + words, masked=masked)


def new_key() -> str:
    """A random ``Sec-WebSocket-Key``."""
    return base64.b64encode(os.urandom(16)).decode()


def accept_key(key: str) -> str:
    """The ``Sec-WebSocket-Accept`` that answers a key."""
    return base64.b64encode(hashlib.sha1(key.encode() + _GUID).digest()).decode()


def _unmask(payload: bytes, mask: bytes) -> bytes:
    """Payload XOR the repeated mask, as one operation on long integers."""
    size = len(payload)
    if not size:
        return b""
    repeated = (mask * (size // 4 + 1))[:size]
    return (int.from_bytes(payload, "little") ^ int.from_bytes(repeated, "little")).to_bytes(size, "little")
