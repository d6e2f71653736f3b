"""Only the topmost layers and the final norm move when only they are trained."""

from __future__ import annotations

import pytest

from flightschool.training.trainer import trained_names

NAMES = [
    "model.embed_tokens.weight",
    "model.layers.0.mlp.up_proj.weight",
    "model.layers.1.mlp.up_proj.weight",
    "model.layers.10.mlp.up_proj.weight",
    "model.norm.weight",
    "lm_head.weight",
]


@pytest.mark.parametrize("trained", [None, 11, 99])
def test_everything_is_trained_unless_fewer_layers_are_asked_for(trained: int | None) -> None:
    assert trained_names(NAMES, 11, trained) == NAMES


def test_layers_are_counted_from_the_top_as_numbers() -> None:
    assert trained_names(NAMES, 11, 1) == ["model.layers.10.mlp.up_proj.weight", "model.norm.weight"]
    assert trained_names(NAMES, 11, 10) == [NAMES[2], NAMES[3], NAMES[4]]
