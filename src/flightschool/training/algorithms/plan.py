"""From settings to an algorithm: credits, loss shape, and whether the step is scaled by its advantages."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import msgspec

from flightschool.training.algorithms.apart import MakeCredits, apart
from flightschool.training.algorithms.cispo import CISPO_SHAPE, cispo
from flightschool.training.algorithms.corrections import CORRECTIONS
from flightschool.training.algorithms.dapo import DAPO_SHAPE, Overlong, dapo
from flightschool.training.algorithms.decoupled_ppo import DECOUPLED_PPO_SHAPE, decoupled_ppo
from flightschool.training.algorithms.distill import DISTILL_SHAPE, distill
from flightschool.training.algorithms.dr_grpo import dr_grpo
from flightschool.training.algorithms.grpo import grpo
from flightschool.training.algorithms.gspo import GSPO_SHAPE, gspo
from flightschool.training.algorithms.reinforce_pp import REINFORCE_PP_SHAPE, reinforce_pp
from flightschool.training.algorithms.rloo import RLOO_SHAPE, rloo
from flightschool.training.algorithms.shapes import Correction, KlTerm, LossShape
from flightschool.training.settings import TrainingSettings

__all__ = ["ALGORITHMS", "Algorithm", "algorithm_of"]


@dataclass(frozen=True)
class Algorithm:
    """How groups become credits, and the shape of the loss that uses them."""

    credits: MakeCredits
    shape: LossShape
    batch_scale: bool = False
    """Whether a step's gradient is divided by the root mean square of its members' advantages."""


ALGORITHMS: Mapping[str, Algorithm] = MappingProxyType(
    {
        "grpo": Algorithm(apart(grpo), LossShape()),
        "dr_grpo": Algorithm(apart(dr_grpo), LossShape(denominator="constant")),
        "rloo": Algorithm(apart(rloo), RLOO_SHAPE),
        "reinforce_pp": Algorithm(apart(reinforce_pp), REINFORCE_PP_SHAPE, batch_scale=True),
        "dapo": Algorithm(apart(dapo), DAPO_SHAPE),
        "gspo": Algorithm(apart(gspo), GSPO_SHAPE),
        "cispo": Algorithm(apart(cispo), CISPO_SHAPE),
        "decoupled_ppo": Algorithm(apart(decoupled_ppo), DECOUPLED_PPO_SHAPE),
        "distill": Algorithm(distill, DISTILL_SHAPE),
    }
)
"""By name, with the bounds of their papers; ``algorithm_of`` puts in those of the settings."""


def algorithm_of(settings: TrainingSettings) -> Algorithm:
    """The algorithm of a run."""
    base = ALGORITHMS[settings.algorithm]
    low, high = _bounds(settings, base.shape)
    shape = msgspec.structs.replace(
        base.shape,
        proximal=base.shape.proximal if settings.proximal == "auto" else settings.proximal,
        ratio_low=low,
        ratio_high=high,
        correction=_correction(settings, base.shape.correction),
        kl=_divergence(settings),
    )
    if settings.overlong_limit is None or settings.shuffle_rewards:  # lengths are not shuffled: the control has none
        return replace(base, shape=shape)
    overlong = Overlong(limit=settings.overlong_limit, buffer=settings.overlong_buffer)
    return replace(base, shape=shape, credits=apart(functools.partial(dapo, overlong=overlong)))


def _divergence(settings: TrainingSettings) -> KlTerm:
    if settings.teacher_weight:  # what turns log μ in the teacher's term into log π (see ``distill``)
        return msgspec.structs.replace(DISTILL_SHAPE.kl, weight=settings.teacher_weight)
    return KlTerm(weight=settings.kl_weight, estimator=settings.kl_estimator, reference=settings.kl_reference)


def _bounds(settings: TrainingSettings, shape: LossShape) -> tuple[float, float]:
    if shape.ratio == "sequence":
        return 1.0 - settings.sequence_clip_low, 1.0 + settings.sequence_clip_high
    if shape.clip == "weight":
        return 0.0, settings.cispo_cap
    return 1.0 - settings.clip_low, 1.0 + settings.clip_high


def _correction(settings: TrainingSettings, own: Correction) -> Correction:
    chosen = own if settings.correction == "auto" else CORRECTIONS[settings.correction]
    if settings.correction == "auto" and settings.proximal == "behaviour":
        chosen = CORRECTIONS["none"]
    if settings.correction == "auto" and settings.proximal == "policy" and own.weight == "none":
        chosen = CORRECTIONS["tis"]
    return msgspec.structs.replace(
        chosen,
        cap=chosen.cap if math.isinf(chosen.cap) else settings.tis_cap,
        low=chosen.low if settings.reject_low is None else settings.reject_low,
        high=chosen.high if settings.reject_high is None else settings.reject_high,
        veto=settings.veto or 0.0,
        opsm_delta=math.inf if settings.opsm_delta is None else settings.opsm_delta,
    )
