from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.integration.training.fake_trainer import NO_STATS

from flightschool.records import EpisodeGroup, Reward, TokenSpan
from flightschool.stations.report_rows import read_steps
from flightschool.training.algorithms import TeacherSums, TermWeights, grpo
from flightschool.training.journal import Tally
from flightschool.training.progress import Meter, MetricsFile, StepProgress, read_metrics, trained_ages

MakeGroup = Callable[..., EpisodeGroup]
MakeReward = Callable[..., Reward]
MakeSpans = Callable[..., tuple[TokenSpan, ...]]
STATS = NO_STATS


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr("flightschool.training.progress.time.monotonic", lambda: now[0])
    return now


def meter(**fields: Any) -> Meter:
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
    counts = meter(max_staleness=1, before=Tally(lost_tokens=4, sampled_tokens=4))
    group = make_group([1.0, 0.0], [make_spans(version=0), make_spans(version=3)])
    counts.finished(group)
    counts.consumed(group, grpo(group, TermWeights(process=0.0)), [member.id for member in group.members])
    row = counts.step(3, 4, STATS, 1.0)
    assert row.waste == pytest.approx(4 / (4 + 6))
    assert row.expired_token_share == pytest.approx(0.5)  # three tokens of version 0 train at 3
    assert row.staleness_histogram == {0: 3, 3: 3}
    assert math.fsum(row.term_shares.values()) == pytest.approx(1.0)
    assert row.term_shares["outcome"] == pytest.approx(1.0)


def test_ages_are_those_of_tokens_whose_gradient_was_applied(make_group: MakeGroup, make_spans: MakeSpans) -> None:
    """Neither members that were left out nor a step that was skipped."""
    group = make_group([1.0, 0.0], [make_spans(version=2), make_spans(version=3)])
    credits_ = grpo(group, TermWeights())
    counts = meter(max_staleness=1)
    counts.consumed(group, credits_, [group.members[1].id])
    assert counts.step(3, 4, STATS, 1.0).staleness_histogram == {0: 3}
    counts.consumed(group, credits_, [member.id for member in group.members])
    row = counts.step(4, 4, STATS, 1.0)
    assert (row.skipped, row.staleness_histogram, row.expired_token_share) == (True, {}, 0.0)


def test_a_bias_of_length_is_seen(make_group: MakeGroup, make_spans: MakeSpans) -> None:
    """Groups of which the longer one never trains: three tokens an attempt instead of the mean of nine."""
    short, long_ = (make_group([1.0, 0.0], [make_spans(turns=(((4,) * count, ()),))] * 2) for count in (3, 15))
    counts = meter()
    for group in (short, long_):
        counts.finished(group)
    counts.consumed(short, grpo(short, TermWeights()), [member.id for member in short.members])
    assert counts.step(0, 1, STATS, 1.0).length_bias == pytest.approx(6 / 9)


@pytest.mark.parametrize(("counts_all", "inflation"), [(True, 1.0), (False, 0.25)])
def test_a_step_is_as_large_as_what_was_asked_for(make_group: MakeGroup, counts_all: bool, inflation: float) -> None:
    """One group with a gradient and three without, where four were asked for."""
    counts = Meter(incarnation=0, num_steps=9, first_step=0, groups_per_step=4, count_zero_advantage=counts_all)
    for rewards in ([1.0, 0.0], *[[1.0, 1.0]] * 3):
        group = make_group(rewards)
        counts.consumed(group, grpo(group, TermWeights()), [])
    row = counts.step(0, 1, STATS, 1.0)
    assert (row.num_groups, row.num_zero_advantage) == (1, 3)
    assert row.batch_inflation == inflation


def test_budget_and_turns_are_terms_like_any_other(make_group: MakeGroup, make_reward: MakeReward) -> None:
    """A reward without a budget counts as 0; qualities are averaged over turns, not over groups."""
    kept = msgspec.structs.replace(make_reward(), thinking=0.5)
    group = make_group([kept, make_reward(), make_reward(0.0), make_reward(0.0)])
    counts = meter()
    counts.consumed(group, grpo(group, TermWeights()), [], [-1.0, 0.0, 0.0])
    counts.consumed(group, grpo(group, TermWeights()), [], [0.0])
    row = counts.step(0, 1, STATS, 1.0)
    assert row.reward_thinking == pytest.approx(0.125)
    assert row.reward_turns == pytest.approx(-0.25)
    assert counts.step(1, 2, STATS, 1.0).reward_turns == 0.0


def test_rows_of_older_runs_can_still_be_read() -> None:
    row = meter().step(0, 1, STATS, 1.0)
    told = msgspec.to_builtins(row)
    for name in ("waste", "expired_token_share", "generation_idle", "term_shares", "reward_thinking", "reward_turns"):
        del told[name]
    assert msgspec.convert(told, StepProgress).waste == 0.0


def test_figures_over_the_run_go_on_where_an_earlier_start_ended(make_group: MakeGroup, make_spans: MakeSpans) -> None:
    """Ten attempts of 20 tokens were finished before, the five short ones of 10 consumed, and 50 tokens lost."""
    before = Tally(
        lost_tokens=50, sampled_tokens=100, num_finished=10, finished_tokens=200, num_consumed=5, consumed_tokens=50
    )
    counts = meter(max_staleness=1, before=before, ages={2: 3, 0: 10})
    assert counts.max_staleness == 2
    group = make_group([1.0, 0.0], [make_spans(version=3)] * 2)
    counts.finished(group)
    counts.consumed(group, grpo(group, TermWeights()), [member.id for member in group.members])
    counts.discarded(4)
    row = counts.step(3, 4, STATS, 1.0)
    assert row.waste == pytest.approx(54 / 110)
    assert row.length_bias == pytest.approx(1 - (56 / 7) / (206 / 12))
    assert row.expired_token_share == pytest.approx(3 / 19)


def test_ages_of_earlier_starts_are_those_of_durable_steps() -> None:
    rows = [
        msgspec.structs.replace(
            meter().step(0, 1, STATS, 1.0),
            incarnation=start,
            step=step,
            skipped=skipped,
            staleness_histogram={age: 10},
        )
        for start, step, skipped, age in ((0, 1, False, 0), (0, 2, False, 1), (0, 2, True, 7), (1, 2, False, 0))
    ]
    assert trained_ages(rows, ((0, 1), (1, 2))) == {0: 20}
    assert trained_ages(rows, ()) == {}


def test_steps_that_were_skipped_and_lines_that_were_cut_are_read(tmp_path: Path) -> None:
    """JSON knows no NaN, and a killed run leaves half a line."""
    path = tmp_path / "metrics.jsonl"
    file = MetricsFile(path)
    broken = msgspec.structs.replace(STATS, loss=math.nan, grad_norm=math.inf)
    rows = [meter().step(0, 1, STATS, 1.0), meter().step(1, 1, broken, 1.0)]
    rows = [file.write(row) for row in rows]
    with path.open("ab") as stream:
        stream.write(b'{"incarnation":0,"st')
    first, second = read_metrics(path)
    assert first == rows[0]
    assert (second.step, second.skipped) == (1, True)
    assert math.isnan(second.stats.loss)
    assert math.isnan(second.stats.grad_norm)
    assert second.staleness_histogram == rows[1].staleness_histogram
    assert MetricsFile(path).write(rows[0]).number == 3
    assert [row.number for row in read_metrics(path)] == [1, 2, 3]  # the half line is gone
    assert [row.step for row in read_steps(path)] == [1]
    assert not read_steps(path)[0].skipped
    assert read_metrics(tmp_path / "none") == []


def test_the_distance_to_a_teacher_is_a_mean_over_tokens(make_group: MakeGroup) -> None:
    counts = meter()
    for sums in (TeacherSums(6, 3.0, 1), TeacherSums(2, 1.0, 1), None):
        group = make_group([1.0, 0.0])
        counts.consumed(group, grpo(group, TermWeights()), [], teacher=sums)
    row = counts.step(0, 1, STATS, 1.0)
    assert (row.num_teacher_tokens, row.teacher_kl, row.teacher_clip_share) == (8, 0.5, 0.25)
    row = counts.step(1, 2, STATS, 1.0)
    assert (row.num_teacher_tokens, row.teacher_kl, row.teacher_clip_share) == (0, 0.0, 0.0)
