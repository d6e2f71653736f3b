"""Checks on end states: what passes, what falls short, and what cannot be judged at all."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flightschool.errors import InfrastructureError, InputError
from flightschool.records import (
    AnswerCheck,
    CallCheck,
    Check,
    CheckKind,
    CheckRule,
    CheckSpec,
    DiffCheck,
    Effect,
    Evidence,
    Fault,
    Json,
    SqlCheck,
    ToolCall,
    ToolEvent,
    ToolResult,
)
from flightschool.verification import CheckVerifier, differences
from flightschool.verification.images import sealed

SCHEMA = """
CREATE TABLE orders (id TEXT PRIMARY KEY, part TEXT COLLATE NOCASE, quantity INT, price REAL);
CREATE TABLE notes (body TEXT);
CREATE TABLE seats (row INT, letter TEXT, taken INT, PRIMARY KEY (letter, row)) WITHOUT ROWID;
CREATE TABLE counters (id INTEGER PRIMARY KEY AUTOINCREMENT, what TEXT);
INSERT INTO orders VALUES ('O-1', 'bolt', 2, 0.1), ('O-2', 'nut', 5, 0.2);
INSERT INTO notes VALUES ('{"ok": 1}'), ('{"ok": 2}');
INSERT INTO seats VALUES (1, 'A', 0), (2, 'A', 0);
"""


def image(changes: str = "") -> bytes:
    connection = sqlite3.connect(":memory:")
    connection.executescript(SCHEMA + changes)
    data = connection.serialize()
    connection.close()
    return data


def evidence(changes: str = "", events: Sequence[ToolEvent] = (), answer: str = "") -> Evidence:
    return Evidence(initial_state=image(), end_state=image(changes), events=tuple(events), answer=answer)


def judged(rule: CheckRule, seen: Evidence, kind: CheckKind = CheckKind.FUNCTIONAL) -> Check:
    (check,) = CheckVerifier([CheckSpec(id="it", kind=kind, rule=rule)]).verify(seen).checks
    return check


def sql(query: str, *expected: tuple[Json, ...]) -> SqlCheck:
    return SqlCheck(query=query, expected=expected)


# ------------------------------------------------------------------------------------------------ queries


def test_a_query_passes_on_exactly_the_expected_rows() -> None:
    check = judged(sql("SELECT quantity FROM orders WHERE id = 'O-1'", (3,)), evidence("UPDATE orders SET quantity=3;"))
    assert check.passed
    assert check.evidence == "found [[3]]"


@pytest.mark.parametrize("expected", [((2,),), (), ((3,), (3,)), (("3",),), ((None,),), ((3, 1),)])
def test_anything_else_falls_short_and_says_what_was_found(expected: tuple[tuple[Json, ...], ...]) -> None:
    rule = SqlCheck(query="SELECT quantity FROM orders WHERE id = 'O-1'", expected=expected)
    check = judged(rule, evidence("UPDATE orders SET quantity=3;"))
    assert not check.passed
    assert "found [[3]]" in check.evidence


def test_rows_come_in_any_order_unless_the_query_orders_them() -> None:
    rows = (("O-2",), ("O-1",))
    assert judged(sql("SELECT id FROM orders", *rows), evidence()).passed
    assert not judged(sql("SELECT id FROM orders ORDER BY id", *rows), evidence()).passed
    within = "SELECT id FROM (SELECT id FROM orders ORDER BY id) -- order by\n WHERE id <> 'order by'"
    assert judged(sql(within, *rows), evidence()).passed


def test_duplicates_count() -> None:
    assert not judged(sql("SELECT 1 FROM orders", (1,)), evidence()).passed
    assert judged(sql("SELECT 1 FROM orders", (1,), (1,)), evidence()).passed


def test_numbers_compare_by_value() -> None:
    assert judged(sql("SELECT sum(price), count(*), 1 = 1 FROM orders", (0.3, 2.0, True)), evidence()).passed
    assert not judged(sql("SELECT sum(price) FROM orders", (0.30001,)), evidence()).passed


def test_json_functions_are_at_hand() -> None:
    assert judged(sql("SELECT sum(value) FROM notes, json_each(body)", (3,)), evidence()).passed


@pytest.mark.parametrize(
    "query",
    [
        "DELETE FROM orders",
        "UPDATE sqlite_master SET sql = ''",
        "CREATE TABLE x (a)",
        "ATTACH '/tmp/other.db' AS other",
        "PRAGMA user_version",
        "SELECT load_extension('evil')",
        "SELECT 1; DELETE FROM orders",
        "SELECT nothing FROM orders",
        "SELECT FROM",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 20000) SELECT i FROM n",
    ],
)
def test_a_query_that_is_broken_or_does_more_than_read_gives_no_verdict(query: str) -> None:
    with pytest.raises(InfrastructureError):
        judged(sql(query, (1,)), evidence())


@pytest.mark.parametrize("left", ["UPDATE notes SET body = 'no json';", "DROP TABLE notes;"])
def test_what_only_the_policy_can_have_broken_falls_short(left: str) -> None:
    check = judged(sql("SELECT sum(json_extract(body, '$.ok')) FROM notes", (3,)), evidence(left))
    assert not check.passed
    assert "the end state alone" in check.evidence


@pytest.mark.parametrize("state", [b"", b"junk", b"SQLite format 3\x00" + b"\x01" * 4096, image()[:2048]])
def test_an_end_state_that_cannot_be_read_gives_no_verdict(state: bytes) -> None:
    for rule in (sql("SELECT id FROM orders", ("O-1",)), DiffCheck(allowed={})):
        with pytest.raises(InfrastructureError):
            judged(rule, Evidence(initial_state=image(), end_state=state))


def test_a_query_on_a_state_without_tables_is_a_clear_error() -> None:
    assert judged(sql("SELECT 1", (1,)), Evidence(initial_state=b"{}", end_state=b"{}")).passed
    with pytest.raises(InfrastructureError, match="neither an SQLite image nor JSON"):
        judged(sql("SELECT 1", (1,)), Evidence(initial_state=b"tar", end_state=b"tar"))


# ------------------------------------------------------------------------------------------------ differences


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ("INSERT INTO orders VALUES ('O-3', 'bolt', 1, 1);", "orders: 1 added, 0 removed, 0 changed"),
        ("DELETE FROM notes;", "notes: 0 added, 2 removed, 0 changed"),
        ("UPDATE orders SET part = 'BOLT' WHERE id = 'O-1';", "orders: 0 added, 0 removed, 1 changed"),
        ("UPDATE orders SET quantity = NULL;", "orders: 0 added, 0 removed, 2 changed"),
        ("UPDATE seats SET taken = 1 WHERE row = 2;", "seats: 0 added, 0 removed, 1 changed"),
        ("UPDATE orders SET id = 'O-9' WHERE id = 'O-1';", "orders: 1 added, 1 removed, 0 changed"),
        ("CREATE TABLE extra AS SELECT 1 AS a;", "extra: 1 added, 0 removed, 0 changed"),
        ("DROP TABLE seats;", "seats: 0 added, 2 removed, 0 changed"),
        ("ALTER TABLE notes ADD COLUMN x;", "notes: 2 added, 2 removed, 0 changed"),
    ],
)
@pytest.mark.parametrize("few_rows", [2000, 0])  # compared here, or inside SQLite as large tables are
def test_every_change_is_found_and_none_is_allowed_unless_named(
    changes: str, found: str, few_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(differences, "_FEW_ROWS", few_rows)
    differences._small_initial.cache_clear()
    check = judged(DiffCheck(allowed={}), evidence(changes), CheckKind.CONSTRAINT)
    assert not check.passed
    assert check.evidence.startswith(found)


def test_changes_within_what_is_allowed_pass() -> None:
    seen = evidence("UPDATE orders SET quantity = 9; INSERT INTO notes VALUES ('x');")
    assert judged(DiffCheck(allowed={"orders": 2, "notes": 1}), seen).passed
    assert not judged(DiffCheck(allowed={"orders": 1, "notes": 1}), seen).passed
    assert judged(DiffCheck(allowed={}), evidence()).evidence == "nothing changed"


LONG = "'" + "x" * 9000 + "'"  # a row that fills pages of its own


@given(
    st.lists(
        st.sampled_from(
            [
                f"INSERT INTO notes VALUES ({LONG});",
                f"UPDATE notes SET body = replace({LONG}, 'xxx', 'xxy') WHERE length(body) > 100;",
                "UPDATE notes SET body = substr(body, 1, 8999) || 'z' WHERE length(body) = 9000;",
                "DELETE FROM notes WHERE rowid % 2;",
                "INSERT INTO orders SELECT 'N-' || value, 'bolt', value, 0 FROM json_each('[1,2,3]') WHERE true "
                "ON CONFLICT DO UPDATE SET quantity = quantity + 1;",
                "DELETE FROM orders WHERE id LIKE 'N%';",
                "UPDATE seats SET taken = 1 - taken WHERE row = 1;",
                "INSERT OR REPLACE INTO seats SELECT value, 'B', 0 FROM json_each('[1,2,3,4,5,6,7,8,9]');",
                "CREATE INDEX IF NOT EXISTS by_part ON orders (part);",
                "DROP TABLE IF EXISTS counters;",
                "CREATE TABLE IF NOT EXISTS counters (id INTEGER PRIMARY KEY AUTOINCREMENT, what TEXT);",
                "ALTER TABLE seats RENAME COLUMN taken TO held; ALTER TABLE seats RENAME COLUMN held TO taken;",
                "VACUUM;",
            ]
        ),
        max_size=6,
    ),
    st.integers(0, 6),
)
@settings(max_examples=50, deadline=None)
def test_reading_changed_pages_only_finds_what_reading_everything_finds(changes: list[str], before: int) -> None:
    one, other = image("".join(changes[:before])), image("".join(changes))
    with sealed(other, guarded=False) as end:
        found = differences.sqlite_changes(end, one, other)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(differences, "_changed_pages", lambda _one, _other: None)
            assert found == differences.sqlite_changes(end, one, other)


def test_only_tables_with_a_changed_page_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    compared = differences._compare_with_end

    def compare(end: sqlite3.Connection, name: str, table: differences._Table) -> differences.Change | None:
        read.append(name)
        return compared(end, name, table)

    monkeypatch.setattr(differences, "_compare_with_end", compare)
    assert not judged(DiffCheck(allowed={}), evidence("UPDATE seats SET taken = 1;")).passed
    assert read == ["seats"]


@pytest.mark.parametrize("few_rows", [2000, 0])
def test_keys_that_repeat_are_no_trap(few_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(differences, "_FEW_ROWS", few_rows)
    differences._small_initial.cache_clear()
    nulls = "CREATE TABLE n (k TEXT PRIMARY KEY, v INT); INSERT INTO n VALUES (NULL, 1), (NULL, 2);"
    before, after = image(nulls), image(nulls + "INSERT INTO n VALUES ('a', 3);")
    assert judged(DiffCheck(allowed={}), Evidence(initial_state=before, end_state=before)).passed
    for one, other, found in ((before, after, "1 added, 0 removed"), (after, before, "0 added, 1 removed")):
        check = judged(DiffCheck(allowed={}), Evidence(initial_state=one, end_state=other))
        assert check.evidence == f"n: {found}, 0 changed, allowed 0"
    fewer = judged(DiffCheck(allowed={}), Evidence(initial_state=after, end_state=image(nulls + "DELETE FROM n;")))
    assert fewer.evidence == "n: 0 added, 3 removed, 0 changed, allowed 0"


def test_a_write_that_was_undone_is_no_change() -> None:
    undone = (
        "INSERT INTO counters (what) VALUES ('x'); DELETE FROM counters; UPDATE orders SET quantity = quantity + 0;"
    )
    assert judged(DiffCheck(allowed={}), evidence(undone)).passed


def test_a_table_that_does_not_exist_gives_no_verdict() -> None:
    for changes in ("", "DELETE FROM notes;"):
        with pytest.raises(InfrastructureError, match="'order'"):
            judged(DiffCheck(allowed={"order": 1}), evidence(changes))


@given(kept=st.sets(st.integers(0, 9)), added=st.sets(st.integers(20, 25)), changed=st.sets(st.integers(0, 9)))
@settings(max_examples=30, deadline=None)
def test_counts_are_exact_for_images_and_for_json(kept: set[int], added: set[int], changed: set[int]) -> None:
    before = dict.fromkeys(range(10), 0)
    after = {i: 1 if i in changed else 0 for i in sorted(kept)} | dict.fromkeys(sorted(added), 7)
    expected = f"t: {len(added)} added, {10 - len(kept)} removed, {len(kept & changed)} changed"

    def as_image(rows: dict[int, int]) -> bytes:
        connection = sqlite3.connect(":memory:")
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v INT)")
        connection.executemany("INSERT INTO t VALUES (?, ?)", rows.items())
        connection.commit()
        return connection.serialize()

    def as_object(rows: dict[int, int]) -> bytes:
        return json.dumps({"t": {str(key): {"v": value} for key, value in rows.items()}}).encode()

    def as_list(rows: dict[int, int]) -> bytes:
        return json.dumps({"t": [{"id": key, "v": value} for key, value in rows.items()]}).encode()

    for form in (as_image, as_object, as_list):
        found = judged(DiffCheck(allowed={}), Evidence(initial_state=form(before), end_state=form(after)))
        assert found.passed is (before == after)
        assert found.evidence.startswith(expected) or found.passed


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ([{"a": 1}, {"a": 1}], [{"a": 1}], "t: 0 added, 1 removed, 0 changed"),
        ("open", "closed", "t: 0 added, 0 removed, 1 changed"),
        ({"a": True}, {"a": 1}, "t: 0 added, 0 removed, 1 changed"),
    ],
)
def test_json_collections_of_other_shapes(old: Json, new: Json, found: str) -> None:
    seen = Evidence(initial_state=json.dumps({"t": old}).encode(), end_state=json.dumps({"t": new}).encode())
    assert judged(DiffCheck(allowed={}), seen).evidence.startswith(found)


# ------------------------------------------------------------------------------------------------ calls


def event(index: int, name: str, fault: str = "", is_error: bool = False, **arguments: Json) -> ToolEvent:
    truth = Fault(kind=fault, family="f") if fault else None
    return ToolEvent(
        index=index,
        turn=index,
        call=ToolCall(id=str(index), name=name, arguments=arguments),
        result=ToolResult(call_id=str(index), content="{}", is_error=is_error, fault=truth),
        effect=Effect.READ,
        start_ms=0.0,
        end_ms=1.0,
    )


@pytest.mark.parametrize(
    ("rule", "passed"),
    [
        (CallCheck(tool="look"), True),
        (CallCheck(tool="look", least=2), False),  # the second look failed
        (CallCheck(tool="look", arguments={"id": "A"}), True),
        (CallCheck(tool="look", arguments={"id": "B"}), False),
        (CallCheck(tool="look", arguments={"id": "A", "deep": {"x": 1}}), True),
        (CallCheck(tool="look", arguments={"deep": {"x": True}}), False),
        (CallCheck(tool="look", arguments={"deep": {"z": None}}), False),
        (CallCheck(tool="write", least=0, most=1), False),  # two happened: one of them was told to be a time-out
        (CallCheck(tool="write", least=2, most=2), True),
        (CallCheck(tool="send", least=0, most=0), True),  # a time-out before the write: it did not happen
        (CallCheck(tool="look", before="write"), True),
        (CallCheck(tool="check", before="write"), False),
        (CallCheck(tool="check", before="never"), True),
    ],
)
def test_calls_that_took_effect_are_counted(rule: CallCheck, passed: bool) -> None:
    events = (
        event(0, "look", id="A", deep={"x": 1.0, "y": 2}),
        event(1, "look", is_error=True, id="A"),
        event(2, "write", fault="timeout_after_write", is_error=True),
        event(3, "write"),
        event(4, "send", fault="timeout_before_write", is_error=True),
        event(5, "check"),
    )
    assert judged(rule, evidence(events=events)).passed is passed


def test_evidence_names_the_calls_found() -> None:
    check = judged(CallCheck(tool="look", most=1), evidence(events=[event(0, "look"), event(1, "look")]))
    assert check.evidence == "2 successful look({}) at call 0, 1; expected 1 to 1"


# ------------------------------------------------------------------------------------------------ answers


@pytest.mark.parametrize(
    ("wanted", "answer", "passed"),
    [
        (("P-10",), "Part p-10 is ordered.", True),
        (("P-10",), "Part P-101 is ordered.", False),
        (("15",), "There are 150.", False),
        (("15",), "It is 2.15 bar.", False),
        (("15",), "There are 15.", True),
        (("spare part",), "No SPARE\n  parts left", True),
        (("straße",), "STRASSE", True),
        (("a", "b"), "only a", False),
        (("done",), "", False),
        (("done",), "\ud800 done", True),
    ],
)
def test_answers_are_searched_case_folded_and_numbers_whole(wanted: tuple[str, ...], answer: str, passed: bool) -> None:
    check = judged(AnswerCheck(contains=wanted), evidence(answer=answer))
    assert check.passed is passed
    assert check.evidence.encode()  # whatever the policy said, the evidence can be stored


# ------------------------------------------------------------------------------------------------ declarations


@pytest.mark.parametrize(
    "spec",
    [
        CheckSpec(id="x", kind=CheckKind.FUNCTIONAL, rule=CallCheck(tool="t", least=0)),
        CheckSpec(id="x", kind=CheckKind.FUNCTIONAL, rule=CallCheck(tool="t", least=2, most=1)),
        CheckSpec(id="x", kind=CheckKind.FUNCTIONAL, rule=AnswerCheck(contains=())),
        CheckSpec(id="x", kind=CheckKind.FUNCTIONAL, rule=AnswerCheck(contains=("ok", " "))),
        CheckSpec(id="x", kind=CheckKind.FUNCTIONAL, rule=sql("SELECT date('now')", (1,))),
        CheckSpec(id="x", kind=CheckKind.FUNCTIONAL, rule=sql("SELECT random()", (1,))),
        CheckSpec(id="x", kind=CheckKind.FUNCTIONAL, rule=sql("SELECT 1", ([1],))),
        CheckSpec(id="x", kind=CheckKind.FUNCTIONAL, rule=sql("SELECT 1", (1,)), weight=0.0),
        CheckSpec(id="x", kind=CheckKind.FUNCTIONAL, rule=sql("SELECT 1", (1,)), weight=float("nan")),
    ],
)
def test_a_check_that_cannot_fail_or_is_not_repeatable_is_refused(spec: CheckSpec) -> None:
    with pytest.raises(InputError, match="check 'x' is not usable"):
        CheckVerifier([spec])


def test_ids_are_distinct_and_the_digest_follows_the_checks() -> None:
    one = CheckSpec(id="x", kind=CheckKind.FUNCTIONAL, rule=sql("SELECT 1", (1,)))
    other = CheckSpec(id="x", kind=CheckKind.CONSTRAINT, rule=sql("SELECT 1", (1,)))
    with pytest.raises(InputError, match="used twice"):
        CheckVerifier([one, other])
    assert CheckVerifier([one]).digest == CheckVerifier([one]).digest
    assert CheckVerifier([one]).digest != CheckVerifier([other]).digest
    assert CheckVerifier([one]).verify(evidence()).verifier_digest == CheckVerifier([one]).digest


def test_violations_are_failed_constraints() -> None:
    specs = [
        CheckSpec(id="kept", kind=CheckKind.CONSTRAINT, rule=DiffCheck(allowed={"orders": 1})),
        CheckSpec(id="broken", kind=CheckKind.CONSTRAINT, rule=DiffCheck(allowed={})),
        CheckSpec(id="undone", kind=CheckKind.FUNCTIONAL, rule=sql("SELECT 1", (2,))),
    ]
    verdict = CheckVerifier(specs).verify(evidence("DELETE FROM orders WHERE id = 'O-1';"))
    assert verdict.violations == ("broken",)
