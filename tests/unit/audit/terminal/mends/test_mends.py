# ruff: noqa: E501 - the texts of small tasks
"""Each rewrite leaves a readable folder, a patch that tells it, and the original as it was."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests import needs

from flightschool.audit.terminal.mends import MendReport, mend
from flightschool.audit.terminal.static import scan
from flightschool.environments.terminal import read_folder
from flightschool.errors import InputError

R = "/logs/verifier/reward.txt"
TOML = 'schema_version = "1.4"\n[agent]\ntimeout_sec = 20\n[verifier]\ntimeout_sec = 20\n'
HEAD = "#!/bin/bash\nmkdir -p /logs/verifier\n"
EXACT = "def test_it():\n    assert int(open('/app/total.txt').read()) == 60\n"
SECRET = "violet harbour 7719 north"


def task(test: str, docker: str = "", **more: str) -> dict[str, str]:
    files = {
        "task.toml": TOML,
        "instruction.md": "Do it in /app.\n",
        "environment/Dockerfile": "FROM debian:12\nWORKDIR /app\nCOPY data/ /app/data/\n" + docker,
        "environment/data/rows.csv": "a,60\n",
        "tests/test.sh": HEAD + test,
        "tests/test_a.py": EXACT,
        "solution/solve.sh": "cut -d, -f2 /app/data/rows.csv > /app/total.txt\n",
    }
    return files | {name.replace("__", "/").replace("_DOT_", "."): text for name, text in more.items()}


def judge(condition: str) -> str:
    return f"if {condition}; then echo 1; else echo 0; fi > {R}\n"


PHRASE = f'[ "$(cat /app/phrase.txt)" = "{SECRET}" ]'
FLAWED: Mapping[str, tuple[dict[str, str], str, str, str]] = {
    # name: files, class, rule, what the patch adds
    "pipe": (
        task(f"pytest /tests/test_a.py | tee /logs/o\nif [ $? -eq 0 ]; then echo 1 > {R}; else echo 0 > {R}; fi\n"),
        "swallowed-failure", "propagate-status", "+{ pytest /tests/test_a.py | tee /logs/o; } || checks_failed=1",
    ),
    "or true": (
        task(f"pytest /tests/test_a.py || true\necho 1 > {R}\n"),
        "swallowed-failure", "propagate-status", f"+echo $((checks_failed == 0)) > {R}",
    ),
    "no verdict": (
        task("[ -f /app/total.txt ] || exit 1\n" + judge("cmp /app/total.txt /tests/test.sh")),
        "ungraded-escape", "end-with-verdict", f"echo 0 > {R}; exit 1",
    ),
    "errexit": (
        task(f"set -e\ncmp /app/total.txt /tests/test.sh\necho 1 > {R}\n"),
        "ungraded-escape", "end-with-verdict", f"|| {{ mkdir -p /logs/verifier; echo 0 > {R}; exit 1; }}",
    ),
    "shipped grader": (
        task(judge("python3 /app/data/verify.py"), environment__data__verify_DOT_py="import sys\nsys.exit(1)\n"),
        "grader-in-reach", "judge-from-tests", "+if python3 /tests/kept/verify.py; then",
    ),
    "input read again": (
        task(judge('[ "$(cat /app/total.txt)" = "$(cut -d, -f2 /app/data/rows.csv)" ]')),
        "reread-input", "judge-from-tests", "/tests/kept/rows.csv",
    ),
    "answer": (
        task(judge(PHRASE), environment__data__notes_DOT_md=f"say {SECRET}\n", solution__solve_DOT_sh="/app/data/open\n"),
        "answer-in-view", "remove-from-image", "+RUN rm -rf -- /app/data/notes.md",
    ),
    "residue of another user": (
        task(judge("cmp /app/data/a.py /tests/test.sh"), docker="RUN useradd u\nUSER u\n", environment__data__a_DOT_py="x = 2\n", environment__data__b_DOT_py="x = 2\n", environment__data__b_DOT_py_DOT_bak="x = 1\n"),
        "build-residue", "remove-from-image", "+USER u",
    ),
    "history": (
        task(judge("cmp /app/a /tests/test.sh"), docker="RUN git init && git add . && git commit -m a && git commit -m fix && git reset --hard HEAD~1\n"),
        "future-history", "forget-history", "+RUN cd /app && rm -rf .git && git init -q",
    ),
    "modules": (
        task(judge("python3 -m pytest /tests/test_a.py")),
        "interpreter-startup", "pin-starts", "+export PYTHONSAFEPATH=1",
    ),
    "hooks": (
        task("cp /tests/test_a.py /app\n" + judge("pytest -q /app/test_a.py")),
        "pytest-hook", "pin-starts", "-c /dev/null --rootdir=/tests --noconftest",
    ),
    "path": (
        task(judge("cmp /app/a /tests/test.sh"), docker="ENV PATH=/app/bin:$PATH\n"),
        "path-trojan", "pin-starts", "+export PATH=/usr/local/sbin",
    ),
    "ended early": (
        task(judge("pytest /tests/test_a.py").replace("if pytest /tests/test_a.py;", "if pytest /tests/test_a.py;"), tests__test_a_DOT_py="import sys\nsys.path.insert(0, '/app')\nfrom solver import total\ndef test_it():\n    assert total([1]) == 1\n"),
        "early-exit", "require-executed", "require_executed.py /logs/verifier/junit.xml 1",
    ),
    "guard": (
        task("(cd /app/data && sha256sum -c /app/data/rows.sha256) || exit 1\n" + judge("cmp /app/total.txt /tests/test.sh"), environment__data__rows_DOT_sha256="00  rows.csv\n"),
        "decorative-guard", "give-account", '+user = "agent"',
    ),
}  # fmt: skip


def write(folder: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def mended(tmp_path: Path, files: Mapping[str, str]) -> tuple[Path, Path, MendReport]:
    folder = write(tmp_path / "task", files)
    found = read_folder(folder)
    return folder, tmp_path / "out/task", mend(found, scan(found), tmp_path / "out/task")


@pytest.mark.parametrize("name", sorted(FLAWED))
def test_a_rewrite_is_readable_told_and_leaves_the_original(tmp_path: Path, name: str) -> None:
    files, flaw, rule, added = FLAWED[name]
    folder = write(tmp_path / "task", files)
    task_read = read_folder(folder)
    findings = scan(task_read)
    assert flaw in {f.flaw for f in findings}, [(f.flaw, f.what) for f in findings]
    report = mend(task_read, findings, tmp_path / "out/task")
    assert rule in {made.rule for made in report.applied}, report
    assert flaw not in {left.flaw for left in report.left}
    copy = read_folder(Path(report.folder))
    assert copy.instruction == task_read.instruction
    assert read_folder(folder).digest == task_read.digest
    assert added in Path(report.patch).read_text()
    for script in ("tests/test.sh",):
        done = subprocess.run(
            ["bash", "-n", str(Path(report.folder) / script)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["pipe", "or true", "shipped grader", "answer", "modules", "errexit"])
def test_the_patch_makes_the_copy_of_the_original(tmp_path: Path, name: str) -> None:
    needs.programs("patch", path=None)
    folder, into, report = mended(tmp_path, FLAWED[name][0])
    again = tmp_path / "again"
    shutil.copytree(folder, again)
    text = Path(report.patch).read_text()
    done = subprocess.run(
        ["patch", "-p1", "-s", "-d", str(again)], input=text, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for place in sorted(again.rglob("*")):
        if place.is_file():
            assert place.read_bytes() == (into / place.relative_to(again)).read_bytes()


@pytest.mark.parametrize(
    "name", ["pipe", "or true", "shipped grader", "input read again", "answer", "modules", "hooks", "history"]
)
def test_the_static_pass_no_longer_finds_it(tmp_path: Path, name: str) -> None:
    _, into, _ = mended(tmp_path, FLAWED[name][0])
    assert FLAWED[name][1] not in {finding.flaw for finding in scan(read_folder(into))}


def test_nothing_is_written_where_no_rule_applies(tmp_path: Path) -> None:
    files = task(judge("[ -s /app/total.txt ]"))
    _, into, report = mended(tmp_path, files)
    assert (report.folder, report.patch, report.applied) == ("", "", ())
    assert "presence-only" in {left.flaw for left in report.left}
    assert not into.parent.exists()


def test_nothing_is_written_over(tmp_path: Path) -> None:
    files = FLAWED["pipe"][0]
    folder = write(tmp_path / "task", files)
    found = read_folder(folder)
    with pytest.raises(InputError, match="something already"):
        mend(found, scan(found), folder)
    (tmp_path / "new.patch").write_text("mine")
    with pytest.raises(InputError, match="something already"):
        mend(found, scan(found), tmp_path / "new")
    assert (tmp_path / "new.patch").read_text() == "mine"
    assert not (tmp_path / "new").exists()
    assert read_folder(folder).digest == found.digest


def test_a_failure_on_the_way_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path / "task", FLAWED["pipe"][0])
    found = read_folder(folder)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copyfile", full)
    with pytest.raises(OSError, match="No space"):
        mend(found, scan(found), tmp_path / "out/task")
    assert list((tmp_path / "out").iterdir()) == []


def test_bits_and_links_are_kept(tmp_path: Path) -> None:
    folder = write(tmp_path / "task", FLAWED["pipe"][0])
    (folder / "tests/test.sh").chmod(0o755)
    (folder / "environment/data/link").symlink_to("rows.csv")
    found = read_folder(folder)
    into = Path(mend(found, scan(found), tmp_path / "out").folder)
    assert (into / "tests/test.sh").stat().st_mode & 0o111
    assert not (into / "solution/solve.sh").stat().st_mode & 0o111
    assert (into / "environment/data/link").readlink() == Path("rows.csv")
