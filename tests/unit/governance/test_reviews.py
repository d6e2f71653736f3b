"""Review sheets and labels: who is drawn with which probability, and what the labels say of the verifier."""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flightschool.errors import InputError, NotFoundError
from flightschool.governance import (
    AuditLog,
    ReviewCandidate,
    ReviewSheet,
    Withdrawn,
    add_label,
    agreement,
    draw_sheet,
    known_error,
    labels_of,
    load_sheet,
    review_rates,
    save_sheet,
    settled,
    sheets_of,
    withdraw,
)
from flightschool.records import ReviewLabel
from flightschool.store import SqlStore


@pytest.fixture
def store() -> Iterator[SqlStore]:
    with SqlStore("sqlite://") as store:
        yield store


def candidates(stratum: str, passed: bool, count: int, why: str = "") -> list[ReviewCandidate]:
    side = "p" if passed else "f"
    return [
        ReviewCandidate(
            attempt=f"{stratum}-{side}{why}-{i:04d}",
            task=f"t{i}",
            stratum=stratum,
            passed=passed,
            why=why,  # type: ignore[arg-type]
        )
        for i in range(count)
    ]


def sheet_of(pool: Sequence[ReviewCandidate], num: int = 20, seed: int = 0, name: str = "s") -> ReviewSheet:
    return draw_sheet(
        pool,
        name=name,
        target="desk",
        num=num,
        seed=seed,
        made_by="ann",
        now=lambda: datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    )


def label_all(store: SqlStore, sheet: ReviewSheet, right: set[str], count: int | None = None) -> None:
    for item in sheet.items[:count]:
        label = "right" if item.attempt in right else "wrong"
        add_label(store, sheet, item.attempt, reviewer="ann", label=label, reason="looked")


# ------------------------------------------------------------------------------------------------ drawing


def test_draws_are_halved_between_verdicts_and_spread_by_size() -> None:
    """The example by hand: ten passes, and of the failures seven of thirty and three of ten."""
    pool = candidates("easy", True, 100) + candidates("easy", False, 30) + candidates("hard", False, 10)
    sheet = sheet_of(pool)
    drawn = {(cell.stratum, cell.passed): cell.num_drawn for cell in sheet.cells}
    assert drawn == {("easy", True): 10, ("easy", False): 7, ("hard", False): 3}
    assert {(i.stratum, i.passed): i.inclusion for i in sheet.items} == {
        ("easy", True): 0.1,
        ("easy", False): 7 / 30,
        ("hard", False): 0.3,
    }


def test_suspicious_passes_and_disagreements_are_all_taken_in_strata_of_their_own() -> None:
    pool = candidates("easy", True, 50) + candidates("easy", False, 50)
    pool += candidates("easy", True, 5, "suspicious") + candidates("easy", False, 3, "disagreement")
    sheet = sheet_of(pool, num=10)
    certain = [item for item in sheet.items if item.why != "drawn"]
    assert Counter(item.stratum for item in certain) == {"certain:suspicious": 5, "certain:disagreement": 3}
    assert {item.inclusion for item in certain} == {1.0}
    assert len(sheet.items) == 18


def test_equal_pools_and_seeds_give_equal_sheets_whatever_the_order() -> None:
    pool = candidates("easy", True, 40) + candidates("hard", False, 40)
    assert sheet_of(pool) == sheet_of(pool[::-1])
    assert sheet_of(pool).items != sheet_of(pool, seed=1).items


def test_what_cannot_be_drawn_is_refused() -> None:
    with pytest.raises(InputError, match="nothing to review"):
        sheet_of([])
    pool = candidates("a", True, 5) + candidates("b", True, 5) + candidates("a", False, 5)
    with pytest.raises(InputError, match="2 draws for 3 cells"):
        sheet_of(pool, num=2)
    with pytest.raises(InputError, match="twice"):
        sheet_of(candidates("a", True, 2) * 2)


cells = st.dictionaries(st.tuples(st.sampled_from("abcd"), st.booleans()), st.integers(1, 60), min_size=1, max_size=8)


@settings(max_examples=60)
@given(cells, st.integers(8, 120), st.integers(0, 5))
def test_every_cell_is_drawn_from_and_weights_sum_to_its_size(
    sizes: dict[tuple[str, bool], int], num: int, seed: int
) -> None:
    pool = [c for (stratum, passed), size in sizes.items() for c in candidates(stratum, passed, size)]
    sheet = sheet_of(pool, num=num, seed=seed)
    assert len(sheet.items) == min(num, len(pool))
    assert len({item.attempt for item in sheet.items}) == len(sheet.items)
    for cell in sheet.cells:
        weights = [1 / i.inclusion for i in sheet.items if (i.stratum, i.passed) == (cell.stratum, cell.passed)]
        assert len(weights) == cell.num_drawn >= 1
        assert math.isclose(sum(weights), sizes[cell.stratum, cell.passed])


# ------------------------------------------------------------------------------------------------ labels


def test_a_sheet_is_kept_and_gone_on_with(store: SqlStore) -> None:
    pool = candidates("easy", True, 30) + candidates("easy", False, 30)
    first = save_sheet(store, sheet_of(pool))
    assert save_sheet(store, sheet_of(pool + candidates("new", True, 5))) == first
    assert load_sheet(store, "s") == first
    assert sheets_of(store, first.items[0].attempt) == (first,)
    assert sheets_of(store, "nobody") == ()
    with pytest.raises(InputError, match="drawn before"):
        save_sheet(store, sheet_of(pool, seed=7))
    with pytest.raises(NotFoundError):
        load_sheet(store, "t")


def test_labels_are_added_and_logged_and_the_last_one_holds(store: SqlStore) -> None:
    sheet = save_sheet(store, sheet_of(candidates("easy", True, 5) + candidates("easy", False, 5)))
    key = sheet.items[0].attempt
    first = add_label(store, sheet, key, reviewer="ann", label="right", reason="fine")
    second = add_label(store, sheet, key, reviewer=" ann ", label="hack", reason="look again")
    assert (first.number, second.number) == (0, 1)
    assert labels_of(store, "s") == (first, second)
    assert settled(labels_of(store, "s")) == {key: "hack"}
    entries = list(AuditLog(store).entries())
    assert [(e.actor, e.action, e.subject) for e in entries] == [("ann", "review-label", "s")] * 2
    assert entries[1].detail == {"attempt": key, "label": "hack", "reason": "look again", "before": "right"}
    assert second.entry == entries[1].digest
    assert AuditLog(store).verify() == 2


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"label": "maybe"}, "no label 'maybe'"),
        ({"reason": "  "}, "needs a reason"),
        ({"reviewer": ""}, "needs a reviewer"),
        ({"attempt": "nobody"}, "not on the sheet"),
    ],
)
def test_bad_labels_leave_no_trace(store: SqlStore, changed: dict[str, str], told: str) -> None:
    sheet = save_sheet(store, sheet_of(candidates("easy", True, 5), num=5))
    given_ = {"attempt": sheet.items[0].attempt, "reviewer": "ann", "label": "right", "reason": "r", **changed}
    with pytest.raises(InputError, match=told):
        add_label(store, sheet, given_.pop("attempt"), **given_)  # type: ignore[arg-type]
    assert labels_of(store, "s") == ()
    assert list(AuditLog(store).entries()) == []


def test_many_hands_at_once_lose_no_label(tmp_path: Path) -> None:
    with SqlStore(f"sqlite:///{tmp_path / 'store.db'}") as store:
        sheet = save_sheet(store, sheet_of(candidates("easy", True, 5), num=5))

        def hand() -> None:
            for _ in range(5):
                add_label(store, sheet, sheet.items[0].attempt, reviewer="a/b", label="right", reason="r")

        threads = [threading.Thread(target=hand) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(label.number for label in labels_of(store, "s")) == list(range(20))
        assert AuditLog(store).verify() == 20


# ------------------------------------------------------------------------------------------------ rates


def test_rates_by_hand(store: SqlStore) -> None:
    """All of 10 passes and 10 failures reviewed: 2 passes wrong, 1 failure right, so ρ0 = 2/11 and ρ1 = 1/9."""
    pool = candidates("easy", True, 10) + candidates("easy", False, 10)
    sheet = save_sheet(store, sheet_of(pool))
    right = {c.attempt for c in pool[:8]} | {pool[10].attempt}
    label_all(store, sheet, right)
    rates = review_rates(sheet, labels_of(store, "s"))
    assert rates.error is not None
    assert rates.error.rho0 is not None
    assert rates.error.rho1 is not None
    assert math.isclose(rates.error.rho0.value, 2 / 11)
    assert math.isclose(rates.error.rho1.value, 1 / 9)
    assert rates.error.rho0.low < 2 / 11 < rates.error.rho0.high
    assert (rates.num_left, rates.num_unspoken, rates.disputed, rates.num_pool) == (0, 0, (), 20)


def test_a_cell_labelled_in_part_still_weighs_as_its_whole(store: SqlStore) -> None:
    """100 passes, 40 failures; all drawn failures labelled, half of the passes: the pool's sizes stay 100 and 40."""
    pool = candidates("easy", True, 100) + candidates("easy", False, 40)
    sheet = save_sheet(store, sheet_of(pool, num=40))
    failures = [item for item in sheet.items if not item.passed]
    passes = [item for item in sheet.items if item.passed]
    for item in [*failures, *passes[:10]]:
        wrong_pass = item in passes[:1]
        label = "right" if item.passed and not wrong_pass else "wrong"
        add_label(store, sheet, item.attempt, reviewer="ann", label=label, reason="r")
    rates = review_rates(sheet, labels_of(store, "s"))
    assert rates.error is not None
    assert rates.error.rho0 is not None
    assert math.isclose(rates.error.rho0.value, 10 / 50)  # a tenth of 100 passes is wrong, beside 40 failures
    assert rates.num_left == 10


def test_strata_without_a_label_are_not_spoken_for(store: SqlStore) -> None:
    sheet = save_sheet(store, sheet_of(candidates("easy", True, 10) + candidates("hard", False, 30), num=10))
    assert review_rates(sheet, ()).error is None
    easy = next(item for item in sheet.items if item.stratum == "easy")
    add_label(store, sheet, easy.attempt, reviewer="ann", label="right", reason="r")
    rates = review_rates(sheet, labels_of(store, "s"))
    assert rates.num_unspoken == 30
    assert rates.error is not None
    assert rates.error.rho0 is None


def test_taking_suspicious_passes_whole_keeps_the_estimate_unbiased(store: SqlStore) -> None:
    """Mean over many draws of a pool whose suspicious passes are mostly wrong: ρ0 of the pool, not of the sheet."""
    pool = candidates("easy", True, 180) + candidates("easy", False, 100)
    odd = candidates("easy", True, 20, "suspicious")
    wrong = {c.attempt for c in odd[:15]} | {c.attempt for c in pool[:9]} | {c.attempt for c in pool[180:]}
    truth = (15 + 9) / (15 + 9 + 100)
    values = []
    for seed in range(120):
        sheet = sheet_of(pool + odd, num=40, seed=seed)
        labels = [
            ReviewLabel(
                sheet="s",
                attempt=item.attempt,
                reviewer="ann",
                label="wrong" if item.attempt in wrong else "right",
                reason="r",
                passed=item.passed,
                stratum=item.stratum,
                inclusion=item.inclusion,
                number=0,
                at="",
                entry="",
            )
            for item in sheet.items
        ]
        error = review_rates(sheet, labels).error
        assert error is not None
        assert error.rho0 is not None
        values.append(error.rho0.value)
    assert abs(sum(values) / len(values) - truth) < 0.012


# ------------------------------------------------------------------------------------------------ two reviewers


def test_two_reviewers_by_hand(store: SqlStore) -> None:
    """Four attempts, both say right on two, wrong on one, differ on one: p_o = 3/4, p_e = 1/2, κ = 1/2."""
    sheet = save_sheet(store, sheet_of(candidates("easy", True, 4), num=4))
    keys = [item.attempt for item in sheet.items]
    for key, ann, bob in zip(
        keys, ("right", "right", "wrong", "right"), ("right", "right", "wrong", "wrong"), strict=True
    ):
        add_label(store, sheet, key, reviewer="ann", label=ann, reason="r")
        add_label(store, sheet, key, reviewer="bob", label=bob, reason="r")
    (pair,) = agreement(labels_of(store, "s"))
    assert (pair.reviewers, pair.num_items, pair.num_equal) == (("ann", "bob"), 4, 3)
    assert math.isclose(pair.kappa, 0.5)
    rates = review_rates(sheet, labels_of(store, "s"))
    assert rates.disputed == (keys[3],)
    assert rates.num_left == 1
    add_label(store, sheet, keys[3], reviewer="cy", label="hack", reason="r")
    assert settled(labels_of(store, "s"))[keys[3]] == "hack"
    assert review_rates(sheet, labels_of(store, "s")).num_left == 0


# ------------------------------------------------------------------------------------------------ for whom they speak


def spoken(store: SqlStore, name: str, environments: tuple[str, ...], num: int = 40) -> ReviewSheet:
    """A sheet of which every item is labelled: of 40, four passes are wrong and two failures are right."""
    pool = candidates("s", True, 100) + candidates("s", False, 100)
    sheet = msgspec.structs.replace(sheet_of(pool, num, name=name), environments=environments)
    save_sheet(store, sheet)
    passes = [item.attempt for item in sheet.items if item.passed]
    failures = [item.attempt for item in sheet.items if not item.passed]
    label_all(store, sheet, {*passes[4:], *failures[:2]})
    return sheet


def test_known_errors_are_those_of_the_environments_own_checks(store: SqlStore) -> None:
    spoken(store, "small", ("env-1",), num=24)
    spoken(store, "other", ("env-2",))
    spoken(store, "mixed", ("env-1", "env-2"), num=80)
    spoken(store, "right", ("env-1",))
    found = known_error(store, "env-1")
    assert found is not None
    assert (found.sheet, found.num_reviewed) == ("right", 40)
    assert found.rho0.value == pytest.approx(0.2 / 1.1)
    assert found.rho1.value == pytest.approx(0.1 / 0.9)
    assert found.noise == (found.rho0.value, found.rho1.value)
    assert known_error(store, "env-3") is None


def test_few_labels_and_one_sided_ones_are_not_enough(store: SqlStore) -> None:
    spoken(store, "few", ("env",), num=10)
    sheet = msgspec.structs.replace(sheet_of(candidates("s", True, 50), 30, name="passes"), environments=("env",))
    save_sheet(store, sheet)
    label_all(store, sheet, {item.attempt for item in sheet.items})
    assert known_error(store, "env") is None


def test_sealing_a_part_changes_the_digest_and_no_check(store: SqlStore) -> None:
    spoken(store, "before", ("whole",))
    withdraw(
        store,
        Withdrawn(environment="e", digest="whole", successor="rest", holdout="h", hidden=("t1",)),
    )
    found = known_error(store, "rest")
    assert found is not None
    assert found.sheet == "before"


def test_rates_tell_the_share_of_right_work_beside_the_pass_rate(store: SqlStore) -> None:
    sheet = spoken(store, "s", ("e",))
    rates = review_rates(sheet, labels_of(store, "s"))
    assert rates.pass_rate == 0.5
    assert rates.right is not None
    assert rates.right.value == pytest.approx(0.5 * 0.8 + 0.5 * 0.1)
    assert rates.right.low < rates.right.value < rates.right.high
