"""Kinship of task sets: what is found, and what must not be."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flightschool.digest import derive_random
from flightschool.lineage import Overlap, OverlapKind, overlap
from flightschool.records import Task

PUMP = "Order two seals for pump P-104 and close work order WO-2201 when the order is placed."


def task(id_: str, family: str, instruction: str = PUMP, stratum: str = "orders", state: str = "seed-0") -> Task:
    return Task(id=id_, family=family, stratum=stratum, instruction=instruction, initial_state=state)


def kinds(a: list[Task], b: list[Task]) -> list[tuple[OverlapKind, str, str]]:
    return [(found.kind, found.left, found.right) for found in overlap(a, b)]


def test_strangers_share_nothing() -> None:
    other = task("b", "g", "Which technician holds a permit for the boiler room this week? Answer with the name.")
    assert overlap([task("a", "f")], [other]) == ()
    assert overlap([], [other]) == overlap([other], []) == ()


def test_a_renamed_copy_is_the_same_content() -> None:
    found = overlap([task("a", "f")], [task("z", "g", stratum="elsewhere")])
    assert [(f.kind, f.left, f.right) for f in found] == [
        (OverlapKind.DIGEST, "a", "z"),
        (OverlapKind.INSTRUCTION, "a", "z"),
    ]
    assert str(found[0]) == "a and z: the same content"


def test_a_shared_family_is_told_once_with_counts() -> None:
    pool = [task(f"a{i}", "f", f"{PUMP} Case {i}.") for i in range(3)]
    suite = [task(f"b{i}", "f", f"{PUMP} Case {i + 10}.") for i in range(2)]
    (found,) = overlap(pool, suite)
    assert (found.kind, found.left, found.right) == (OverlapKind.FAMILY, "a0", "b0")
    assert "3 and 2 tasks" in found.detail


@pytest.mark.parametrize(
    "copy",
    [
        "Order two seals for pump P-377 and close work order WO-9 when the order is placed.",
        "order TWO seals for pump p-104, and close work order wo-2201 -- when the order is placed!",
        "Close work order WO-7 and order two seals for pump P-1 when the order is placed.",
        "Order two new seals for pump P-104 and close work order WO-2201 when the order is placed.",
    ],
    ids=["other ids", "case and signs", "other order", "a word more"],
)
def test_a_near_copy_under_another_family_is_found(copy: str) -> None:
    (found,) = overlap([task("a", "f")], [task("b", "g", copy, state="seed-1")])
    assert (found.kind, found.left, found.right) == (OverlapKind.INSTRUCTION, "a", "b")
    assert found.score >= 92


@pytest.mark.parametrize(
    "other",
    [
        PUMP + " If its permit has expired, do nothing of this but decline and say which permit is missing.",
        "Order two seals for pump P-104.",
        "Cancel the order of seals for pump P-104 and reopen work order WO-2201 for the night shift.",
    ],
    ids=["contains it", "is contained", "same things, other deed"],
)
def test_a_different_task_about_the_same_things_is_none(other: str) -> None:
    assert overlap([task("a", "f")], [task("b", "g", other, state="seed-1")]) == ()


def test_one_instruction_under_two_house_rules_is_two_tasks() -> None:
    def under(id_: str, family: str, guidance: str) -> Task:
        return msgspec.structs.replace(task(id_, family, state=id_), guidance=guidance)

    rule = "Parts come from the supplier that the store lists for them."
    plain, needs = under("a", "f", rule), under("b", "g", "Purchases need an approval; decline if it is refused.")
    assert overlap([plain], [needs]) == ()
    assert kinds([plain], [under("c", "h", rule)]) == [(OverlapKind.INSTRUCTION, "a", "c")]
    # The same long policy with different instructions makes no kin.
    assert overlap([plain], [msgspec.structs.replace(needs, instruction="Name the technician.", guidance=rule)]) == ()


def test_very_short_instructions_must_agree_wholly() -> None:
    a = [task("a", "f", "Check alert A-1.")]
    assert kinds(a, [task("b", "g", "Check alert A-2.", state="s")]) == [(OverlapKind.INSTRUCTION, "a", "b")]
    assert kinds(a, [task("b", "g", "Close alert A-1.", state="s")]) == []
    assert kinds(a, [task("b", "g", "", state="s")]) == []


def test_wording_is_told_once_per_pair_of_families_with_the_best_score() -> None:
    pool = [task(f"a{i}", "f", PUMP.replace("P-104", f"P-{i}"), state=f"s{i}") for i in range(5)]
    suite = [
        task("b0", "g", PUMP.replace("two seals", "seven seals"), state="t0"),
        task("b1", "g", PUMP, state="t1"),
        task("c", "h", PUMP, state="t2"),
    ]
    assert kinds(pool, suite) == [(OverlapKind.INSTRUCTION, "a0", "b1"), (OverlapKind.INSTRUCTION, "a0", "c")]


TASKS = st.lists(
    st.builds(
        task,
        st.uuids().map(str),
        st.sampled_from("fgh"),
        st.sampled_from([PUMP, "Check alert A-1.", "Assign a technician to every open work order of line 4."]),
    ),
    max_size=6,
)


@settings(max_examples=40, deadline=None)
@given(TASKS, TASKS)
def test_laws(a: list[Task], b: list[Task]) -> None:
    """A set overlaps with itself; kinship does not hang on which side is named first; findings survive the wire."""
    assert {f.kind for f in overlap(a, a)} >= ({OverlapKind.DIGEST, OverlapKind.FAMILY} if a else set())
    forth, back = overlap(a, b), overlap(b, a)
    assert {f.kind for f in forth} == {f.kind for f in back}
    assert bool(forth) == bool(
        {t.family for t in a} & {t.family for t in b} or {t.instruction for t in a} & {t.instruction for t in b}
    )
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(forth), type=tuple[Overlap, ...]) == forth


def test_large_sets_are_compared_pair_by_pair() -> None:
    """Large sets of unlike texts: every pair is compared, and only the planted copy is found."""
    words = [f"{consonant}{vowel}{end}" for consonant in "bdfgklmnprst" for vowel in "aeiou" for end in "nrst"]

    def text(seed: int) -> str:
        return " ".join(derive_random("text", seed).choices(words, k=18))

    pool = [task(f"a{i}", f"f{i}", text(i)) for i in range(200)]
    suite = [task(f"b{i}", f"g{i}", text(i + 5000), state="other") for i in range(199)]
    suite.append(task("copy", "h", text(17), state="other"))
    assert kinds(pool, suite) == [(OverlapKind.INSTRUCTION, "a17", "copy")]
