"""Counting of a corpus: what is a miss, what a false alarm, and the exact bounds of both."""

from __future__ import annotations

import pytest

from flightschool.testing.corpus_measure import Judged, score_corpus, tell_corpus


def judged(id_: str, label: str, verdict: str, seconds: float = 1.0) -> Judged:
    return Judged(
        id=id_, label=label, rows=("1",), verdict=verdict, classes=(), why="a | b", num_plays=3, wall_s=seconds
    )


PAIRS = (
    ("exploitable", "exploitable", False, False),
    ("exploitable", "leaking", False, False),  # told, by another name
    ("exploitable", "sound", True, False),
    ("flaky", "unaudited", True, False),  # nothing was shown
    ("unaudited", "unaudited", False, False),
    ("sound", "sound", False, False),
    ("sound", "unaudited", False, True),
    ("sound", "exploitable", False, True),
)


@pytest.mark.parametrize(("label", "verdict", "missed", "false"), PAIRS)
def test_what_counts_as_missed_and_as_false(label: str, verdict: str, missed: bool, false: bool) -> None:
    one = judged("t1", label, verdict)
    assert (one.is_missed, one.is_false) == (missed, false)


def test_counts_and_exact_bounds() -> None:
    every = [judged(f"f{i}", "leaking", "leaking") for i in range(19)] + [judged("f19", "leaking", "sound")]
    every += [judged(f"s{i}", "sound", "sound") for i in range(10)]
    score = score_corpus(every)
    assert (score.num_flawed, score.num_missed, score.num_sound, score.num_false, score.num_exact) == (20, 1, 10, 0, 29)
    assert score.recall == pytest.approx((0.75127, 0.99873), abs=1e-4)  # 19 of 20, tables of Clopper and Pearson
    assert score.specificity == pytest.approx((0.69150, 1.0), abs=1e-4)  # 10 of 10: 0.025 ** (1 / 10)


def test_the_table_names_every_miss_and_every_false_alarm() -> None:
    text = tell_corpus([judged("t1", "leaking", "sound"), judged("t2", "sound", "flaky", 9.0)], "sha256:x")
    assert "| t1 | leaking (row 1) | **missed** (sound) |  | a / b |" in text
    assert "| 1 | 1 | 0 | 0 | 1 | 0 |  |" in text, "by class: one flawed and missed, one sound and accused"
    assert "| t2 | sound (row 1) | **false alarm** (flaky) |  | a / b |" in text
    assert "| flawed tasks that were told (recall) | 0 of 1 | 0.0 % | 0.0 to 97.5 % |" in text
    assert "longest 9.0 s; 6 plays" in text
