"""Kinship of suites with training: marked, scored apart, never dropped; the sealed part in counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from flightschool.errors import GateError
from flightschool.evaluation import (
    Ancestry,
    SealedHoldout,
    compare,
    count_sealed_kin,
    freeze,
    kinship,
    refuse_kin,
    suite_texts,
    summarise,
    task_texts,
)
from flightschool.evaluation.kinship import answer
from flightschool.governance import KeyRing, seal
from flightschool.lineage import Origin, Text, canary, sign


def suspect(run: Any, share: int) -> Any:
    items = [
        msgspec.structs.replace(item, suspected="task x (exact, 1.00)" if index % share == 0 else "")
        for index, item in enumerate(run.items)
    ]
    return msgspec.structs.replace(run, items=tuple(items))


def test_copies_in_training_mark_their_tasks(workshop: Any) -> None:
    suite = freeze(workshop, "s", frozen_at="now").suite
    first, second, *_ = suite.task_digests
    texts = (
        Text(id="tr-1", origin=Origin.TRACE, text=workshop.task(first).instruction.upper()),
        Text(id="other", text="Which technician holds a permit for the boiler room this week?"),
    )
    kin = kinship(suite, suite_texts(suite, workshop), Ancestry(statement="trained in r", texts=texts))
    # All tasks of a family are one template here: they differ in a number alone.
    family = workshop.task(first).family
    assert set(kin.suspected) == {t for t in suite.task_digests if workshop.task(t).family == family}
    assert kin.suspected[first] == "trace tr-1 (normalised, 1.00)"
    assert kin.suspected[second] == "trace tr-1 (masked, 1.00)"
    assert kin.statement.startswith("trained in r: 2 texts, 5 of")
    with pytest.raises(GateError, match="have kin in training"):
        refuse_kin(suite, suite_texts(suite, workshop), Ancestry(statement="trained in r", texts=texts))
    refuse_kin(suite, suite_texts(suite, workshop), Ancestry(statement="trained in r", texts=texts[1:]))


def test_one_wording_under_two_rules_is_two_tasks(workshop: Any) -> None:
    suite = freeze(workshop, "s", frozen_at="now").suite
    first = next(iter(suite.task_digests))
    workshop.rows[first] = msgspec.structs.replace(workshop.task(first), guidance="Buy from the listed supplier.")
    other = Text(id="t", text=workshop.task(first).instruction, context="Purchases need an approval.")
    assert first not in kinship(suite, suite_texts(suite, workshop), Ancestry(statement="", texts=(other,))).suspected
    same = msgspec.structs.replace(other, context="Buy from the listed supplier!")
    assert first in kinship(suite, suite_texts(suite, workshop), Ancestry(statement="", texts=(same,))).suspected


def test_the_pool_of_a_freeze_is_no_kin_of_its_suite(workshop: Any) -> None:
    frozen = freeze(workshop, "s", frozen_at="now")
    pool = task_texts([workshop.task(task_id) for task_id in frozen.pool])
    texts, ancestry = suite_texts(frozen.suite, workshop), Ancestry(statement="the pool", texts=pool)
    assert pool
    assert not kinship(frozen.suite, texts, ancestry).suspected
    refuse_kin(frozen.suite, texts, ancestry)


def test_a_canary_in_training_suspects_the_whole_suite(workshop: Any) -> None:
    suite = freeze(workshop, "s", frozen_at="now").suite
    text = Text(id="corpus-7", text=f"scraped page … {canary(suite.digest)} …")
    kin = kinship(suite, suite_texts(suite, workshop), Ancestry(statement="corpus", texts=(text,)))
    assert set(kin.suspected) == set(suite.task_digests)
    assert "corpus-7" in next(iter(kin.suspected.values()))


def test_clean_and_suspected_are_scored_apart_and_nothing_is_dropped(run_of: Any) -> None:
    run = suspect(run_of([index % 4 == 0 for index in range(80)], families=20), 4)
    summary = summarise(run)
    assert summary.measurement("success/suspected").value == 1.0
    assert summary.measurement("success/clean").value == 0.0
    assert summary.measurement("success/all").value == 0.25
    assert summary.measurement("success/all").num_items == 80
    assert any("20 tasks have kin" in note for note in summary.notes)
    clean = summarise(run_of([True] * 16))
    assert not any("clean" in m.name for m in clean.measurements)


def test_a_pair_is_suspected_if_one_side_is(run_of: Any) -> None:
    before = run_of([False] * 80, families=20)
    after = suspect(run_of([index % 4 == 0 for index in range(80)], families=20), 4)
    result = compare(before, after)
    assert result.difference("success/suspected").diff == 1.0
    assert result.difference("success/clean").diff == 0.0
    assert result.difference("success/all").num_pairs == 80


# ------------------------------------------------------------------------------------------------ the sealed part

SECRET = "order two seals for pump P-104 and close the work order when the supplier has confirmed the price"


def card_of(ring: KeyRing) -> SealedHoldout:
    key = ring.create("s-holdout", budget=1)
    return SealedHoldout(
        name="s-holdout",
        suite="s",
        environment="e",
        environment_digest="",
        successor="",
        digest="",
        num_tasks=2,
        num_unaudited=0,
        strata={},
        looks=1,
        alpha=0.05,
        role="evaluation",
        key_id=key.id,
        box=seal(b"", key.secret, "x"),
        signatures=(
            sign(SECRET, key.secret),
            sign("something else that nobody ever trained on, word for word", key.secret),
        ),
        complete=True,
    )


def test_the_sealed_part_is_counted_in_another_process(tmp_path: Path) -> None:
    ring = KeyRing(tmp_path / "keys")
    card = card_of(ring)
    texts = [
        Text(id="name-of-a-text", text=SECRET.replace("104", "7")),
        Text(id="b", text="an unrelated sentence of words"),
    ]
    counts = count_sealed_kin(card, texts, ring, role="evaluation")
    assert (counts.num_items, counts.num_texts, counts.by_kind) == (2, 2, {"masked": 1})
    with pytest.raises(GateError, match="not held by role 'training'"):
        count_sealed_kin(card, texts, ring, role="training")
    with pytest.raises(GateError, match="is not here"):
        count_sealed_kin(card, texts, KeyRing(tmp_path / "elsewhere"), role="evaluation")


def test_the_answer_holds_numbers_alone(tmp_path: Path) -> None:
    ring = KeyRing(tmp_path / "keys")
    card = card_of(ring)
    question = msgspec.msgpack.encode(
        {
            "key_id": card.key_id,
            "role": "evaluation",
            "folder": str(ring.folder),
            "signatures": card.signatures,
            "texts": [Text(id="name-of-a-text", text=SECRET)],
        }
    )
    assert msgspec.json.decode(answer(question)) == {"num_items": 2, "num_texts": 1, "by_kind": {"exact": 1}}
