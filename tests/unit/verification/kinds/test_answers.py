"""Answer matchers: what is said must be the expected thing, and not one of many things said."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from flightschool.errors import InputError
from flightschool.records import (
    Check,
    CheckRule,
    Comparison,
    DateAnswerCheck,
    JsonAnswerCheck,
    NumberAnswerCheck,
    SetAnswerCheck,
)

Judge = Callable[..., Check]


@pytest.mark.parametrize(
    ("rule", "answer", "passed"),
    [
        (NumberAnswerCheck(value=15), "There are 15 parts.", True),
        (NumberAnswerCheck(value=15), "15, as said: 15.0", True),
        (NumberAnswerCheck(value=15), "One of 14, 15 or 16.", False),
        (NumberAnswerCheck(value=15, which="last"), "Of 20 parts there are 15", True),
        (NumberAnswerCheck(value=15), "150", False),
        (NumberAnswerCheck(value=15), "", False),
        (NumberAnswerCheck(value=15), "fifteen", False),
        (NumberAnswerCheck(value=-3, unit="°C"), "It is −3 °C.", True),
        (NumberAnswerCheck(value=3, unit="°C"), "It is −3 °C.", False),
        (NumberAnswerCheck(value=12500, unit="m"), "The 3 pipes are 12.5 km long", True),
        (NumberAnswerCheck(value=12500, unit="m"), "12500", True),
        (NumberAnswerCheck(value=12500, unit="m"), "12500 kg", False),
        (NumberAnswerCheck(value=12500, unit="m"), "12.5 km or 13 km", False),
        (NumberAnswerCheck(value=100, tolerance=2), "101.9", True),
        (NumberAnswerCheck(value=100, tolerance=2), "102.1", False),
        (NumberAnswerCheck(value=100, relative=0.05), "95.5 units", True),
        (NumberAnswerCheck(value=1234.5, decimal=","), "1.234,5", True),
        (NumberAnswerCheck(value=10_000_000_001), "10000000009", False),
        (NumberAnswerCheck(value=10_000_000_001), "10,000,000,001", True),
        (NumberAnswerCheck(value=10_000_000_001, relative=1e-8), "10000000009", True),
        (NumberAnswerCheck(value=1234567890123456789), "1234567890123456789", True),
        (NumberAnswerCheck(value=1234567890123456789), "1234567890123499999", False),
        (JsonAnswerCheck(expected={"id": 10_000_000_001}), '{"id": 10000000009}', False),
        (NumberAnswerCheck(value=12.5, unit="EUR"), "12.5", True),
        (NumberAnswerCheck(value=12.5, unit="EUR"), "EUR 12.5, that is USD 13.75", True),
        (NumberAnswerCheck(value=12.5, unit="EUR"), "It costs 12.5 euros (1250 cents).", True),
        (NumberAnswerCheck(value=12.5, unit="EUR"), "USD 12.5", False),
        (NumberAnswerCheck(value=12.5, unit="EUR"), "**USD**: 12.5", False),
        (NumberAnswerCheck(value=12.5, unit="EUR"), "12.5 dollars", False),
        (NumberAnswerCheck(value=12.5, unit="EUR"), "12.5 (in USD)", False),
        (NumberAnswerCheck(value=12.5, unit="EUR"), "12.5 Swiss francs", False),
        (NumberAnswerCheck(value=12.5, unit="EUR"), "12.5 SEK/kg", False),
        (NumberAnswerCheck(value=12.5, unit="EUR"), "12.5 cents", False),
        (NumberAnswerCheck(value=12.5, unit="USD"), "-$12.5", False),
        (NumberAnswerCheck(value=12.5, unit="CAD"), "$12.50", True),
        (NumberAnswerCheck(value=12.5, unit="CAD"), "12.5 US dollars", False),
        (NumberAnswerCheck(value=12.5, unit="GBP"), "12.5 pounds", True),
        (NumberAnswerCheck(value=12.5, unit="kg"), "12.5 dollars", False),
        (NumberAnswerCheck(value=2.5, unit="h"), "It takes 2 h 30 min (150 min).", True),
        (NumberAnswerCheck(value=2.5, unit="hours"), "2 hours and 30 minutes", True),
        (NumberAnswerCheck(value=2.5, unit="h"), "2h30m", True),
        (NumberAnswerCheck(value=2, unit="h"), "2h 30m", False),
        (NumberAnswerCheck(value=2.5, unit="h"), "2 h or 30 min", False),
        (NumberAnswerCheck(value=7, after="Answer:"), "5 tries. ANSWER: 7", True),
        (NumberAnswerCheck(value=7, after="Answer:"), "Answer: 7. Answer: 8", False),
        (NumberAnswerCheck(value=7, after="Answer:"), "7", False),
        (NumberAnswerCheck(value=7), "7" + " " * 200_000, False),
        (DateAnswerCheck(date="2024-03-05"), "On 2024-03-05.", True),
        (DateAnswerCheck(date="2024-03-05"), "5 March 2024", True),
        (DateAnswerCheck(date="2024-03-05"), "March 5th, 2024", True),
        (DateAnswerCheck(date="2024-03-05"), "the 5th of March 2024", True),
        (DateAnswerCheck(date="2024-03-05"), "05.03.2024", True),
        (DateAnswerCheck(date="2024-03-05"), "05/03/2024", False),  # two readings: not guessed
        (DateAnswerCheck(date="2024-03-25"), "25/03/2024 or 3/25/2024", True),
        (DateAnswerCheck(date="2024-03-05", slashes="day_first"), "05/03/2024", True),
        (DateAnswerCheck(date="2024-03-05", slashes="month_first"), "05/03/2024", False),
        (DateAnswerCheck(date="2024-03-05"), "2024-03-05 or 2024-03-06", False),
        (DateAnswerCheck(date="2024-03-05", which="last"), "not 2024-03-04 but 2024-03-05", True),
        (DateAnswerCheck(date="2024-03-05"), "12024-03-051", False),
        (DateAnswerCheck(date="2024-02-29"), "30 February 2024", False),
        (SetAnswerCheck(items=("P-1", "P-2")), "P-2, p-1", True),
        (SetAnswerCheck(items=("P-1", "P-2")), '["P-1", "P-2", "P-2"]', True),
        (SetAnswerCheck(items=("P-1", "P-2")), "Parts:\n- P-1\n- P-2.\n", True),
        (SetAnswerCheck(items=("P-1", "P-2")), "P-1 and P-2", True),
        (SetAnswerCheck(items=("nuts and bolts", "P-2")), "P-2, and nuts and bolts", True),
        (SetAnswerCheck(items=("P-1", "P-2")), "P-1, P-2, P-3", False),
        (SetAnswerCheck(items=("P-1", "P-2")), "P-1", False),
        (SetAnswerCheck(items=("P-1", "P-2"), order="ordered"), "P-2, P-1", False),
        (SetAnswerCheck(items=("P-1", "P-2"), order="multiset"), "P-1, P-2, P-2", False),
        (SetAnswerCheck(items=("a", "b"), after="free:"), "I looked at a, b, c. Free: b; a", True),
        (JsonAnswerCheck(expected={"a": 1}), '{"a": 1.0}', True),
        (JsonAnswerCheck(expected={"a": 1}), 'Here:\n```json\n{"a": 1}\n```\n', True),
        (JsonAnswerCheck(expected={"a": 1}), '```\n{"a": 1}\n```\n```\n{"a": 2}\n```\n', False),
        (JsonAnswerCheck(expected={"a": 1}), '{"a": 2, "a": 1}', False),
        (JsonAnswerCheck(expected={"a": 1}), '{"a": NaN}', False),
        (JsonAnswerCheck(expected={"a": 1}), "[" * 100_000, False),
        (JsonAnswerCheck(expected=[1, 2], compare=Comparison(order="set")), "[2, 1]", True),
        (NumberAnswerCheck(value=15), "\ud800 15", True),
    ],
)
def test_what_passes(judge: Judge, rule: CheckRule, answer: str, passed: bool) -> None:
    check = judge(rule, answer)
    assert check.passed is passed, check.evidence


def test_the_evidence_has_the_digits_that_differ(judge: Judge) -> None:
    check = judge(NumberAnswerCheck(value=1234567.89), "It is 1234567.99")
    assert check.evidence == "answer states 1234567.99; expected 1234567.89"
    assert judge(NumberAnswerCheck(value=15, unit="kg"), "15.0").evidence == "answer states 15; expected 15 kg"


@pytest.mark.parametrize(
    "rule",
    [
        NumberAnswerCheck(value=float("nan")),
        NumberAnswerCheck(value=1, unit="furlong"),
        NumberAnswerCheck(value=1, tolerance=-1),
        DateAnswerCheck(date="5 March 2024"),
        DateAnswerCheck(date="2024-02-30"),
        DateAnswerCheck(date="20240305"),
        SetAnswerCheck(items=()),
        SetAnswerCheck(items=("a", " ")),
        SetAnswerCheck(items=("a", "A")),
        JsonAnswerCheck(expected=float("inf")),
    ],
)
def test_what_could_not_be_judged_is_refused(judge: Judge, rule: CheckRule) -> None:
    with pytest.raises(InputError, match="not usable"):
        judge(rule, "x")
