"""Archives of the labelled corpus: what is written is read back, and nothing malformed gets through."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightschool.environments.terminal import read_folder
from flightschool.errors import InputError
from flightschool.testing.corpus import (
    CorpusFile,
    CorpusTask,
    corpus_digest,
    format_corpus_task,
    parse_corpus_task,
    read_corpus,
)

HEADER = '+++\nverdict = "sound"\nrows = ["7"]\nwhy = "It is."\n+++\n'
TASK = (
    HEADER
    + "== task.toml\n[agent]\ntimeout_sec = 5\n== instruction.md\nDo it.\n== environment/Dockerfile\nFROM debian:12\n"
    + "== tests/test.sh [755]\n#!/bin/bash\n=== 1 passed ===\n\\== no section\n"
)


def task_with(files: tuple[CorpusFile, ...], **more: object) -> CorpusTask:
    values: dict[str, object] = {
        "id": "t", "verdict": "sound", "rows": ("1", "35a"), "why": 'Because "so".', "defended_rows": (),
        "shows": "passes", "pass_mark": 1.0, "proof": None, "attacks": (), "programs": (), "pytest": "", "files": files,
    }  # fmt: skip
    return CorpusTask(**{**values, **more})  # type: ignore[arg-type]


def test_a_section_is_a_file_with_its_mode(tmp_path: Path) -> None:
    task = parse_corpus_task("t1", TASK, "t1.task")
    folder = task.unpack(tmp_path)
    assert folder == tmp_path / "t1"
    assert (folder / "tests/test.sh").read_text() == "#!/bin/bash\n=== 1 passed ===\n== no section\n"
    assert (folder / "tests/test.sh").stat().st_mode & 0o777 == 0o755
    assert (folder / "instruction.md").stat().st_mode & 0o777 == 0o644
    assert read_folder(folder).instruction == "Do it.\n"
    with pytest.raises(InputError, match="folder is there"):
        task.unpack(tmp_path)


@given(
    st.lists(
        st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=12)
        | st.sampled_from(["== a", "\\== a", "\\\\== x [755]", "+++", "==", "== ", "\r", ""]),
        max_size=8,
    ),
    st.booleans(),
)
def test_any_text_comes_back(lines: list[str], executable: bool) -> None:
    files = (
        CorpusFile(path="a/b.txt", text="".join(f"{line}\n" for line in lines), executable=executable),
        CorpusFile(path="c", text="x\n"),
    )
    task = task_with(files)
    assert parse_corpus_task("t", format_corpus_task(task), "t.task") == task


def test_proofs_and_attacks_stay_out_of_the_folder(tmp_path: Path) -> None:
    proof = CorpusFile(path="proof.sh", text="echo\n", executable=True)
    files = (CorpusFile(path="instruction.md", text="x\n"),)
    leaking = task_with(files, verdict="leaking", proof=proof, shows="refused", pass_mark=0.5, programs=("git",))
    assert parse_corpus_task("t", format_corpus_task(leaking), "t.task") == leaking
    attacked = task_with(files, attacks=(proof, CorpusFile(path="two.sh", text="\n")), defended_rows=("1",))
    assert parse_corpus_task("t", format_corpus_task(attacked), "t.task") == attacked
    folder = attacked.unpack(tmp_path / "tasks")
    assert [path.name for path in folder.iterdir()] == ["instruction.md"]
    programs = attacked.unpack_programs(tmp_path / "programs")
    assert sorted(path.name for path in programs.iterdir()) == ["proof.sh", "two.sh"]


@pytest.mark.parametrize("path", ["/etc/x", "../x", "a/../../x", "a//b", "./a", "a/.", "a\\b", "a/"])
def test_a_path_that_leads_astray_is_refused(path: str) -> None:
    with pytest.raises(InputError, match="leads astray"):
        parse_corpus_task("t", f"{HEADER}== {path}\nx\n", "t.task")
    header = HEADER.replace("why", f"pytest = {path!r}\nwhy")
    with pytest.raises(InputError, match="leads astray"):
        parse_corpus_task("t", f"{header}== a\nx\n", "t.task")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "no header"),
        ("+++\nverdict = 1\n", "no header"),
        ("+++\nverdict = \n+++\n== a\n", "header cannot be read"),
        (HEADER.replace("sound", "fine") + "== a\n", "header cannot be read"),
        (HEADER.replace("why", "reason") + "== a\n", "header cannot be read"),
        (HEADER.replace('["7"]', "[]") + "== a\n", "header cannot be read"),
        (HEADER.replace("why", "pass_mark = 0.0\nwhy") + "== a\n", "header cannot be read"),
        (HEADER, "no files"),
        (HEADER + "text\n== a\n", "text before the first section"),
        (HEADER + "== a b\n", "not a section"),
        (HEADER + "== a [777]\n", "not a section"),
        (HEADER + "== a\nx", "last line has no end"),
        (HEADER + "== a\n== b\n== a\n", "twice"),
        (HEADER + "== a\n== a/b\n", "twice, or as a folder"),
        (HEADER.replace("why", 'proof = "p"\nwhy') + "== a\n", "no section 'p'"),
        (HEADER.replace("why", 'proof = "a"\nwhy') + "== a\n", "proof do not fit"),
        (HEADER.replace("sound", "leaking") + "== a\n", "proof do not fit"),
        (HEADER.replace("sound", "flaky").replace("why", 'attacks = ["a"]\nwhy') + "== a\n", "attacks on a task"),
    ],
)
def test_a_malformed_archive_names_file_and_line(text: str, told: str) -> None:
    with pytest.raises(InputError, match=told) as caught:
        parse_corpus_task("t", text, "some/t.task")
    assert caught.value.where.startswith("some/t.task:")


def test_a_corpus_is_read_in_order_and_sealed_by_its_digest(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no corpus"):
        read_corpus(tmp_path)
    for name in ("b", "a"):
        (tmp_path / f"{name}.task").write_text(TASK)
    (tmp_path / "README.md").write_text("not of the corpus")
    assert [task.id for task in read_corpus(tmp_path)] == ["a", "b"]
    before = corpus_digest(tmp_path)
    (tmp_path / "README.md").write_text("changed")
    assert corpus_digest(tmp_path) == before
    (tmp_path / "a.task").write_text(TASK.replace("Do it", "Do that"))
    changed = corpus_digest(tmp_path)
    assert changed != before
    (tmp_path / "a.task").rename(tmp_path / "c.task")
    assert corpus_digest(tmp_path) not in (before, changed)
    (tmp_path / "d.task").write_bytes(b"\xff")
    with pytest.raises(InputError, match="cannot be read"):
        corpus_digest(tmp_path)


def test_a_task_that_asks_for_pytest_gets_a_whole_one(tmp_path: Path) -> None:
    header = HEADER.replace("why", 'pytest = "tests/lib"\nwhy')
    folder = parse_corpus_task("t", f"{header}== a\n", "t.task").unpack(tmp_path)
    for name in ("pytest/__init__.py", "_pytest/main.py", "pluggy/__init__.py", "pygments/lexers/python.py"):
        assert (folder / "tests/lib" / name).is_file(), name
    assert not list(folder.rglob("__pycache__"))
