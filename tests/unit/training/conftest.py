from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from flightschool.engines import TransformerConfig
from flightschool.records import (
    Attempt,
    EndReason,
    EpisodeGroup,
    Outcome,
    Reward,
    SpanKind,
    Timings,
    TokenSpan,
    VersionRun,
)

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
    infra = reward is None
    return Attempt(
        id=f"{group}:{index}",
        run="r",
        group=group,
        index=index,
        number=0,
        environment="e",
        environment_digest="d",
        task="t",
        task_digest="td",
        policy="p",
        seed=0,
        spans=spans,
        messages=(),
        events=(),
        outcome=Outcome.INFRA_FAILURE if infra else Outcome.SCORED,
        reason=EndReason.ENGINE_ERROR if infra else EndReason.FINISHED,
        cause="engine" if infra else "policy",
        verdict=None,
        reward=reward,
        end_state="s",
        timings=Timings(virtual_ms=1.0),
    )


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


@pytest.fixture(scope="session")
def tiny_config() -> TransformerConfig:
    return TransformerConfig(
        vocab=300, hidden=32, intermediate=64, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=8
    )


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory, tiny_config: TransformerConfig) -> Path:
    """A model folder: bytes as tokens, ChatML, random weights."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    from flightschool.engines import ChatTokenizer, Transformer, save_model

    vocabulary = {symbol: i + 3 for i, symbol in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(text, special=True) for text in ("<|im_start|>", "<|im_end|>")])
    folder = tmp_path_factory.mktemp("tiny")
    (folder / "tokenizer.json").write_text(backend.to_str())
    save_model(
        Transformer(tiny_config).initialise(seed=0, std=0.2),
        folder / "model",
        tokenizer=ChatTokenizer.from_folder(folder),
    )
    return folder / "model"


@pytest.fixture
def make_reward() -> MakeReward:
    return _reward


@pytest.fixture
def make_spans() -> MakeSpans:
    return _spans


@pytest.fixture
def make_group() -> MakeGroup:
    return _group
