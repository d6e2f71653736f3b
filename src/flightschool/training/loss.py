"""The loss of one token, and what is measured about it.

    L_t = − c_t · min(ρ_t A_t, clip(ρ_t, 1 − ε_low, 1 + ε_high) A_t)
    ρ_t = π_θ / π_old                     PPO's ratio (Schulman et al. 2017), clipped unequally as in DAPO
    c_t = min(π_old / μ, C)               truncated importance weight, a constant for the gradient

π_old is the policy just before the optimizer step, μ the one that sampled: their ratio holds all that asynchrony and
engine mismatch did, and is corrected once. With one step on each batch π_old = π_θ, so ρ = 1 and the clip is idle; it
bites when a batch is used for more than one step. Losses are *summed* here; what a step is divided by is the
algorithm's choice and known only when the step is made.

Mismatch and effective sample size use the untruncated weight w = π_old / μ.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

import torch
from torch import Tensor

__all__ = ["Limits", "LossSums", "Scored", "policy_loss", "score_tokens"]


@dataclass(frozen=True)
class Limits:
    """Clip and truncation bounds."""

    clip_low: float = 0.2
    clip_high: float = 0.28
    tis_cap: float = 2.0


@dataclass
class LossSums:
    """Sums over tokens, so that parts of a step can be added."""

    num_tokens: float = 0.0
    loss: float = 0.0
    entropy: float = 0.0
    surprisal: float = 0.0
    weight: float = 0.0
    weight_squared: float = 0.0
    k1: float = 0.0
    k3: float = 0.0
    num_clipped: float = 0.0
    num_truncated: float = 0.0
    max_abs_mismatch: float = 0.0

    def add(self, other: LossSums) -> None:
        """Add the sums of another part (the largest mismatch is kept as a maximum)."""
        for field in fields(self):
            mine, theirs = getattr(self, field.name), getattr(other, field.name)
            value = max(mine, theirs) if field.name == "max_abs_mismatch" else mine + theirs
            setattr(self, field.name, value)

    @property
    def ess(self) -> float:
        """Effective sample size as a share of the tokens, 0 without tokens."""
        if self.weight_squared == 0.0:
            return 0.0
        return self.weight**2 / (self.num_tokens * self.weight_squared)


def policy_loss(
    logprobs_M: Tensor, old_M: Tensor, behaviour_M: Tensor, advantages_M: Tensor, limits: Limits
) -> tuple[Tensor, LossSums]:
    """Summed loss over tokens, differentiable in ``logprobs_M`` alone, with its sums (entropy left at 0).

    Args:
        logprobs_M: log π_θ of the sampled tokens.
        old_M: log π_old of them.
        behaviour_M: log μ of them, as recorded.
        advantages_M: advantage of each token.
    """
    old_M = old_M.detach()
    difference_M = old_M - behaviour_M
    weight_M = difference_M.exp()
    ratio_M = (logprobs_M - old_M).exp()
    clipped_M = ratio_M.clamp(1.0 - limits.clip_low, 1.0 + limits.clip_high)
    surrogate_M = torch.minimum(ratio_M * advantages_M, clipped_M * advantages_M)
    loss = -(weight_M.clamp(max=limits.tis_cap) * surrogate_M).sum()
    with torch.no_grad():
        clip_bites_M = clipped_M * advantages_M < ratio_M * advantages_M
        rows: Iterable[Tensor] = (
            loss.detach(),
            -old_M.sum(),
            weight_M.sum(),
            weight_M.square().sum(),
            -difference_M.sum(),
            (torch.expm1(difference_M) - difference_M).sum(),
            clip_bites_M.sum(),
            (weight_M > limits.tis_cap).sum(),
            difference_M.abs().max() if difference_M.numel() else loss.detach() * 0.0,
        )
        total, surprisal, weight, squared, k1, k3, num_clipped, num_truncated, largest = (float(row) for row in rows)
    return loss, LossSums(
        num_tokens=float(logprobs_M.numel()),
        loss=total,
        surprisal=surprisal,
        weight=weight,
        weight_squared=squared,
        k1=k1,
        k3=k3,
        num_clipped=num_clipped,
        num_truncated=num_truncated,
        max_abs_mismatch=largest,
    )


@dataclass(frozen=True)
class Scored:
    """Log-probabilities under the current policy, with what the backward pass needs."""

    logprobs_M: Tensor
    entropy: float
    """Summed over the tokens."""
    probabilities_MV: Tensor


@torch.no_grad()
def score_tokens(logits_MV: Tensor, token_ids_M: Tensor, temperatures_M: Tensor) -> Scored:
    """Log-probabilities of tokens under logits, in float32, and the entropy of their distributions.

    ``d logprob / d logits = (onehot − probabilities) / temperature``: returning the probabilities lets the caller
    write that gradient itself and spares a second pass over ``[M, V]``.
    """
    scaled_MV = logits_MV.float()
    if bool((temperatures_M != 1.0).any()):  # a pass over the vocabulary that the usual temperature does not need
        scaled_MV = scaled_MV / temperatures_M.unsqueeze(1)
    log_MV = torch.log_softmax(scaled_MV, dim=1)
    logprobs_M = log_MV.gather(1, token_ids_M.unsqueeze(1)).squeeze(1)
    probabilities_MV = log_MV.exp()
    entropy = -torch.linalg.vecdot(probabilities_MV, log_MV).sum()
    return Scored(logprobs_M, float(entropy), probabilities_MV)
