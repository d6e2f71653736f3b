# ruff: noqa: E501 - the texts of small tasks
"""The shell reader: words, pipes, conditions, options, what is reached."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flightschool.audit.terminal.static.shell_runs import Run
from flightschool.audit.terminal.static.shell_tree import parse_shell
from flightschool.audit.terminal.static.shell_walk import run_shell


def walk(script: str, **values: str) -> list[Run]:
    return run_shell(script, file="t.sh", path="/tests/t.sh", cwd="/app", values=values, read=lambda path: None)


def by_program(runs: list[Run], program: str) -> Run:
    return next(run for run in runs if run.program == program)


def test_words_and_quotes() -> None:
    (run,) = walk("""printf '%s\\n' "a $X"b\\ c ${Y:-d} "e\\"f" $'g\\th' """, X="x")
    assert run.words == ("printf", "%s\\n", "a xb c", "d", 'e"f', "g\th")


def test_unknown_variables_stay_visible() -> None:
    (run,) = walk("cat $WHO/x")
    assert run.words == ("cat", "$WHO/x")
    assert run.path(run.words[1]) == ""


def test_redirections_and_documents() -> None:
    runs = walk("cat <<'E' > out/x 2>/dev/null\nline $no\nE\necho more >> /b < in.txt\n")
    assert runs[0].document == "line $no\n"
    assert runs[0].writes == (("/app/out/x", False),)
    assert runs[1].writes == (("/b", True),)
    assert runs[1].reads == ("/app/in.txt",)


def test_a_group_writes_for_all_inside() -> None:
    runs = walk("if true; then echo 1; else echo 0; fi > /r\n")
    assert [run.writes for run in runs if run.program == "echo"] == [(("/r", False),)] * 2
    assert [run.guards[0].kind for run in runs if run.program == "echo"] == ["if", "else"]


@pytest.mark.parametrize(
    ("script", "use"),
    [
        ("pytest a\necho", "unused"),
        ("set -e\npytest a\necho", "errexit"),
        ("pytest a || true\necho", "swallowed"),
        ("pytest a || echo bad\necho", "swallowed"),
        ("pytest a || exit 1\necho", "condition"),
        ("if pytest a; then echo; fi", "condition"),
        ("pytest a\nrc=$?\necho $rc", "captured"),
        ("pytest a | tee x\necho", "piped"),
        ("set -o pipefail\npytest a | tee x\necho", "unused"),
        ("pytest a | tee x\nrc=${PIPESTATUS[0]}\n", "captured"),
        ("x=$(pytest a)\necho", "captured"),
        ("pytest a", "last"),
    ],
)
def test_what_becomes_of_an_exit_status(script: str, use: str) -> None:
    assert by_program(walk(script), "pytest").use == use


def test_a_status_in_a_variable_leads_to_its_command() -> None:
    runs = walk('pytest a\nrc=$?\nif [ "$rc" -eq 0 ]; then echo 1 > /r; fi\n')
    assert [base.program for base in by_program(runs, "[").basis()] == ["[", "pytest"]


def test_what_is_not_reached_does_not_appear() -> None:
    runs = walk("never() { rm /x; }\nif false; then rm /y; fi\necho a\nexit 0\nrm /z\n")
    assert [run.program for run in runs] == ["false", "echo", "exit"]


def test_functions_are_followed_where_they_are_called() -> None:
    runs = walk("check() {\n  pytest a\n}\ncd /srv\ncheck && echo 1 > /r\n")
    assert by_program(runs, "pytest").cwd == "/srv"
    assert by_program(runs, "pytest").line == 2
    assert runs[-1].guards[0].kind == "and"


def test_the_scripts_own_folder() -> None:
    runs = walk('cd "$(dirname "${BASH_SOURCE[0]}")"\npytest a\n')
    assert by_program(runs, "pytest").cwd == "/tests"


def test_sourced_and_called_scripts_are_followed() -> None:
    files = {"/tests/lib.sh": ("tests/lib.sh", "set -e\nX=5\n"), "/tests/in.sh": ("tests/in.sh", "echo $X\n")}
    runs = run_shell(
        ". /tests/lib.sh\nbash /tests/in.sh\npytest a\n",
        file="t.sh",
        path="/tests/t.sh",
        cwd="/",
        values={},
        read=files.get,
    )
    assert [run.in_script for run in runs if run.in_script] == ["tests/lib.sh", "tests/in.sh"]
    assert by_program(runs, "echo").words == ("echo", "5")
    assert by_program(runs, "pytest").use == "errexit"  # set -e came by sourcing and holds


def test_lines_of_substitutions_and_traps() -> None:
    runs = walk("echo a\n\nx=$(\n  cat /b\n)\ntrap 'echo 0 > /r' EXIT\n")
    assert by_program(runs, "cat").line == 4
    assert [run.line for run in runs if run.writes] == [6]
    assert by_program(walk("\n\nwc < $(find /b)\n"), "find").line == 3


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet=st.sampled_from(list("ab $\"'`\\\n;&|(){}<>#=![]x01")), max_size=120))
def test_any_text_is_read(text: str) -> None:
    runs = walk(text)
    assert all(1 <= run.line <= text.count("\n") + 1 for run in runs)
    assert [run.words for run in runs] == [run.words for run in walk(text)]


@pytest.mark.parametrize(
    "script",
    [
        "(" * 100_000, "$(" * 50_000, "${" * 50_000, '"' + "$(" * 20_000, "if " * 50_000, "`" * 99_999, "a|" * 60_000,
        "a&&" * 60_000, "x=" + "a" * 200_000, "<<E " * 20_000 + "\n", "f() { f; f; }\nf\n", "((" * 50_000, "case x in " * 9000,
        "for i in a; do " * 9000, "echo $((" * 30_000, "'" * 100_001, "a\\\n" * 50_000,
    ],
    ids=range(17),
)  # fmt: skip
def test_hostile_scripts_end_soon(script: str) -> None:
    started = time.process_time()
    walk(script)
    assert time.process_time() - started < 8.0


def test_deep_trees_are_cut_off() -> None:
    assert parse_shell("{ " * 500 + "echo a") is not None
