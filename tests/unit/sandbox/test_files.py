from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests import needs

from flightschool.sandbox.node.files import put, read_beneath
from flightschool.sandbox.node.syscalls import NUMBERS

pytestmark = pytest.mark.skipif(
    not NUMBERS or not sys.platform.startswith("linux"),
    reason=needs.reason("openat2 of Linux", "run on x86_64 or aarch64"),
)


@pytest.fixture
def root(tmp_path: Path) -> Iterator[int]:
    inner = tmp_path / "root"
    (inner / "sub").mkdir(parents=True)
    (tmp_path / "outside").write_text("secret")
    (inner / "file").write_text("mine")
    fd = os.open(inner, os.O_PATH | os.O_DIRECTORY)
    yield fd
    os.close(fd)


def test_a_regular_file_is_read(root: int) -> None:
    assert read_beneath(root, "/file", 100) == b"mine"
    assert read_beneath(root, "sub/../file", 4) == b"mine"


def _symlink(root: Path) -> None:
    (root / "x").symlink_to("file")


def _symlink_outside(root: Path) -> None:
    (root / "x").symlink_to("../outside")


def _hard_link(root: Path) -> None:
    (root / "x").hardlink_to(root / "file")


def _fifo(root: Path) -> None:
    os.mkfifo(root / "x")


def _folder(root: Path) -> None:
    (root / "x").mkdir()


def _long(root: Path) -> None:
    (root / "x").write_bytes(bytes(101))


@pytest.mark.parametrize(
    ("plant", "path", "number"),
    [
        (_symlink, "x", errno.ELOOP),
        (_symlink_outside, "x", errno.ELOOP),
        (_symlink, "x/y", errno.ELOOP),
        (_hard_link, "x", errno.EMLINK),
        (_fifo, "x", errno.EINVAL),
        (_folder, "x", errno.EINVAL),
        (_long, "x", errno.EFBIG),
        (_folder, "../outside", errno.EXDEV),
        (_folder, "none", errno.ENOENT),
    ],
)
def test_anything_else_is_refused(
    root: int, tmp_path: Path, plant: Callable[[Path], None], path: str, number: int
) -> None:
    plant(tmp_path / "root")
    with pytest.raises(OSError) as error:
        read_beneath(root, path, 100)
    assert error.value.errno == number


def test_a_file_appears_whole_with_its_last_piece(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "file"
    header = {"path": str(target), "mode": 0o600, "key": "k", "first": True, "last": False}
    put(header, b"one ")
    assert not target.exists()
    put({**header, "first": False, "last": True}, b"two")
    assert target.read_bytes() == b"one two"
    assert target.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in target.parent.iterdir()] == ["file"]


def test_a_planted_link_is_replaced_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("kept")
    target = tmp_path / "x"
    target.symlink_to(outside)
    put({"path": str(target), "mode": 0o644, "key": "k", "first": True, "last": True}, b"new")
    assert outside.read_text() == "kept"
    assert target.read_bytes() == b"new"
    assert not target.is_symlink()
