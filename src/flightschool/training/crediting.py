"""From a finished group to what the trainer gets of it: a run and its export make the same of a group. No torch."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from flightschool.errors import FlightschoolError, TokenContractError
from flightschool.records import Attempt, Credit, EpisodeGroup, GroupState, SpanKind
from flightschool.training.algorithms import (
    Distilled,
    GroupCredits,
    TeacherScores,
    TeacherSums,
    TermWeights,
    TurnQuality,
    algorithm_of,
    distill,
    most_spread,
    order_room,
    shuffle_rewards,
    teacher_terms,
    turn_quality,
    turn_terms,
)
from flightschool.training.algorithms.apart import by_weather
from flightschool.training.messages import TrainGroup, TrainMember
from flightschool.training.settings import TrainingSettings

__all__ = ["Credited", "Crediting", "train_group"]


_UNTAUGHT = Distilled(MappingProxyType({}), TeacherSums())


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
    distilled: Distilled = _UNTAUGHT
    """What a teacher's word adds to single tokens."""


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

    def credit(self, group: EpisodeGroup, scores: TeacherScores | None = None) -> Credited:
        """Credits of a group, and its part that trains.

        Args:
            group: finished.
            scores: what the teacher says of its tokens, where the settings ask one.

        Raises:
            FlightschoolError: a reward is not a finite number, or the teacher was not asked.
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
        if self._teaches_alone(found):
            found = distill(group, self._weights)
        if found.state is not GroupState.COMPLETE:
            num_flat = len(group.baseline) if found.state is GroupState.ZERO_ADVANTAGE else 0
            return Credited(found, None, {}, qualities, num_flat)
        weight = 0.0 if settings.shuffle_rewards else settings.turn_weight  # the control learns nothing
        correct = frozenset(m.id for m in group.baseline if m.reward is not None and m.reward.success)
        turns = turn_terms(group, found.credits, weight, self._quality)
        distilled = self._distilled(group, scores, found, turns, correct)
        train = train_group(group, found, settings.trained_members, turns, distilled)
        return Credited(found, train, turns, qualities, distilled=distilled)

    def _qualities(self, group: EpisodeGroup) -> tuple[float, ...]:
        if not self._settings.turn_weight:
            return ()
        return tuple(value for member in group.baseline for value in self._quality(member).values())

    def _teaches_alone(self, found: GroupCredits) -> bool:
        """Whether a group whose rewards say nothing trains on the teacher's word; dynamic sampling leaves it out."""
        flat = found.state is GroupState.ZERO_ADVANTAGE
        return flat and self._settings.teacher_weight > 0.0 and self._settings.algorithm != "dapo"

    def _distilled(
        self,
        group: EpisodeGroup,
        scores: TeacherScores | None,
        found: GroupCredits,
        turns: Mapping[str, dict[int, float]],
        correct: frozenset[str],
    ) -> Distilled:
        settings = self._settings
        if not settings.teacher_weight:
            return _UNTAUGHT
        if scores is None:
            raise FlightschoolError(
                "the teacher was not asked about a group that trains",
                where=group.id,
                expected="log-probabilities of every sampled token",
                mend="report this with the run's journal",
            )
        alone = settings.algorithm == "distill"  # rewards are measured only: nothing of them is to be kept
        return teacher_terms(
            group,
            scores,
            weight=settings.teacher_weight,
            clip=settings.distill_clip,
            discount=settings.distill_discount,
            correct=correct,
            room=math.inf if alone else _least_room(group, found.credits, turns, correct),
        )

    def watches(self, group: EpisodeGroup) -> bool:
        """Whether the group's task is only watched."""
        return group.task in self._untrained


def _least_room(
    group: EpisodeGroup, credits_: Sequence[Credit], turns: Mapping[str, dict[int, float]], correct: frozenset[str]
) -> float:
    """``order_room`` of the weather that leaves least: attempts under different weather are compared apart."""
    rooms = [math.inf]
    for part in by_weather(group):
        ids = {member.id for member in part.members}
        rooms.append(order_room([credit for credit in credits_ if credit.attempt in ids], turns, correct))
    return min(rooms)


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
    group: EpisodeGroup,
    found: GroupCredits,
    limit: int | None,
    turns: Mapping[str, dict[int, float]] | None = None,
    distilled: Distilled | None = None,
) -> TrainGroup:
    """The credited members as the trainer sees them, or the ``limit`` of them whose advantages are most spread."""
    turns = turns or {}
    tokens = {} if distilled is None else distilled.tokens
    advantages = {credit.attempt: credit.advantage for credit in found.credits}
    credited = [member for member in group.members if member.id in advantages]
    chosen = most_spread([advantages[member.id] for member in credited], limit or len(credited))
    members = tuple(
        TrainMember(
            attempt=credited[i].id,
            advantage=advantages[credited[i].id],
            spans=credited[i].spans,
            turn_advantages=turns.get(credited[i].id, {}),
            token_advantages=tokens.get(credited[i].id, {}),
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
