"""Products of a backward pass by the native kernel: float32 on a CPU, nothing transposed first."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from flightschool.engines.kernels.library import Product, find_kernels

__all__ = ["add_product", "can_multiply"]


def can_multiply(x: Tensor) -> bool:
    """Whether the native kernel multiplies matrices like this one."""
    return x.device.type == "cpu" and x.dtype == torch.float32 and find_kernels().library is not None


def add_product(c: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """``c += a b``; returns ``c``. No gradient is recorded.

    Args:
        c: ``[rows, columns]``; rows without gaps.
        a: ``[rows, depth]``, plain or transposed.
        b: ``[depth, columns]``; rows without gaps.
    """
    library = find_kernels().library
    assert library is not None, "ask can_multiply first"
    if 1 not in a.stride():
        a = a.contiguous()
    if b.stride(1) != 1:
        b = b.contiguous()
    if c.stride(1) != 1 or c.shape != (a.shape[0], b.shape[1]) or a.shape[1] != b.shape[0]:
        raise ValueError(f"{tuple(a.shape)} times {tuple(b.shape)} does not go into {tuple(c.shape)}")
    num_threads = torch.get_num_threads()
    scratch = torch.empty(num_threads * library.size_of_scratch(b.shape[1]))
    plain = a.stride(1) == 1
    library.multiply(
        ctypes.byref(
            Product(
                num_rows=c.shape[0],
                num_columns=c.shape[1],
                depth=a.shape[1],
                num_threads=num_threads,
                adds=1,
                a=a.data_ptr(),
                a_row=a.stride(0) if plain else 1,
                a_depth=1 if plain else a.stride(1),
                b=b.data_ptr(),
                b_depth=b.stride(0),
                c=c.data_ptr(),
                c_row=c.stride(0),
                scratch=scratch.data_ptr(),
            )
        )
    )
    return c
