"""What an answer may be wrapped in, and that the shell which is told unwraps it to the same bytes."""

from __future__ import annotations

import base64
import codecs
import gzip
import io
import shlex
import subprocess
import tarfile
import zipfile
import zlib
from pathlib import Path

import pytest

from flightschool.audit.terminal.shipped import Shipped
from flightschool.audit.terminal.unwrapping import coded, cut, cut_pipe, unpacked

ANSWER = b"total 10571, of 4 rows"


def shipped(path: Path, data: bytes) -> Shipped:
    path.write_bytes(data)
    return Shipped(path=str(path), data=data, mode=0o644, uid=0, size=len(data), readable=True, writable=True)


def printed(command: str) -> bytes:
    return subprocess.run(["/bin/sh", "-c", command], capture_output=True, check=True).stdout


CODES = {
    "base64": b"x=" + base64.b64encode(ANSWER),
    "base64 in lines": b"\n".join([b"note", base64.b64encode(ANSWER)[:20], base64.b64encode(ANSWER)[20:]]),
    "hex": b"0x" + ANSWER.hex().encode() + b" end",
    "reversed": b"<" + ANSWER[::-1] + b">",
    "rot13": codecs.encode(ANSWER.decode(), "rot13").encode(),
}


@pytest.mark.parametrize("name", CODES)
def test_codes(name: str, tmp_path: Path) -> None:
    one = shipped(tmp_path / "it's here", CODES[name])
    assert printed(coded(ANSWER, one, shlex.quote(one.path))).rstrip(b"\n") == ANSWER


def test_nothing_is_found_where_nothing_is(tmp_path: Path) -> None:
    one = shipped(tmp_path / "a", b"other words\n" * 20)
    assert coded(ANSWER, one, "a") == ""
    assert list(unpacked(one, "a")) == []


def test_archives(tmp_path: Path) -> None:
    tarred, zipped = io.BytesIO(), io.BytesIO()
    with tarfile.open(fileobj=tarred, mode="w:gz") as tar:
        info = tarfile.TarInfo("below/answer")
        info.size = len(ANSWER)
        tar.addfile(info, io.BytesIO(ANSWER))
    with zipfile.ZipFile(zipped, "w") as archive:
        archive.writestr("below/answer", ANSWER)
    packs = {
        "a.gz": gzip.compress(ANSWER),
        "a.z": zlib.compress(ANSWER),
        "a.tgz": tarred.getvalue(),
        "a.zip": zipped.getvalue(),
    }
    for name, data in packs.items():
        one = shipped(tmp_path / name, data)
        ((_, content, command),) = unpacked(one, shlex.quote(one.path))
        assert content == ANSWER, name
        assert printed(command) == ANSWER, name
        assert printed(f"{command} | {cut_pipe(6, 5)}") == b"10571"


@pytest.mark.parametrize("data", [b"\x1f\x8b\x08broken", b"PK\x03\x04broken", b"x\x9c\xff\xff\xff", b""])
def test_broken_archives_hold_nothing(data: bytes, tmp_path: Path) -> None:
    assert list(unpacked(shipped(tmp_path / "a", data), "a")) == []


def test_pieces(tmp_path: Path) -> None:
    one = shipped(tmp_path / "a", b"0123456789")
    assert printed(cut(one.path, 3, 4)) == b"3456"
