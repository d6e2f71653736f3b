"""Files appear whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from flightschool.store.files import fresh_file, write_whole


def test_a_file_is_replaced_and_everybody_may_read_it(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text("old")
    write_whole(path, b"new")
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o644
    assert list(tmp_path.iterdir()) == [path]


def test_a_writing_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text("old")

    def killed() -> None:
        with fresh_file(path) as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        killed()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_whole(tmp_path / "none" / "page.html", b"new")
