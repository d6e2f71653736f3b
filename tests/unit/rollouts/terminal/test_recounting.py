"""What a program in a terminal did, told as events: readable by the scan, bounded, and inert."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightschool.records import ToolEvent
from flightschool.rollouts.terminal.recounting import FILE_WRITTEN, PROGRAM, SHELL, recount, shell_statements
from flightschool.sandbox.written import Written, WrittenKind

RUN = ("bash", "/tmp/.policy/p")


def commands(events: tuple[ToolEvent, ...]) -> list[tuple[str, str]]:
    return [(e.call.name, next(iter(e.call.arguments.values()))) for e in events]


def test_a_shell_program_is_told_statement_by_statement() -> None:
    script = b"""#!/bin/bash
# a remark
set -e; cd /app && cat rows | sort > out
if [ -f x ]; then
  echo "a;b && c"   # more
fi
cat > /logs/verifier/reward.txt <<'END'
1; rm -rf /
END
"""
    assert commands(recount(RUN, script, (), stage=0, first=0)) == [
        (SHELL, "set -e"),
        (SHELL, "cd /app"),
        (SHELL, "cat rows | sort > out"),
        (SHELL, "if [ -f x ]"),
        (SHELL, 'echo "a;b && c"   # more'),
        (SHELL, "cat > /logs/verifier/reward.txt <<'END'\n1; rm -rf /\nEND"),
    ]


def test_a_python_program_by_its_statements_and_what_cannot_be_parsed_as_a_whole() -> None:
    program = b"#!/usr/bin/env -S python3 -u\nimport os\n\ndef f():\n    return open('/tests/t').read()\n"
    told = commands(recount(("/tmp/.policy/p",), program, (), stage=0, first=0))
    assert told == [(PROGRAM, "import os"), (PROGRAM, "def f():\n    return open('/tests/t').read()")]
    broken = b"#!/usr/bin/python3\nimport os os\n"
    assert commands(recount(("p",), broken, (), stage=0, first=0)) == [(PROGRAM, broken.decode())]


def test_what_was_really_written_stands_beside_what_was_meant_to_be() -> None:
    changes = [
        Written(path="/app/out", kind=WrittenKind.FILE, data=b"x"),
        Written(path="/app", kind=WrittenKind.FOLDER),
        Written(path="/tests/test.sh", kind=WrittenKind.GONE),
    ]
    events = recount(RUN, b"true", changes, stage=2, first=7)
    assert commands(events) == [(FILE_WRITTEN, "/app/out"), (FILE_WRITTEN, "/tests/test.sh")]
    assert [(event.index, event.turn) for event in events] == [(7, 2), (8, 2)]


def test_nothing_ran_nothing_is_told() -> None:
    assert recount((), b"", (), stage=0, first=0) == ()


@pytest.mark.parametrize("program", [b"\x7fELF\0\1", b"echo \0"])
def test_a_binary_is_known_by_its_digest(program: bytes) -> None:
    (event,) = recount(("p",), program, (), stage=0, first=0)
    assert event.call.arguments["num_bytes"] == len(program)
    assert str(event.call.arguments["binary"]).startswith("sha256:")


def test_all_of_it_is_bounded() -> None:
    long = b"\n".join(b"echo %d" % n for n in range(100_000)) + b"\n" + b"x" * 100_000
    changes = [Written(path=f"/app/{n:05d}" + "y" * 3000, kind=WrittenKind.FILE, data=b"") for n in range(5000)]
    events = recount(RUN, long, changes, stage=0, first=0)
    assert len(events) <= 402
    assert max(len(str(event.call.arguments)) for event in events) < 5000
    assert commands(events)[200][0] == PROGRAM, "that it was cut is told"
    assert commands(events)[-1] == (FILE_WRITTEN, "… and 4800 more")


@given(st.text(max_size=200))
def test_no_text_breaks_the_reader(text: str) -> None:
    told = list(shell_statements(text))
    assert all(statement.strip() for statement in told)
    assert sum(map(len, told)) <= len(text)
