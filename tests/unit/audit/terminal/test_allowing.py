"""Forms of an answer that the instruction allows in words, and none where it does not."""

from __future__ import annotations

import pytest
from tests.unit.audit.terminal.one_output import one_output

from flightschool.audit.terminal.allowing import allowed_forms


def forms(data: str, kind: str, instruction: str) -> list[str]:
    return [text for text, _ in allowed_forms(one_output(data, kind), instruction)]


@pytest.mark.parametrize(
    ("data", "kind", "instruction", "other"),
    [
        ("10000\n", "text", "Write it with or without thousands separators.", "10,000\n"),
        ("1,250,000\n", "text", "Thousands separators are optional.", "1250000\n"),
        ("12\n", "text", "The number may be followed by a percent sign.", "12%\n"),
        ("12 %\n", "text", "Write the share, with or without the % sign.", "12\n"),
        ("9.50\n", "text", "Write the price with or without the currency sign (€).", "€9.50\n"),
        ("7\n", "text", "Leading zeros are optional.", "07\n"),
        ("yes\n", "text", "Write the word with or without quotes.", '"yes"\n'),
        ("v1.2\n", "text", "Write the version, with or without the prefix `v`.", "1.2\n"),
        ("2024-05-03\n", "text", "Write the day as YYYY-MM-DD or DD/MM/YYYY.", "03/05/2024\n"),
        ('{"a": 1, "b": "x"}\n', "json", "Write the report as JSON or YAML.", 'a: 1\nb: "x"\n'),
        ("a,b\n1,2\n", "table", "Save the rows in CSV or TSV.", "a\tb\n1\t2\n"),
        ('[{"a": 1}, {"a": 2}]\n', "json", "Write the rows as JSON or CSV.", "a\n1\n2\n"),
    ],
)
def test_what_the_instruction_allows(data: str, kind: str, instruction: str, other: str) -> None:
    assert forms(data, kind, instruction) == [other]


@pytest.mark.parametrize(
    ("data", "kind", "instruction"),
    [
        ("10000\n", "text", "Write the product."),
        ("2024-05-03\n", "text", "Write the day as YYYY-MM-DD."),
        ('{"a": 1}\n', "json", "The inputs are JSON or YAML. Write a report."),
        ("a,b\n1,2\n", "table", "Read the CSV or TSV."),
    ],
)
def test_nothing_where_nothing_is_allowed(data: str, kind: str, instruction: str) -> None:
    assert forms(data, kind, instruction) == []


def test_further_lines_are_allowed_in_the_file_that_is_spoken_of() -> None:
    told = "Read /app/in.txt and write a log /app/out that holds the sum. The log may hold anything else."
    assert forms("sum=3\n", "text", told) == ["sum=3\ndone\n", "begun\nsum=3\n"]
    other = "Write the sum to /app/out. The file /app/in.txt may hold other lines."
    assert forms("sum=3\n", "text", other) == []
    assert forms("sum=3\n", "text", "Write /app/out; additional keys are allowed.") == []


def test_alone_or_behind_a_label() -> None:
    told = "Give the answer in /app/out, either alone on a line or as `Answer: …`."
    assert forms("Answer: New Kesh\n", "text", told) == ["New Kesh\n"]
    assert forms("New Kesh\n", "text", told) == ["Answer: New Kesh\n"]
