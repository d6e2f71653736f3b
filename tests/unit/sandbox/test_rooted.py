"""Names inside a root that is not entered yet lead where they would lead inside."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests import needs

from flightschool.sandbox.node.rooted import Rooted
from flightschool.sandbox.node.syscalls import NUMBERS

pytestmark = pytest.mark.skipif(
    not NUMBERS or not sys.platform.startswith("linux"), reason=needs.reason("Linux", "run on x86_64 or aarch64")
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "real/deep").mkdir(parents=True)
    for name, text in {
        "absolute": "/real",
        "upward": "../../../real",
        "host": str(tmp_path / "outside"),
        "circle": "circle",
        "two": "absolute/deep",
        "real/up": "..",
    }.items():
        (root / name).symlink_to(text)
    (tmp_path / "outside").mkdir()
    return root


WHERE = {"/absolute": "real", "/upward/deep": "real/deep", "/two": "real/deep", "/real/up/two": "real/deep", "/": ""}


@pytest.mark.parametrize(("path", "where"), WHERE.items())
def test_links_are_followed_inside(root: Path, path: str, where: str) -> None:
    under = Rooted(str(root), has_links=True)
    assert under.real(path) == str(root / where)
    if os.geteuid() == 0:
        script = f"import os; os.chroot({str(root)!r}); print(os.path.realpath({path!r}))"
        words = [sys.executable, "-c", script]
        inside = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
        assert under.real(path) == str(root) + inside.rstrip("/")
    under.close()


def test_nothing_is_made_outside(root: Path, tmp_path: Path) -> None:
    under = Rooted(str(root), has_links=True)
    works: list[Callable[[], str]] = [
        lambda: under.folder("/host/x"),
        lambda: under.folder("/host"),
        lambda: under.folder("/circle/x"),
        lambda: under.touch("/host/file"),
        lambda: under.write("/host/file", b""),
        lambda: under.real("/host"),
    ]
    for work in works:
        with pytest.raises(OSError, match=r"."):
            work()
    assert list((tmp_path / "outside").iterdir()) == []
    assert not under.is_folder("/host")
    assert under.there("/host")
    assert not under.there("/host/x")
    assert not under.there("/none")
    under.close()


def test_folders_and_files_are_made_where_links_lead(root: Path) -> None:
    under = Rooted(str(root), has_links=True)
    assert under.folder("/two/a/b") == str(root / "real/deep/a/b")
    assert under.touch("/upward/file") == str(root / "real/file")
    assert under.touch("/absolute/file") == str(root / "real/file")
    (root / "real/link").symlink_to("/nowhere")
    assert under.write("/absolute/link", b"text") == str(root / "real/link")
    assert (root / "real/link").read_bytes() == b"text"
    assert not (root / "real/link").is_symlink()
    under.close()


def test_a_root_of_our_own_is_not_asked(root: Path) -> None:
    under = Rooted(str(root), has_links=False)
    assert under.real("/absolute") == f"{root}/absolute"
    assert under.name("/absolute/x") == f"{root}/absolute/x"
