"""A lending library, as domain code that the learner never sees, and recordings of random visits to it."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

from flightschool.records import Message
from flightschool.traces import RecordedCall, RecordedEpisode

State = dict[str, Any]


def initial_state() -> State:
    """Members by id, books as a list with a unique ``isbn``, loans by id; rates by level inside ``rules``."""
    members = {
        f"M{n}": {"member_id": f"M{n}", "name": f"Reader {n}", "level": ("basic", "plus")[n % 2], "credit": 3 * n}
        for n in range(1, 13)
    }
    books = [
        {
            "isbn": f"978-{n:03}",
            "author": ("Lem", "Eco", "Calvino", "Borges")[n % 4],
            "shelf": f"S{n % 5}",
            "copies": n % 3,
            "fees": {"basic": 2 + n % 5, "plus": 1 + n % 3},
        }
        for n in range(40)
    ]
    loans = {f"L{n}": {"loan_id": f"L{n}", "isbn": f"978-{n:03}", "member_id": f"M{n}", "days": 7} for n in (1, 2)}
    return {"members": members, "books": books, "loans": loans}


class RefusalError(Exception):
    """What the library says no with."""


def get_member(state: State, member_id: str) -> Any:
    """A member's card; the field ``level`` was called ``tier`` when this was recorded."""
    member = dict(state["members"][member_id])
    member["tier"] = member.pop("level")
    return member


def find_books(state: State, author: str, shelf: str) -> Any:
    return [
        {"isbn": book["isbn"], "shelf": book["shelf"], "fees": book["fees"]}
        for book in state["books"]
        if book["author"] == author and book["shelf"] == shelf
    ]


def get_loan(state: State, loan_id: str) -> Any:
    return state["loans"][loan_id]


def extend_loan(state: State, loan_id: str, days: int, note: str) -> Any:
    loan = state["loans"][loan_id]
    member = state["members"][loan["member_id"]]
    book = next(book for book in state["books"] if book["isbn"] == loan["isbn"])
    fee = days * book["fees"][member["level"]]
    if member["credit"] < fee:
        raise RefusalError(f"Error: {member['member_id']} lacks credit for a fee of {fee}")
    loan |= {"days": loan["days"] + days, "fee": fee}
    return loan


def lend(state: State, member_id: str, isbn: str, days: int) -> Any:
    book = next(book for book in state["books"] if book["isbn"] == isbn)
    if book["copies"] == 0:
        raise RefusalError(f"Error: no copy of {isbn} on shelf {book['shelf']}")
    number = next(n for n in range(3, 99) if f"L{n}" not in state["loans"])
    loan = {"loan_id": f"L{number}", "isbn": isbn, "member_id": member_id, "days": days}
    state["loans"][loan["loan_id"]] = loan
    return loan


def pay(state: State, member_id: str, amount: int) -> Any:
    """Says nothing of what it changes."""
    state["members"][member_id]["credit"] += amount
    return {"ok": True}


TOOLS = {tool.__name__: tool for tool in (get_member, find_books, get_loan, extend_loan, lend, pay)}
WRITES = frozenset({"extend_loan", "lend", "pay"})


def record(num: int, seed: int = 0) -> tuple[RecordedEpisode, ...]:
    """Recordings of random visits."""
    return tuple(_visit(number, random.Random(f"{seed}/{number}")) for number in range(num))


def _visit(number: int, draw: random.Random) -> RecordedEpisode:
    state, calls = copy.deepcopy(initial_state()), []
    visitor = f"M{draw.randint(1, 12)}"
    for turn in range(draw.randint(3, 6)):
        name, arguments = _wish(draw, state, visitor)
        try:
            value, failed = TOOLS[name](state, **arguments), False
        except RefusalError as refusal:
            value, failed = str(refusal), True
        text = value if failed else json.dumps(value)
        calls.append(
            RecordedCall(
                turn=turn,
                id=f"c{turn}",
                name=name,
                arguments=arguments,
                text=text,
                value=copy.deepcopy(value),
                is_error=failed,
            )
        )
    messages = (Message(role="user", content=f"visit {number}"),)
    return RecordedEpisode(id=f"v{number}", source="library", messages=messages, calls=tuple(calls), success=True)


def _wish(draw: random.Random, state: State, member: str) -> tuple[str, dict[str, Any]]:
    name = draw.choice(sorted(TOOLS))
    isbn = f"978-{draw.randrange(40):03}"
    loan = draw.choice(sorted(state["loans"]))
    return name, {
        "get_member": {"member_id": member},
        "find_books": {"author": draw.choice(("Lem", "Eco", "Calvino", "Borges")), "shelf": f"S{draw.randrange(5)}"},
        "get_loan": {"loan_id": loan},
        "extend_loan": {"loan_id": loan, "days": draw.randint(1, 9), "note": f"asked by {draw.random():.6f}"},
        "pay": {"member_id": member, "amount": draw.randint(1, 9)},
        "lend": {"member_id": member, "isbn": isbn, "days": draw.choice((7, 14, 21))},
    }[name]
