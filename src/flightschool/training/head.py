"""From hidden states to losses: the output head, a chunk of targets at a time.

Only positions that predict a trained token go through the head, so logits of all tokens never exist together: at most
``[HEAD_CHUNK, vocabulary]`` in float32, whatever the pack holds. Each chunk's gradient is written down in closed form
(``loss.score_tokens``) and goes backward before the next chunk is computed.

Shape letters: ``N`` flat tokens of a pack, ``M`` targets, ``m`` those of a chunk, ``V`` vocabulary, ``D`` hidden size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from flightschool.engines.grammar import GrammarBook
from flightschool.errors import TokenContractError
from flightschool.training.algorithms import LossShape
from flightschool.training.loss import LossSums, Members, policy_loss, score_tokens
from flightschool.training.packing import Pack
from flightschool.training.supports import SupportMasks

__all__ = ["HEAD_CHUNK", "PackTensors", "head_losses", "score_all"]

HEAD_CHUNK = 256
"""Positions that go through the output head at once: more of them are nearer to the peak, and hold more memory."""


@dataclass(frozen=True)
class PackTensors:
    """The targets of a pack as tensors."""

    predictors_M: Tensor
    token_ids_M: Tensor
    behaviour_M: Tensor
    """NaN on demonstrated tokens: no policy sampled them, so nothing is there to correct for."""
    advantages_M: Tensor
    temperatures_M: Tensor
    members_M: Tensor
    fresh_M: Tensor
    """Whether the token is said to be sampled under the trainer's present weights."""
    reference_M: Tensor | None = None
    """Log-probabilities under the model that the run began with, where the loss asks for them."""
    supports: SupportMasks | None = None
    """Tokens that could be drawn; None: the full support throughout."""

    @classmethod
    def of(cls, pack: Pack, device: torch.device, book: GrammarBook | None = None) -> PackTensors:
        """Tensors on ``device``.

        Args:
            pack: whose targets.
            device: where they lie.
            book: grammars of the model's tokenizer; without it every target counts as of the full support.
        """
        rows = pack.targets
        return cls(
            torch.tensor([row.predictor for row in rows], dtype=torch.long, device=device),
            torch.tensor([row.token_id for row in rows], dtype=torch.long, device=device),
            torch.tensor(
                [math.nan if row.logprob is None else row.logprob for row in rows], dtype=torch.float32, device=device
            ),
            torch.tensor([row.advantage for row in rows], dtype=torch.float32, device=device),
            torch.tensor([row.temperature for row in rows], dtype=torch.float32, device=device),
            torch.tensor([row.member for row in rows], dtype=torch.long, device=device),
            torch.tensor([row.fresh for row in rows], dtype=torch.bool, device=device),
            supports=None if book is None else SupportMasks.of(pack, book),
        )

    def allowed(self, part: slice) -> Tensor | None:
        """Tokens that could be drawn for some targets, ``[m, V]``; None: all."""
        return None if self.supports is None else self.supports.part(part, self.token_ids_M.device)


def head_losses(
    logits: Callable[[Tensor], Tensor], leaf_ND: Tensor, targets: PackTensors, shape: LossShape
) -> LossSums:
    """Loss of all targets; its gradient is added to ``leaf_ND.grad`` and to the head's parameters.

    A shape that looks at whole members needs all log-probabilities before any slope: the head then runs twice.

    Args:
        logits: hidden states ``[m, D]`` → logits ``[m, V]``.
        leaf_ND: hidden states of the pack, a leaf.
        targets: what was sampled.
        shape: of the loss.
    """
    sums = LossSums()
    slopes_M = None
    if shape.needs_members and targets.token_ids_M.numel():
        slopes_M, sums = _slopes(score_all(logits, leaf_ND.detach(), targets), targets, slice(None), shape)
    for part in _parts(targets):
        token_ids_M, temperatures_M = targets.token_ids_M[part], targets.temperatures_M[part]
        logits_MV = logits(leaf_ND.index_select(0, targets.predictors_M[part]))
        scored = score_tokens(logits_MV.detach(), token_ids_M, temperatures_M, targets.allowed(part))
        if slopes_M is None:
            slope_M, part_sums = _slopes(scored.logprobs_M, targets, part, shape)
            sums.add(part_sums)
        else:
            slope_M = slopes_M[part]
        sums.entropy += scored.entropy
        slope_M = slope_M / temperatures_M
        gradient_MV = scored.probabilities_MV.mul_(-slope_M.unsqueeze(1))
        gradient_MV.scatter_add_(1, token_ids_M.unsqueeze(1), slope_M.unsqueeze(1))
        torch.autograd.backward(logits_MV, gradient_MV.to(logits_MV.dtype))
    return sums


@torch.no_grad()
def score_all(logits: Callable[[Tensor], Tensor], hidden_ND: Tensor, targets: PackTensors) -> Tensor:
    """Log-probabilities of all targets, a chunk of logits at a time."""
    chunks = [
        score_tokens(
            logits(hidden_ND.index_select(0, targets.predictors_M[part])),
            targets.token_ids_M[part],
            targets.temperatures_M[part],
            targets.allowed(part),
        ).logprobs_M
        for part in _parts(targets)
    ]
    return torch.cat(chunks) if chunks else torch.empty(0)


def _parts(targets: PackTensors) -> Iterable[slice]:
    return (slice(start, start + HEAD_CHUNK) for start in range(0, targets.token_ids_M.numel(), HEAD_CHUNK))


def _slopes(logprobs_M: Tensor, targets: PackTensors, part: slice, shape: LossShape) -> tuple[Tensor, LossSums]:
    """Slope d loss / d log-probability of some targets, with their sums."""
    behaviour_M = targets.behaviour_M[part]
    behaviour_M = torch.where(behaviour_M.isnan(), logprobs_M, behaviour_M)
    _refuse_fill(logprobs_M, behaviour_M)
    logprobs_M = logprobs_M.requires_grad_(True)
    loss, sums = policy_loss(
        logprobs_M,
        logprobs_M,
        behaviour_M,
        targets.advantages_M[part],
        shape,
        members=Members(targets.members_M[part]) if shape.needs_members else None,
        reference_M=None if targets.reference_M is None else targets.reference_M[part],
    )
    (slope_M,) = torch.autograd.grad(loss, logprobs_M)
    fresh_M = targets.fresh_M[part]
    gap_M = (logprobs_M.detach() - behaviour_M).abs()
    sums.num_fresh = float(fresh_M.sum())
    sums.num_stale = float(fresh_M.numel()) - sums.num_fresh
    sums.fresh_mismatch = float((gap_M * fresh_M).sum())
    sums.stale_mismatch = float((gap_M * ~fresh_M).sum())
    return slope_M, sums


def _refuse_fill(logprobs_M: Tensor, behaviour_M: Tensor) -> None:
    """A token recorded as certain that the trainer finds unlikely was not certain: its log-probability is a fill."""
    if bool(((behaviour_M == 0.0) & (logprobs_M < -1.0)).any()):
        raise TokenContractError(
            "a log-probability of exactly 0.0 belongs to a token that the model finds unlikely",
            expected="behaviour log-probabilities of sampled tokens",
            mend="the engine fills in zeros where it should report; enable its log-probabilities",
        )
