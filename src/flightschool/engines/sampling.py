"""Drawing tokens, and the log-probability each was drawn under.

The log-probability returned is that of the very distribution that was sampled, log_softmax(logits / temperature); so a
trainer that divides its logits by the same temperature gets the same number. Temperature 0 takes the likeliest token
and reports its log-probability at temperature 1 (under its own point mass it would be 0, which says nothing). The
support is the whole vocabulary, or the tokens that a grammar allows: then the distribution is renormalised over them,
and the log of what they held together before is returned too.

Randomness is one uniform number a token, from the request's own generator, turned into a token through the inverse
distribution function: equal seeds and logits give equal tokens whatever else is in the batch.

Sums run in float64. Devices that have none (Apple's) leave that to the CPU: it is a number a block, not a token.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from flightschool.errors import InfrastructureError

__all__ = ["restrict", "sample"]

_BLOCK = 256  # tokens summed at once
_WITHOUT_FLOAT64 = frozenset({"mps"})


def sample(
    logits_MV: Tensor, temperatures_M: Sequence[float], uniforms_M: Sequence[float]
) -> tuple[list[int], list[float]]:
    """One token for every row.

    Args:
        logits_MV: raw logits; overwritten.
        temperatures_M: 0 for the likeliest token.
        uniforms_M: numbers in [0, 1).

    Returns:
        Token ids and their log-probabilities, one a row.

    Raises:
        InfrastructureError: logits are NaN or infinite: the weights or the arithmetic broke, not the policy.
    """
    device = logits_MV.device
    weights_MV = logits_MV.float()
    scale = [temperature or 1.0 for temperature in temperatures_M]
    if any(value != 1.0 for value in scale):
        weights_MV = weights_MV.div_(torch.tensor(scale, device=device).unsqueeze(1))
    weights_MV.sub_(weights_MV.amax(dim=-1, keepdim=True)).exp_()  # one exponential over the vocabulary, in place
    uniforms = torch.tensor(uniforms_M, dtype=torch.float64, device=_wide_device(device))
    picks, totals = _inverse_cdf(weights_MV, uniforms)
    picks = picks.to(device)
    if not all(temperatures_M):
        greedy = torch.tensor([temperature == 0 for temperature in temperatures_M], device=device)
        picks = torch.where(greedy, weights_MV.argmax(dim=-1), picks)
    chosen = _wide(weights_MV.gather(1, picks.unsqueeze(1)).squeeze(1))
    logprobs = (chosen.log() - totals.log()).tolist()
    if not all(map(math.isfinite, logprobs)):
        raise InfrastructureError(
            "the model's output is NaN or infinite",
            where="sampling",
            expected="finite logits",
            mend="look at the weights that were published last; with bfloat16, try dtype = 'float32'",
        )
    return picks.tolist(), logprobs


def restrict(logits_MV: Tensor, temperatures_M: Sequence[float], masks_M: Sequence[Tensor | None]) -> list[float]:
    """Rule out what masks do not allow, in place.

    Args:
        logits_MV: raw logits; ruled out ones become −∞.
        temperatures_M: as for ``sample``.
        masks_M: allowed tokens of each row, ``[V]`` bool; None: all.

    Returns:
        Log of the probability that the allowed tokens had, one a row: 0 where all are allowed.
    """
    kept_M = [0.0] * len(masks_M)
    for row, (mask, temperature) in enumerate(zip(masks_M, temperatures_M, strict=True)):
        if mask is None:
            continue
        row_V = _wide(logits_MV[row]) / (temperature or 1.0)
        kept_M[row] = min(0.0, float(row_V[mask.to(row_V.device)].logsumexp(0) - row_V.logsumexp(0)))
        logits_MV[row].masked_fill_(~mask.to(logits_MV.device), -torch.inf)
    return kept_M


def _inverse_cdf(weights_MV: Tensor, uniforms_M: Tensor) -> tuple[Tensor, Tensor]:
    """For each row the first token at which the running sum exceeds the uniform number's share, and the whole sum.

    In two levels, for a running sum over a large vocabulary costs more than all else here: first over sums of blocks,
    then within the block. Shares are kept below the sums, and a sum must be *exceeded*, so a token of probability 0 is
    never taken. Among NaN nothing is found; places are then cut to the last one, so that the caller can look at the
    sums: an index out of range would end a whole CUDA context.
    """
    size = weights_MV.shape[1]
    padded = F.pad(weights_MV, (0, -size % _BLOCK)) if size % _BLOCK else weights_MV
    blocks = padded.view(len(padded), -1, _BLOCK)
    sums = _wide(blocks.sum(dim=-1)).cumsum(dim=-1)
    totals = sums[:, -1]
    share = torch.minimum(uniforms_M * totals, _below(totals)).unsqueeze(1)
    block = torch.searchsorted(sums, share, right=True).clamp_max(sums.shape[1] - 1)
    before = torch.where(block > 0, sums.gather(1, (block - 1).clamp_min(0)), 0.0)
    within = blocks.gather(1, block.unsqueeze(2).expand(-1, -1, _BLOCK).to(blocks.device)).squeeze(1)
    inner = _wide(within).cumsum(dim=-1)
    rest = torch.minimum(share - before, _below(inner[:, -1:]))
    picks = block * _BLOCK + torch.searchsorted(inner, rest, right=True)
    return picks.squeeze(1).clamp_max(size - 1), totals


def _wide_device(device: torch.device) -> torch.device:
    return torch.device("cpu") if device.type in _WITHOUT_FLOAT64 else device


def _wide(values: Tensor) -> Tensor:
    return values.to(_wide_device(values.device)).double()


def _below(values: Tensor) -> Tensor:
    return torch.nextafter(values, torch.zeros_like(values))
