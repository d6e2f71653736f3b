"""Which attacks cannot matter, by the text of the whole grader; in doubt everything is played."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from flightschool.audit.terminal import reach
from flightschool.audit.terminal.surface import Surface, look_at
from flightschool.environments.terminal import read_folder
from flightschool.environments.terminal.trees import Account, Image, Substitution, Tree

HEAD = "#!/bin/bash\nmkdir -p /logs/verifier\n"
PLAIN = HEAD + 'if [ "$(cat /app/out)" = 105 ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n'
BY_PYTHON = HEAD + "python3 /tests/check.py && echo 1 > /logs/verifier/reward.txt\n"
Look = Callable[..., Surface]


@pytest.fixture
def look(tmp_path: Path) -> Look:
    def made(test: str, more: dict[str, str] | None = None) -> Surface:
        files = {
            "task.toml": "[agent]\ntimeout_sec = 5\n",
            "instruction.md": "Write /app/out.\n",
            "environment/Dockerfile": "FROM debian:12\nWORKDIR /app\n",
            "tests/test.sh": test,
        }
        for name, text in {**files, **(more or {})}.items():
            place = tmp_path / "task" / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)
        (tmp_path / "tree").mkdir(exist_ok=True)
        image = Image(
            tree=str(tmp_path / "tree"),
            digest="d",
            over_host=False,
            base=Substitution(image="debian:12", stand_in="none", digest="b"),
            workdir="/app",
            account=Account(name="root", uid=0, gid=0, home="/root"),
            env={},
            build_s=0.0,
        )
        return look_at(read_folder(tmp_path / "task"), image, Tree(tmp_path / "tree", over_host=False))

    return made


NEEDS = {
    "pytest": reach.starts_pytest,
    "python": reach.starts_python,
    "profiles": reach.reads_profiles,
    "evaluates": reach.evaluates,
    "numbers": reach.compares_numbers,
    "inside": reach.looks_inside,
}


def may_matter(surface: Surface) -> set[str]:
    return {name for name, need in NEEDS.items() if not need(surface)}


def test_a_plain_comparison_needs_almost_nothing(look: Look) -> None:
    surface = look(PLAIN)
    assert surface.is_followed
    assert may_matter(surface) == set()
    assert reach.evaluates(surface) == "nothing in the grader runs, loads or computes with text"


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("bash -l -c true", "profiles"),
        (". /app/out", "evaluates"),
        ('eval "$(cat /app/out)"', "evaluates"),
        ("[ $(cat /app/out) -gt 3 ]", "numbers"),
        ("(( $(cat /app/out) == 3 ))", "evaluates"),
        ("grep -q 105 /app/out", "inside"),
        ("python3 -m pytest /tests", "pytest"),
    ],
)
def test_a_word_is_enough(look: Look, line: str, name: str) -> None:
    assert name in may_matter(look(f"{HEAD}{line}\necho 1 > /logs/verifier/reward.txt\n"))


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("assert open('/app/out').read() == '105'\n", {"python"}),
        ("import json\nassert json.load(open('/app/out')) == {'a': 1}\n", {"python"}),
        ("x = float(open('/app/out').read())\nassert not x > 5\n", {"python", "numbers", "inside"}),
        ("assert '105' in open('/app/out').read()\n", {"python", "inside"}),
        ("assert eval(open('/app/out').read()) == 5\n", {"python", "evaluates"}),
    ],
)
def test_python_is_read_too(look: Look, code: str, expected: set[str]) -> None:
    assert may_matter(look(BY_PYTHON, {"tests/check.py": code})) == expected


def test_what_was_not_read_whole_proves_nothing(look: Look) -> None:
    assert may_matter(look(PLAIN, {"tests/other.rb": "puts 1\n"})) == set(NEEDS) - {"pytest"}
    assert may_matter(look(HEAD + "node -e 1\necho 1 > /logs/verifier/reward.txt\n")) >= {"evaluates", "numbers"}


def test_a_library_beside_the_tests_is_not_the_grader(look: Look) -> None:
    surface = look(
        BY_PYTHON,
        {
            "tests/check.py": "assert open('/app/out').read() == '105'\n",
            "tests/lib/runner/__init__.py": "import subprocess\neval('1')\n",
            "tests/lib/runner/core.py": "eval('1') < 3\n",
        },
    )
    assert "/tests/lib/runner/core.py" not in surface.tests
    assert may_matter(surface) == {"python"}
