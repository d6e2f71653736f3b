"""How answers are wrapped in files, and the shell that unwraps them again: codes, compressed files, archives."""

from __future__ import annotations

import base64
import io
import shlex
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from typing import Final

from flightschool.audit.terminal.shipped import Shipped

__all__ = ["coded", "cut", "cut_pipe", "unpacked"]

MOST_UNPACKED: Final = 8 << 20
_ROT13: Final = str.maketrans(
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", "NOPQRSTUVWXYZABCDEFGHIJKLMnopqrstuvwxyzabcdefghijklm"
)


def cut(quoted: str, at: int, length: int) -> str:
    """Shell that prints a piece of a file."""
    return f"tail -c +{at + 1} {quoted} | head -c {length}"


def coded(needle: bytes, one: Shipped, quoted: str) -> str:
    """How to decode the answer, if the file holds it in one of the usual codes."""
    for variant in (needle, needle + b"\n"):
        whole = base64.b64encode(variant)
        squeezed = b"".join(one.data.split())
        if len(whole) >= 8 and whole in squeezed:
            before = squeezed.find(whole)
            return f"tr -d ' \\n\\t' < {quoted} | {cut_pipe(before, len(whole))} | base64 -d"
        if len(variant) >= 3 and variant.hex().encode() in one.data.lower():
            at = one.data.lower().find(variant.hex().encode())
            octal = "sed 's/../\\\\x&/g' | xargs -0 printf '%b'"
            return f"{cut(quoted, at, 2 * len(variant))} | {octal}"
    if len(needle) >= 5 and needle[::-1] in one.data:
        return f"{cut(quoted, one.data.find(needle[::-1]), len(needle))} | rev"
    turned = needle.decode(errors="ignore").translate(_ROT13).encode()
    if len(needle) >= 5 and turned != needle and turned in one.data:
        piece = cut(quoted, one.data.find(turned), len(turned))
        return f"{piece} | tr 'A-Za-z' 'N-ZA-Mn-za-m'"
    return ""


def cut_pipe(at: int, length: int) -> str:
    """Shell that keeps a piece of its input."""
    return f"tail -c +{at + 1} | head -c {length}"


def unpacked(one: Shipped, quoted: str) -> Iterator[tuple[str, bytes, str]]:
    """Files in a file: name, content, and the shell that prints it."""
    data = one.data
    try:
        if data.startswith(b"\x1f\x8b") and not one.path.endswith((".tgz", ".tar.gz")):
            yield "", zlib.decompressobj(31).decompress(data, MOST_UNPACKED), f"gzip -dc {quoted}"
        elif data[:1] == b"x" and data[1:2] in (b"\x01", b"\x5e", b"\x9c", b"\xda"):
            program = 'import sys,zlib;sys.stdout.buffer.write(zlib.decompress(open(sys.argv[1],"rb").read()))'
            yield "", zlib.decompressobj().decompress(data, MOST_UNPACKED), f"python3 -c '{program}' {quoted}"
        elif data.startswith(b"PK\x03\x04"):
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                for info in archive.infolist()[:200]:
                    if info.file_size < MOST_UNPACKED:
                        program = (
                            "import sys,zipfile;sys.stdout.buffer.write(zipfile.ZipFile(sys.argv[1]).read(sys.argv[2]))"
                        )
                        command = f"python3 -c '{program}' {quoted} {shlex.quote(info.filename)}"
                        yield info.filename, archive.read(info), command
        elif one.path.endswith((".tar", ".tgz", ".tar.gz", ".tar.bz2", ".tar.xz")):
            with tarfile.open(fileobj=io.BytesIO(data)) as tar:
                for member in tar.getmembers()[:200]:
                    held = tar.extractfile(member) if member.isfile() and member.size < MOST_UNPACKED else None
                    if held is not None:
                        yield member.name, held.read(), f"tar -xOf {quoted} {shlex.quote(member.name)}"
    except (OSError, zlib.error, zipfile.BadZipFile, tarfile.TarError, RuntimeError, NotImplementedError, EOFError):
        return
