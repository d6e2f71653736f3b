"""Other forms of right work that inputs and words show: each with a twin in which the same form would not be right."""

from __future__ import annotations

import json

import pytest

from flightschool.audit.terminal.alternatives import alternatives_of
from flightschool.audit.terminal.demanding import demands_of
from flightschool.audit.terminal.in_view import InView
from flightschool.audit.terminal.notations import notations_of
from flightschool.audit.terminal.ordering import alphabetical, asks_for_order, is_free
from flightschool.audit.terminal.outputs import Output
from flightschool.audit.terminal.recomputing import truths_of


def output(data: str, kind: str = "text", *, mode: int = 0o644, before: bytes | None = None) -> Output:
    return Output(
        path="/app/out",
        stage="",
        data=data.encode(),
        mode=mode,
        kind=kind,
        language="",
        before=before,
        named=True,
        graded=True,
    )


def view(instruction: str, *inputs: str) -> InView:
    return InView(instruction=instruction, inputs={f"/app/in{number}": text for number, text in enumerate(inputs)})


# ------------------------------------------------------------------------------------------------ notations


@pytest.mark.parametrize(
    ("data", "instruction", "other"),
    [
        ("95 minutes\n", "How long did it take? Write the duration with its unit.", "95 min\n"),
        ("3 kg\n", "How heavy is the parcel? Give the unit too.", "3 kilograms\n"),
        ("2024-05-03T07:12:30Z\n", "Write it as an RFC 3339 timestamp.", "2024-05-03T09:12:30+02:00\n"),
        ("2024-05-03T07:12:30Z\n", "Write it in UTC as ISO 8601.", "2024-05-03T07:12:30+00:00\n"),
    ],
)
def test_notations(data: str, instruction: str, other: str) -> None:
    assert other in [text for text, _ in notations_of(output(data), view(instruction))]


@pytest.mark.parametrize(
    ("data", "instruction"),
    [
        ("95 minutes\n", "How long did it take? Write the duration in minutes with its unit."),
        ("95 minutes\n", "Write the line that the program prints."),
        ("2024-05-03T07:12:30Z\n", "Write the instant as 2024-01-01T00:00:00Z, RFC 3339."),
        ("2024-05-03T07:12:30Z\n", "Write the first field of the line."),
    ],
)
def test_no_other_notation(data: str, instruction: str) -> None:
    assert list(notations_of(output(data), view(instruction))) == []


def test_a_documented_default_may_be_left_out_and_a_required_key_not() -> None:
    document = "queue (required, default 2)\nretries how often (optional, default 2)\ngrace (optional, default 10)\n"
    text = '{"queue": 2, "retries": 2, "grace": 30}'
    found = [json.loads(one) for one, _ in notations_of(output(text, "json"), view("Write it.", document))]
    assert found == [{"queue": 2, "grace": 30}]
    assert list(notations_of(output(text, "json"), view("Write it with all keys.", document))) == []
    lines = list(notations_of(output("retries = 2\ngrace = 30\n"), view("Write it.", document)))
    assert [one for one, _ in lines] == ["grace = 30\n"]


# ------------------------------------------------------------------------------------------------ orders


@pytest.mark.parametrize(
    ("instruction", "asked"),
    [
        ("Write all customers whose orders sum up to more than 100.", False),
        ("Write the rows in the order of the file.", True),
        ("Write them sorted by name.", True),
        ("Write them in alphabetical order.", True),
        ("Write the names.", False),
    ],
)
def test_who_asks_for_an_order(instruction: str, asked: bool) -> None:
    assert asks_for_order(instruction) is asked


def test_rows_are_free_where_their_source_has_no_order_and_none_suggests_itself() -> None:
    rows = ["zoe,120", "kay,101"]
    assert is_free(rows, view("The database has tables of customers."))
    assert not is_free(rows, view("The file lists customers."))
    assert not is_free(rows, view("The database has customers.", "zoe 3\nkay 7\n")), "as in an input"
    assert not is_free(sorted(rows), view("The database has tables of customers.")), "as in the alphabet"


def test_the_alphabet_of_people_and_of_bytes() -> None:
    rows = ["Clara", "Zoe", "anna", "ben"]
    assert alphabetical(rows, "Sort the names alphabetically.") == ["anna", "ben", "Clara", "Zoe"]
    assert alphabetical(rows, "Sort the names alphabetically, capital letters first.") == []
    assert alphabetical(["anna", "ben"], "Sort the names alphabetically.") == []


# ------------------------------------------------------------------------------------------------ answers


DEPENDENCIES = "app: core ui\nui: core draw\ncore:\ndraw: core\ndocs:\n"


def test_another_order_under_the_same_constraints() -> None:
    asked = "Write an order in which everything can be built."
    [(text, _)] = alternatives_of(output("core\ndraw\nui\napp\ndocs\n"), view(asked, DEPENDENCIES))
    order = text.split()
    assert order != ["core", "draw", "ui", "app", "docs"]
    assert sorted(order) == ["app", "core", "docs", "draw", "ui"]
    assert order.index("core") < order.index("draw") < order.index("ui") < order.index("app")
    told = "Write an order in which everything can be built; ties in alphabetical order."
    assert list(alternatives_of(output("core\ndraw\nui\napp\ndocs\n"), view(told, DEPENDENCIES))) == []


GRID = "S...\n.#.#\n...E\n"


def test_another_shortest_way() -> None:
    [(text, _)] = alternatives_of(output("EESSE\n"), view("Find a shortest way from S to E.", GRID))
    y = x = 0
    for letter in text.strip():
        y, x = y + (letter == "S") - (letter == "N"), x + (letter == "E") - (letter == "W")
        assert GRID.splitlines()[y][x] != "#"
    assert (y, x) == (2, 3)
    assert text != "EESSE\n"
    assert len(text) == 6
    only = "S.\n#E\n"
    assert list(alternatives_of(output("ES\n"), view("Find a shortest way.", only))) == [], "there is one way only"


def test_another_path_of_the_same_cost() -> None:
    edges = "a b 1\nb d 2\na c 2\nc d 1\na d 9\n"
    [(text, _)] = alternatives_of(output("a b d\n"), view("Write a cheapest path from a to d.", edges))
    assert text == "a c d\n"
    assert list(alternatives_of(output("a b d\n"), view("Write a path.", "a b 1\nb d 2\na c 2\nc d 2\n"))) == []


def test_ties() -> None:
    table = "ann,7\nbob,9\ncid,9\n"
    [(text, _)] = alternatives_of(output("bob\n"), view("Who has the highest score?", table))
    assert text == "cid\n"
    assert list(alternatives_of(output("bob\n"), view("Who has the highest score? Of ties the first.", table))) == []
    assert list(alternatives_of(output("bob\n"), view("Who has the highest score?", "ann,7\nbob,9\ncid,8\n"))) == []
    [(text, _)] = alternatives_of(output("x\n"), view("Which word is most frequent?", "x y x y z"))
    assert text == "y\n"


# ------------------------------------------------------------------------------------------------ truths


def test_a_wrong_line_among_right_ones() -> None:
    dates = "2024-02-29\n2023-01-01\n1999-12-31\n"
    asked = "Write the weekday of each date."
    [(text, why)] = truths_of(output("Wednesday\nSunday\nFriday\n"), view(asked, dates))
    assert text == "Thursday\nSunday\nFriday\n"
    assert "Thursday" in why
    assert list(truths_of(output("Thursday\nSunday\nFriday\n"), view(asked, dates))) == []
    assert list(truths_of(output("Mon\nTue\nWed\n"), view(asked, dates))) == [], "what is not understood is left alone"
    assert list(truths_of(output("Wednesday\nSunday\nFriday\n"), view("Write the moods.", dates))) == []


def test_a_header_is_no_row() -> None:
    table = "time,value\n1,2\n2,3\n"
    asked = "/app/in0 has a header line. Write how many readings there are."
    assert [text for text, _ in truths_of(output("3\n"), view(asked, table))] == ["2\n"]
    assert list(truths_of(output("2\n"), view(asked, table))) == []
    told = "/app/in0 has a header line. Write how many lines it has."
    assert list(truths_of(output("3\n"), view(told, table))) == []


def test_digests_and_columns() -> None:
    told = InView(instruction="Write the MD5 of /app/a.txt.", inputs={"/app/a.txt": "x\n"})
    assert [text for text, _ in truths_of(output("0" * 32), told)] == ["401b30e3b8b5d629635a5c613cdb7919\n"]
    rows = {"/app/a.csv": "name,amount\nx,3\ny,4\n"}
    told = InView(instruction="Write the sum of the column amount of /app/a.csv.", inputs=rows)
    assert [text for text, _ in truths_of(output("8\n"), told)] == ["7\n"]
    assert list(truths_of(output("7\n"), told)) == []
    told = InView(instruction="Write the sum of the column amount of /app/a.csv where name is x.", inputs=rows)
    assert list(truths_of(output("3\n"), told)) == []


# ------------------------------------------------------------------------------------------------ demands


@pytest.mark.parametrize(
    ("data", "kind", "instruction", "wanted"),
    [
        ("id,amount\nk1,1250\n", "table", "amounts in euros with two decimals, from cents", "id,amount\nk1,12.50\n"),
        ("7\n", "text", "Write the mean with two decimals.", "7.00\n"),
        ("none\n", "text", "If there are none, leave the file empty.", ""),
        ("", "text", "If there are none, write the word `none`.", "none\n"),
        ("total: 7\n", "text", "Add the numbers up.", "7\n"),
        ('{"mean_depth": 2}', "json", "Write a report as JSON.", '{"mean_depth_value": 2}\n'),
    ],
)
def test_what_is_demanded(data: str, kind: str, instruction: str, wanted: str) -> None:
    assert [one.data.decode() for one in demands_of(output(data, kind), view(instruction))] == [wanted]


@pytest.mark.parametrize(
    ("data", "kind", "instruction"),
    [
        ("7.25\n", "text", "Write the mean with two decimals."),
        ("ann\n", "text", "If there are none, leave the file empty."),
        ("total: 7\n", "text", "Write the total."),
        ('{"mean_depth": 2}', "json", "Write the depth as JSON."),
    ],
)
def test_what_is_kept(data: str, kind: str, instruction: str) -> None:
    assert list(demands_of(output(data, kind), view(instruction))) == []


def test_a_mode_of_which_nothing_is_said() -> None:
    [demand] = demands_of(output("x\n", mode=0o444), view("Write the version."))
    assert demand.mode == 0o644
    assert list(demands_of(output("x\n", mode=0o444), view("Write the version, read-only."))) == []
    assert list(demands_of(output("x\n"), view("Write the version."))) == []


def test_names_from_packed_inputs_may_be_in_view() -> None:
    packed = InView(instruction="Write a report.", packed=True)
    assert list(demands_of(output('{"mean_depth": 2}', "json"), packed)) == []
