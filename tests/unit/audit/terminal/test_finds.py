"""Which places in view are worth trying: what stands beside an answer counts, what a file is called does not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from flightschool.audit.terminal.outputs import Output
from flightschool.audit.terminal.probes.finds import in_files
from flightschool.audit.terminal.shipped import Shipped
from flightschool.audit.terminal.trial import Trial


def finds(content: str, answer: str, path: str = "/app/x17/k.dat") -> int:
    """How many finds one file gives for one output."""
    shipped = Shipped(path=path, data=content.encode(), mode=0o644, uid=0, size=1, readable=True, writable=True)
    output = Output(
        path="/app/out.txt",
        stage="",
        data=answer.encode(),
        mode=0o644,
        kind="text",
        language="",
        before=None,
        named=True,
        graded=True,
    )
    surface = SimpleNamespace(instruction="Write /app/out.txt.", solution="true", shipped=(shipped,))
    trial: Any = SimpleNamespace(surface=surface, work=SimpleNamespace(outputs=(output,)))
    return len(list(in_files(cast("Trial", trial))))


@pytest.mark.parametrize(
    ("content", "answer"),
    [
        ("the heron stands by the third lock\n", "the heron stands by the third lock\n"),  # long
        ("105\n", "105\n"),  # all that the file says
        ('{"user": "alice"}\n', "alice\n"),  # little else
        ("a long text about birds, and many more words than six; the answer is alice\n", "alice\n"),  # told beside it
        (" ".join(f"{n}" for n in range(100, 140)) + " 1048577 " + "word " * 20, "1048577\n"),  # no chance
    ],
)
def test_worth_trying(content: str, answer: str) -> None:
    assert finds(content, answer) >= 1
    assert finds(content, answer, "/app/answers/expected.txt") == finds(content, answer), "whatever it is called"


@pytest.mark.parametrize(
    ("content", "answer"),
    [
        ("alice and bob went to town and met carol there\n", "alice\n"),
        (" ".join(f"{n}" for n in range(1000, 1200)), "1105\n"),
        ("7\n", "7\n"),
        ("nothing of the kind\n", "105\n"),
    ],
)
def test_left_alone(content: str, answer: str) -> None:
    assert finds(content, answer) == 0
    assert finds(content, answer, "/app/answers/expected.txt") == 0, "whatever it is called"
