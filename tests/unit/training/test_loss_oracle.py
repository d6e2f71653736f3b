"""The losses of TRL's trainer on the same numbers, where TRL is installed: an implementation that is not ours.

It is no dependency: install ``trl`` beside the package to run these. Without it they are skipped, and the plain loops
of ``test_loss_shapes.py`` stand alone.
"""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch
from tests import needs
from torch import Tensor

from flightschool.training.algorithms import ALGORITHMS, CORRECTIONS, Correction, KlTerm, LossShape
from flightschool.training.loss import Members, policy_loss

pytestmark = pytest.mark.filterwarnings("ignore")
LENGTHS = (5, 2, 7, 4)
NONE = CORRECTIONS["none"]


def batch(seed: int, spread: float = 0.3) -> dict[str, Tensor]:
    """Rows ``[B, T]`` with a mask, in float64."""
    generator = torch.Generator().manual_seed(seed)

    def noise() -> Tensor:
        return spread * torch.randn(len(LENGTHS), max(LENGTHS), generator=generator, dtype=torch.float64)

    old = -1.0 - noise().abs()
    mask = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]
    return {
        "old": old,
        "new": old + noise(),
        "behaviour": old + noise(),
        "reference": old + noise(),
        "mask": mask,
        "advantages": torch.tensor([1.5, -0.5, 0.7, -1.2], dtype=torch.float64),
    }


def ours(rows: dict[str, Tensor], shape: LossShape) -> tuple[float, Tensor]:
    """Loss of the step and its slope in every log-probability."""
    new = rows["new"].clone().requires_grad_(True)
    mask = rows["mask"]
    index = torch.arange(len(LENGTHS))[:, None].expand_as(mask)[mask]
    loss, _ = policy_loss(
        new[mask],
        rows["old"][mask],
        rows["behaviour"][mask],
        rows["advantages"][:, None].expand_as(mask)[mask],
        shape,
        members=Members(index),
        reference_M=rows["reference"][mask],
    )
    count = {"token_mean": float(mask.sum()), "sequence_mean": len(LENGTHS), "constant": len(LENGTHS) * max(LENGTHS)}
    loss = loss / count[shape.denominator]
    torch.autograd.backward(loss)
    assert new.grad is not None
    return float(loss.detach()), new.grad


def theirs(rows: dict[str, Tensor], loss_type: str, **options: Any) -> tuple[float, Tensor]:
    """What TRL's trainer computes of the same rows."""
    trainer = needs.package("trl.trainer.grpo_trainer").GRPOTrainer
    new = rows["new"].clone().requires_grad_(True)
    size, length = rows["mask"].shape
    settings = {
        "loss_type": loss_type,
        "beta": 0.0,
        "epsilon_low": 0.2,
        "epsilon_high": 0.28,
        "importance_sampling_level": "token",
        "off_policy_mask_threshold": None,
        "use_vllm": False,
        "vllm_importance_sampling_correction": False,
    } | options
    stand_in = SimpleNamespace(
        _get_per_token_logps_and_entropies=lambda *args, **kwargs: (new, torch.zeros_like(new), None),
        get_off_policy_mask=trainer.get_off_policy_mask,
        aux_loss_enabled=False,
        top_entropy_quantile=1.0,
        args=SimpleNamespace(delta=None, use_bias_correction_kl=False, steps_per_generation=1),
        model=SimpleNamespace(training=True),
        current_gradient_accumulation_steps=1,
        max_completion_length=length,
        _entropy_bonus_enabled=False,
        accelerator=SimpleNamespace(num_processes=1, gather=lambda x: x, reduce=lambda x, reduction: x),
        _metrics={"train": defaultdict(list)},
        **settings,
    )
    inputs = {
        "prompt_ids": torch.zeros(size, 1, dtype=torch.long),
        "prompt_mask": torch.ones(size, 1, dtype=torch.long),
        "completion_ids": torch.zeros(size, length, dtype=torch.long),
        "completion_mask": rows["mask"].long(),
        "advantages": rows["advantages"],
        "old_per_token_logps": rows["old"],
        "sampling_per_token_logps": rows["behaviour"],
        "ref_per_token_logps": rows["reference"],
        "num_items_in_batch": rows["mask"].sum(),
        "importance_sampling_ratio": options.get("ratio"),
    }
    loss = trainer._compute_loss(stand_in, None, inputs)
    torch.autograd.backward(loss)
    assert new.grad is not None
    return float(loss.detach()), new.grad


def agree(mine: tuple[float, Tensor], other: tuple[float, Tensor]) -> None:
    assert mine[0] == pytest.approx(other[0], abs=1e-6)
    torch.testing.assert_close(mine[1], other[1], atol=1e-6, rtol=0.0)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("name", "shape", "loss_type", "options"),
    [
        ("token mean", LossShape(correction=NONE), "dapo", {}),
        ("sequence mean", LossShape(correction=NONE, denominator="sequence_mean"), "grpo", {}),
        ("constant", LossShape(correction=NONE, denominator="constant"), "dr_grpo", {}),
        (
            "gspo",
            msgspec.structs.replace(ALGORITHMS["gspo"].shape, proximal="policy", ratio_low=0.9, ratio_high=1.1),
            "grpo",
            {"importance_sampling_level": "sequence", "epsilon_low": 0.1, "epsilon_high": 0.1},
        ),
        (
            "cispo",
            msgspec.structs.replace(ALGORITHMS["cispo"].shape, proximal="policy", ratio_high=1.2),
            "cispo",
            {"epsilon_high": 1.2},
        ),
        ("k3", LossShape(correction=NONE, kl=KlTerm(weight=0.4)), "dapo", {"beta": 0.4}),
    ],
)
def test_losses_and_slopes_are_those_of_trl(
    seed: int, name: str, shape: LossShape, loss_type: str, options: dict[str, Any]
) -> None:
    rows = batch(seed)
    agree(ours(rows, shape), theirs(rows, loss_type, **options))


@pytest.mark.parametrize("seed", range(3))
def test_truncated_weights_are_those_of_trl(seed: int) -> None:
    rows = batch(seed)
    ratio = (rows["old"] - rows["behaviour"]).exp().clamp(max=1.1)
    shape = LossShape(correction=Correction(cap=1.1))
    options = {"use_vllm": True, "vllm_importance_sampling_correction": True, "ratio": ratio}
    agree(ours(rows, shape), theirs(rows, "dapo", **options))


@pytest.mark.parametrize("seed", range(3))
def test_off_policy_sequence_masks_are_those_of_trl(seed: int) -> None:
    """TRL measures the drift at π_θ, we at π_old: the same where a batch makes one step, so both are equal here."""
    rows = batch(seed)
    rows["new"] = rows["old"].clone()
    shape = LossShape(correction=Correction(weight="none", opsm_delta=0.02))
    agree(ours(rows, shape), theirs(rows, "dapo", off_policy_mask_threshold=0.02))
