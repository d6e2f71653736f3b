"""One wording under two house rules is two tasks; a rule with other words put in is still the same rule."""

from __future__ import annotations

import msgspec
import pytest

from flightschool.lineage import Signature, Text, count_kin, near_copies, overlap, ruled_apart, sign
from flightschool.records import Task

KEY = bytes(range(32))
ASKED = "Give bolt the price of gear."
SHORT = "Use the tools."
LONG = (
    "You help the people of the plant with orders, permits and parts. Read before you write, name the record that "
    "justifies an act, and decline what no rule allows."
)
OTHER = "Purchases need an approval; decline if it is refused."

SAME = [
    pytest.param(SHORT, SHORT, id="equal"),
    pytest.param(SHORT, f"{SHORT} Please.", id="a word more"),
    pytest.param(SHORT, "USE the tools!", id="other signs"),
    pytest.param("Close orders by day 5 with code 7.", "Close orders by day 6 with code 9.", id="other numbers"),
    pytest.param(LONG, f"You are the agent of a large company. {LONG} {OTHER}", id="quoted in a longer one"),
    pytest.param(f"{LONG} {OTHER} {OTHER[:9]}", LONG[: len(LONG) // 2], id="a part of it"),
    pytest.param("", OTHER, id="not known"),
]
APART = [
    pytest.param(SHORT, OTHER, id="another rule"),
    pytest.param(SHORT, f"{SHORT} {OTHER}", id="a rule more"),
    pytest.param(LONG, OTHER, id="long and short"),
]


def kin(mine: str, theirs: str) -> int:
    return len(near_copies([Text(id="i", text=ASKED, context=mine)], [Text(id="t", text=ASKED, context=theirs)]))


def sealed_kin(signature: Signature, text: str, theirs: str) -> int:
    return count_kin([signature], [Text(id="t", text=text, context=theirs)], KEY).total


@pytest.mark.parametrize(("mine", "theirs"), SAME)
def test_a_rule_in_other_words_hides_no_copy(mine: str, theirs: str) -> None:
    assert not ruled_apart(mine, theirs)
    assert not ruled_apart(theirs, mine)
    assert kin(mine, theirs) == 1
    assert sealed_kin(sign(ASKED, KEY, mine), ASKED, theirs) == 1


@pytest.mark.parametrize(("mine", "theirs"), APART)
def test_another_rule_makes_another_task(mine: str, theirs: str) -> None:
    assert ruled_apart(mine, theirs)
    assert ruled_apart(theirs, mine)
    assert kin(mine, theirs) == 0
    assert sealed_kin(sign(ASKED, KEY, mine), ASKED, theirs) == 0


def test_a_freeze_leaves_out_of_the_pool_what_training_would_refuse() -> None:
    measured = Task(id="a", family="f", stratum="s", instruction=ASKED, initial_state="x", guidance=SHORT)
    copied = msgspec.structs.replace(measured, id="b", family="g", initial_state="y", guidance=f"{SHORT} Please.")
    assert len(overlap([copied], [measured])) == 1
    assert overlap([msgspec.structs.replace(copied, guidance=OTHER)], [measured]) == ()


def test_a_signature_without_the_parts_of_its_rules_counts_equal_wording() -> None:
    """Holdouts that were sealed before the parts were kept: doubt makes kin, where the words are the same."""
    older = msgspec.structs.replace(sign(f"{ASKED} Do it by 5.", KEY, SHORT), rules=None)
    assert sealed_kin(older, f"{ASKED} Do it by 5.", f"{SHORT} Please.") == 1
    assert sealed_kin(older, f"{ASKED} Do it by 6.", OTHER) == 0
    packed = msgspec.to_builtins(older)
    del packed["rules"]  # as it was written then
    assert msgspec.convert(packed, Signature) == older


def test_signed_rules_hold_no_text() -> None:
    packed = msgspec.msgpack.encode(sign(ASKED, KEY, LONG))
    assert not any(word.encode() in packed for word in LONG.split() if len(word) > 4)
