"""Products of a backward pass by the native kernel: float32 on a CPU, nothing transposed first."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from flightschool.engines.kernels.library import Product, kernel_library

__all__ = ["add_product", "multiplied"]


def multiplied(a: Tensor, b: Tensor) -> Tensor:
    """``a b``; see ``add_product``."""
    return _multiply(torch.empty(a.shape[0], b.shape[1]), a, b, adds=False)


def add_product(c: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """``c += a b``; returns ``c``. No gradient is recorded.

    Args:
        c: ``[rows, columns]``; rows without gaps.
        a: ``[rows, depth]``, plain or transposed.
        b: ``[depth, columns]``.
    """
    return _multiply(c, a, b, adds=True)


def _multiply(c: Tensor, a: Tensor, b: Tensor, *, adds: bool) -> Tensor:
    library = kernel_library()
    if c.stride(1) != 1 or c.shape != (a.shape[0], b.shape[1]) or a.shape[1] != b.shape[0]:
        raise ValueError(f"{tuple(a.shape)} times {tuple(b.shape)} does not go into {tuple(c.shape)}")
    a = a if 1 in a.stride() else a.contiguous()
    b = b if b.stride(1) == 1 else b.contiguous()
    transposed = a.stride(1) != 1
    num_threads = torch.get_num_threads()
    scratch = torch.empty(num_threads * library.size_of_scratch(b.shape[1]))
    product = Product(
        num_rows=c.shape[0],
        num_columns=c.shape[1],
        depth=a.shape[1],
        num_threads=num_threads,
        adds=adds,
        a=a.data_ptr(),
        a_row=1 if transposed else a.stride(0),
        a_depth=a.stride(1) if transposed else 1,
        b=b.data_ptr(),
        b_depth=b.stride(0),
        c=c.data_ptr(),
        c_row=c.stride(0),
        scratch=scratch.data_ptr(),
    )
    library.multiply(ctypes.byref(product))
    return c
