"""Attention over a pack on CPUs: what many tokens see alike is multiplied at once, the rest in padded batches.

A prompt that eight members share is most of what each of their tokens looks at. Here the queries of all tokens below a
segment meet its keys in *one* product, which runs near the peak of the machine, where a call for padded batches gets a
fifth of it; and its keys and values are not copied for every member. Tokens see the rest (short segments above them,
and their own) in padded batches. Both parts come with the logarithm of their sums of exponentials, by which they are
joined into the plain softmax (as cascade attention joins them). The backward pass needs no more than that either:
each part's gradients follow from its own scores, the joint outcome and the joint logarithm (as in FlashAttention-2).

Shape letters: ``N`` flat tokens, ``n`` those below a segment, ``L`` its length, ``R`` padded rows, ``H`` query heads,
``K`` key/value heads, ``G`` = H / K, ``F`` head size, ``r`` rows of a block.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from flightschool.engines.products import product
from flightschool.training.rows import Layout

__all__ = ["CASCADED_TYPES", "Above", "Batch", "Cascade", "cascaded"]

CASCADED_TYPES = (torch.float32, torch.float64)
"""What ``cascaded`` computes in: logarithms and outcomes of parts are joined in the type of the queries."""

_BLOCK = 1 << 19
"""Scores that are held at once: they stay in the cache until they are used."""


@dataclass(frozen=True)
class Above:
    """A segment, and all tokens below it: each of them sees the whole of it."""

    keys: slice
    """Counted from the first key that is given: that of the stem, if there is one."""
    tokens: slice | Tensor
    """Flat indices; a range where they follow one another."""


@dataclass(frozen=True)
class Batch:
    """Padded segments that are attended in one call."""

    num_rows: int
    length: int
    """Queries of a row; with the keys above them, ``bias`` tells what they see."""
    bias: Tensor
    """``[rows, 1, G · length, keys]``: 0 or −∞."""


@dataclass(frozen=True)
class Cascade:
    """How a pack is attended."""

    above: Sequence[Above]
    batches: Sequence[Batch]
    layout: Layout
    """Where the queries of all batches stand."""
    keys_R: Tensor
    """Index of each key of all batches, counted as those of ``Above``."""


def cascaded(q_NHF: Tensor, k_NKF: Tensor, v_NKF: Tensor, cascade: Cascade) -> Tensor:
    """Attend, ``[N, H, F]``; one of ``CASCADED_TYPES`` on a CPU."""
    return _Cascaded.apply(q_NHF, k_NKF, v_NKF, cascade)  # type: ignore[no-any-return, no-untyped-call]


class _Cascaded(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q_NHF: Tensor, k_NKF: Tensor, v_NKF: Tensor, cascade: Cascade) -> Tensor:
        out_NHF, log_NH = _batched(q_NHF, k_NKF, v_NKF, cascade)
        for above in cascade.above:
            part_nHF, part_nH = _seen_above(q_NHF, k_NKF, v_NKF, above)
            joint_nH = torch.logaddexp(log_NH[above.tokens], part_nH)
            kept_nH = (log_NH[above.tokens] - joint_nH).exp_()
            joined_nHF = torch.lerp(part_nHF, out_NHF[above.tokens], kept_nH.unsqueeze(-1))
            out_NHF[above.tokens], log_NH[above.tokens] = joined_nHF, joint_nH
        ctx.save_for_backward(q_NHF, k_NKF, v_NKF, out_NHF, log_NH)
        ctx.cascade = cascade
        return out_NHF

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        q_NHF, k_NKF, v_NKF, out_NHF, log_NH = ctx.saved_tensors
        grad_NHF = grads[0].contiguous()
        gradients = _batched_backward(grad_NHF, q_NHF, k_NKF, v_NKF, out_NHF, log_NH, ctx.cascade)
        inner_NH = torch.linalg.vecdot(grad_NHF, out_NHF)
        for above in ctx.cascade.above:
            _seen_above_backward(grad_NHF, inner_NH, q_NHF, k_NKF, v_NKF, log_NH, above, gradients)
        return (*gradients, None)


# ------------------------------------------------------------------------------------------------ seen by many


def _seen_above(q_NHF: Tensor, k_NKF: Tensor, v_NKF: Tensor, above: Above) -> tuple[Tensor, Tensor]:
    """What tokens see of a segment above them: outcome ``[n, H, F]`` and logarithm of the sum ``[n, H]``."""
    q_nHF = q_NHF[above.tokens]
    out_nHF, log_nH = torch.empty_like(q_nHF), q_nHF.new_empty(q_nHF.shape[:2])
    for head, heads in _heads(q_nHF, k_NKF):
        q_XF, (k_LF, v_LF) = _scaled(q_nHF[:, heads]), _keys_and_values(k_NKF, v_NKF, above, head)
        out_XF, log_X = torch.empty_like(q_XF), q_XF.new_empty(q_XF.shape[0])
        for rows in _blocks(q_XF.shape[0], k_LF.shape[0]):
            scores_rL = product(q_XF[rows], k_LF)
            most_r = scores_rL.amax(-1, keepdim=True)
            weights_rL = scores_rL.sub_(most_r).exp_()
            sums_r = weights_rL.sum(-1, keepdim=True)
            out_XF[rows] = product(weights_rL, v_LF.T).div_(sums_r)
            log_X[rows] = sums_r.log_().add_(most_r).squeeze(-1)
        out_nHF[:, heads] = out_XF.view(out_nHF[:, heads].shape)
        log_nH[:, heads] = log_X.view(log_nH[:, heads].shape)
    return out_nHF, log_nH


def _seen_above_backward(
    grad_NHF: Tensor,
    inner_NH: Tensor,
    q_NHF: Tensor,
    k_NKF: Tensor,
    v_NKF: Tensor,
    log_NH: Tensor,
    above: Above,
    gradients: tuple[Tensor, Tensor, Tensor],
) -> None:
    """Add the gradients of one segment's part; ``inner`` is the inner product of outcome and its gradient."""
    q_nHF, grad_nHF, inner_nH, log_nH = (x[above.tokens] for x in (q_NHF, grad_NHF, inner_NH, log_NH))
    dq_NHF, dk_NKF, dv_NKF = gradients
    scale, dq_nHF = q_NHF.shape[-1] ** -0.5, torch.empty_like(q_nHF)
    for head, heads in _heads(q_nHF, k_NKF):
        q_XF, (k_LF, v_LF) = _scaled(q_nHF[:, heads]), _keys_and_values(k_NKF, v_NKF, above, head)
        grad_XF = grad_nHF[:, heads].reshape(q_XF.shape)
        inner_X, log_X = (x[:, heads].reshape(-1, 1) for x in (inner_nH, log_nH))
        dq_XF = torch.empty_like(q_XF)
        for rows in _blocks(q_XF.shape[0], k_LF.shape[0]):
            weights_rL = product(q_XF[rows], k_LF).sub_(log_X[rows]).exp_()
            dv_NKF[above.keys, head] += product(grad_XF[rows].T, weights_rL.T).T
            slopes_rL = product(grad_XF[rows], v_LF).sub_(inner_X[rows]).mul_(weights_rL)
            dq_XF[rows] = product(slopes_rL, k_LF.T)
            dk_NKF[above.keys, head] += product(q_XF[rows].T, slopes_rL.T).T
        dq_nHF[:, heads] = dq_XF.mul_(scale).view(dq_nHF[:, heads].shape)
    dq_NHF[above.tokens] += dq_nHF


def _heads(q_nHF: Tensor, k_NKF: Tensor) -> Iterator[tuple[int, slice]]:
    """Each key head, and the query heads that read it."""
    shared = q_nHF.shape[1] // k_NKF.shape[1]
    return ((head, slice(head * shared, (head + 1) * shared)) for head in range(k_NKF.shape[1]))


def _keys_and_values(k_NKF: Tensor, v_NKF: Tensor, above: Above, head: int) -> tuple[Tensor, Tensor]:
    """Those of one head, laid end to end: products with what lies scattered take a thousand times as long."""
    return k_NKF[above.keys, head].contiguous(), v_NKF[above.keys, head].contiguous()


def _scaled(q_nGF: Tensor) -> Tensor:
    """Queries of some heads as rows, divided by the root of their size."""
    return q_nGF.reshape(-1, q_nGF.shape[-1]).mul(q_nGF.shape[-1] ** -0.5)


def _blocks(num_rows: int, length: int) -> Iterator[slice]:
    size = max(64, _BLOCK // length)
    return (slice(start, start + size) for start in range(0, num_rows, size))


# ------------------------------------------------------------------------------------------------ padded batches


def _batched(q_NHF: Tensor, k_NKF: Tensor, v_NKF: Tensor, cascade: Cascade) -> tuple[Tensor, Tensor]:
    """What tokens see in their batches: outcome ``[N, H, F]`` and logarithm of the sum ``[N, H]``."""
    outs, logs = [], []
    for batch, q, k, v in _laid_out(q_NHF, k_NKF, v_NKF, cascade):
        out, log = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            q.flatten(2, 3), k, v, 0.0, False, attn_mask=batch.bias
        )
        outs.append(_as_rows(out.reshape(q.shape)))
        logs.append(_as_rows(log.reshape(q.shape[:4])))
    layout = cascade.layout
    return torch.cat(outs).index_select(0, layout.rows_N), torch.cat(logs).index_select(0, layout.rows_N)


def _batched_backward(
    grad_NHF: Tensor,
    q_NHF: Tensor,
    k_NKF: Tensor,
    v_NKF: Tensor,
    out_NHF: Tensor,
    log_NH: Tensor,
    cascade: Cascade,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of queries, keys and values, as far as the batches go."""
    layout = cascade.layout
    grad_RHF = grad_NHF.index_select(0, layout.tokens_R).index_fill_(0, layout.padding, 0.0)
    out_RHF, log_RH = (x.index_select(0, layout.tokens_R) for x in (out_NHF, log_NH))
    dq, dk, dv = [], [], []
    place = 0
    for batch, q, k, v in _laid_out(q_NHF, k_NKF, v_NKF, cascade):
        rows = slice(place, place := place + batch.num_rows * batch.length)
        grad, out, log = (_as_heads(x[rows], batch, k.shape[1]).flatten(2, 3) for x in (grad_RHF, out_RHF, log_RH))
        slopes = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
            grad, q.flatten(2, 3), k, v, out, log.contiguous(), 0.0, False, attn_mask=batch.bias
        )
        dq.append(_as_rows(slopes[0].reshape(q.shape)))
        dk.append(slopes[1].transpose(1, 2).reshape(-1, *k_NKF.shape[1:]))
        dv.append(slopes[2].transpose(1, 2).reshape(-1, *v_NKF.shape[1:]))
    dk_NKF, dv_NKF = (torch.zeros_like(k_NKF).index_add_(0, cascade.keys_R, torch.cat(slopes)) for slopes in (dk, dv))
    dq_NHF: Tensor = torch.cat(dq).index_select(0, layout.rows_N)
    return dq_NHF, dk_NKF, dv_NKF


def _laid_out(
    q_NHF: Tensor, k_NKF: Tensor, v_NKF: Tensor, cascade: Cascade
) -> Iterator[tuple[Batch, Tensor, Tensor, Tensor]]:
    """Each batch with its queries ``[rows, K, G, length, F]``, keys and values ``[rows, K, keys, F]``."""
    q_RHF = q_NHF.index_select(0, cascade.layout.tokens_R)
    k_RKF, v_RKF = (x.index_select(0, cascade.keys_R) for x in (k_NKF, v_NKF))
    query = key = 0
    for batch in cascade.batches:
        queries = slice(query, query := query + batch.num_rows * batch.length)
        keys = slice(key, key := key + batch.num_rows * batch.bias.shape[-1])
        k, v = (x[keys].view(batch.num_rows, -1, *x.shape[1:]).transpose(1, 2) for x in (k_RKF, v_RKF))
        yield batch, _as_heads(q_RHF[queries], batch, k.shape[1]), k, v


def _as_heads(x_RH: Tensor, batch: Batch, num_kv: int) -> Tensor:
    """``[rows · length, H, …]`` → ``[rows, K, G, length, …]``: heads that read one key head in its query axis."""
    x = x_RH.reshape(batch.num_rows, batch.length, num_kv, -1, *x_RH.shape[2:])
    return x.movedim(1, 3)


def _as_rows(x: Tensor) -> Tensor:
    """The way back."""
    rows = x.movedim(3, 1)
    return rows.reshape(rows.shape[0] * rows.shape[1], -1, *rows.shape[4:])
