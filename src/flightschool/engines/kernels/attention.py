"""Attention over keys that lie in pieces, by the native kernel: float32 on a CPU.

Shape letters: ``N`` flat tokens, ``R`` keys, ``H`` query heads, ``K`` key/value heads, ``F`` head size.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from flightschool.engines.kernels.library import Call, find_kernels, kernel_library

__all__ = ["Run", "Span", "Work", "attend", "attend_cached", "has_kernels"]

_MOST_PARTS = 16
"""Threads of a backward pass: each has gradients of all keys to itself, which are added afterwards."""


@dataclass(frozen=True)
class Run:
    """Consecutive keys that a span of tokens sees."""

    offset: int
    num_keys: int
    first_sees: int = -1
    """How many of them the span's first token sees; each further token sees one more. -1: every token sees all."""
    store: int = 0
    """Which store they lie in, where there are two."""


@dataclass(frozen=True)
class Span:
    """Consecutive tokens, and the keys that they see."""

    row: int
    num_tokens: int
    runs: Sequence[Run]
    resumes: bool = False
    """Whether another span has already seen other keys for the same tokens; both count as one then."""


class Work:
    """What a pass attends to: the same in all layers.

    Args:
        spans: in any order; those that resume come after those that do not.
        places: store and offset of each new key that is kept before anything is attended (``attend_cached``).
    """

    def __init__(self, spans: Sequence[Span], places: Sequence[tuple[int, int]] = ()) -> None:
        ordered = sorted(spans, key=lambda span: span.resumes)
        units: list[tuple[int, ...]] = []
        runs: list[tuple[int, ...]] = []
        for span in ordered:
            units.append((span.row, span.num_tokens, len(runs), len(span.runs), int(span.resumes)))
            runs += [(run.store, run.offset, run.num_keys, run.first_sees) for run in span.runs]
        self._units, self._runs = _table(units, 5), _table(runs, 4)
        self._places = _table(places, 2)
        self.num_rows = sum(span.num_tokens for span in ordered if not span.resumes)
        self.call = Call(
            num_units=len(units),
            num_first=sum(not span.resumes for span in ordered),
            units=self._units.data_ptr(),
            runs=self._runs.data_ptr(),
            num_new=len(places),
            places=self._places.data_ptr(),
        )


def _table(rows: Sequence[Sequence[int]], width: int) -> Tensor:
    return torch.tensor(rows, dtype=torch.int64).reshape(-1, width)


def has_kernels(device: torch.device | str, dtype: torch.dtype, head_size: int) -> bool:
    """Whether heads of this size can be attended by the native kernel."""
    if torch.device(device).type != "cpu" or dtype != torch.float32:
        return False
    kernels = find_kernels()
    return kernels.library is not None and head_size <= kernels.largest_head


def attend(q_NHF: Tensor, k_RKF: Tensor, v_RKF: Tensor, work: Work) -> Tensor:
    """Softmax attention with scores divided by the root of the head size, ``[N, H, F]``; has gradients.

    Args:
        q_NHF: each row in one span of the work; none resumes.
        k_RKF: runs count its rows.
        v_RKF: likewise.
        work: who sees what.
    """
    if torch.is_grad_enabled() and (q_NHF.requires_grad or k_RKF.requires_grad or v_RKF.requires_grad):
        return _Attended.apply(q_NHF, k_RKF, v_RKF, work)  # type: ignore[no-any-return, no-untyped-call]
    call = work.call
    held = _point_at_keys(call, k_RKF, v_RKF)
    out_NHF = _attended(call, q_NHF, work.num_rows, None)
    del held
    return out_NHF


def attend_cached(
    q_NHF: Tensor, k_NKF: Tensor, v_NKF: Tensor, stores: Sequence[tuple[Tensor, Tensor]], work: Work
) -> Tensor:
    """Keep new keys and values in their places, then attend to what is kept, ``[N, H, F]``; no gradient is recorded.

    Args:
        q_NHF: queries.
        k_NKF: a new key for each place of the work.
        v_NKF: likewise.
        stores: one or two of keys and values ``[slots, K, tokens, F]`` without gaps; offset ``o`` of slot ``s`` is
            ``s · K · tokens + o``.
        work: who sees what, and where new keys go.
    """
    call, (k, v) = work.call, (_rows(x) for x in (k_NKF, v_NKF))
    call.num_kv = k.shape[1]
    call.new_keys, call.new_key_token = k.data_ptr(), k.stride(0)
    call.new_values, call.new_value_token = v.data_ptr(), v.stride(0)
    for place, (keys, values) in enumerate(stores):
        call.keys[place], call.key_token[place], call.key_head[place] = keys.data_ptr(), *_steps(keys, 2)
        call.values[place], call.value_token[place], call.value_head[place] = values.data_ptr(), *_steps(values, 2)
    log_NH = torch.empty(q_NHF.shape[:2]) if call.num_first < call.num_units else None
    return _attended(call, q_NHF, work.num_rows, log_NH)


def _point_at_keys(call: Call, k_RKF: Tensor, v_RKF: Tensor) -> tuple[Tensor, Tensor]:
    """Returns what must live as long as the call."""
    k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (k_RKF, v_RKF))
    call.num_kv, call.num_new = k.shape[1], 0
    call.keys[0], call.key_token[0], call.key_head[0] = k.data_ptr(), *_steps(k, 0)
    call.values[0], call.value_token[0], call.value_head[0] = v.data_ptr(), *_steps(v, 0)
    return k, v


def _steps(x: Tensor, tokens: int) -> tuple[int, int]:
    """Numbers from one token to the next, and from one head to the next; heads are axis 1."""
    return x.stride(tokens), x.stride(1)


def _rows(x_NHF: Tensor) -> Tensor:
    """Itself, if the heads of a token follow one another."""
    return x_NHF if x_NHF.stride()[1:] == (x_NHF.shape[2], 1) else x_NHF.contiguous()


def _attended(call: Call, q_NHF: Tensor, num_rows: int, log_NH: Tensor | None) -> Tensor:
    if num_rows != q_NHF.shape[0]:
        raise ValueError(f"spans hold {num_rows} tokens, and there are {q_NHF.shape[0]}")
    q, out_NHF = _point_at_queries(call, q_NHF), torch.empty(q_NHF.shape)
    call.num_threads = torch.get_num_threads()
    call.out, call.log = out_NHF.data_ptr(), None if log_NH is None else log_NH.data_ptr()
    kernel_library().attend(ctypes.byref(call))
    del q
    return out_NHF


def _point_at_queries(call: Call, q_NHF: Tensor) -> Tensor:
    """Returns what must live as long as the call."""
    q = _rows(q_NHF)
    call.num_heads, call.head_size = q.shape[1:]
    call.q, call.q_token = q.data_ptr(), q.stride(0)
    return q


class _Attended(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q_NHF: Tensor, k_RKF: Tensor, v_RKF: Tensor, work: Work) -> Tensor:
        if work.call.num_first < work.call.num_units:
            raise ValueError("spans that resume have no gradients")
        log_NH, held = torch.empty(q_NHF.shape[:2]), _point_at_keys(work.call, k_RKF, v_RKF)
        out_NHF = _attended(work.call, q_NHF, work.num_rows, log_NH)
        del held
        ctx.save_for_backward(q_NHF, k_RKF, v_RKF, out_NHF, log_NH)
        ctx.work = work
        return out_NHF

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        q_NHF, k_RKF, v_RKF, out_NHF, log_NH = ctx.saved_tensors
        call, grad_NHF = ctx.work.call, _rows(grads[0])
        held = _point_at_keys(call, k_RKF, v_RKF), _point_at_queries(call, q_NHF)
        call.num_threads = num_parts = min(_MOST_PARTS, torch.get_num_threads())
        dq_NHF = torch.empty(q_NHF.shape)
        size, width = k_RKF.shape[2], find_kernels().width
        padded = -(-size // width) * width
        dk_PRKF, dv_PRKF = (torch.zeros(num_parts, *k_RKF.shape[:2], padded) for _ in range(2))
        call.num_keys, call.grad, call.grad_token = k_RKF.shape[0], grad_NHF.data_ptr(), grad_NHF.stride(0)
        call.out, call.log = out_NHF.data_ptr(), log_NH.data_ptr()
        call.dq, call.dk, call.dv = dq_NHF.data_ptr(), dk_PRKF.data_ptr(), dv_PRKF.data_ptr()
        kernel_library().attend_backward(ctypes.byref(call))
        del held
        dk_RKF, dv_RKF = ((x[0] if num_parts == 1 else x.sum(0))[..., :size] for x in (dk_PRKF, dv_PRKF))
        return dq_NHF, dk_RKF, dv_RKF, None
