"""Queries on states that are JSON objects: which tables there are, and that no state breaks a check."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from flightschool.errors import InfrastructureError
from flightschool.records import Check, Json, SqlCheck
from flightschool.verification import load_checks

Judge = Callable[..., Check]

ORDERS: dict[str, Json] = {
    "A1": {"status": "open", "paid": True, "lines": [{"sku": "x", "n": 2}], "total": 12.5},
    "B2": {"status": "refunded", "paid": False, "lines": [], "total": 3},
}
STATE: dict[str, Json] = {
    "orders": ORDERS,
    "notes": [{"id": 7, "text": "hello", 'odd "name': 1}, {"id": 8, "text": None}],
    "empty": [],
    "mixed": [1, {"id": 2}],
    "settings": {"depth": 3},
    "version": 4,
    "sqlite_x": [{"id": 1}],
}


def sql(query: str, *expected: tuple[Json, ...]) -> SqlCheck:
    return SqlCheck(query=query, expected=expected)


@pytest.mark.parametrize(
    "rule",
    [
        sql("select 1", (1,)),
        sql("select id, status from orders where paid", ("A1", "open")),
        sql("select sum(total) from orders", (15.5,)),
        sql("select paid from orders order by id", (1,), (0,)),
        sql("select json_extract(lines, '$[0].n') from orders where id = 'A1'", (2,)),
        sql("select id from notes where text is null", (8,)),
        sql("""select "odd ""name" from notes where id = 7""", (1,)),
        sql("select count(*) from empty", (0,)),
        sql(
            "select author from empty where author = 'me' and e.place > 3 and e.author <> ''".replace(
                "empty", "empty e"
            )
        ),
        sql("select name from sqlite_master order by name", ("empty",), ("notes",), ("orders",)),
    ],
    ids=lambda rule: rule.query,
)
def test_top_level_keys_with_rows_are_tables(judge: Judge, rule: SqlCheck) -> None:
    check = judge(rule, start=STATE, end=STATE)
    assert check.passed, check.evidence


def test_a_wrong_state_falls_short_and_says_what_was_found(judge: Judge) -> None:
    check = judge(sql("select status from orders where id = 'A1'", ("refunded",)), start=STATE, end=STATE)
    assert not check.passed
    assert check.evidence == 'found [["open"]], expected [["refunded"]]'


def test_columns_are_those_of_both_states(judge: Judge) -> None:
    """All orders are gone: that none is open is still true, and can still be asked."""
    rule = sql("select id from orders where status = 'open'")
    assert judge(rule, start=STATE, end={**STATE, "orders": {}}).passed
    assert not judge(rule, start={**STATE, "orders": {}}, end=STATE).passed


def test_a_key_that_no_row_has_is_never_passed_and_named(judge: Judge) -> None:
    check = judge(sql("select id from orders where statsu = 'open'"), start=STATE, end=STATE)
    assert not check.passed
    assert "no such column: statsu" in check.evidence


def test_a_table_that_the_policy_lost_falls_short(judge: Judge) -> None:
    rule = sql("select count(*) from orders where status = 'lost'", (0,))
    for end in ({}, {"orders": "gone"}, {"orders": [*ORDERS.values(), 3]}):
        check = judge(rule, start=STATE, end=end)
        assert not check.passed
        assert "the end state alone" in check.evidence


@pytest.mark.parametrize(
    "query",
    [
        "delete from orders",
        "attach '/tmp/other.db' as other",
        "select nothing.id from nothing",
        "select from",
        "with recursive n(i) as (select 1 union all select i + 1 from n) select count(*) from n",
    ],
)
def test_a_broken_query_gives_no_verdict_and_names_the_check(judge: Judge, query: str) -> None:
    with pytest.raises(InfrastructureError) as caught:
        judge(sql(query, (1,)), start=STATE, end=STATE)
    assert caught.value.where.startswith("check it")


@pytest.mark.parametrize(
    "rows",
    [
        [{"id": 1, "ID": 2, "Id_2": 3}],
        [{"id": 1, "": 2, "nul\x00": 3, 'a"; drop table orders; --': 4}],
        [{"id": 1, "half": "\ud800", "\ud800": 1}],
        [{"id": 1, "large": 1 << 80, "nan": float("nan")}],
        [{"id": 1} | {f"key{number}": number for number in range(5000)}],
        {"k": {"id": 1}},
    ],
    ids=["case", "names", "surrogates", "numbers", "columns", "keyed"],
)
def test_no_state_breaks_a_check(judge: Judge, rows: Json) -> None:
    end = {**STATE, "odd": rows, 'odd"; --': rows, "ODD": rows, "": rows}
    check = judge(sql("select id from odd", (1,)), start=STATE, end=end)
    assert check.passed, check.evidence


def test_it_is_declared_without_python(judge: Judge, tmp_path: Path) -> None:
    file = tmp_path / "checks.toml"
    file.write_text(
        '[[check]]\nid = "refunded"\nkind = "functional"\nrule = "sql"\n'
        'query = "select status from orders where id = \'B2\'"\nexpected = [["refunded"]]\n'
    )
    (spec,) = load_checks(file)
    assert judge(spec.rule, start=STATE, end=STATE).passed


def test_the_example_of_the_documentation_passes(judge: Judge, tmp_path: Path) -> None:
    text = (Path(__file__).parents[4] / "docs/design/verification.md").read_text()
    (state,) = re.findall(r"^```json\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    (tmp_path / "checks.toml").write_text(text.split(state)[1].split("```toml\n")[1].split("```")[0])
    specs = load_checks(tmp_path / "checks.toml")
    assert [judge(spec.rule, start={}, end=json.loads(state)).passed for spec in specs] == [True] * 3


def test_a_state_that_is_no_object_gives_no_verdict(judge: Judge) -> None:
    with pytest.raises(InfrastructureError, match="a list"):
        judge(sql("select 1", (1,)), start=[], end=[1])
