"""Wrapped copies: base64, hexadecimal, compressed, reversed and rotated text, a few layers deep, in bounded room."""

from __future__ import annotations

import base64
import binascii
import bz2
import codecs
import lzma
import re
import zlib
from collections.abc import Iterator
from typing import Final

__all__ = ["unwrapped"]

MOST_OUT: Final = 1 << 20
MOST_RUNS: Final = 40
MOST_DEPTH: Final = 3
ROTATED: Final = 64 << 10
_BASE64: Final = re.compile(rb"[A-Za-z0-9+/_-]{12,}={0,2}")
_HEX: Final = re.compile(rb"(?:[0-9A-Fa-f]{2}){6,}|(?:\\x[0-9A-Fa-f]{2}){4,}")
_LINES: Final = re.compile(rb"(?:[A-Za-z0-9+/]{60,80}\r?\n){2,}[A-Za-z0-9+/=]*")


def unwrapped(data: bytes, depth: int = 0) -> Iterator[tuple[str, bytes]]:
    """(encoding, content): the data itself with an empty encoding first, then what can be unwrapped of it.

    Text that is the same the other way round, or has no letters to rotate, is not wrapped.
    """
    yield "", data
    if depth >= MOST_DEPTH:
        return
    for encoding, content in _layers(data):
        if content and content != data:
            for inner, text in unwrapped(content, depth + 1):
                yield (f"{encoding} {inner}".strip(), text)
    if depth == 0 and len(data) <= ROTATED and b"\0" not in data:
        words = data.decode(errors="replace").strip()
        for encoding, other in (("rot13", codecs.encode(words, "rot13")), ("reversed", words[::-1])):
            if other != words:
                yield encoding, other.encode(errors="replace")


def _layers(data: bytes) -> Iterator[tuple[str, bytes]]:
    if data[:2] == b"\x1f\x8b":
        yield "gzip", _inflate(data, 31)
    elif data[:1] == b"\x78" and len(data) > 2 and (data[0] * 256 + data[1]) % 31 == 0:
        yield "zlib", _inflate(data, 15)
    elif data[:3] == b"BZh":
        yield "bzip2", _bunzip(data)
    elif data[:6] == b"\xfd7zXZ\x00":
        yield "xz", _unxz(data)
    if len(data) > MOST_OUT or (b"\0" in data[:256] and data[:2] != b"\x1f\x8b"):
        return
    joined = [b"".join(match.group().split()) for match in _some(_LINES, data)]
    for run in [*joined, *(match.group() for match in _some(_BASE64, data))]:
        yield "base64", _from_base64(run)
    for match in _some(_HEX, data):
        try:
            yield "hex", bytes.fromhex(match.group().replace(b"\\x", b"").decode())
        except ValueError:
            continue


def _some(pattern: re.Pattern[bytes], data: bytes) -> list[re.Match[bytes]]:
    found = []
    for match in pattern.finditer(data):
        found.append(match)
        if len(found) >= MOST_RUNS:
            break
    return found


def _from_base64(run: bytes) -> bytes:
    run = run.rstrip(b"=").replace(b"-", b"+").replace(b"_", b"/")
    run = run[: len(run) - (len(run) % 4 == 1)]
    try:
        decoded = base64.b64decode(run + b"=" * (-len(run) % 4))
    except (binascii.Error, ValueError):
        return b""
    # Words of prose decode to bytes that are no text: only text and compressed data are worth a look.
    head = decoded[:64]
    if head[:2] in (b"\x1f\x8b", b"\x78\x9c", b"\x78\xda", b"\x78\x01") or head[:3] == b"BZh" or head[:4] == b"\xfd7zX":
        return decoded
    try:
        text = head.decode("utf-8") if len(decoded) <= 64 else head[:60].decode("utf-8", errors="ignore")
    except UnicodeDecodeError:
        return b""
    printable = sum(char.isprintable() or char in "\n\t\r" for char in text)
    return decoded if text and printable >= 0.95 * len(text) and head.isascii() else b""


def _inflate(data: bytes, window: int) -> bytes:
    try:
        return zlib.decompressobj(window).decompress(data, MOST_OUT)
    except zlib.error:
        return b""


def _bunzip(data: bytes) -> bytes:
    try:
        return bz2.BZ2Decompressor().decompress(data, MOST_OUT)
    except (OSError, EOFError, ValueError):
        return b""


def _unxz(data: bytes) -> bytes:
    try:
        return lzma.LZMADecompressor(memlimit=64 << 20).decompress(data, MOST_OUT)
    except (lzma.LZMAError, EOFError, ValueError):
        return b""
