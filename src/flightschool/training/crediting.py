"""From a finished group to what the trainer gets of it: a run and its export make the same of a group. No torch."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import NamedTuple

import msgspec

from flightschool.errors import FlightschoolError, TokenContractError
from flightschool.records import Attempt, EpisodeGroup, GroupState, SpanKind
from flightschool.training.algorithms import (
    GroupCredits,
    TermWeights,
    TurnQuality,
    algorithm_of,
    most_spread,
    shuffle_rewards,
    turn_quality,
    turn_terms,
)
from flightschool.training.messages import TrainGroup, TrainMember
from flightschool.training.settings import TrainingSettings

__all__ = ["Credited", "Crediting", "train_group"]


class Credited(NamedTuple):
    """A group with its credits."""

    credits: GroupCredits
    train: TrainGroup | None
    """What gets a gradient; None if nothing does."""
    turns: Mapping[str, dict[int, float]]
    """Attempt → turn → what its tokens are credited beside the attempt's advantage."""
    turn_qualities: tuple[float, ...] = ()
    """Of all turns that were judged, in any state of the group: what the figures of a step report."""
    num_flat_members: int = 0
    """Scored members of a group that was compared and gives no gradient: advantages of 0."""


class Crediting:
    """Gives credits as the settings of a run say.

    Args:
        settings: of the run.
        quality: judges single turns; failed calls by default. Nothing where ``turn_weight`` is 0.
        untrained: tasks whose groups are watched and give no gradient (canaries).
    """

    def __init__(
        self, settings: TrainingSettings, quality: TurnQuality | None = None, untrained: Collection[str] = ()
    ) -> None:
        self._settings = settings
        self._quality, self._untrained = quality or turn_quality, frozenset(untrained)
        self._algorithm = algorithm_of(settings)
        self._weights = TermWeights(
            process=settings.process_weight, latency=settings.latency_weight, thinking=settings.thinking_weight
        )

    def credit(self, group: EpisodeGroup) -> Credited:
        """Credits of a group, and its part that trains.

        Raises:
            FlightschoolError: a reward is not a finite number.
            TokenContractError: it has a gradient and no sampled tokens, or demonstrated ones.
        """
        settings = self._settings
        _check_rewards(group)
        if settings.shuffle_rewards:
            group = shuffle_rewards(group, settings.seed)
        qualities = self._qualities(group)
        if self.watches(group):
            return Credited(GroupCredits(state=GroupState.ZERO_ADVANTAGE), None, {}, qualities)
        found = self._algorithm.credits(group, self._weights)
        if found.state is not GroupState.COMPLETE:
            num_flat = len(group.baseline) if found.state is GroupState.ZERO_ADVANTAGE else 0
            return Credited(found, None, {}, qualities, num_flat)
        weight = 0.0 if settings.shuffle_rewards else settings.turn_weight  # the control learns nothing
        turns = turn_terms(group, found.credits, weight, self._quality)
        return Credited(found, train_group(group, found, settings.trained_members, turns), turns, qualities)

    def _qualities(self, group: EpisodeGroup) -> tuple[float, ...]:
        if not self._settings.turn_weight:
            return ()
        return tuple(value for member in group.baseline for value in self._quality(member).values())

    def watches(self, group: EpisodeGroup) -> bool:
        """Whether the group's task is only watched."""
        return group.task in self._untrained


def _check_rewards(group: EpisodeGroup) -> None:
    """A reward that is no number would make every advantage of its group none."""
    for member in group.baseline:
        reward = member.reward
        parts = () if reward is None else (reward.outcome, reward.process, reward.latency, reward.gate, reward.total)
        if not all(map(math.isfinite, parts)):
            raise FlightschoolError(
                f"a reward is not a finite number: {reward}",
                where=member.id,
                expected="finite terms",
                mend="a check or a reward function returned NaN or infinity: mend it, then go on with --resume",
            )


def train_group(
    group: EpisodeGroup, found: GroupCredits, limit: int | None, turns: Mapping[str, dict[int, float]] | None = None
) -> TrainGroup:
    """The credited members as the trainer sees them, or the ``limit`` of them whose advantages are most spread."""
    turns = turns or {}
    advantages = {credit.attempt: credit.advantage for credit in found.credits}
    credited = [member for member in group.members if member.id in advantages]
    chosen = most_spread([advantages[member.id] for member in credited], limit or len(credited))
    members = tuple(
        TrainMember(
            attempt=credited[i].id,
            advantage=advantages[credited[i].id],
            spans=credited[i].spans,
            turn_advantages=turns.get(credited[i].id, {}),
            grammars=_grammars(credited[i]),
        )
        for i in chosen
    )
    kinds = {span.kind for member in members for span in member.spans}
    if SpanKind.DEMONSTRATION in kinds:
        raise TokenContractError(
            "a group with a gradient holds demonstrated tokens",
            where=group.id,
            expected="tokens that the policy sampled: a demonstration has no importance weight",
            mend="imitate demonstrations, reinforce rollouts",
        )
    if SpanKind.COMPLETION not in kinds:
        raise TokenContractError(
            "a group with a gradient has no sampled tokens",
            where=group.id,
            expected="attempts of a policy that writes token spans",
            mend="train a model, not a scripted policy",
        )
    return TrainGroup(id=group.id, members=members)


def _grammars(attempt: Attempt) -> Mapping[str, str]:
    return {} if isinstance(attempt.grammars, msgspec.UnsetType) else attempt.grammars
