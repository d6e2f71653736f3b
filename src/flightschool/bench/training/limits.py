"""What this machine can do at a model's shapes: memory bandwidth, matrix products, and bounds made of them.

All products are made with the model's own weights, layer after layer, so that they come from memory as they do in a
real pass, and by the fastest kernel at hand: torch's own, or oneDNN with packed weights where there is one. (Torch's
own alone would be no limit: an engine that multiplies by oneDNN is faster.) Least time of several rounds counts: other
work only ever adds to it. Shape letters as in ``engines.transformer``; ``P`` parameters.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from flightschool.bench.training.workload import StepFigures
from flightschool.records import Record

if TYPE_CHECKING:
    from torch import Tensor

    from flightschool.engines import Transformer

__all__ = ["Limits", "best_s", "bound_tokens_per_s", "measure_limits"]

ROWS = (1, 8, 16, 32, 512)
_PEAK_ROWS = 2048
_PEAK_REPEATS = 8
BATCH = 32
"""Rows of a full decode pass."""
_BYTES = 4


class Limits(Record, frozen=True, kw_only=True):
    """Of one machine, model and number of threads; float32."""

    num_threads: int
    bandwidth_gb_s: float
    """Best of copying, summing, and the dot product of two streams, in 10^9 bytes a second."""
    peak_gflops: float
    """Best product of ``M`` = 2048 rows with any matrix of the body, by the fastest kernel."""
    torch_gflops: float
    """The same by torch's own kernel, which figures of before are shares of."""
    body_s: Mapping[int, float]
    """Rows → seconds for the products of all layers."""
    head_s: Mapping[int, float]
    """Rows → seconds for the product of the output head."""
    torch_body_s: Mapping[int, float]
    """The same two by torch's own kernel."""
    torch_head_s: Mapping[int, float]
    num_body: int
    """Parameters of matrices in layers."""
    num_head: int
    """Parameters of the output head."""
    num_attending: int
    """Numbers of a token's queries in all layers: layers · query heads · head size."""
    kv_bytes: int
    """Bytes of keys and values of one token."""

    @property
    def num_parameters(self) -> int:
        """Those that products are made with."""
        return self.num_body + self.num_head

    def by_torch(self) -> Limits:
        """The limits of one who multiplies by torch's own kernel alone."""
        return msgspec.structs.replace(
            self, peak_gflops=self.torch_gflops, body_s=self.torch_body_s, head_s=self.torch_head_s
        )

    def prefill_s(self, num_tokens: int) -> float:
        """Least time for prompt tokens, in passes of 512."""
        return num_tokens * self.body_s[512] / 512

    def decode_s(self, num_rows: int, num_cached: int) -> float:
        """Least time of one decode pass: products at this many rows, or the bytes of weights and cache."""
        weights = _BYTES * self.num_parameters
        moved = (weights + num_cached * self.kv_bytes) / (1e9 * self.bandwidth_gb_s)
        return max(moved, self.body_s[num_rows] + self.head_s[num_rows])

    def train_s(self, num_forward: int, num_trained: int, num_pairs: int) -> float:
        """Least time of forward and backward at the peak of matrix products.

        Six operations a parameter and token; of attention twelve a number of the queries and pair of tokens (two
        products forward and four backward, none made twice).
        """
        products = 6e-9 * (num_forward * self.num_body + num_trained * self.num_head)
        return (products + 12e-9 * num_pairs * self.num_attending) / self.peak_gflops

    def decode_token_s(self, num_rows: int) -> float:
        """Least time of products a decoded token, where so many rows are decoded at once, ``BATCH`` at most.

        By the least measured number of rows that holds them: more rows cost a token less.
        """
        rows = min(rows for rows in self.body_s if rows >= min(num_rows, BATCH))
        return (self.body_s[rows] + self.head_s[rows]) / rows

    def optimizer_s(self) -> float:
        """Least time of AdamW: weight, gradient and both moments read, weight and moments written."""
        return 7 * _BYTES * self.num_parameters / (1e9 * self.bandwidth_gb_s)


def best_s(act: Callable[[], object], *, rounds: int = 5, budget_s: float = 1.0) -> float:
    """Least seconds of a call, after one that does not count; at least two calls, no more than the budget allows."""
    act()
    times: list[float] = []
    until = time.perf_counter() + budget_s
    while len(times) < 2 or (len(times) < rounds and time.perf_counter() < until):
        started = time.perf_counter()
        act()
        times.append(time.perf_counter() - started)
    return min(times)


def measure_limits(model: Transformer, num_threads: int) -> Limits:
    """Measure; takes some ten seconds for a hundred million parameters."""
    import torch
    import torch.nn.functional as F

    from flightschool.engines.products import Packed, has_fast_products

    torch.set_num_threads(num_threads)
    config = model.config
    weights: list[Tensor] = [
        parameter.detach()
        for name, parameter in model.named_parameters()
        if parameter.ndim == 2 and name.startswith("model.layers.")
    ]
    head = (model.model.embed_tokens if model.lm_head is None else model.lm_head).weight.detach()
    widths = {weight.shape[1] for weight in weights} | {head.shape[1]}

    def products_s(inputs: Mapping[int, Tensor], chosen: Sequence[Tensor], *, packed: bool) -> float:
        """Least seconds for the products of all of them; infinite where they cannot be packed."""
        if packed and not has_fast_products(chosen[0]):
            return math.inf
        products = [Packed(weight) if packed else F.linear for weight in chosen]

        def act() -> None:
            for product, weight in zip(products, chosen, strict=True):
                product(inputs[weight.shape[1]], weight, None)

        return best_s(act)

    def both_s(inputs: Mapping[int, Tensor], chosen: Sequence[Tensor]) -> tuple[float, float]:
        """Least seconds by torch's own kernel, and by the faster one."""
        own = products_s(inputs, chosen, packed=False)
        return own, min(own, products_s(inputs, chosen, packed=True))

    def peak(kernel_s: Callable[[Mapping[int, Tensor], Sequence[Tensor]], float]) -> float:
        inputs = {width: torch.randn(_PEAK_ROWS, width) for width in widths}
        by_shape = {tuple(weight.shape): weight for weight in weights}
        operations = 2e-9 * _PEAK_ROWS * _PEAK_REPEATS
        return max(
            operations * math.prod(shape) / kernel_s(inputs, [weight] * _PEAK_REPEATS)
            for shape, weight in by_shape.items()
        )

    body_s, head_s, torch_body_s, torch_head_s = {}, {}, {}, {}
    with torch.inference_mode():
        for rows in ROWS:
            inputs = {width: torch.randn(rows, width) for width in widths}
            torch_body_s[rows], body_s[rows] = both_s(inputs, weights)
            torch_head_s[rows], head_s[rows] = both_s(inputs, [head])
        torch_gflops = peak(partial(products_s, packed=False))
        peak_gflops = max(torch_gflops, peak(partial(products_s, packed=True)))
        bandwidth = _bandwidth()
    return Limits(
        num_threads=num_threads,
        bandwidth_gb_s=bandwidth,
        peak_gflops=peak_gflops,
        torch_gflops=torch_gflops,
        body_s=body_s,
        head_s=head_s,
        torch_body_s=torch_body_s,
        torch_head_s=torch_head_s,
        num_body=sum(weight.numel() for weight in weights),
        num_head=head.numel(),
        num_attending=config.num_layers * config.num_heads * config.head_dim,
        kv_bytes=2 * config.num_layers * config.num_kv_heads * config.head_dim * _BYTES,
    )


def _bandwidth() -> float:
    import torch

    size = 64_000_000
    left, right = torch.rand(size), torch.rand(size)
    moved = {"copy": 2, "sum": 1, "dot": 2}
    acts: dict[str, Callable[[], object]] = {
        "copy": lambda: left.copy_(right),
        "sum": right.sum,
        "dot": lambda: torch.dot(left, right),
    }
    return max(moved[name] * _BYTES * size / best_s(act) / 1e9 for name, act in acts.items())


def bound_tokens_per_s(limits: Limits, steps: Sequence[StepFigures]) -> float:
    """Most sampled tokens a second that any synchronous trainer could train of the same episodes, on this machine.

    Every distinct token is computed once (what the step's prompts begin with, too): decoding with all rows of the step
    at once, 32 at most, to the very end, one forward and backward pass at the peak of matrix products, attention
    included and without the last token of a row, one optimizer step. Attention of generation, sampling and tools cost
    nothing.
    """
    needed_s = sum(
        step.sampled_tokens * limits.decode_token_s(step.num_rows)
        + limits.prefill_s(step.prefill_tokens)
        + limits.train_s(
            step.prefill_tokens + step.sampled_tokens - step.num_rows, step.trained_tokens, step.seen_pairs
        )
        + limits.optimizer_s()
        for step in steps
    )
    return sum(step.trained_tokens for step in steps) / needed_s
