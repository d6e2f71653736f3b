"""The shape of a loss as data: which ratio, how it is clipped, what corrects for the sampling policy, what divides.

An algorithm says what it wants here; ``training/loss.py`` carries it out and knows no algorithm. Notation: π_θ the
policy that is differentiated, π_old the trainer's policy just before the step (the *proximal* one), μ the policy that
sampled. No torch.
"""

from __future__ import annotations

import math
from typing import Literal

from flightschool.records import Record

__all__ = ["Correction", "Denominator", "KlTerm", "LossShape"]

Denominator = Literal["token_mean", "sequence_mean", "constant"]
"""What the summed loss of a step is divided by. ``token_mean``: its trained tokens. ``sequence_mean``: each member's
tokens, then the members. ``constant``: members × ``max_new_tokens``. Members of groups without a gradient count among
them where ``count_zero_advantage`` is set, as in the papers; else those groups are sampled anew, and a step is a mean
over groups that say something, as in DAPO."""


class Correction(Record, frozen=True, kw_only=True):
    """What makes up for μ ≠ π_old: an importance weight, a constant for the gradient, and grounds to reject.

    With w_t = π_old / μ of a token, W = Π w_t and W̄ = W^(1/n) over the n sampled tokens of a member:
    """

    weight: Literal["none", "token", "sequence"] = "token"
    """1, w_t, or W for every token of the member."""
    cap: float = 2.0
    """The weight is truncated here (TIS, Yao et al. 2025); ``inf``: never."""
    reject: Literal["none", "token", "sequence", "geometric"] = "none"
    """What must lie within ``low`` … ``high``, or the token (else: the whole member) gets no gradient: w_t, W or W̄."""
    low: float = 0.0
    high: float = math.inf
    veto: float = 0.0
    """A member with any w_t below this gets no gradient; 0: none."""
    opsm_delta: float = math.inf
    """A member with a negative advantage and mean(log μ − log π_old) above this gets no gradient (off-policy sequence
    masking, DeepSeek-V3.2, section 3.1); ``inf``: none."""

    @property
    def needs_members(self) -> bool:
        """Whether it looks at more than one token at once."""
        return (
            self.weight == "sequence"
            or self.reject in ("sequence", "geometric")
            or self.veto > 0.0
            or self.opsm_delta < math.inf
        )


class KlTerm(Record, frozen=True, kw_only=True):
    """A penalty for leaving a reference, with d = log π_θ − log π_ref on sampled tokens (Schulman 2020).

    ``k3`` = exp(−d) − 1 + d is differentiated as it stands, as in GRPO. The gradient of ``k1`` = d is zero on average
    whatever the policies are; it is used as what it is in PPO and REINFORCE++, a cost of each token: value d, gradient
    d · ∇log π_θ.
    """

    weight: float = 0.0
    estimator: Literal["k1", "k3"] = "k3"
    reference: Literal["start", "sampling"] = "start"
    """The model that the run began with, or μ itself (no second model: it damps what asynchrony and engine did)."""


class LossShape(Record, frozen=True, kw_only=True):
    """All that the loss of a token depends on beside its numbers."""

    ratio: Literal["token", "sequence"] = "token"
    """ρ_t, or GSPO's s = exp(mean over the member's tokens of log ρ_t), whose gradient goes to all of them."""
    proximal: Literal["policy", "behaviour"] = "policy"
    """ρ = π_θ / π_old (decoupled: staleness is the correction's business), or π_θ / μ (the ratio does both)."""
    clip: Literal["surrogate", "weight"] = "surrogate"
    """PPO's min(ρA, clip(ρ)A), whose gradient ends at the bound, or CISPO's sg(clip(ρ)) A log π_θ, whose never does."""
    ratio_low: float = 0.8
    ratio_high: float = 1.28
    correction: Correction = Correction()
    kl: KlTerm = KlTerm()
    denominator: Denominator = "token_mean"

    @property
    def needs_members(self) -> bool:
        """Whether a token's loss depends on other tokens of its member."""
        return self.ratio == "sequence" or self.denominator == "sequence_mean" or self.correction.needs_members
