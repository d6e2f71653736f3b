# ruff: noqa: E501 - the texts of small tasks
"""Repaired copies, run: the program that passed before fails after, and the reference passes both times."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests import needs

from flightschool.audit.terminal.mends import mend
from flightschool.audit.terminal.static import examine_static
from flightschool.environments.terminal import read_folder

pytestmark = [pytest.mark.integration, pytest.mark.long]

R = "/logs/verifier/reward.txt"
TOML = 'schema_version = "1.4"\n[agent]\ntimeout_sec = 20\n[verifier]\ntimeout_sec = 20\n'
HEAD = "#!/bin/bash\nmkdir -p /logs/verifier\n"
CHECK = "import sys\nsys.exit(open('/app/total.txt').read().strip() != '60')\n"
SECRET = "violet harbour 7719 north"
OPEN = f"#!/bin/sh\nprintf '%s %s %s %s' {' '.join(SECRET.split())}\n"


def judge(condition: str) -> str:
    return f"if {condition}; then echo 1; else echo 0; fi > {R}\n"


def task(test: str, solution: str, **more: str) -> dict[str, str]:
    files = {
        "task.toml": TOML,
        "instruction.md": "Do what is asked for in /app.\n",
        "environment/Dockerfile": "FROM debian:12\nWORKDIR /app\nCOPY data/ /app/data/\n",
        "environment/data/rows.csv": "a,60\n",
        "tests/test.sh": HEAD + test,
        "solution/solve.sh": solution,
    }
    return files | {name.replace("__", "/").replace("_DOT_", "."): text for name, text in more.items()}


SUM = "cut -d, -f2 /app/data/rows.csv > /app/total.txt\n"
CASES: Mapping[str, tuple[str, dict[str, str], str]] = {
    "status lost in a pipe": (
        "swallowed-failure",
        task(f"python3 /tests/check.py | tee /logs/o\nif [ $? -eq 0 ]; then echo 1 > {R}; else echo 0 > {R}; fi\n", SUM, tests__check_DOT_py=CHECK),
        "echo wrong > /app/total.txt\n",
    ),
    "status overwritten": (
        "swallowed-failure",
        task(f"python3 /tests/check.py\necho finished\nif [ $? -eq 0 ]; then echo 1 > {R}; else echo 0 > {R}; fi\n", SUM, tests__check_DOT_py=CHECK),
        "true\n",
    ),
    "grader in the image": (
        "grader-in-reach",
        task(judge("python3 /app/data/verify.py"), SUM, environment__data__verify_DOT_py=CHECK),
        "echo 'raise SystemExit(0)' > /app/data/verify.py\n",
    ),
    "input read again": (
        "reread-input",
        task(judge('[ "$(cat /app/total.txt)" = "$(cut -d, -f2 /app/data/rows.csv)" ]'), SUM),
        "echo a,0 > /app/data/rows.csv; echo 0 > /app/total.txt\n",
    ),
    "answer in the image": (
        "answer-in-view",
        task(
            judge(f'[ "$(cat /app/phrase.txt)" = "{SECRET}" ]'),
            "sh /solution/derive.sh > /app/phrase.txt\n",
            solution__derive_DOT_sh=OPEN,
            environment__data__notes_DOT_md=f"{SECRET}\n",
        ),
        "cat /app/data/notes.md > /app/phrase.txt\n",
    ),
    "module in the working directory": (
        "interpreter-startup",
        task(judge("python3 -c \"import json; assert json.load(open('/app/out.json'))['n'] == 60\""), "echo '{\"n\": 60}' > /app/out.json\n"),
        "printf 'import os\\nos._exit(0)\\n' > /app/json.py\n",
    ),
    "no verdict": (
        "ungraded-escape",
        task("[ -f /app/total.txt ] || exit 1\n" + judge("python3 /tests/check.py"), SUM, tests__check_DOT_py=CHECK),
        "true\n",
    ),
}  # fmt: skip


def write(folder: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize("name", list(CASES))
def test_the_exploit_passes_before_and_fails_after(tmp_path: Path, name: str, flights: Any) -> None:
    flaw, files, exploit = CASES[name]
    folder = write(tmp_path / "task", files)
    script = tmp_path / "exploit.sh"
    script.write_text(exploit)
    if name == "module in the working directory" and not _knows_safe_path():
        needs.skip("Python 3.11 in /usr/bin", "install it with this machine's package manager")
    found = examine_static(read_folder(folder))
    assert flaw in {finding.flaw for finding in found.findings}
    before = None if flaw == "ungraded-escape" else 1.0
    assert flights.rewards(folder, f"script:{script}") == [before]
    assert flights.rewards(folder, "oracle") == [1.0]

    report = mend(read_folder(folder), found.findings, tmp_path / "out/task")
    assert report.folder, report
    mended = Path(report.folder)
    assert flights.rewards(mended, f"script:{script}") == [0.0]
    assert flights.rewards(mended, "oracle") == [1.0]


def _knows_safe_path() -> bool:
    for program in ("/usr/bin/python3", "/usr/local/bin/python3"):
        if os.access(program, os.X_OK):
            done = subprocess.run(
                [program, "-c", "import sys; print(sys.version_info >= (3, 11))"],
                capture_output=True,
                text=True,
                check=False,
            )
            return done.stdout.strip() == "True"
    return False
