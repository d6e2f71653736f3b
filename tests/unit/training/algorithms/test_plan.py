"""From settings to a shape, and what settings refuse."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import get_args

import pytest

from flightschool.config import parse_settings
from flightschool.errors import ConfigError
from flightschool.records import EpisodeGroup, TokenSpan
from flightschool.training import TrainingSettings
from flightschool.training.algorithms import ALGORITHMS, CORRECTIONS, LossShape, TermWeights, algorithm_of


def shape(**fields: object) -> LossShape:
    return algorithm_of(parse_settings(dict(fields), TrainingSettings, where="x.toml")).shape


def test_the_settings_know_exactly_the_algorithms_and_corrections_there_are() -> None:
    fields = TrainingSettings.model_fields
    assert set(get_args(fields["algorithm"].annotation)) == set(ALGORITHMS)
    assert set(get_args(fields["correction"].annotation)) == set(CORRECTIONS) | {"auto"}


def test_defaults_are_the_shape_that_grpo_always_had() -> None:
    assert shape() == LossShape(ratio_low=1.0 - 0.2, ratio_high=1.0 + 0.28)
    assert shape(algorithm="dr_grpo").denominator == "constant"


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_default_settings_keep_the_shape_of_the_paper(name: str) -> None:
    found = shape(algorithm=name)
    own = ALGORITHMS[name].shape
    assert (found.ratio, found.proximal, found.clip, found.denominator, found.correction) == (
        own.ratio,
        own.proximal,
        own.clip,
        own.denominator,
        own.correction,
    )
    assert (found.ratio_low, found.ratio_high) == pytest.approx((own.ratio_low, own.ratio_high))


def test_bounds_are_those_of_the_ratio() -> None:
    assert shape(algorithm="cispo", cispo_cap=3.0).ratio_high == 3.0
    assert shape(algorithm="gspo", sequence_clip_high=0.01).ratio_high == 1.01
    assert shape(algorithm="gspo", clip_high=0.9).ratio_high == pytest.approx(1.0004)


def test_corrections_take_their_bounds_from_the_settings() -> None:
    found = shape(correction="icepop", reject_high=2.5, veto=1e-4).correction
    assert (found.low, found.high, found.veto, found.cap) == (0.5, 2.5, 1e-4, math.inf)
    assert shape(correction="sequence_tis", tis_cap=3.0).correction.cap == 3.0
    assert shape(algorithm="decoupled_ppo").correction.cap == math.inf
    assert shape(proximal="behaviour").correction.weight == "none"
    assert shape(algorithm="gspo", proximal="policy").correction == CORRECTIONS["tis"]


def test_the_punishment_of_length_is_no_part_of_the_negative_control(
    make_group: Callable[..., EpisodeGroup], make_spans: Callable[..., tuple[TokenSpan, ...]]
) -> None:
    spans = [make_spans(turns=(((7,) * n, ()),)) for n in (20, 4, 4)]
    group = make_group([1.0, 0.0, 1.0], spans)
    table = {"algorithm": "dapo", "overlong_limit": 20, "overlong_buffer": 4}
    found = {}
    for shuffled in (False, True):
        settings = parse_settings(table | {"shuffle_rewards": shuffled}, TrainingSettings, where="x.toml")
        found[shuffled] = [c.advantage for c in algorithm_of(settings).credits(group, TermWeights()).credits]
    assert found[True][0] == found[True][2]
    assert found[False][0] < found[False][2]


def test_no_correction_rejects_what_does_not_differ() -> None:
    """Whatever side the settings leave to the source, a weight of 1 lies within."""
    for correction in CORRECTIONS.values():
        assert correction.low < 1.0 < correction.high
    assert shape(correction="geometric", reject_low=1.0).correction.high > 1.0


@pytest.mark.parametrize(
    ("table", "word"),
    [
        ({"algorithm": "ppo"}, "algorithm"),
        ({"algorithm": "gspo", "correction": "tis"}, "already"),
        ({"proximal": "behaviour", "correction": "geometric"}, "already"),
        ({"reject_low": 0.1}, "reject_low"),
        ({"correction": "icepop", "reject_low": 3.0, "reject_high": 2.0}, "at most"),
        ({"correction": "icepop", "reject_low": 7.0}, "reject every token"),
        ({"correction": "icepop", "reject_high": 0.1}, "reject every token"),
        ({"correction": "geometric", "reject_low": 3.0}, "reject every token"),
        ({"correction": "geometric", "reject_low": 1.0, "reject_high": 1.0}, "reject every token"),
        ({"lora_alpha": 3.0}, "lora_rank"),
        ({"kl_reference": "sampling"}, "kl_weight"),
        ({"kl_estimator": "k1"}, "kl_weight"),
        ({"temperature": 1e-9}, "temperature"),
        ({"temperature": 1e9}, "temperature"),
        ({"initial_temperature": 1e-9}, "initial_temperature"),
        ({"overlong_limit": 100}, "dapo"),
        ({"algorithm": "dapo", "overlong_limit": 10, "overlong_buffer": 20}, "at most"),
        ({"algorithm": "reinforce_pp", "latency_weight": 0.1}, "latency_weight"),
        ({"algorithm": "reinforce_pp", "kl_weight": 0.1}, "kl_weight"),
        ({"algorithm": "reinforce_pp", "noise": "x", "noisy_share": 0.5}, "noisy_share"),
        ({"kl_wieght": 0.1}, "kl_wieght"),
    ],
)
def test_what_cannot_work_is_refused(table: dict[str, object], word: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_settings(table, TrainingSettings, where="x.toml")
    assert word in str(caught.value)
