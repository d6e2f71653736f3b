"""Reward settings kept in a workspace: whoever scores there later scores by the same formula.

A job keeps the settings it scored with under their digest, and under ``current`` for the verbs that come after it.
An attempt names the digest of its reward, so a replay finds the very weights even when the job has long changed them.
"""

from __future__ import annotations

from flightschool.errors import NotFoundError
from flightschool.protocols import Store
from flightschool.records import Record
from flightschool.verification.reward import OutcomeReward, RewardSettings

__all__ = ["current_reward", "keep_reward", "reward_of"]

KIND = "reward"
CURRENT = "current"


class _KeptReward(Record, frozen=True, kw_only=True):
    settings: str
    """``RewardSettings`` as JSON."""


def keep_reward(store: Store, reward: OutcomeReward) -> None:
    """Keep the settings of a reward, and make it the workspace's current one."""
    kept = _KeptReward(settings=reward.settings.model_dump_json())
    for key in (reward.digest, CURRENT):
        store.put(KIND, key, kept)


def current_reward(store: Store | None) -> OutcomeReward:
    """The reward that the last job of the workspace scored with; the default one if there was none."""
    if store is None or not store.has(KIND, CURRENT):
        return OutcomeReward()
    return _load(store, CURRENT)


def reward_of(store: Store, composition_digest: str) -> OutcomeReward:
    """The reward with a digest.

    Raises:
        NotFoundError: neither the default nor any that was kept has it.
    """
    default = OutcomeReward()
    if composition_digest in ("", default.digest):
        return default
    if not store.has(KIND, composition_digest):
        raise NotFoundError(
            f"no reward settings with digest {composition_digest} are kept here",
            where="workspace",
            expected="the settings that the attempt was scored with",
            mend="open the workspace in which the attempt was made",
        )
    return _load(store, composition_digest)


def _load(store: Store, key: str) -> OutcomeReward:
    return OutcomeReward(RewardSettings.model_validate_json(store.get(KIND, key, _KeptReward).settings))
