# ruff: noqa: E501 - the texts of small tasks
"""The trust map: what a grader relies on, by name."""

from __future__ import annotations

from typing import Any

from flightschool.audit.terminal.static import TrustMap, examine_static

TESTS = """\
import json
import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, "/app")
import solver

OUT = Path("/app") / "out"

def load(name):
    return json.loads((OUT / name).read_text())

def test_result():
    assert load("result.json")["who"] == "ann of the hill"

def test_run():
    done = subprocess.run(["python3", "/app/run.py"], capture_output=True, text=True)
    assert done.stdout.strip() == solver.answer()

def test_there():
    assert os.path.exists("/app/done")
    assert open("/tests/expected.txt").read() == open("/app/copy.txt").read()
"""


def trust_of(look: Any, files: dict[str, Any]) -> TrustMap:
    (trust,) = look(files).trust
    assert isinstance(trust, TrustMap)
    return trust


def test_all_that_a_grader_relies_on(look: Any, kit: Any) -> None:
    files = kit.harbor(
        "jq -e .who /app/out/result.json > /dev/null\n"
        + kit.judge("python3 -m pytest -p no:cacheprovider /tests/test_a.py"),
        tests__test_a_DOT_py=TESTS,
        tests__expected_DOT_txt="x\n",
        environment__data__run_DOT_py="print(1)\n",
    )
    trust = trust_of(look, files)
    reads = {read.path: read for read in trust.grader_reads}
    assert reads["/app/out/result.json"].of_agent
    assert "ann of the hill" in {text for read in trust.grader_reads for text in read.literals}
    assert {"/app/done", "/app/copy.txt", "/tests/expected.txt"} <= reads.keys()
    assert not reads["/tests/expected.txt"].of_agent
    assert reads["/app/done"].how == "exists"
    assert [(i.module, i.path, i.names) for i in trust.grader_imports] == [("solver", "/app/solver.py", ("answer",))]
    assert [(p.path, p.interpreter, p.reads_stdout) for p in trust.grader_programs] == [
        ("/app/run.py", "python3", True)
    ]
    assert {"jq", "python3", "mkdir"} <= set(trust.grader_commands)
    assert trust.verdict_paths == ("/logs/verifier/reward.txt",)
    assert [(w.value, w.conditional) for w in trust.verdict_writes] == [("1", True), ("0", True)]
    assert trust.grader_files == ("tests/test.sh", "tests/test_a.py")
    entry = trust.python_entry
    assert entry is not None
    assert (entry.runner, entry.cwd, entry.rootdir, entry.targets) == (
        "pytest",
        "/app",
        "/tests",
        ("/tests/test_a.py",),
    )
    assert entry.guards == ("-p no:cacheprovider",)
    assert not entry.isolated
    assert trust.workdir == "/app"
    assert trust.agent_files == ("/app/data/rows.csv", "/app/data/run.py")
    assert trust.input_paths == ()
    assert "/app/total.txt" in trust.output_paths
    assert "/app/data/rows.csv" not in trust.output_paths


def test_users_and_what_they_may_write(look: Any, kit: Any) -> None:
    docker = (
        "FROM debian:12\nRUN useradd -m user\nWORKDIR /app\nCOPY --chown=user data/ /app/data/\nCOPY data/ /srv/\n"
        "RUN mkdir /app/out && chmod 777 /app/out && chown -R user:user /var/spool/x\nUSER user\n"
    )
    trust = trust_of(look, kit.harbor(kit.judge("cmp /app/a /tests/b"), environment__Dockerfile=docker))
    assert trust.agent_user == "user"
    for place in ("/app/data/rows.csv", "/app/out/x", "/tmp/x", "/home/user/x", "/var/spool/x/y"):
        assert trust.may_write(place), place
    for place in ("/srv/rows.csv", "/usr/bin/x", "/app/other"):
        assert not trust.may_write(place), place
    root = trust_of(look, kit.harbor(kit.judge("cmp /app/a /tests/b")))
    assert (root.agent_user, root.agent_writable, root.may_write("/usr/bin/x")) == ("root", ("/",), True)


def test_python_through_other_doors(look: Any, kit: Any) -> None:
    script = (
        "python3 - <<'E'\nprint(open('/app/a.txt').read() == 'seven tall ships')\nE\n"
        "cp /tests/check.py /app/check.py\ncd /app\npython3 check.py\npython3 -I -c \"open('/app/c.txt')\"\n"
        "uvx --with pytest pytest /tests/test_d.py\n"
    )
    trust = trust_of(
        look,
        kit.harbor(script, tests__check_DOT_py="open('/app/b.txt')\n", tests__test_d_DOT_py="import helper\n", tests__helper_DOT_py="open('/app/e.txt')\n"),
    )  # fmt: skip
    assert {"/app/a.txt", "/app/b.txt", "/app/c.txt", "/app/e.txt"} <= {read.path for read in trust.grader_reads}
    assert [entry.runner for entry in trust.python_entries] == ["python", "python", "python", "pytest"]
    assert [entry.isolated for entry in trust.python_entries] == [False, False, True, True]
    assert "tests/helper.py" in trust.grader_files


def test_steps_have_a_map_each(place: Any, kit: Any) -> None:
    files = {
        "task.toml": kit.toml + '[[steps]]\nname = "one"\n[[steps]]\nname = "two"\n',
        "environment/Dockerfile": "FROM debian:12\nWORKDIR /app\n",
        "steps/one/instruction.md": "Make a.\n",
        "steps/one/tests/test.sh": kit.judge("[ \"$(cat /app/a)\" = 'the grey heron flew west' ]"),
        "steps/two/instruction.md": "Make b.\n",
        "steps/two/tests/test.sh": kit.judge("cmp /app/b /tests/b"),
        "steps/two/tests/b": "b\n",
        "steps/two/workdir/notes": "the grey heron flew west\n",
    }
    found = examine_static(place(files))
    assert [trust.stage for trust in found.trust] == ["one", "two"]
    assert "cross-step-leak" in {finding.flaw for finding in found.findings}


def test_terminal_bench_folders(place: Any) -> None:
    files = {
        "task.yaml": "instruction: Sort /app/in.txt into /app/out.txt.\nparser_name: pytest\n",
        "Dockerfile": "FROM debian:12\nWORKDIR /app\nCOPY . /app/\n",
        "in.txt": "b\na\n",
        "run-tests.sh": "#!/bin/bash\npytest $TEST_DIR/test_outputs.py -rA\n",
        "tests/test_outputs.py": "def test_it():\n    text = open('/app/out.txt').read().split()\n    assert text[0] == 'a' and text[1] == 'b'\n",
        "solution.sh": "#!/bin/sh\nsort /app/in.txt > /app/out.txt\n",
    }
    found = examine_static(place(files))
    (trust,) = found.trust
    assert trust.python_entry is not None
    assert trust.python_entry.targets == ("/tests/test_outputs.py",)
    leaked = {leak.path for leak in found.leaks if leak.whole_file}
    assert {"/app/tests/test_outputs.py", "/app/solution.sh"} <= leaked
    assert {"tests-in-view", "answer-in-view"} <= {finding.flaw for finding in found.findings}


def test_where_the_leak_is_and_what_it_answers(look: Any, kit: Any) -> None:
    files = kit.python_task(
        'def test_it():\n    assert open("/app/phrase.txt").read().strip() == "violet harbour 7719 north"\n',
        environment__data__notes_DOT_md="say violet harbour 7719 north\n",
        solution__solve_DOT_sh="/app/data/open > /app/phrase.txt\n",
    )
    (leak,) = look(files).leaks
    assert (leak.path, leak.text, leak.output) == ("/app/data/notes.md", "violet harbour 7719 north", "/app/phrase.txt")


def test_what_is_the_same_in_a_code_is_not_coded_and_what_git_took_back_is_not_there(look: Any, kit: Any) -> None:
    """Digits stay when letters are rotated; a commit that was taken back takes its files along."""
    steps = "RUN echo 907 > out.txt && git init -q && git add . && git commit -qm x && git reset -q --hard HEAD~1\n"
    test = kit.judge('[ "$(cat /app/out.txt)" = 907 ]')
    for build in (steps, "RUN echo 907 > out.txt\n"):
        found = look(kit.harbor(test, environment__Dockerfile=kit.dockerfile + build))
        assert not [one.what for one in found.findings if "rot13" in one.what or "reversed" in one.what]
    assert found.leaks == ()
    words = kit.judge('[ "$(cat /app/out.txt)" = heron-flew-west ]')
    coded = look(kit.harbor(words, environment__Dockerfile=kit.dockerfile + "RUN echo ureba-syrj-jrfg > /app/.x\n"))
    assert [leak.encoding for leak in coded.leaks] == ["rot13"]


def test_a_sticky_folder_keeps_what_is_its_owners(look: Any, kit: Any) -> None:
    """In a folder open to all, files of others can be replaced, unless it is sticky."""

    def told(mode: str) -> set[str]:
        build = f"COPY data/check.sh /app/check.sh\nRUN useradd -m agent && chmod {mode} /app\n"
        files = kit.harbor(
            kit.judge("bash /app/check.sh"),
            environment__Dockerfile=kit.dockerfile + build,
            environment__data__check_DOT_sh="cmp /app/total.txt /tests/x\n",
        )
        toml = kit.toml.replace("[agent]\n", '[agent]\nuser = "agent"\n')
        return {one.flaw for one in look({**files, "task.toml": toml}).findings}

    assert "grader-in-reach" in told("777")
    assert "grader-in-reach" not in told("1777")
    assert "grader-in-reach" not in told("777 /app && chmod +t")
    assert "grader-in-reach" in told("1777 /app && chmod 777")
