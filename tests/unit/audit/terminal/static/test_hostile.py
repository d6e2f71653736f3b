# ruff: noqa: E501 - the texts of small tasks
"""Folders made to hurt: findings or notes, in bounded time and memory; many folders one by one."""

from __future__ import annotations

import base64
import gzip
import os
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from flightschool.audit.terminal.static import examine_static, scan, scan_folders
from flightschool.audit.terminal.static.decoding import unwrapped
from flightschool.environments.terminal import read_folder, write_sample_tasks

BAD_PYTHON = {
    "syntax": "def (:\n",
    "nul": "x = 1\0\n",
    "parentheses": "x = " + "(" * 5000 + ")" * 5000,
    "sums": "x = " + "+".join(["a"] * 40_000) + "\nassert x == 1\n",
    "unary": "x = " + "-" * 60_000 + "1\n",
    "attributes": "x = a" + ".b" * 40_000 + "\n",
    "self": "def f():\n    return f()\nx = f()\nassert x == open(x).read()\n",
    "cycle": "a = b\nb = a\nassert open(a).read() == b\n",
    "many": "\n".join(f"def test_{n}():\n    assert open('/app/x').read() == 'text number {n} of many'" for n in range(3000)),
    "table": "T = {" + ", ".join(f"'key {n} of the table': 'value {n} of it'" for n in range(8000)) + "}\ndef test_it():\n    assert open('/app/x').read() in T\n",
    "ifs": "".join("    " * n + "if x:\n" for n in range(90)) + "    " * 90 + "pass\n",
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(BAD_PYTHON))
def test_python_made_to_hurt(look: Any, kit: Any, name: str) -> None:
    started = time.process_time()
    found = look(kit.python_task(BAD_PYTHON[name]))
    assert time.process_time() - started < 12.0
    if name in ("syntax", "nul", "parentheses"):
        assert any("test_outputs.py" in note.where for note in found.skipped)


@pytest.mark.parametrize(
    "content",
    [
        b"\xff\xfe" + os.urandom(200_000),
        b"echo " + b"a" * (10 << 20),
        b"a;" * (5 << 20),
        b"\x00" * 1000,
        b"",
        "é\udcff".encode(errors="surrogatepass"),
    ],
    ids=["junk", "one line", "many commands", "zeros", "empty", "bad utf-8"],
)
def test_scripts_made_to_hurt(look: Any, kit: Any, content: bytes) -> None:
    started = time.process_time()
    found = look({**kit.harbor(""), "tests/test.sh": content})
    assert time.process_time() - started < 15.0
    assert len(found.trust) == 1
    if len(content) > 1 << 20:
        assert any("first" in note.what for note in found.skipped)


def test_bombs_unpack_to_a_bound() -> None:
    bomb = gzip.compress(b"\0" * (64 << 20))
    wrapped = base64.b64encode(gzip.compress(base64.b64encode(bomb)))
    tracemalloc.start()
    sizes = [len(content) for _, content in unwrapped(wrapped)]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert max(sizes) <= 1 << 20
    assert peak < 64 << 20


def test_images_full_of_files(look: Any, kit: Any) -> None:
    more = {f"environment/data/d{n % 40}/f{n}.txt": f"line {n}\n" * 50 for n in range(1500)}
    started = time.process_time()
    found = look(
        {**kit.python_task('def test_it():\n    assert open("/app/p").read() == "violet harbour 7719"\n'), **more}
    )
    assert time.process_time() - started < 20.0
    assert found.trust[0].agent_files


def test_a_build_that_cannot_be_read_is_a_note(look: Any, kit: Any) -> None:
    found = look(
        kit.harbor(kit.judge("[ -s /app/x ]"), environment__Dockerfile="FROM debian:12\nCOPY nothing /there\n")
    )
    assert any("the build cannot be read" in note.what for note in found.skipped)
    assert "presence-only" in {finding.flaw for finding in found.findings}


def test_a_folder_that_went_away_is_a_note(place: Any, kit: Any) -> None:
    import shutil

    task = place(kit.harbor("true\n"))
    shutil.rmtree(task.folder)
    found = examine_static(task)
    assert found.findings == ()
    assert found.skipped


def test_links_out_of_the_folder_are_not_followed(tmp_path: Path, kit: Any) -> None:
    outside = tmp_path / "outside.py"
    outside.write_text("def test_it():\n    pass\n")
    folder = kit.write_files(tmp_path / "task", kit.harbor("pytest /tests\n"))
    (folder / "tests/test_link.py").symlink_to(outside)
    found = examine_static(read_folder(folder))
    assert "tests/test_link.py" not in found.trust[0].grader_files


def test_many_folders_one_by_one(tmp_path: Path) -> None:
    write_sample_tasks(tmp_path, 120)
    (tmp_path / "000050/task.toml").write_text("not toml [")
    sizes: list[int] = []
    tracemalloc.start()
    for task, found in scan_folders(tmp_path):
        assert (found is None) == (task.id == "000050")
        assert found is None or found.findings == ()
        sizes.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert len(sizes) == 120
    assert sizes[-1] < sizes[20] + (2 << 20)


def test_twice_the_same(place: Any, kit: Any) -> None:
    task = place(kit.harbor("pytest /tests/a.py\necho 1 > /logs/verifier/reward.txt\n"))
    assert scan(task) == scan(task) != ()
