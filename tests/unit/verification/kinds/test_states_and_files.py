"""End states and files against expected ones."""

from __future__ import annotations

import base64
import hashlib
import json
import sqlite3
from collections.abc import Callable

import pytest

from flightschool.environments.terminal.end_state import EndState
from flightschool.errors import InfrastructureError, InputError
from flightschool.records import Check, CheckRule, Comparison, FileCheck, Json, JsonCheck, SqlCheck, StateCheck
from flightschool.sandbox.written import Written, WrittenKind
from flightschool.verification.files import TERMINAL_MAGIC

Judge = Callable[..., Check]


def image(script: str) -> bytes:
    connection = sqlite3.connect(":memory:")
    connection.executescript(
        "CREATE TABLE orders (id TEXT PRIMARY KEY, price REAL, paid INT, at TEXT); CREATE TABLE log (line TEXT);"
        "INSERT INTO orders VALUES ('A', 1.5, 0, 'x'), ('B', 2.0, 0, 'x');" + script
    )
    return connection.serialize()


ROWS = [{"id": "B", "price": 2, "paid": True}, {"id": "A", "price": 1.5, "paid": False}]
PAID = "UPDATE orders SET paid = 1, at = 'now' WHERE id = 'B';"
IGNORING = Comparison(order="by_key", key="id", ignore=("orders.*.at",))


@pytest.mark.parametrize(
    ("script", "rule", "passed"),
    [
        (PAID, StateCheck(expected={"orders": ROWS}, compare=IGNORING), True),
        ("UPDATE orders SET paid = 1;", StateCheck(expected={"orders": ROWS}, compare=IGNORING), False),
        (
            "UPDATE orders SET paid = 1 WHERE id = 'B'; INSERT INTO log VALUES ('x');",
            StateCheck(expected={"orders": ROWS}, compare=IGNORING),
            False,
        ),
        (
            "UPDATE orders SET paid = 1 WHERE id = 'B'; INSERT INTO log VALUES ('x');",
            StateCheck(expected={"orders": ROWS}, compare=IGNORING, unnamed="ignored"),
            True,
        ),
        ("DROP TABLE orders;", StateCheck(expected={"orders": ROWS}, unnamed="ignored"), False),
        ("", StateCheck(expected={}), True),
        ("DELETE FROM log; DELETE FROM orders WHERE id = 'A';", StateCheck(expected={}), False),
        (
            "INSERT INTO log VALUES ('b'), ('a'), ('a');",
            StateCheck(expected={"log": [{"line": "a"}, {"line": "b"}, {"line": "a"}]}),
            True,
        ),
    ],
)
def test_sqlite_states(judge: Judge, script: str, rule: StateCheck, passed: bool) -> None:
    check = judge(rule, start=image(""), end=image(script))
    assert check.passed is passed, check.evidence


LEDGER = "CREATE TABLE bills (id TEXT PRIMARY KEY, cents INT, weight REAL); INSERT INTO bills VALUES ('A', {}, {});"


@pytest.mark.parametrize(("cents", "weight", "passed"), [(10**10 + 1, 1e10, True), (10**10 + 9, 1e10, False)])
@pytest.mark.parametrize(
    "rule",
    [
        StateCheck(expected={"bills": [{"id": "A", "cents": 10**10 + 1, "weight": 10**10}]}, unnamed="ignored"),
        StateCheck(
            expected={"bills": [{"id": "A", "cents": 10**10 + 1, "weight": 1e10 + 1}]},
            compare=Comparison(order="by_key", key="id"),
            unnamed="ignored",
        ),
        SqlCheck(query="SELECT cents, weight FROM bills", expected=((10**10 + 1, 10**10),)),
        SqlCheck(query="SELECT cents + 0.0 FROM bills", expected=((10**10 + 1,),)),
    ],
)
def test_whole_numbers_of_a_table_are_exact(
    judge: Judge, rule: CheckRule, cents: int, weight: float, passed: bool
) -> None:
    check = judge(rule, start=image(""), end=image(LEDGER.format(cents, weight)))
    assert check.passed is passed, check.evidence


def test_a_json_state(judge: Judge) -> None:
    start = {"orders": {"A": {"paid": False, "at": 1}}, "log": []}
    done = {"orders": {"A": {"paid": True, "at": 2}}, "log": []}
    rule = StateCheck(expected={"orders": {"A": {"paid": True}}}, compare=Comparison(ignore=("orders.*.at",)))
    assert judge(rule, start=start, end=done).passed
    assert not judge(rule, start=start, end=start).passed
    assert "log" in judge(rule, start=start, end={**done, "log": ["x"]}).evidence
    assert not judge(rule, start=start, end={**done, "new": 1}).passed


@pytest.mark.parametrize(
    ("pointer", "expected", "passed"),
    [
        ("/a/0/b~1c", 2, True),
        ("/a/1", 2, False),
        ("/a/-", 2, False),
        ("/a/00", 2, False),
        ("/x", None, False),
        ("", {"a": [{"b/c": 2}]}, True),
    ],
)
def test_a_pointer(judge: Judge, pointer: str, expected: Json, passed: bool) -> None:
    assert judge(JsonCheck(pointer=pointer, expected=expected), end={"a": [{"b/c": 2}]}).passed is passed


FILES = {
    "/out/report.txt": "Total: 3\r\ndone  \n\n",
    "/out/data.json": '{"rows": [2, 1.0000000000001]}',
    "/out/lines.jsonl": '{"a": 1}\n\n{"a": 2}\n',
    "/out/table.csv": "name,weight\nx,1.50\ny,2 kg\n",
    "/out/ids.csv": "id\n10000000009\n",
    "/out/blob": {"base64": base64.b64encode(b"\xff\x00").decode()},
    "/out/odd": {"link": "/etc/passwd"},
}


@pytest.mark.parametrize(
    ("rule", "passed"),
    [
        (FileCheck(path="/out/report.txt", expected="Total: 3\ndone"), True),
        (FileCheck(path="/out/report.txt", expected="Total: 3"), False),
        (FileCheck(path="/out/data.json", format="json", expected={"rows": [2, 1]}), True),
        (FileCheck(path="/out/data.json", format="json", expected={"rows": [1, 2]}), False),
        (FileCheck(path="/out/lines.jsonl", format="jsonl", expected=[{"a": 1}, {"a": 2}]), True),
        (
            FileCheck(
                path="/out/table.csv",
                format="csv",
                expected=[{"name": "y", "weight": 2000}, {"name": "x", "weight": 1.5}],
                compare=Comparison(order="by_key", key="name", unit="g"),
            ),
            True,
        ),
        (FileCheck(path="/out/table.csv", format="csv", expected=[{"name": "x", "weight": 1.5}]), False),
        (FileCheck(path="/out/ids.csv", format="csv", expected=[{"id": 10000000009}]), True),
        (FileCheck(path="/out/ids.csv", format="csv", expected=[{"id": 10000000001}]), False),
        (FileCheck(path="/out/blob", format="sha256", expected=hashlib.sha256(b"\xff\x00").hexdigest()), True),
        (FileCheck(path="/out/blob", expected="x"), False),
        (FileCheck(path="/out/odd", expected="x"), False),
        (FileCheck(path="/out/none", expected="x"), False),
        (FileCheck(path="/out/none", format="absent"), True),
        (FileCheck(path="/out/blob", format="absent"), False),
    ],
)
def test_files_of_a_json_state(judge: Judge, rule: FileCheck, passed: bool) -> None:
    check = judge(rule, end={"files": FILES})
    assert check.passed is passed, check.evidence


def kept(*entries: Written) -> bytes:
    blob = EndState(entries=entries).to_bytes()
    assert blob.startswith(TERMINAL_MAGIC)
    return blob


def written(path: str, data: bytes = b"", kind: WrittenKind = WrittenKind.FILE, **more: object) -> Written:
    return Written(path=path, kind=kind, data=data, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rule", "passed"),
    [
        (FileCheck(path="/app/a.json", format="json", expected=[1]), True),
        (FileCheck(path="/app/link", expected="x"), False),
        (FileCheck(path="/app/link/below", expected="x"), False),
        (FileCheck(path="/app/gone", format="absent"), True),
        (FileCheck(path="/app/gone/below", format="absent"), True),
        (FileCheck(path="/app/untouched", format="absent"), False),  # silence proves no removal
        (FileCheck(path="/app/untouched", format="unwritten"), True),
        (FileCheck(path="/app/a.json", format="unwritten"), False),
        (FileCheck(path="/new/x", format="absent"), True),
    ],
)
def test_files_of_a_terminal_state(judge: Judge, rule: FileCheck, passed: bool) -> None:
    end = kept(
        written("/app/a.json", b"[1]"),
        written("/app/gone", kind=WrittenKind.GONE),
        written("/app/link", kind=WrittenKind.LINK, target="/app/a.json"),
        written("/new", kind=WrittenKind.FOLDER, opaque=True),
    )
    check = judge(rule, start=b"", end=end)
    assert check.passed is passed, check.evidence


def test_a_file_that_only_the_initial_state_has(judge: Judge) -> None:
    start = kept(written("/app/b", b"hello"))
    assert judge(FileCheck(path="/app/b", expected="hello"), start=start, end=kept(written("/app/x"))).passed
    gone = kept(written("/app/b", kind=WrittenKind.GONE))
    assert not judge(FileCheck(path="/app/b", expected="hello"), start=start, end=gone).passed


@pytest.mark.parametrize(
    ("text", "format_"),
    [
        ("{", "json"),
        ("[" * 200_000, "json"),
        ('{"a": 1, "a": 2}', "json"),
        ("NaN", "json"),
        ("a,a\n1,2\n", "csv"),
        ("a,b\n1\n", "csv"),
        ('a\n"x', "csv"),
        ("9" * 5000, "json"),
    ],
)
def test_what_the_policy_left_unreadable_does_not_pass(judge: Judge, text: str, format_: str) -> None:
    rule = FileCheck(path="/f", format=format_, expected=[{"a": 1}])  # type: ignore[arg-type]
    assert not judge(rule, end={"files": {"/f": text}}).passed


def test_a_state_without_files_gives_no_verdict(judge: Judge) -> None:
    for end in (image(""), b"junk", b"[]", TERMINAL_MAGIC + b"junk"):
        with pytest.raises(InfrastructureError):
            judge(FileCheck(path="/f", expected="x"), end=end)
    assert not judge(FileCheck(path="/f", expected="x"), end=b"").passed


@pytest.mark.parametrize(
    "rule",
    [
        StateCheck(expected={}, unnamed="ignored"),
        StateCheck(expected={"t": 1}, compare=Comparison(ignore=("t",))),
        StateCheck(expected={"t": float("nan")}),
        JsonCheck(pointer="a", expected=1),
        JsonCheck(pointer="/a~2", expected=1),
        FileCheck(path="out", expected="x"),
        FileCheck(path="/out/../x", expected="x"),
        FileCheck(path="/out"),
        FileCheck(path="/out", format="sha256", expected="abc"),
        FileCheck(path="/out", format="csv", expected="x"),
        FileCheck(path="/out", format="absent", expected="x"),
    ],
)
def test_what_could_not_be_judged_is_refused(judge: Judge, rule: CheckRule) -> None:
    with pytest.raises(InputError, match="not usable"):
        judge(rule, end=json.loads("{}"))
