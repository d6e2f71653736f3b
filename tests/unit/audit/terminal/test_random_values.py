"""Random values: of the right type, the same by the same seed, and without what only the reference knows."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.audit.terminal.one_output import one_output

from flightschool.audit.terminal.probes.random_values import random_value
from flightschool.digest import derive_random


def drawn(data: str, kind: str, instruction: str = "", seed: int = 0) -> str:
    return random_value(one_output(data, kind), instruction, derive_random("t", seed)).decode()


@given(st.integers(0, 1000))
def test_the_same_seed_draws_the_same_value_of_the_right_type(seed: int) -> None:
    assert drawn("42\n", "text", seed=seed) == drawn("42\n", "text", seed=seed)
    assert int(drawn("42\n", "text", seed=seed)) != 42
    assert float(drawn("0.5\n", "text", seed=seed)) > 1
    assert len(drawn("two words\n", "text", seed=seed).split()) == 2


def test_other_seeds_draw_others() -> None:
    assert len({drawn("42\n", "text", seed=seed) for seed in range(5)}) == 5


def test_only_names_of_the_instruction_are_kept() -> None:
    text = '{"total": 3, "ant": {"share": 0.5, "ok": true}}\n'
    found = json.loads(drawn(text, "json", "Write total and, for each name, its share."))
    assert "total" in found
    assert "ant" not in found
    assert isinstance(found["total"], int)
    (inner,) = (value for key, value in found.items() if key != "total")
    assert isinstance(inner["share"], float)


@pytest.mark.parametrize(("instruction", "head"), [("Columns: name, amount.", True), ("Write a table.", False)])
def test_rows_have_as_many_columns(instruction: str, head: bool) -> None:
    rows = drawn("name,amount\nant,3\n", "table", instruction).splitlines()
    assert (rows[0] == "name,amount") is head
    assert all(len(row.split(",")) == 2 for row in rows)
    assert rows[-1].split(",")[1].isdigit()
