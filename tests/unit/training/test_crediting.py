"""From a group to what trains: no composition of a group puts a wrong member's token above a right one's."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from flightschool.records import Attempt, EpisodeGroup, GroupState, Reward, TokenSpan
from flightschool.training.algorithms import TurnQuality
from flightschool.training.crediting import Credited, Crediting
from flightschool.training.settings import TrainingSettings

MakeGroup = Callable[..., EpisodeGroup]
MakeSpans = Callable[..., tuple[TokenSpan, ...]]


class Row(NamedTuple):
    """A member as the tests draw it."""

    outcome: float | None
    length: int = 4
    noise: str = "clean"
    quality: float = 0.0
    """Of its second turn; the first has 0."""
    process: float = 0.0
    speed: float = 0.0


@pytest.fixture
def credited(make_group: MakeGroup, make_spans: MakeSpans) -> Callable[..., Credited]:
    """Credits of rows by settings."""

    def reward(row: Row) -> Reward | None:
        if row.outcome is None:
            return None
        speed = row.speed if row.outcome >= 1.0 else 0.0
        return Reward(outcome=row.outcome, process=row.process, latency=speed, gate=1.0, total=row.outcome)

    def made(rows: Sequence[Row], **settings_: object) -> Credited:
        spans = [make_spans(turns=(((7,) * (row.length - 1), (6,)), ((7,), ()))) for row in rows]
        group = make_group([reward(row) for row in rows], spans)
        members = (msgspec.structs.replace(m, noise=row.noise) for m, row in zip(group.members, rows, strict=True))
        group = msgspec.structs.replace(group, members=tuple(members))
        return Crediting(TrainingSettings.model_validate(settings_), by_row(rows)).credit(group)

    return made


def by_row(rows: Sequence[Row]) -> TurnQuality:
    def quality(attempt: Attempt) -> dict[int, float]:
        return {0: 0.0, 1: rows[attempt.index].quality}

    return quality


DAPO: dict[str, object] = {"algorithm": "dapo", "overlong_limit": 100, "overlong_buffer": 20}


def test_a_group_without_turn_terms_is_credited(credited: Callable[..., Credited]) -> None:
    rows = [Row(1.0, length=100), Row(0.2, length=10), Row(0.0, length=10), Row(0.0, length=10)]
    found = credited(rows, **DAPO)
    assert found.credits.state is GroupState.COMPLETE
    assert found.turns == {}


def test_a_bad_turn_is_never_paid(credited: Callable[..., Credited]) -> None:
    """A right member at the limit, a partly right one far below it, and a turn of the latter that failed."""
    rows = [Row(1.0, length=100), Row(0.9, length=10, quality=-1.0)]
    found = credited(rows, turn_weight=0.2, **DAPO)
    assert found.turns["g0:1"][1] < 0.0 < found.turns["g0:1"][0]


def test_turns_are_compared_under_their_own_weather_by_hand(credited: Callable[..., Credited]) -> None:
    """Clean turns are (0, −1), (0, 0): mean −¼; noisy ones are all 0. The gap of 1 leaves the terms as they are."""
    rows = [
        Row(1.0, quality=-1.0),
        Row(0.0),
        Row(1.0, noise="storm"),
        Row(0.0, noise="storm"),
        Row(1.0, noise="fog", quality=-1.0),
    ]
    found = credited(rows, algorithm="dr_grpo", turn_weight=0.2)
    assert found.turns == {"g0:0": pytest.approx({0: 0.05, 1: -0.15}), "g0:1": pytest.approx({0: 0.05, 1: 0.05})}


def test_weathers_need_not_agree_about_what_is_better(credited: Callable[..., Credited]) -> None:
    """The right one of calm weather stands below the less wrong one of a storm, and nothing is out of order."""
    rows = [Row(1.0), Row(1.0), Row(1.0), Row(0.0), Row(0.9, noise="storm"), Row(0.0, noise="storm")]
    found = credited(rows, algorithm="dr_grpo")
    advantages = [credit.advantage for credit in found.credits.credits]
    assert advantages == pytest.approx([0.25, 0.25, 0.25, -0.75, 0.45, -0.45])


def test_who_was_compared_and_found_equal_is_counted(make_group: MakeGroup) -> None:
    def flat(group: EpisodeGroup, algorithm: str = "dr_grpo", watched: tuple[str, ...] = ()) -> int:
        settings_ = TrainingSettings.model_validate({"algorithm": algorithm})
        return Crediting(settings_, untrained=watched).credit(group).num_flat_members

    assert flat(make_group([1.0, 1.0, None])) == 2
    assert flat(make_group([0.5, 0.0, None]), "dapo") == 2
    assert flat(make_group([1.0, 0.0])) == 0, "it has a gradient"
    assert flat(make_group([1.0, None])) == 0, "nothing to compare with"
    assert flat(make_group([1.0, 0.0]), watched=("t",)) == flat(make_group([1.0, 1.0]), watched=("t",)) == 0


unit = st.floats(0.0, 1.0)
rows_ = st.builds(
    Row,
    outcome=st.just(1.0) | unit | st.none(),
    length=st.integers(2, 120),
    noise=st.sampled_from(["clean", "storm"]),
    quality=st.floats(-1.0, 0.0),
    process=unit,
    speed=unit,
)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(rows_, min_size=2, max_size=8),
    st.sampled_from(["grpo", "dr_grpo", "rloo", "dapo"]),
    st.floats(0.0, 1.0),
    st.floats(0.0, 0.25),
)
@example([Row(1.0, length=95), Row(0.5, length=10), Row(0.0), Row(0.0)], "dapo", 0.2, 0.1)
@example([Row(1.0, length=120), Row(math.nextafter(1.0, 0.0), length=2, process=1.0)], "dapo", 1.0, 0.25)
@example([Row(1.0), Row(0.0), Row(0.9, noise="storm", quality=-1.0), Row(0.0, noise="storm")], "grpo", 1.0, 0.0)
def test_every_token_of_a_right_member_is_above_every_other_of_its_weather(
    credited: Callable[..., Credited], rows: list[Row], algorithm: str, turn_weight: float, latency_weight: float
) -> None:
    table: dict[str, object] = {"algorithm": algorithm, "turn_weight": turn_weight, "latency_weight": latency_weight}
    found = credited(rows, **(table | (DAPO if algorithm == "dapo" else {})))
    tokens: dict[tuple[str, bool], list[float]] = {}
    for credit in found.credits.credits:
        row = rows[int(credit.attempt.partition(":")[2])]
        terms = found.turns.get(credit.attempt, {})
        assert all(abs(value) <= turn_weight + 1e-12 for value in terms.values())
        tokens.setdefault((row.noise, row.outcome == 1.0), []).extend(
            credit.advantage + value for value in (0.0, *terms.values())
        )
    for weather in ("clean", "storm"):
        right, wrong = (tokens.get((weather, is_right), []) for is_right in (True, False))
        if right and wrong:
            assert min(right) > max(wrong)
