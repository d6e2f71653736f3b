"""What of a model trains, and what is served of it: three ways behind one face, so that the trainer knows none of them.

==================== ================= =========================================== ==============================
way                  when              optimizer steps on                          kept in a checkpoint
==================== ================= =========================================== ==============================
``PlainWeights``     float32           the parameters themselves                   all parameters
``MasterWeights``    bfloat16          float32 copies; the model follows, rounded  all, masters in float32
``LowRankWeights``   ``lora_rank`` > 0 the factors of each linear layer (``lora``) the factors
==================== ================= =========================================== ==============================

bf16 keeps eight bits of a number: a step of 1e-5 relative to a weight would be rounded away, so it needs the masters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, TypeAlias

import torch
from torch import Tensor, nn

from flightschool.errors import StoreError
from flightschool.training.lora import Adaptable, adapt, merge
from flightschool.training.settings import TrainingSettings

__all__ = ["LowRankTargets", "LowRankWeights", "MasterWeights", "PlainWeights", "Weights", "make_weights"]


LowRankTargets: TypeAlias = Callable[[], tuple[Mapping[str, Adaptable], Callable[[str], Tensor]]]
"""→ layers by the name of their weight, and name → W₀ (see ``lora``)."""


class Weights(Protocol):
    """See the module."""

    trained: Sequence[Tensor]
    """What the optimizer steps on."""

    def collect(self) -> None:
        """After a backward pass: gradients of the model become gradients of ``trained``."""
        ...

    def follow(self) -> None:
        """After a step, or when factors were restored: the model is made of ``trained`` again."""
        ...

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint keeps, on the CPU."""
        ...

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Back to what a checkpoint kept."""
        ...


def make_weights(
    model: nn.Module, trained: Sequence[str], settings: TrainingSettings, low_rank: LowRankTargets
) -> Weights:
    """The way that the settings ask for; the model's parameters are told whether they need gradients.

    Args:
        model: whose weights they are.
        trained: names of parameters that train.
        settings: of the run.
        low_rank: finds what a low-rank change is made of; called only if the settings ask for one.
    """
    names = set(trained)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in names and settings.lora_rank == 0)
    if settings.lora_rank:
        return LowRankWeights(*low_rank(), settings)
    if settings.dtype == "float32":
        return PlainWeights(model, trained)
    return MasterWeights(model, trained)


class PlainWeights:
    """The parameters train themselves."""

    def __init__(self, model: nn.Module, trained: Iterable[str]) -> None:
        self._parameters = dict(model.named_parameters())
        self.trained: Sequence[Tensor] = [self._parameters[name] for name in trained]

    def collect(self) -> None:
        """Nothing to do."""

    def follow(self) -> None:
        """Nothing to do."""

    def state(self) -> dict[str, Tensor]:
        """All parameters."""
        return _on_cpu(self._parameters)

    @torch.no_grad()
    def restore(self, state: Mapping[str, Tensor]) -> None:
        """See ``Weights``."""
        _check_names(self._parameters, state)
        for name, parameter in self._parameters.items():
            parameter.copy_(state[name])


class MasterWeights:
    """float32 copies train; the model holds their rounded values."""

    def __init__(self, model: nn.Module, trained: Iterable[str]) -> None:
        self._parameters = dict(model.named_parameters())
        self._masters = {name: self._parameters[name].detach().float().clone().requires_grad_(True) for name in trained}
        self.trained: Sequence[Tensor] = list(self._masters.values())

    @torch.no_grad()
    def collect(self) -> None:
        """Gradients are summed in float32: one group's may be small beside the sum."""
        for name, master in self._masters.items():
            parameter = self._parameters[name]
            if parameter.grad is None:
                continue
            if master.grad is None:
                master.grad = torch.zeros_like(master)
            master.grad.add_(parameter.grad)
            parameter.grad = None

    @torch.no_grad()
    def follow(self) -> None:
        """See ``Weights``."""
        for name, master in self._masters.items():
            self._parameters[name].copy_(master)

    def state(self) -> dict[str, Tensor]:
        """All parameters, those that train in float32."""
        return _on_cpu({**self._parameters, **self._masters})

    @torch.no_grad()
    def restore(self, state: Mapping[str, Tensor]) -> None:
        """See ``Weights``."""
        _check_names(self._parameters, state)
        for name, parameter in self._parameters.items():
            parameter.copy_(state[name])
            if name in self._masters:
                self._masters[name].copy_(state[name])


class LowRankWeights:
    """Factors train; the model holds the merged weights.

    Args:
        targets: layers by the name of their weight.
        base: name → W₀.
        settings: of the run.
    """

    def __init__(
        self, targets: Mapping[str, Adaptable], base: Callable[[str], Tensor], settings: TrainingSettings
    ) -> None:
        self._targets = targets
        alpha = 2.0 * settings.lora_rank if settings.lora_alpha is None else settings.lora_alpha
        self._adapters = adapt(self._targets, rank=settings.lora_rank, alpha=alpha, seed=settings.seed)
        self._base = base
        self.trained: Sequence[Tensor] = [
            factor for adapter in self._adapters.values() for factor in (adapter.a_RI, adapter.b_OR)
        ]

    def collect(self) -> None:
        """Nothing to do: gradients go to the factors."""

    def follow(self) -> None:
        """See ``Weights``."""
        merge(self._targets, self._adapters, self._base)

    def state(self) -> dict[str, Tensor]:
        """The factors, named after the weights that they change."""
        return _on_cpu(self._factors())

    @torch.no_grad()
    def restore(self, state: Mapping[str, Tensor]) -> None:
        """See ``Weights``."""
        factors = self._factors()
        _check_names(factors, state)
        for name, factor in factors.items():
            factor.copy_(state[name])
        self.follow()

    def _factors(self) -> dict[str, Tensor]:
        named: dict[str, Tensor] = {}
        for name, adapter in self._adapters.items():
            stem = name.removesuffix(".weight")
            named |= {f"{stem}.lora_A.weight": adapter.a_RI, f"{stem}.lora_B.weight": adapter.b_OR}
        return named


def _on_cpu(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}


def _check_names(wanted: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> None:
    wrong = sorted(wanted.keys() ^ given.keys()) or sorted(n for n in wanted if wanted[n].shape != given[n].shape)
    if wrong:
        raise StoreError(
            f"the checkpoint does not fit the run: {len(wrong)} tensor(s), for instance {wrong[0]}",
            where="checkpoint",
            expected="weights of the same model, trained in the same way",
            mend="go on with the settings that the run was started with",
        )
