"""What models reply is read without trust: programs in lines, opinions as JSON with the request's fence."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightschool.audit.terminal.flaws import FLAWS
from flightschool.audit.terminal.proposing.answers import (
    MOST_PROPOSALS,
    Opinion,
    Proposal,
    read_opinion,
    read_proposals,
    read_source,
)

REPLY = """<think>PROPOSAL wrong noop-passes
is only a thought</think>
Two ways promise something.

PROPOSAL right order-sensitive
WHAT the rows stand in another order
WHY "in any order",
as the instruction says
PROGRAM
```sh
printf 'b\\na\\n' > /out/list.txt
```
END PROPOSAL

PROPOSAL leak float-equality
WHAT the answer is copied
WHY it lies in the cache
PROGRAM
cp /cache/x /out/list.txt

END PROPOSAL
"""


def test_programs_are_read_with_what_is_claimed_of_them() -> None:
    assert read_proposals(REPLY) == (
        Proposal(
            kind="right",
            flaw="order-sensitive",
            what="the rows stand in another order",
            why='"in any order", as the instruction says',
            program="printf 'b\\na\\n' > /out/list.txt\n",
        ),
        Proposal(
            kind="leak",
            flaw="answer-in-view",  # the class named is none of leaks
            what="the answer is copied",
            why="it lies in the cache",
            program="cp /cache/x /out/list.txt\n",
        ),
    )


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        ("I cannot help with that.", "neither a proposal"),
        ("", "neither a proposal"),
        ("PROPOSAL wrong noop-passes\nWHAT x\nPROGRAM\ntrue\n", "no line END PROPOSAL"),
        ("PROPOSAL wrong noop-passes\nWHAT x\ntrue\nEND PROPOSAL\n", "no line PROGRAM"),
        ("PROPOSAL wrong noop-passes\nPROGRAM\n\nEND PROPOSAL\n", "empty"),
        ("PROPOSAL wrong noop-passes\nPROGRAM\n" + "x" * 70_000 + "\nEND PROPOSAL\n", "longer than"),
    ],
)
def test_a_refusal_is_no_acquittal_and_half_a_program_is_none(reply: str, told: str) -> None:
    problem = read_proposals(reply)
    assert isinstance(problem, str)
    assert told in problem


def test_nothing_to_propose_must_be_said() -> None:
    assert read_proposals("Instruction and tests agree.\n\nNO PROPOSALS\n") == ()


def test_no_more_than_some_are_run() -> None:
    one = "PROPOSAL wrong noop-passes\nWHAT n\nPROGRAM\ntrue\nEND PROPOSAL\n"
    assert len(read_proposals(one * 30)) == MOST_PROPOSALS


@given(st.text())
def test_any_reply_is_read_or_refused_in_words(reply: str) -> None:
    found = read_proposals(reply)
    assert isinstance(found, str) or all(one.flaw in FLAWS and one.program.strip() for one in found)
    assert isinstance(read_opinion(reply, "f", "A"), str | Opinion)


def said(**changes: Any) -> str:
    return json.dumps(
        {"fence": "f", "A": "right", "B": "flawed", "alike": False, "why": "the header is missing"} | changes
    )


def test_an_opinion_is_told_by_role_not_by_letter() -> None:
    of_a = read_opinion(said(), "f", "A")
    assert of_a == Opinion(reference="right", candidate="flawed", alike=False, why="the header is missing")
    assert read_opinion(f"```json\n{said()}\n```", "f", "B") == Opinion(
        reference="flawed", candidate="right", alike=False, why="the header is missing"
    )


@pytest.mark.parametrize(
    "reply",
    [
        said(fence="g"),
        said(A="yes"),
        said(more=1),
        said(alike="no"),
        "right",
        json.dumps({"fence": "f", "A": "right", "why": ""}),
        "[]",
    ],
)
def test_what_is_no_opinion_on_this_request_is_refused(reply: str) -> None:
    assert isinstance(read_opinion(reply, "f", "A"), str)


def test_where_an_answer_comes_from() -> None:
    reply = json.dumps({"fence": "f", "source": "reads", "why": "it copies\nthe key"})
    assert read_source(reply, "f") == ("reads", "it copies the key")
    assert isinstance(read_source(reply, "g"), str)
    assert isinstance(read_source(reply.replace("reads", "maybe"), "f"), str)
