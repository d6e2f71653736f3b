"""Checks declared in TOML: every rule can be, and what is wrong is said once and precisely."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import pytest

from flightschool.errors import ConfigError
from flightschool.records import (
    AnswerCheck,
    CheckKind,
    CheckRule,
    CommandCheck,
    Comparison,
    DateAnswerCheck,
    Evidence,
    FileCheck,
    JsonCheck,
    Milestone,
    MilestoneCheck,
    PanelCheck,
    PanelMember,
    SqlCheck,
    StateCheck,
)
from flightschool.verification import RULES, CheckVerifier, load_checks
from flightschool.verification.rules import KINDS

WHOLE = """
[[check]]
id = "paid"
kind = "functional"
rule = "sql"
weight = 2.0
author = "finance"
query = "select count(*) from orders where paid"
expected = [[2]]

[[check]]
id = "report"
kind = "functional"
rule = "file"
path = "/out/report.json"
format = "json"
expected_file = "gold.json"
compare = { tolerance = 0.01, order = "by_key", key = "id", ignore = ["*.at"] }

[[check]]
id = "when"
kind = "functional"
rule = "answer_date"
date = 2024-03-05

[[check]]
id = "steps"
kind = "process"
rule = "milestones"
milestones = [
  { id = "look", tool = "get_order" },
  { id = "pay", tool = "pay", after = ["look"] },
  { id = "end", state = { rule = "json", pointer = "/done", expected = true } },
]

[[check]]
id = "two-say"
kind = "functional"
rule = "panel"
decision = "all"
[[check.members]]
name = "words"
rule = { rule = "answer", contains = ["paid"] }
[[check.members]]
name = "state"
rule = { rule = "state", expected = {}, unnamed = "unchanged" }

[[check]]
id = "tests"
kind = "functional"
rule = "command"
command = ["python3", "/tests/test.py"]
files_from = { "/tests/test.py" = "test.py" }
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "checks.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_of_everything(tmp_path: Path) -> None:
    (tmp_path / "gold.json").write_text('[{"id": 1, "total": 2.5}]')
    (tmp_path / "test.py").write_text("assert True\n")
    paid, report, when, steps, two, tests = load_checks(write(tmp_path, WHOLE))
    assert (paid.id, paid.kind, paid.weight, paid.author) == ("paid", CheckKind.FUNCTIONAL, 2.0, "finance")
    assert paid.rule == SqlCheck(query="select count(*) from orders where paid", expected=((2,),))
    compare = Comparison(tolerance=0.01, order="by_key", key="id", ignore=("*.at",))
    gold = [{"id": 1, "total": 2.5}]
    assert report.rule == FileCheck(path="/out/report.json", format="json", expected=gold, compare=compare)
    assert when.rule == DateAnswerCheck(date="2024-03-05")
    assert steps.rule == MilestoneCheck(
        milestones=(
            Milestone(id="look", tool="get_order"),
            Milestone(id="pay", tool="pay", after=("look",)),
            Milestone(id="end", state=JsonCheck(pointer="/done", expected=True)),
        )
    )
    assert two.rule == PanelCheck(
        members=(
            PanelMember(name="words", rule=AnswerCheck(contains=("paid",))),
            PanelMember(name="state", rule=StateCheck(expected={})),
        ),
        decision="all",
    )
    assert tests.rule == CommandCheck(command=("python3", "/tests/test.py"), files={"/tests/test.py": "assert True\n"})
    assert (paid.author, when.author) == ("finance", "environment")


def test_what_was_loaded_judges(tmp_path: Path) -> None:
    path = write(
        tmp_path, '[[check]]\nid = "n"\nkind = "functional"\nrule = "answer_number"\nvalue = 12\nunit = "kg"\n'
    )
    verifier = CheckVerifier(load_checks(path))
    for answer, passed in (("It is 12,000 g.", True), ("It is 13 kg.", False)):
        verdict = verifier.verify(Evidence(initial_state=b"{}", end_state=b"{}", answer=answer))
        assert verdict.checks[0].passed is passed


@pytest.mark.parametrize(
    ("compare", "passed"),
    [("", False), ("compare = { relative = 1e-8 }", True), ("compare = { tolerance = 8 }", True)],
)
def test_a_declared_tolerance_holds_for_whole_numbers_too(tmp_path: Path, compare: str, passed: bool) -> None:
    text = CHECK + f'rule = "json"\npointer = "/n"\nexpected = 10000000001\n{compare}\n'
    end = Evidence(initial_state=b"{}", end_state=b'{"n": 10000000009}')
    verdict = CheckVerifier(load_checks(write(tmp_path, text))).verify(end)
    assert verdict.checks[0].passed is passed


def test_every_kind_has_a_name() -> None:
    assert set(RULES.values()) == set(KINDS) == set(get_args(CheckRule))
    assert {"sql", "diff", "calls", "answer", "state", "file", "judge", "panel"} <= set(RULES)


CHECK = '[[check]]\nid = "x"\nkind = "functional"\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no checks are declared"),
        ("check = 3", "no checks are declared"),
        ("chek = []\n" + CHECK, "unknown key 'chek'.*did you mean 'check'"),
        (CHECK, "'rule' is missing"),
        (CHECK + 'rule = "sqll"', "unknown rule 'sqll'.*did you mean 'sql'"),
        (CHECK + 'rule = "sql"\nqery = ""', "unknown key 'qery'.*did you mean 'query'"),
        (CHECK + 'rule = "sql"\nquery = "select 1"', "missing required field `expected`"),
        (CHECK + 'rule = "sql"\nquery = 3\nexpected = []', "Expected `str`, got `int`"),
        (CHECK + 'rule = "answer"\ncontains = []', "an empty text is in every answer"),
        (CHECK + 'rule = "answer"\ncontains = ["a"]\nwieght = 2.0', "unknown key 'wieght'.*did you mean 'weight'"),
        (CHECK + 'rule = "answer"\ncontains = ["a"]\nweight = -1.0', "no usable|not usable"),
        (CHECK + 'rule = "json"\nexpected = 1\ncompare = { tolerence = 1 }', "'tolerence'.*did you mean 'tolerance'"),
        (
            CHECK + 'rule = "json"\nexpected = 1\ncompare = { order = "any" }',
            r"'any'; at .*checks\.toml: check x: compare\.order; expected one of ordered, set, multiset, by_key",
        ),
        (
            CHECK + 'rule = "panel"\ndecision = "vote"\nmembers = []',
            "'vote'; .*: check x: decision; expected one of majority, all, veto",
        ),
        (
            CHECK + 'rule = "panel"\nmembers = [{ name = "a", rule = { rule = "file", path = "/a", format = "txt" } }]',
            r"'txt'; .*: members\[0\]\.rule\.format; expected one of text, json.*did you mean 'text'",
        ),
        (
            CHECK + 'rule = "judge"\ncriterion = "c"\nendpoint = "e"\nshows = ["answr"]',
            "'answr'; .*expected one of answer, calls.*did you mean 'answer'",
        ),
        (CHECK + 'rule = "file"\npath = "/a"\nexpected_file = "none.txt"', "cannot be read"),
        (CHECK + 'rule = "file"\npath = "/a"\nexpected = "x"\nexpected_file = "a"', "both"),
        (CHECK + 'rule = "milestones"\nmilestones = [{ id = "a", tol = "t" }]', "'tol'.*did you mean 'tool'"),
        (
            CHECK + 'rule = "panel"\nmembers = [{ name = "a", rule = { rule = "answr", contains = ["x"] } }]',
            "unknown rule 'answr'.*did you mean 'answer'",
        ),
        ('[[check]]\nkind = "functional"\nrule = "answer"', "'id' is missing"),
        ('[[check]]\nid = ""\nkind = "functional"\nrule = "answer"', "the id is empty"),
        (
            '[[check]]\nid = "x"\nkind = "good"\nrule = "answer"\ncontains = ["a"]',
            "'good'; .*: check x: kind; expected one of functional, constraint, process",
        ),
        ((CHECK + 'rule = "answer"\ncontains = ["a"]\n') * 2, "used twice"),
        ("[[check", "not valid TOML"),
    ],
)
def test_one_clear_error(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        load_checks(write(tmp_path, text))
    told = caught.value
    assert "checks.toml" in told.where
    assert all((told.what, told.expected, told.mend))


def test_the_example_of_the_documentation(tmp_path: Path) -> None:
    page = Path(__file__).parents[3] / "docs" / "design" / "verification.md"
    example = page.read_text(encoding="utf-8").split("```toml\n")[1].split("```")[0]
    (tmp_path / "booked.json").write_text('{"orders": [{"id": 1, "state": "booked"}]}')
    booked, asked = load_checks(write(tmp_path, example))
    assert isinstance(booked.rule, StateCheck)
    assert asked.kind is CheckKind.CONSTRAINT


def test_no_file_at_all(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not found"):
        load_checks(tmp_path / "none.toml")


def test_no_text_and_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"a folder, not a file.*mend: name the file in it"):
        load_checks(tmp_path)
    (tmp_path / "checks.toml").write_bytes(b'id = "\xff"')
    with pytest.raises(ConfigError, match=r"byte 6 is not UTF-8.*mend: save it as UTF-8"):
        load_checks(tmp_path / "checks.toml")


def test_a_broken_gold_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "gold.json").write_text("{")
    text = CHECK + 'rule = "json"\nexpected_file = "gold.json"'
    with pytest.raises(ConfigError, match=r"gold\.json cannot be read"):
        load_checks(write(tmp_path, text))
    (tmp_path / "gold.json").write_text(json.dumps({"a": 1}))
    assert load_checks(write(tmp_path, text))[0].rule == JsonCheck(expected={"a": 1})
