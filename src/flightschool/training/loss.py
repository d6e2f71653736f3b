"""The loss of tokens in the shape that an algorithm asks for, and what is measured about it.

With the default shape

    L_t = − c_t · min(ρ_t A_t, clip(ρ_t, 1 − ε_low, 1 + ε_high) A_t)
    ρ_t = π_θ / π_old                     PPO's ratio (Schulman et al. 2017), clipped unequally as in DAPO
    c_t = min(π_old / μ, C)               truncated importance weight, a constant for the gradient

π_old is the policy just before the optimizer step, μ the one that sampled: their ratio holds all that asynchrony and
engine mismatch did, and is corrected once. With one step on each batch π_old = π_θ, so ρ = 1 and the clip is idle; it
bites when a batch is used for more than one step, or when the ratio is taken to μ (``algorithms/shapes.py`` has all
shapes). Losses are *summed* here; what a step is divided by is the algorithm's choice and known only when the step is
made. A shape that looks at whole members (sequence ratio, sequence weights, rejection) needs all tokens of a member in
one call: the caller scores a pack first and slices afterwards.

Mismatch and effective sample size use the untruncated weight w = π_old / μ.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from flightschool.training.algorithms import Correction, KlTerm, LossShape

__all__ = ["LossSums", "Members", "Scored", "policy_loss", "score_tokens"]

_MEASURED = (
    "loss",
    "surprisal",
    "weight",
    "weight_squared",
    "k1",
    "k3",
    "num_clipped",
    "num_truncated",
    "num_rejected",
    "kl",
    "max_abs_mismatch",
)
_SAFE_LOG = 20.0
"""Largest |log| of a product of ratios that is exponentiated: e²⁰ is beyond every bound already."""


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
    num_rejected: float = 0.0
    kl: float = 0.0
    num_fresh: float = 0.0
    fresh_mismatch: float = 0.0
    num_stale: float = 0.0
    stale_mismatch: float = 0.0
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


class Members:
    """Which member each token is of, and sums over members.

    Args:
        index_M: member of each token, counted from 0.
    """

    def __init__(self, index_M: Tensor) -> None:
        self._index_M = index_M
        self._count = int(index_M.max()) + 1 if index_M.numel() else 0
        self.lengths_M = self.total(torch.ones_like(index_M, dtype=torch.float32))
        """Tokens of each token's member."""

    def total(self, values_M: Tensor) -> Tensor:
        """Sum over the member of each token, ``[M]``."""
        sums = torch.zeros(self._count, dtype=values_M.dtype, device=values_M.device)
        return sums.index_add(0, self._index_M, values_M)[self._index_M]

    def mean(self, values_M: Tensor) -> Tensor:
        """Mean over the member of each token, ``[M]``."""
        return self.total(values_M) / self.lengths_M.to(values_M.dtype)


def policy_loss(
    logprobs_M: Tensor,
    old_M: Tensor,
    behaviour_M: Tensor,
    advantages_M: Tensor,
    shape: LossShape,
    *,
    members: Members | None = None,
    reference_M: Tensor | None = None,
) -> tuple[Tensor, LossSums]:
    """Summed loss over tokens, differentiable in ``logprobs_M`` alone, with its sums (entropy left at 0).

    Args:
        logprobs_M: log π_θ of the sampled tokens.
        old_M: log π_old of them.
        behaviour_M: log μ of them, as recorded.
        advantages_M: advantage of each token.
        shape: of the loss.
        members: of the tokens; whole members. Only needed if the shape says so.
        reference_M: log π_ref of them; only needed for a divergence from the start.

    Raises:
        ValueError: members or reference are needed and not given.
    """
    if shape.needs_members and members is None:
        raise ValueError("this loss shape looks at whole members: say which token is whose")
    old_M = old_M.detach()
    difference_M = old_M - behaviour_M
    weight_M = difference_M.exp()
    ratio_M = _ratio(logprobs_M, old_M if shape.proximal == "policy" else behaviour_M, shape, members)
    clipped_M = ratio_M.clamp(shape.ratio_low, shape.ratio_high)
    if shape.clip == "surrogate":
        surrogate_M = torch.minimum(ratio_M * advantages_M, clipped_M * advantages_M)
    else:
        surrogate_M = clipped_M.detach() * advantages_M * logprobs_M
    factor_M, weighed_M, kept_M = _corrected(shape.correction, difference_M, weight_M, advantages_M, members)
    if shape.denominator == "sequence_mean" and members is not None:
        factor_M = factor_M / members.lengths_M.to(factor_M.dtype)
    losses_M = factor_M * surrogate_M
    kl_M = None
    if shape.kl.weight > 0.0:
        kl_M = _divergence(shape.kl, logprobs_M, behaviour_M, reference_M)
        losses_M = losses_M - shape.kl.weight * factor_M * kl_M
    loss = -losses_M.sum()
    with torch.no_grad():
        moved_M = (
            clipped_M * advantages_M < ratio_M * advantages_M if shape.clip == "surrogate" else clipped_M != ratio_M
        )
        rows: Iterable[Tensor] = (
            loss.detach(),
            -old_M.sum(),
            weight_M.sum(),
            weight_M.square().sum(),
            -difference_M.sum(),
            (torch.expm1(difference_M) - difference_M).sum(),
            moved_M.sum(),
            (weighed_M > shape.correction.cap).sum(),
            loss.detach() * 0.0 if kept_M is None else (~kept_M).sum(),
            loss.detach() * 0.0 if kl_M is None else kl_M.sum(),
            difference_M.abs().max() if difference_M.numel() else loss.detach() * 0.0,
        )
        values = [float(row) for row in rows]
    return loss, LossSums(num_tokens=float(logprobs_M.numel()), **dict(zip(_MEASURED, values, strict=True)))


def _ratio(logprobs_M: Tensor, anchor_M: Tensor, shape: LossShape, members: Members | None) -> Tensor:
    log_ratio_M = logprobs_M - anchor_M
    if shape.ratio == "sequence" and members is not None:
        # GSPO's value with its gradient spread over the tokens (equation 14 of the paper, at the token level)
        mean_M = members.mean(log_ratio_M.detach())
        log_ratio_M = mean_M + (logprobs_M - logprobs_M.detach())
    return log_ratio_M.exp()


def _corrected(
    correction: Correction, difference_M: Tensor, weight_M: Tensor, advantages_M: Tensor, members: Members | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The factor of each token, the weight that was truncated for it, and which tokens were kept (None: all)."""
    weighed_M = weight_M
    if correction.weight == "none":
        weighed_M = torch.ones_like(weight_M)
    elif correction.weight == "sequence" and members is not None:
        weighed_M = members.total(difference_M).clamp(-_SAFE_LOG, _SAFE_LOG).exp()
    factor_M = weighed_M.clamp(max=correction.cap)
    grounds: list[Tensor] = []
    if correction.reject == "token":
        grounds.append((weight_M >= correction.low) & (weight_M <= correction.high))
    elif members is not None and correction.reject != "none":
        log_M = members.total(difference_M) if correction.reject == "sequence" else members.mean(difference_M)
        held_M = log_M.clamp(-_SAFE_LOG, _SAFE_LOG).exp()
        grounds.append((held_M >= correction.low) & (held_M <= correction.high))
    if members is not None and correction.veto > 0.0:
        grounds.append(members.total((weight_M < correction.veto).to(weight_M.dtype)) == 0.0)
    if members is not None and correction.opsm_delta < math.inf:
        grounds.append((advantages_M >= 0.0) | (members.mean(-difference_M) <= correction.opsm_delta))
    if not grounds:
        return factor_M, weighed_M, None
    kept_M = torch.stack(grounds).all(dim=0)
    return torch.where(kept_M, factor_M, torch.zeros_like(factor_M)), weighed_M, kept_M


def _divergence(kl: KlTerm, logprobs_M: Tensor, behaviour_M: Tensor, reference_M: Tensor | None) -> Tensor:
    anchor_M = behaviour_M if kl.reference == "sampling" else reference_M
    if anchor_M is None:
        raise ValueError("a divergence from the start needs log-probabilities of the model that the run began with")
    difference_M = logprobs_M - anchor_M
    if kl.estimator == "k3":
        return torch.expm1(-difference_M) + difference_M
    # value d, gradient d · ∇log π: what a cost of d on each token gives a policy gradient
    return difference_M.detach() * (1.0 + logprobs_M - logprobs_M.detach())


@dataclass(frozen=True)
class Scored:
    """Log-probabilities under the current policy, with what the backward pass needs."""

    logprobs_M: Tensor
    entropy: float
    """Summed over the tokens."""
    probabilities_MV: Tensor
    """Where the logits were, if these were in float32."""


_RULED_OUT = -1e30
"""Logit of a token outside the support: its probability is exactly 0, and 0 times it is 0 and not NaN."""
_ROWS_AT_ONCE = 32


@torch.no_grad()
def score_tokens(
    logits_MV: Tensor, token_ids_M: Tensor, temperatures_M: Tensor, allowed_MV: Tensor | None = None
) -> Scored:
    """Log-probabilities of tokens under logits, in float32, and the entropy of their distributions.

    With ``allowed_MV`` the distributions are renormalised over the tokens that it allows (see ``supports``); the
    gradient below stays right, since probabilities outside the support are 0.

    ``d logprob / d logits = (onehot − probabilities) / temperature``: returning the probabilities lets the caller
    write that gradient itself and spares a second pass over ``[M, V]``. They are written *over the logits*, some rows
    at a time: what a few rows take stays in the cache, and fresh pages for ``[M, V]`` would cost more than the numbers.
    """
    probabilities_MV = logits_MV.float()
    tempered = bool((temperatures_M != 1.0).any())
    logprobs_M, entropies_M = (torch.empty_like(temperatures_M, dtype=torch.float32) for _ in range(2))
    for start in range(0, probabilities_MV.shape[0], _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        scaled_rV = probabilities_MV[rows]
        if tempered:
            scaled_rV = scaled_rV / temperatures_M[rows].unsqueeze(1)
        if allowed_MV is not None:
            scaled_rV = scaled_rV.masked_fill(~allowed_MV[rows], _RULED_OUT)
        log_rV = torch.log_softmax(scaled_rV, dim=1)
        chosen_r1 = token_ids_M[rows].unsqueeze(1)
        logprobs_M[rows] = log_rV.gather(1, chosen_r1).squeeze(1)
        normalisers_r = scaled_rV.gather(1, chosen_r1).squeeze(1) - logprobs_M[rows]
        exponentials_rV = log_rV.exp_()
        entropies_M[rows] = normalisers_r - torch.linalg.vecdot(exponentials_rV, scaled_rV)
        probabilities_MV[rows] = exponentials_rV
    return Scored(logprobs_M, float(entropies_M.sum()), probabilities_MV)
