from __future__ import annotations

import math
from collections.abc import Callable

import msgspec
import pytest

from flightschool.records import EpisodeGroup, TokenSpan
from flightschool.training.algorithms import TermWeights, grpo
from flightschool.training.messages import StepStats
from flightschool.training.progress import Meter, StepProgress

MakeGroup = Callable[..., EpisodeGroup]
MakeSpans = Callable[..., tuple[TokenSpan, ...]]

STATS = StepStats(
    loss=0.0,
    grad_norm=0.0,
    num_trained_tokens=0,
    num_forward_tokens=0,
    entropy=0.0,
    ess=1.0,
    k1=0.0,
    k3=0.0,
    clip_share=0.0,
    tis_share=0.0,
    max_abs_mismatch=0.0,
    seconds=0.0,
)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr("flightschool.training.progress.time.monotonic", lambda: now[0])
    return now


def meter(**fields: int) -> Meter:
    return Meter(incarnation=0, num_steps=9, first_step=0, groups_per_step=1, **fields)


def test_idle_generation_is_the_time_in_which_nothing_runs(clock: list[float]) -> None:
    counts = meter()
    for running, seconds in ((0, 1.0), (2, 3.0), (1, 2.0), (0, 2.0), (1, 2.0)):
        counts.running(running)
        clock[0] += seconds
    assert counts.step(0, 1, STATS, 1.0).generation_idle == pytest.approx(0.3)
    clock[0] += 1.0
    assert counts.step(1, 2, STATS, 1.0).generation_idle == 0.0
    counts.running(0)
    clock[0] += 1.0
    assert counts.step(2, 3, STATS, 1.0).generation_idle == 1.0
    clock[0] += 1.0
    assert counts.step(3, 4, STATS, 1.0).generation_idle == 1.0


def test_waste_expiry_and_shares_of_terms(make_group: MakeGroup, make_spans: MakeSpans) -> None:
    counts = meter(max_staleness=1, num_dropped_tokens=4)
    group = make_group([1.0, 0.0], [make_spans(version=0), make_spans(version=3)])
    counts.finished(group)
    counts.consumed(group, grpo(group, TermWeights(process=0.0)))
    row = counts.step(3, 4, STATS, 1.0)
    assert row.waste == pytest.approx(4 / (4 + 6))
    assert row.expired_token_share == pytest.approx(0.5)  # three tokens of version 0 train at 3
    assert row.staleness_histogram == {0: 3, 3: 3}
    assert math.fsum(row.term_shares.values()) == pytest.approx(1.0)
    assert row.term_shares["outcome"] == pytest.approx(1.0)


def test_rows_of_older_runs_can_still_be_read() -> None:
    row = meter().step(0, 1, STATS, 1.0)
    told = msgspec.to_builtins(row)
    for name in ("waste", "expired_token_share", "generation_idle", "term_shares"):
        del told[name]
    assert msgspec.convert(told, StepProgress).waste == 0.0
