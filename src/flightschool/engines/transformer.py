"""The Llama family as one plain module over *flat* tokens: no batch dimension, hence no padding.

All tokens of all sequences stand in one row ``N``; linear layers and norms never see a padded position, and
which token looks at which is the business of one strategy object (``Attention``). So the same module serves the
generation engine (cached attention over slots), training (packed or prefix-sharing attention with gradients) and
the plain check (``CausalAttention``), and their log-probabilities agree because there is only one model.

Parameters carry Hugging Face's names, so that state dicts load and save unchanged. Computation follows the
published architectures: RMSNorm in float32, rotary embedding by halves, SwiGLU, grouped-query attention, biases on
query/key/value (Qwen2), norms on query and key heads (Qwen3), rotation of part of a head and experts (GLM-4.5, see
``experts``). Left out on purpose: sliding windows, dropout.

Shape letters: ``N`` flat tokens, ``D`` hidden size, ``H`` query heads, ``K`` key/value heads, ``F`` head size,
``M`` selected positions, ``V`` vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from flightschool.engines.architecture import TransformerConfig
from flightschool.engines.experts import Experts, Routing
from flightschool.engines.fused import gate, rms_norm, rotate_halves
from flightschool.engines.kernels import Run, Span, Work, attend, has_kernels
from flightschool.engines.products import InPlace
from flightschool.errors import InputError

__all__ = ["Attention", "CausalAttention", "Transformer", "TransformerConfig"]


class Attention(Protocol):
    """Decides which token attends to which, and where keys and values are kept."""

    def __call__(self, layer: int, q_NHF: Tensor, k_NKF: Tensor, v_NKF: Tensor) -> Tensor:
        """Attend in ``layer``; rotary embedding is already applied to queries and keys. Returns ``[N, H, F]``."""
        ...


class CausalAttention:
    """Several whole sequences laid end to end; each token sees its own sequence up to itself.

    Costs the sum of the squares of the lengths: no mask over the pack is built. Works under autograd.

    Args:
        lengths: tokens of each sequence; they must add up to ``N``.
    """

    def __init__(self, lengths: Sequence[int]) -> None:
        if any(length < 1 for length in lengths):
            raise InputError("an empty sequence in a pack", expected="lengths of at least 1", mend="leave it out")
        self._lengths = list(lengths)

    def __call__(self, layer: int, q_NHF: Tensor, k_NKF: Tensor, v_NKF: Tensor) -> Tensor:
        """See ``Attention``."""
        del layer
        if has_kernels(q_NHF.device, q_NHF.dtype, q_NHF.shape[2]):
            return attend(q_NHF, k_NKF, v_NKF, self._work)
        if len(set(self._lengths)) == 1:  # equal lengths: one batched call
            size = self._lengths[0]
            q, k, v = (t.reshape(-1, size, *t.shape[1:]).transpose(1, 2) for t in (q_NHF, k_NKF, v_NKF))
            return _attend(q, k, v).transpose(1, 2).flatten(0, 1)
        outs = []
        parts = (torch.split(t, self._lengths) for t in (q_NHF, k_NKF, v_NKF))
        for q, k, v in zip(*parts, strict=True):
            out = _attend(*(t.transpose(0, 1).unsqueeze(0) for t in (q, k, v)))
            outs.append(out.squeeze(0).transpose(0, 1))
        return torch.cat(outs)

    @cached_property
    def _work(self) -> Work:
        starts = accumulate(self._lengths, initial=0)
        return Work(
            [
                Span(start, length, (Run(start, length, first_sees=1),))
                for start, length in zip(starts, self._lengths, strict=False)
            ]
        )


def _attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=q.shape[1] != k.shape[1])


class RMSNorm(nn.Module):
    """Root-mean-square norm (Zhang and Sennrich 2019), computed in float32 whatever the weights' type."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self._eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Normalise the last axis."""
        if x.dtype == torch.float32:
            return rms_norm(x, self.weight, self._eps)
        normed = F.rms_norm(x.float(), self.weight.shape, None, self._eps)
        return self.weight * normed.to(x.dtype)


class Product(Protocol):
    """Stands in for a layer's own product with its weight (see ``products`` and ``training.lora``)."""

    def __call__(self, x_NI: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """``[N, I]`` → ``[N, O]``."""
        ...


class Joint(Protocol):
    """Stands in for the products of several layers with the same input (see ``products``)."""

    def __call__(self, x_NI: Tensor, layers: Sequence[Linear]) -> tuple[Tensor, ...] | None:
        """``[N, I]`` → ``[N, O]`` of each layer; None: they shall multiply by themselves."""
        ...


class Lookup(Protocol):
    """Stands in for an embedding's own look-up (see ``products``)."""

    def rows(self, tokens_N: Tensor, weight: Tensor) -> Tensor:
        """``[N]`` → ``[N, D]``."""
        ...


class Linear(nn.Linear):
    """A linear layer that is not drawn at random when it is only a shape (that alone would import a compiler)."""

    adapter: Product | None = None

    def forward(self, x: Tensor) -> Tensor:
        """``x Wᵀ + bias``."""
        return super().forward(x) if self.adapter is None else self.adapter(x, self.weight, self.bias)

    def reset_parameters(self) -> None:
        """Draw the parameters unless they are on the meta device."""
        if not self.weight.is_meta:
            super().reset_parameters()


class Embedding(nn.Embedding):
    """Like ``Linear``: not drawn at random when it is only a shape."""

    adapter: Lookup | None = None

    def forward(self, tokens_N: Tensor) -> Tensor:
        """Rows of the tokens."""
        return super().forward(tokens_N) if self.adapter is None else self.adapter.rows(tokens_N, self.weight)

    def reset_parameters(self) -> None:
        """Draw the parameters unless they are on the meta device."""
        if not self.weight.is_meta:
            super().reset_parameters()


def _each(joint: Joint | None, layers: tuple[Linear, ...], x_NI: Tensor) -> tuple[Tensor, ...]:
    """What each layer makes of the same input."""
    made = None if joint is None else joint(x_NI, layers)
    return tuple(layer(x_NI) for layer in layers) if made is None else made


class SelfAttention(nn.Module):
    """Projections around the attention strategy."""

    joint: Joint | None = None

    def __init__(self, config: TransformerConfig, layer: int) -> None:
        super().__init__()
        self._layer = layer
        self._head = config.head_dim
        query, key = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
        self.q_proj = Linear(config.hidden, query, bias=config.attention_bias)
        self.k_proj = Linear(config.hidden, key, bias=config.attention_bias)
        self.v_proj = Linear(config.hidden, key, bias=config.attention_bias)
        self.o_proj = Linear(query, config.hidden, bias=config.output_bias)
        self.q_norm = RMSNorm(config.head_dim, config.rms_eps) if config.qk_norm else None
        self.k_norm = RMSNorm(config.head_dim, config.rms_eps) if config.qk_norm else None

    def forward(self, x_ND: Tensor, cos_NF: Tensor, sin_NF: Tensor, attention: Attention) -> Tensor:
        """Attend: ``[N, D]`` in and out."""
        made = _each(self.joint, self.joint_inputs(), x_ND)
        q, k, v = (part.view(part.shape[0], -1, self._head) for part in made)
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        out = attention(self._layer, _rotate(q, cos_NF, sin_NF), _rotate(k, cos_NF, sin_NF), v)
        return self.o_proj(out.flatten(-2))  # type: ignore[no-any-return]

    def joint_inputs(self) -> tuple[Linear, ...]:
        """Layers that multiply the same input."""
        return self.q_proj, self.k_proj, self.v_proj


def _rotate(x: Tensor, cos_NF: Tensor, sin_NF: Tensor) -> Tensor:
    """Rotary embedding by halves: the pair of a coordinate is half a head away (``sin`` carries the sign).

    Where ``cos`` is narrower than a head, the coordinates beyond it are left as they are.
    """
    width = cos_NF.shape[-1]
    if width < x.shape[-1]:
        return torch.cat((_rotate(x[..., :width], cos_NF, sin_NF), x[..., width:]), dim=-1)
    return rotate_halves(x, cos_NF.unsqueeze(1), sin_NF.unsqueeze(1))


class _GatedDown(torch.autograd.Function):
    """``down(silu(gate) · up)`` that keeps ``gate`` and ``up`` for the backward pass and makes the rest again.

    The product and the activated gate are half of what a layer would keep; making them again costs no matrix product.
    """

    @staticmethod
    def forward(ctx: Any, gate_NI: Tensor, up_NI: Tensor, weight_DI: Tensor) -> Tensor:
        ctx.save_for_backward(gate_NI, up_NI, weight_DI)
        return F.linear(F.silu(gate_NI) * up_NI, weight_DI)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        (grad_ND,) = grads
        gate_NI, up_NI, weight_DI = ctx.saved_tensors
        inner_NI = grad_ND @ weight_DI
        silu_NI = F.silu(gate_NI)
        gate_grad_NI = torch.ops.aten.silu_backward(inner_NI * up_NI, gate_NI)
        up_grad_NI = inner_NI.mul_(silu_NI)
        weight_grad = grad_ND.T @ silu_NI.mul_(up_NI) if ctx.needs_input_grad[2] else None
        return gate_grad_NI, up_grad_NI, weight_grad


def gated_down(gate_NI: Tensor, up_NI: Tensor, weight_DI: Tensor) -> Tensor:
    """``down(silu(gate) · up)``, sparing memory when gradients are taken (see ``_GatedDown``)."""
    return _GatedDown.apply(gate_NI, up_NI, weight_DI)  # type: ignore[no-any-return, no-untyped-call]


class Mlp(nn.Module):
    """SwiGLU (Shazeer 2020)."""

    joint: Joint | None = None

    def __init__(self, hidden: int, intermediate: int) -> None:
        super().__init__()
        self.gate_proj = Linear(hidden, intermediate, bias=False)
        self.up_proj = Linear(hidden, intermediate, bias=False)
        self.down_proj = Linear(intermediate, hidden, bias=False)

    def forward(self, x_ND: Tensor) -> Tensor:
        """``[N, D]`` in and out."""
        gate_NI, up_NI = _each(self.joint, self.joint_inputs(), x_ND)
        if torch.is_grad_enabled():
            if self.down_proj.adapter is None:
                return gated_down(gate_NI, up_NI, self.down_proj.weight)
            if isinstance(self.down_proj.adapter, InPlace):
                return self.down_proj.adapter.gated_down(gate_NI, up_NI, self.down_proj.weight)
            return self.down_proj(F.silu(gate_NI) * up_NI)  # type: ignore[no-any-return]
        return self.down_proj(gate(gate_NI, up_NI))  # type: ignore[no-any-return]

    def joint_inputs(self) -> tuple[Linear, ...]:
        """Layers that multiply the same input."""
        return self.gate_proj, self.up_proj


class Block(nn.Module):
    """One layer: attention and MLP, each behind a norm and beside a residual."""

    def __init__(self, config: TransformerConfig, layer: int) -> None:
        super().__init__()
        self.self_attn = SelfAttention(config, layer)
        self.mlp: Mlp | Experts = Mlp(config.hidden, config.intermediate)
        if config.num_experts and layer >= config.num_dense_layers:
            self.mlp = Experts(config, layer - config.num_dense_layers, lambda size: Mlp(config.hidden, size))
        self.input_layernorm = RMSNorm(config.hidden, config.rms_eps)
        self.post_attention_layernorm = RMSNorm(config.hidden, config.rms_eps)

    def forward(
        self, x_ND: Tensor, cos_NF: Tensor, sin_NF: Tensor, attention: Attention, routing: Routing | None = None
    ) -> Tensor:
        """``[N, D]`` in and out."""
        x_ND = x_ND + self.self_attn(self.input_layernorm(x_ND), cos_NF, sin_NF, attention)
        inner_ND = self.post_attention_layernorm(x_ND)
        if isinstance(self.mlp, Experts):
            return x_ND + self.mlp(inner_ND, routing)  # type: ignore[no-any-return]
        return x_ND + self.mlp(inner_ND)  # type: ignore[no-any-return]


class Body(nn.Module):
    """Everything below the output head; named ``model`` in Hugging Face's state dicts."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.embed_tokens = Embedding(config.vocab, config.hidden)
        self.layers = nn.ModuleList(Block(config, layer) for layer in range(config.num_layers))
        self.norm = RMSNorm(config.hidden, config.rms_eps)


class Transformer(nn.Module):
    """A decoder of the Llama family over flat tokens.

    Args:
        config: the shape.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.model = Body(config)
        self.lm_head = None if config.tied_embeddings else Linear(config.hidden, config.vocab, bias=False)
        self.output: Product | None = None
        """What stands in for the product with the output head's weight."""
        self.checkpointing = False
        """Whether layers keep nothing for the backward pass and are computed again in it."""
        # Not a buffer: it must stay float32 when the module is cast, and real when it is built on the meta device.
        self._frequencies = {torch.device("cpu"): _inverse_frequencies(config)}

    def forward(
        self, tokens_N: Tensor, positions_N: Tensor, attention: Attention, routing: Routing | None = None
    ) -> Tensor:
        """Hidden states after the final norm, ``[N, D]``.

        Args:
            tokens_N: token ids, int64.
            positions_N: position of each token in its own sequence, int64.
            attention: who sees whom.
            routing: which experts see which token; None: those with the best scores. Dense models do not ask.
        """
        x_ND = self.model.embed_tokens(tokens_N)
        cos_NF, sin_NF = self._rotation(positions_N, x_ND.dtype)
        spare = self.checkpointing and torch.is_grad_enabled()
        for block in self.model.layers:
            if spare:
                x_ND = checkpoint(block, x_ND, cos_NF, sin_NF, attention, routing, use_reentrant=False)
            else:
                x_ND = block(x_ND, cos_NF, sin_NF, attention, routing)
        return self.model.norm(x_ND)  # type: ignore[no-any-return]

    def logits(self, hidden_MD: Tensor) -> Tensor:
        """Logits ``[M, V]`` of hidden states; give it only the positions that need them, for the head is large."""
        weight = self.output_weight
        return F.linear(hidden_MD, weight) if self.output is None else self.output(hidden_MD, weight, None)

    @property
    def output_weight(self) -> Tensor:
        """Weight of the output head, ``[V, D]``; that of the embedding where the two are tied."""
        return self.model.embed_tokens.weight if self.lm_head is None else self.lm_head.weight

    def linear_layers(self) -> list[Linear]:
        """The linear layers below the output head, in order."""
        return [module for module in self.model.modules() if isinstance(module, Linear)]

    def joint_layers(self) -> list[SelfAttention | Mlp]:
        """Modules with layers that multiply the same input."""
        return [module for module in self.model.modules() if isinstance(module, SelfAttention | Mlp)]

    def initialise(self, seed: int, std: float = 0.02) -> Transformer:
        """Draw all matrices from a normal distribution, set norms to 1 and biases to 0; returns itself."""
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                if name.endswith("bias"):
                    parameter.zero_()
                elif parameter.ndim == 1:
                    parameter.fill_(1.0)
                else:
                    parameter.copy_(torch.randn(parameter.shape, generator=generator) * std)
        return self

    def _rotation(self, positions_N: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        device = positions_N.device
        if device not in self._frequencies:
            self._frequencies[device] = self._frequencies[torch.device("cpu")].to(device)
        angles = positions_N.float().unsqueeze(1) * self._frequencies[device]
        cos, sin = angles.cos(), angles.sin()
        return torch.cat((cos, cos), dim=1).to(dtype), torch.cat((-sin, sin), dim=1).to(dtype)


def _inverse_frequencies(config: TransformerConfig) -> Tensor:
    """Angular frequency of each coordinate pair, ``[F / 2]``; Llama 3's stretching of low frequencies if asked for.

    Source of the stretching: Llama 3.1's published rule. Wavelengths beyond ``original / low`` are stretched by
    ``factor``, those below ``original / high`` are kept, and between them the two are blended linearly.
    """
    rotated = int(config.head_dim * config.rotary_share)
    half = torch.arange(0, rotated, 2, dtype=torch.float32, device="cpu")
    plain = 1.0 / config.rope_theta ** (half / rotated)
    scaling = config.rope_scaling
    if scaling is None:
        return plain
    rotations = scaling.original_context * plain / (2 * math.pi)  # turns within the original context
    share = ((rotations - scaling.low) / (scaling.high - scaling.low)).clamp(0.0, 1.0)
    return plain / scaling.factor * (1 - share) + plain * share
