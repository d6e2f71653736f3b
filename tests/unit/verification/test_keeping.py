"""A reward kept in a workspace is found again, by its digest and as the current one."""

from __future__ import annotations

import pytest

from flightschool.errors import NotFoundError
from flightschool.store import SqlStore
from flightschool.verification import OutcomeReward, RewardSettings, current_reward, keep_reward, reward_of


def test_the_current_reward_is_the_last_one_kept_and_older_ones_are_found_by_digest() -> None:
    store = SqlStore("sqlite://")
    first = OutcomeReward(RewardSettings(process_share=0.2))
    second = OutcomeReward(RewardSettings(latency_high_ms=3_000.0))
    assert current_reward(store).digest == OutcomeReward().digest
    keep_reward(store, first)
    keep_reward(store, second)
    assert current_reward(store).settings == second.settings
    assert reward_of(store, first.digest).settings == first.settings
    assert reward_of(store, second.digest).digest == second.digest


def test_the_default_reward_is_known_without_being_kept() -> None:
    assert current_reward(None).digest == OutcomeReward().digest
    assert reward_of(SqlStore("sqlite://"), OutcomeReward().digest).digest == OutcomeReward().digest


def test_a_reward_that_was_not_kept_is_refused_by_name() -> None:
    unknown = OutcomeReward(RewardSettings(process_share=0.2)).digest
    with pytest.raises(NotFoundError, match=unknown):
        reward_of(SqlStore("sqlite://"), unknown)
