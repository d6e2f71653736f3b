"""Mixture of experts as GLM-4.5 and its kin have it: a router with sigmoid scores, routed experts, a shared one.

    s = σ(x Wᵀ)            scores, float32;  chosen = the k experts with the largest s + b
    w = s[chosen] / Σ s[chosen] · c
    y = Σ w_e · expert_e(x) + shared(x)

b balances load and has no gradient; it decides who is chosen and never how much they count (DeepSeek-V3,
arXiv:2412.19437, section 2.1.2). Choosing is a step function: a rounding difference between engine and trainer changes
the expert, and with it the log-probability by far more than rounding. So who chooses is a strategy (``Routing``): the
engine records its choices, and the trainer replays them ("R3", arXiv:2510.11370). Weights w always follow the live
scores, so the router learns.

Shape letters: ``N`` flat tokens, ``D`` hidden size, ``E`` experts, ``X`` chosen experts, ``L`` layers with experts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from flightschool.engines.architecture import TransformerConfig
from flightschool.errors import TokenContractError

__all__ = ["Experts", "RecordedRouting", "ReplayedRouting", "Routing", "best_experts"]

_ROUTE = np.dtype("<u2")
"""How one chosen expert is written down."""


class Routing(Protocol):
    """Decides which experts see which token."""

    def __call__(self, layer: int, choice_NE: Tensor, num: int) -> Tensor:
        """Experts of each token, ``[N, num]``.

        Args:
            layer: counted among the layers with experts.
            choice_NE: what experts are chosen by, larger is better.
            num: how many a token has.
        """
        ...


def best_experts(choice_NE: Tensor, num: int) -> Tensor:
    """The usual choice: the largest, in falling order."""
    return choice_NE.topk(num, dim=-1).indices


class RecordedRouting:
    """Chooses as usual and remembers."""

    def __init__(self) -> None:
        self._chosen: list[Tensor] = []

    def __call__(self, layer: int, choice_NE: Tensor, num: int) -> Tensor:
        """See ``Routing``."""
        del layer  # layers come in order
        chosen_NX = best_experts(choice_NE, num)
        self._chosen.append(chosen_NX)
        return chosen_NX

    def rows(self) -> list[bytes]:
        """What was chosen for each token: ``L · X`` little-endian 16-bit numbers."""
        table = torch.stack(self._chosen, dim=1).flatten(1).cpu().numpy().astype(_ROUTE)
        width = table.shape[1] * _ROUTE.itemsize
        data = table.tobytes()
        return [data[place : place + width] for place in range(0, len(data), width)]


class ReplayedRouting:
    """Chooses as was recorded; a token without a record gets the usual choice.

    Args:
        rows_N: of ``RecordedRouting.rows``, empty where nothing was recorded.
        config: of the model.
        device: where it computes.

    Raises:
        TokenContractError: a record is of another model.
    """

    def __init__(self, rows_N: Sequence[bytes], config: TransformerConfig, device: torch.device | str = "cpu") -> None:
        layers = config.num_layers - config.num_dense_layers
        shape = (len(rows_N), layers, config.experts_per_token)
        width = layers * config.experts_per_token * _ROUTE.itemsize
        if any(row and len(row) != width for row in rows_N):
            raise TokenContractError(
                "recorded experts do not fit the model",
                expected=f"{layers} layers with {config.experts_per_token} experts a token",
                mend="replay what an engine of the same model recorded",
            )
        missing = b"\xff" * width
        data = b"".join(row or missing for row in rows_N)
        chosen = np.frombuffer(data, dtype=_ROUTE).reshape(shape).astype(np.int64)
        known = np.array([bool(row) for row in rows_N], dtype=bool)
        if known.any() and int(chosen[known].max(initial=0)) >= config.num_experts:
            raise TokenContractError(
                "a recorded expert does not exist", expected=f"numbers below {config.num_experts}", mend="see above"
            )
        self._chosen_NLX = torch.from_numpy(chosen).to(device)
        self._known_N1 = torch.from_numpy(known).unsqueeze(1).to(device)
        self.num_replayed = int(known.sum())
        """Tokens whose experts are replayed."""

    def __call__(self, layer: int, choice_NE: Tensor, num: int) -> Tensor:
        """See ``Routing``."""
        return torch.where(self._known_N1, self._chosen_NLX[:, layer], best_experts(choice_NE, num))


class Router(nn.Module):
    """Scores of the experts; parameters are named as in GLM's files."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(config.num_experts, config.hidden))
        self.e_score_correction_bias = nn.Parameter(torch.zeros(config.num_experts), requires_grad=False)

    def forward(self, x_ND: Tensor) -> Tensor:
        """``[N, E]`` in float32: experts must not change with the type of the rest."""
        return F.linear(x_ND.float(), self.weight.float()).sigmoid()


class Experts(nn.Module):
    """The feed-forward part of a layer with experts.

    Args:
        config: the shape.
        layer: counted among the layers with experts.
        make_mlp: an expert of a given inner size.
    """

    def __init__(self, config: TransformerConfig, layer: int, make_mlp: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self._layer = layer
        self._num_chosen = config.experts_per_token
        self._normalised = config.normalised_routing
        self._scale = config.routed_scaling
        self.gate = Router(config)
        self.experts = nn.ModuleList(make_mlp(config.expert_intermediate) for _ in range(config.num_experts))
        shared = config.expert_intermediate * config.num_shared_experts
        self.shared_experts = make_mlp(shared) if shared else None

    def forward(self, x_ND: Tensor, routing: Routing | None) -> Tensor:
        """``[N, D]`` in and out."""
        scores_NE = self.gate(x_ND)
        choice_NE = scores_NE.detach() + self.gate.e_score_correction_bias
        if routing is None:
            chosen_NX = best_experts(choice_NE, self._num_chosen)
        else:
            chosen_NX = routing(self._layer, choice_NE, self._num_chosen)
        weights_NX = scores_NE.gather(1, chosen_NX)
        if self._normalised:
            weights_NX = weights_NX / (weights_NX.sum(dim=-1, keepdim=True) + 1e-20)
        weights_NX = (weights_NX * self._scale).to(x_ND.dtype)
        out_ND = torch.zeros_like(x_ND) if self.shared_experts is None else self.shared_experts(x_ND)
        for number, expert in enumerate(self.experts):
            rows, places = torch.where(chosen_NX == number)
            if len(rows) or torch.is_grad_enabled():  # an unused expert has a gradient too, of zeros
                out_ND = out_ND.index_add(0, rows, expert(x_ND[rows]) * weights_NX[rows, places].unsqueeze(1))
        return out_ND
