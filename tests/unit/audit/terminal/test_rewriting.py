"""Other forms of right work: which bar when they are refused, and which are matters of taste."""

from __future__ import annotations

import json

import pytest
from tests.unit.audit.terminal.one_output import one_output

from flightschool.audit.terminal.outputs import canonical
from flightschool.audit.terminal.rewriting import Rewrite, rewrites_of


def rewrites(data: str, kind: str, instruction: str) -> dict[str, Rewrite]:
    return {one.what.removeprefix("/app/out: "): one for one in rewrites_of(one_output(data, kind), instruction)}


def test_forms_of_json_bar_and_mean_the_same() -> None:
    text = '{"b": 0.5, "a": [1, 2]}\n'
    found = rewrites(text, "json", "Write the report as JSON.")
    for what in ("keys in another order", "without spaces", "indented by four", "decimal numbers with one more 0"):
        assert found[what].bars, what
        assert json.loads(found[what].data) == json.loads(text)
    assert not found["items in another order"].bars


def test_an_exact_form_in_the_instruction_takes_the_bar_away() -> None:
    found = rewrites('{"a": 1}\n', "json", "Write compact JSON, byte for byte as in the example.")
    assert not any(one.bars for what, one in found.items() if "notes" not in what)


@pytest.mark.parametrize(
    ("data", "instruction", "what", "bars"),
    [
        ("105", "Write the sum.", "with a newline at its end", True),
        ("105\n", "Write the sum.", "without the newline at its end", True),
        ("a\nb\n", "Write the names.", "without the newline at its end", False),
        ("105\n", "Write the sum.", "with carriage returns at line ends", False),
        ("b\na\n", "Write the names in any order.", "rows in another order", True),
        ("b\na\n", "Write the names.", "rows in another order", False),
        ("0.23333333333333336\n", "Write the mean.", "long decimal numbers to 12 digits", True),
        ("0.23333333333333336\n", "Write the mean to all digits.", "long decimal numbers to 12 digits", False),
        ("Yes\n", "Answer yes or no; case does not matter.", "letters in the other case", True),
        ("4\n", "Write any number between 1 and 10.", "1, which the instruction allows too", True),
    ],
)
def test_what_bars(data: str, instruction: str, what: str, bars: bool) -> None:
    assert rewrites(data, "text", instruction)[what].bars is bars


def test_order_is_not_touched_where_the_instruction_speaks_of_it() -> None:
    assert "rows in another order" not in rewrites("a\nb\n", "text", "Write the names, sorted.")


def test_an_extra_file_bars_only_beside_and_not_in_a_folder_that_is_the_answer() -> None:
    beside = [one for one in rewrites_of(one_output("1\n", "text"), "Write /app/out.") if one.extra]
    assert [one.bars for one in beside] == [True]
    inside = [
        one for one in rewrites_of(one_output("1\n", "text", "/app/parts/1"), "Split it into /app/parts.") if one.extra
    ]
    assert [one.bars for one in inside] == [False]


def test_long_numbers_keep_their_value_to_twelve_digits() -> None:
    found = rewrites("0.23333333333333336\n", "text", "Write the mean.")["long decimal numbers to 12 digits"]
    assert float(found.data) == pytest.approx(0.23333333333333336, rel=1e-11)
    assert canonical("text", found.data) != canonical("text", b"0.23333333333333336\n")
