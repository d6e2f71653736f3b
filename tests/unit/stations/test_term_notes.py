"""What the report says of the reward's terms."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import msgspec

from flightschool.records import Attempt, Reward, Vote
from flightschool.rollouts import EpisodeRunner, NoopPolicy, run_attempts
from flightschool.stations.term_notes import term_notes
from flightschool.testing.miniature import MiniatureEnvironment
from flightschool.training import StepProgress
from flightschool.verification import OutcomeReward


def step(**shares: float) -> StepProgress:
    class Row:
        term_shares = shares

    return cast("StepProgress", Row())


def attempts(*rows: tuple[str, float, float]) -> Iterator[Attempt]:
    """(task, outcome, process) of each."""
    environment = MiniatureEnvironment()
    runner = EpisodeRunner(environment, OutcomeReward(), run="r")
    (plain,) = run_attempts(runner, environment.tasks()[:1], NoopPolicy(), seed=0)
    for task, outcome, process in rows:
        fields: dict[str, Any] = {"outcome": outcome, "process": process, "latency": 0.0, "gate": 1.0, "total": outcome}
        yield msgspec.structs.replace(plain, task=task, reward=Reward(**fields))


def test_shares_are_means_over_steps_in_which_something_varied() -> None:
    told = term_notes([step(outcome=0.9, process=0.1), step(), step(outcome=0.7, process=0.3, latency=0.0)], [])
    assert told == [
        "Share of the variance of advantages within groups, by term of the reward: outcome 80%, process 20%."
    ]


def test_a_process_term_that_pays_for_worse_work_is_told() -> None:
    """In every task the failure has the higher process term: each pair is reversed, and the maximiser earns nothing."""
    rows = [(f"t{n}", outcome, 1.0 - outcome) for n in range(6) for outcome in (0.0, 1.0)]
    (told,) = term_notes([], attempts(*rows))
    assert "correlation with the outcome within tasks is -1.00" in told
    assert "the wrong way round 1.00" in told
    assert "would reach an outcome of 0.00" in told
    assert "the mean is 0.50" in told


def test_how_far_voters_agree_is_told() -> None:
    votes = (Vote(voter="a", passed=True), Vote(voter="b", passed=False))
    both = (Vote(voter="a", passed=True), Vote(voter="b", passed=True))
    made: list[Attempt] = []
    for attempt, said in zip(attempts(("t", 1.0, 0.0), ("u", 0.0, 0.0)), (votes, both), strict=True):
        assert attempt.verdict is not None
        checks = (msgspec.structs.replace(attempt.verdict.checks[0], id="board", votes=said),)
        made.append(msgspec.structs.replace(attempt, verdict=msgspec.structs.replace(attempt.verdict, checks=checks)))
    (told,) = term_notes([], made)
    assert "voters of check board were of one mind on 50.0% [" in told
    assert "of 2 attempts: alpha 0.00." in told


def test_nothing_is_said_where_nothing_varies() -> None:
    assert term_notes([], attempts(("t", 1.0, 0.0), ("u", 0.0, 0.0))) == []
    assert term_notes([], attempts(("t", 1.0, 0.0), ("t", 0.0, 1.0))) == [], "one task says nothing"
