"""The reference as one program: it runs alone, does what the reference does, and leaves nothing else."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from flightschool.audit.terminal import packing
from flightschool.audit.terminal.packing import reference_body
from flightschool.audit.terminal.scripting import script
from flightschool.environments.terminal import read_folder

FILES = {
    "task.toml": '[solution.env]\nWHO = "an ant"\n',
    "instruction.md": "Do it.\n",
    "environment/Dockerfile": "FROM debian:12\n",
    "tests/test.sh": "#!/bin/bash\n",
    "solution/solve.sh": '#!/bin/bash\n. "$(dirname "$0")/deep/part.sh"\nsays "$WHO" > out.txt\n',
    "solution/deep/part.sh": 'says() { echo "it is $1"; }\n',
}


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_it_runs_alone_and_leaves_what_the_reference_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "SCRATCH", str(tmp_path / "scratch"))
    body = reference_body(read_folder(write(tmp_path / "task", FILES)))
    (tmp_path / "work").mkdir()
    subprocess.run(["sh", "-c", script(body)], cwd=tmp_path / "work", check=True, timeout=20)
    assert (tmp_path / "work/out.txt").read_text() == "it is an ant\n"
    assert not (tmp_path / "scratch").exists()


def test_a_link_stands_where_the_solution_speaks_of_its_place_and_nowhere_else(tmp_path: Path) -> None:
    assert "ln -s" not in reference_body(read_folder(write(tmp_path / "a", FILES)))
    there = {**FILES, "solution/solve.sh": "#!/bin/bash\nsh /solution/deep/part.sh\n"}
    assert "ln -s /tmp/.reference/solution /solution" in reference_body(read_folder(write(tmp_path / "b", there)))


def test_what_is_too_large_is_not_told_in_part(tmp_path: Path) -> None:
    assert reference_body(read_folder(write(tmp_path, {**FILES, "solution/data": "x" * (2 << 20)}))) == ""


def test_steps_are_done_one_by_one(tmp_path: Path) -> None:
    files = {
        "task.toml": '[[steps]]\nname = "one"\n[[steps]]\nname = "two"\n',
        "environment/Dockerfile": "FROM debian:12\n",
        **{f"steps/{name}/instruction.md": "x\n" for name in ("one", "two")},
        **{f"steps/{name}/tests/test.sh": "#!/bin/bash\n" for name in ("one", "two")},
        **{f"steps/{name}/solution/solve.sh": f"echo {name}\n" for name in ("one", "two")},
    }
    body = reference_body(read_folder(write(tmp_path, files)))
    assert body.startswith('case "$FLIGHTSCHOOL_STEP" in')
    assert body.index("echo one") < body.index("two)") < body.index("echo two")
