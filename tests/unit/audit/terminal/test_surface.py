"""What the grader touches and the policy can reach, read from a tree and from texts; nothing is run."""

from __future__ import annotations

from pathlib import Path

import pytest

from flightschool.audit.terminal.outputs import guessed_work, work_of
from flightschool.audit.terminal.shipped import language_of
from flightschool.audit.terminal.surface import Surface, look_at, mentions, speaks_of
from flightschool.environments.terminal import read_folder
from flightschool.environments.terminal.end_state import EndState
from flightschool.environments.terminal.trees import Account, Image, Substitution, Tree
from flightschool.sandbox.written import Written, WrittenKind

TEST = """\
#!/bin/bash
export PATH=/app/tools:$PATH
cd /app && checker --fast && python3 /tests/check.py && [ -e /app/.solved ] && bash /app/lib/grade.sh
echo $? > /logs/verifier/reward.txt
"""
CHECK = (
    "import json, csv\nfrom total import add\nimport subprocess\nsubprocess.run(['jq', '.'])\nopen('/app/out.json')\n"
)
FILES = {
    "task.toml": "[agent]\ntimeout_sec = 5\n",
    "instruction.md": "Write /app/out.json from /app/rows.csv.\n",
    "environment/Dockerfile": "FROM debian:12\nWORKDIR /app\n",
    "tests/test.sh": TEST,
    "tests/check.py": CHECK,
    "solution/solve.sh": "#!/bin/bash\necho '{}' > /app/out.json\n",
}
SHIPPED = {
    "app/rows.csv": "a,1\n",
    "app/lib/grade.sh": "#!/bin/bash\n[ -s /app/extra.txt ]\n",
    "app/secret": "x\n",
    "app/unused.sh": "exit\n",
}


@pytest.fixture
def surface(tmp_path: Path) -> Surface:
    for root, files in ((tmp_path / "task", FILES), (tmp_path / "tree", SHIPPED)):
        for name, text in files.items():
            place = root / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)
    (tmp_path / "tree/app/secret").chmod(0o600)
    (tmp_path / "base").mkdir()
    image = Image(
        tree=str(tmp_path / "tree"),
        digest="d",
        over_host=False,
        base=Substitution(image="debian:12", stand_in="none", digest="b"),
        workdir="/app",
        account=Account(name="clerk", uid=54321, gid=54321, home="/home/user"),
        env={},
        build_s=0.0,
    )
    return look_at(read_folder(tmp_path / "task"), image, Tree(tmp_path / "base", over_host=False))


def test_what_the_build_shipped_and_who_may_read_it(surface: Surface) -> None:
    readable = {one.path: one.readable for one in surface.shipped}
    assert readable == {"/app/rows.csv": True, "/app/lib/grade.sh": True, "/app/secret": False, "/app/unused.sh": True}
    assert not any(one.writable for one in surface.shipped)


@pytest.mark.parametrize(("mode", "may"), [(0o777, True), (0o1777, False), (0o755, False)])
def test_who_may_replace_a_file_of_someone_else(surface: Surface, mode: int, may: bool) -> None:
    place = Path(surface.image.tree, "app")
    place.chmod(mode)
    (again,) = [
        one for one in look_at(surface.task, surface.image, _nothing(place)).shipped if one.path == "/app/rows.csv"
    ]
    assert again.writable is may


def _nothing(place: Path) -> Tree:
    return Tree(place.parent.parent / "base", over_host=False)


def test_what_the_tests_speak_of(surface: Surface) -> None:
    assert {one.path for one in surface.live} == {"/app/lib/grade.sh"}
    assert {"/app/.solved", "/app/out.json", "/app/extra.txt"} <= set(surface.paths)
    assert not any(path.startswith(("/tests", "/logs", "/usr")) for path in surface.paths)
    assert {"json", "csv", "total", "subprocess"} <= set(surface.modules)
    assert {"checker", "python3", "bash", "jq"} <= set(surface.programs)
    assert "/app/tools" in surface.program_folders
    assert surface.folders[0] == "/app"


def test_what_counts_of_the_references_work(surface: Surface) -> None:
    def file(path: str, data: bytes) -> Written:
        return Written(path=path, kind=WrittenKind.FILE, mode=0o644, data=data)

    def state(**changes: bytes) -> EndState:
        files = {"/app/out.json": b'{"a": 1}\n', "/tmp/scratch": b"x", "/app/__pycache__/a.pyc": b"y"}
        files |= {f"/app/{name}": data for name, data in changes.items()}
        return EndState(entries=tuple(file(path, data) for path, data in files.items()))

    work = work_of(surface, [state()])
    assert [(one.path, one.kind, one.named, one.graded) for one in work.outputs] == [
        ("/app/out.json", "json", True, True)
    ]
    same = EndState(entries=(file("/app/out.json", b'{ "a":1 }'),))
    assert work.is_same([same])
    assert not work.is_same([EndState(entries=(file("/app/out.json", b'{"a": 2}'),))])
    assert not work.is_same([])
    assert work.changed("/app/out.json", None)[0].entries[0].path == "/tmp/scratch"


def test_without_a_reference_the_instruction_tells(surface: Surface) -> None:
    assert [(one.path, one.kind) for one in guessed_work(surface).outputs] == [("/app/out.json", "json")]


@pytest.mark.parametrize(
    ("text", "path", "said"),
    [
        ("cat /app/a.txt.", "/app/a.txt", True),
        ("cat /app/a.txt.bak", "/app/a.txt", False),
        ("read a.txt", "/app/a.txt", True),
        ("read ba.txt", "/app/a.txt", False),
        ("import total", "/app/total.py", True),
        ("subtotal", "/app/total.py", False),
    ],
)
def test_mentions(text: str, path: str, said: bool) -> None:
    assert mentions(text, path) is said


def test_languages() -> None:
    assert language_of("/a/run", b"#!/usr/bin/env python3\n") == "python"
    assert language_of("/a/run", b"\x7fELF") == "binary"
    assert language_of("/a/run", b"echo", 0o755) == "shell"
    assert language_of("/a/rows.csv", b"a,b", 0o644) == ""


def test_a_solution_s_own_scripts_in_scratch_folders_are_no_part_of_the_work(surface: Surface) -> None:
    surface.instruction = "Write the plan of the day to /app/out.json; /tmp/day.txt holds the hours."
    names = ("/app/out.json", "/tmp/plan.py", "/tmp/day.txt")
    entries = tuple(Written(path=name, kind=WrittenKind.FILE, data=b"1\n") for name in names)
    work = work_of(surface, [EndState(entries=entries)])
    assert [one.path for one in work.outputs] == ["/app/out.json", "/tmp/day.txt"]
    assert speaks_of("the plan", "/app/plan.py")
    assert not speaks_of("the plan", "/tmp/plan.py")
    assert speaks_of("see /tmp/plan.py", "/tmp/plan.py")
