from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from tests.tiny import tiny_config, tiny_folder
from tests.trained import scored_attempt

from flightschool.records import (
    Attempt,
    EndReason,
    EpisodeGroup,
    Outcome,
    Reward,
    SpanKind,
    TokenSpan,
    VersionRun,
)

__all__ = ["tiny_config", "tiny_folder"]

_LOST = {"outcome": Outcome.INFRA_FAILURE, "reason": EndReason.ENGINE_ERROR, "cause": "engine"}

MakeReward = Callable[..., Reward]
MakeGroup = Callable[..., EpisodeGroup]
MakeSpans = Callable[..., tuple[TokenSpan, ...]]


def _reward(outcome: float = 1.0, process: float = 0.0, latency: float = 0.0, gate: float = 1.0) -> Reward:
    return Reward(outcome=outcome, process=process, latency=latency, gate=gate, total=gate * outcome)


def _spans(
    prompt: Sequence[int] = (1, 2, 3),
    turns: Sequence[tuple[Sequence[int], Sequence[int]]] = (((4, 5), (6,)), ((7,), ())),
    *,
    version: int = 0,
    logprob: float = -0.5,
) -> tuple[TokenSpan, ...]:
    """A chain: prompt, then (completion, observation) by turn; an empty observation is left out."""
    spans = [TokenSpan(id=0, parent=None, kind=SpanKind.PROMPT, token_ids_T=tuple(prompt))]
    for turn, (completion, observation) in enumerate(turns):
        spans.append(
            TokenSpan(
                id=len(spans),
                parent=len(spans) - 1,
                kind=SpanKind.COMPLETION,
                token_ids_T=tuple(completion),
                logprobs_T=(logprob,) * len(completion),
                versions=(VersionRun(step=version, count=len(completion)),),
                turn=turn,
            )
        )
        if observation:
            spans.append(
                TokenSpan(
                    id=len(spans), parent=len(spans) - 1, kind=SpanKind.OBSERVATION, token_ids_T=tuple(observation)
                )
            )
    return tuple(spans)


def _attempt(index: int, reward: Reward | None, spans: tuple[TokenSpan, ...], group: str) -> Attempt:
    return scored_attempt(group, index, spans, reward, task="t", **(_LOST if reward is None else {}))


def _group(
    rewards: Sequence[Reward | float | None],
    spans: Sequence[tuple[TokenSpan, ...]] | None = None,
    *,
    name: str = "g0",
    admitted_step: int = 0,
) -> EpisodeGroup:
    full = [_reward(reward) if isinstance(reward, float) else reward for reward in rewards]
    spans = spans if spans is not None else [_spans()] * len(full)
    members = tuple(_attempt(i, reward, spans[i], name) for i, reward in enumerate(full))
    return EpisodeGroup(id=name, task="t", size=len(full), members=members, admitted_step=admitted_step)


@pytest.fixture
def make_reward() -> MakeReward:
    return _reward


@pytest.fixture
def make_spans() -> MakeSpans:
    return _spans


@pytest.fixture
def make_group() -> MakeGroup:
    return _group
