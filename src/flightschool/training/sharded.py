"""One rank of a sharded trainer: FSDP2 (``torch.distributed.fsdp.fully_shard``) under the same trainer.

Every rank holds a part of weights, gradients and optimizer; a layer's weights are gathered while it computes and its
gradients are summed over the ranks and scattered. The members of a group are dealt out to the ranks. What differs from
one process is only that: credits, loss, denominators and the rule of the step are the same code, so losses agree to
rounding (tested on two processes over gloo; on CUDA devices the same code runs over NCCL, which no machine of this
project has shown yet).

All ranks must take part in every gathering, hence: ranks with fewer packs than others pass an empty one through the
model, a rank that refuses its tokens goes on with no gradient until all ranks refuse together, and whatever is written
(weights, checkpoints, models) is gathered by all and written by rank 0. Checkpoints are those of one process: a run may
go on with another number of ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import msgspec
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from flightschool.engines import Transformer
from flightschool.engines.folders import save_model
from flightschool.errors import TokenContractError
from flightschool.records import WeightsVersion
from flightschool.training.head import PackTensors
from flightschool.training.loss import LossSums
from flightschool.training.messages import Accumulated, Manifest, Stepped, TrainerSpec, TrainGroup
from flightschool.training.packing import Pack, Segment
from flightschool.training.settings import TrainingSettings
from flightschool.training.sharded_lead import ANOTHER_REFUSES
from flightschool.training.trainer import TorchTrainer, write_checkpoint
from flightschool.training.weights import PlainWeights, Weights

__all__ = ["RankTrainer", "join"]

_EMPTY = Pack(tokens_N=[0], positions_N=[0], segments=[Segment(0, 1, ())], targets=[], routes_N=[b""])
"""Goes through the model of a rank that has nothing to do."""
_BACKENDS = {"cuda": "nccl", "xpu": "xccl"}
"""What ranks talk over, by the type of their devices; gloo elsewhere."""


def join(spec: TrainerSpec, rank: int, meeting: Path) -> RankTrainer:
    """Meet the other ranks and build this one.

    Args:
        spec: of the trainer.
        rank: of this process.
        meeting: file in which the ranks find each other.
    """
    settings = TrainingSettings.model_validate_json(spec.settings)
    if settings.device != "cpu":
        torch.get_device_module(settings.device).set_device(rank)
    dist.init_process_group(
        _BACKENDS.get(settings.device, "gloo"),
        store=dist.FileStore(str(meeting), settings.num_trainers),  # type: ignore[attr-defined]
        rank=rank,
        world_size=settings.num_trainers,
    )
    return RankTrainer(spec)


class RankTrainer(TorchTrainer):
    """The trainer of one rank; a process group must be there.

    Args:
        spec: of the trainer; only rank 0 publishes.
    """

    _fused = False
    _in_place = False
    _may_stem = False  # ranks make equal numbers of passes

    def __init__(self, spec: TrainerSpec) -> None:
        self._rank, self._world = dist.get_rank(), dist.get_world_size()
        self._num_packs = 0
        self._refusal: TokenContractError | None = None
        super().__init__(spec if self._rank == 0 else msgspec.structs.replace(spec, weights=""))

    def _prepared(self, model: Transformer) -> Transformer:
        self._mesh = init_device_mesh(self._device.type, (self._world,))
        for part in (*model.model.layers, model):
            fully_shard(part, mesh=self._mesh)
        return model

    def _make_weights(self) -> Weights:
        weights = super()._make_weights()
        assert isinstance(weights, PlainWeights)
        return _ShardedWeights(self._parameters, weights)

    # ------------------------------------------------------------------ gradient

    def accumulate(self, *groups: TrainGroup) -> Accumulated:
        """See ``TorchTrainer``: this rank's members of each group."""
        parts = [
            [msgspec.structs.replace(group, members=group.members[rank :: self._world]) for group in groups]
            for rank in range(self._world)
        ]
        self._num_packs = max(len(super(RankTrainer, self)._packs(*part)) for part in parts)
        self._refusal = None
        for group in groups:
            self._check_age(group)
        done = super().accumulate(*parts[self._rank])
        self._groups[-len(groups) :] = groups
        counts = self._summed(
            [float(done.num_forward_tokens), float(done.num_trained_tokens), float(bool(self._refusal))]
        )
        if counts[2]:
            where = ", ".join(group.id for group in groups)
            raise self._refusal or TokenContractError(ANOTHER_REFUSES, where=where)
        return msgspec.structs.replace(done, num_forward_tokens=int(counts[0]), num_trained_tokens=int(counts[1]))

    def _packs(self, *groups: TrainGroup) -> list[Pack]:
        packs = super()._packs(*groups)
        return packs + [_EMPTY] * (self._num_packs - len(packs))

    def _head(self, leaf_ND: Tensor, targets: PackTensors) -> LossSums:
        try:
            sums = super()._head(leaf_ND, targets)
        except TokenContractError as error:
            self._refusal, sums = error, LossSums()
        if leaf_ND.grad is None or self._refusal is not None:
            leaf_ND.grad = torch.zeros_like(leaf_ND)
        return sums

    # ------------------------------------------------------------------ step

    def step(self, rate: float = 1.0, *, num_flat_members: int = 0) -> Stepped:
        """See ``TorchTrainer``; every rank knows the sums of all."""
        names = [field.name for field in fields(LossSums) if field.name != "max_abs_mismatch"]
        own = [getattr(self._sums, name) for name in names]
        totals = self._summed([*own, float(self._num_members), float(self._num_forward), self._square_advantages])
        for name, total in zip(names, totals, strict=False):
            setattr(self._sums, name, total)
        self._num_members, self._num_forward = int(totals[-3]), int(totals[-2])
        self._square_advantages = totals[-1]
        worst = torch.tensor(self._sums.max_abs_mismatch, dtype=torch.float64, device=self._device)
        dist.all_reduce(worst, dist.ReduceOp.MAX)
        self._sums.max_abs_mismatch = float(worst)
        gradients = [tensor.grad for tensor in self._weights.trained if tensor.grad is not None]
        torch._foreach_mul_(gradients, float(self._world))  # FSDP takes means over the ranks; the step divides sums
        return super().step(rate, num_flat_members=num_flat_members)

    def _summed(self, values: list[float]) -> list[float]:
        total = torch.tensor(values, dtype=torch.float64, device=self._device)
        dist.all_reduce(total)
        return [float(value) for value in total]

    def _total_norm(self, gradients: list[Tensor]) -> float:
        norm = torch.nn.utils.get_total_norm(gradients)
        return float(norm.full_tensor() if isinstance(norm, DTensor) else norm)

    def _keep_batch(self) -> None:
        if self._rank == 0:
            super()._keep_batch()

    # ------------------------------------------------------------------ what is written

    def publish(self) -> WeightsVersion:
        """See ``TorchTrainer``."""
        gathered = _Gathered(self._parameters)
        if self._writer is not None:
            version = WeightsVersion(run=self._spec.run, incarnation=self._spec.incarnation, step=self.step_number)
            return self._writer.write(gathered, version)
        for name in gathered:
            gathered[name]
        return WeightsVersion(run=self._spec.run, incarnation=self._spec.incarnation, step=self.step_number)

    def save(self, directory: Path, manifest: Manifest) -> None:
        """See ``TorchTrainer``."""
        weights, optimizer = self._weights.state(), _whole(self._optimizer.state_dict())
        if self._rank == 0:
            write_checkpoint(directory, weights, optimizer, manifest)

    def export(self, directory: Path) -> str:
        """See ``TorchTrainer``; only rank 0 knows the digest."""
        state = self._weights.state()
        return save_model(self._loaded, directory, state=state) if self._rank == 0 else ""

    def _load_optimizer(self, state: dict[str, Any]) -> None:
        sharded = self._weights.trained
        for place, entry in state["state"].items():
            like = sharded[place]
            for name, value in entry.items():
                if isinstance(like, DTensor) and isinstance(value, Tensor) and value.shape == like.shape:
                    entry[name] = distribute_tensor(value, like.device_mesh, like.placements)
        super()._load_optimizer(state)


class _ShardedWeights(PlainWeights):
    """Checkpoints hold whole tensors."""

    def __init__(self, parameters: Mapping[str, nn.Parameter], plain: PlainWeights) -> None:
        self._parameters = dict(parameters)
        self.trained = plain.trained

    def state(self) -> dict[str, Tensor]:
        """All parameters, gathered."""
        gathered = _Gathered(self._parameters)
        return {name: gathered[name].cpu().contiguous() for name in gathered}

    @torch.no_grad()
    def restore(self, state: Mapping[str, Tensor]) -> None:
        """See ``Weights``."""
        whole: dict[str, Tensor] = {}
        for name, parameter in self._parameters.items():
            assert isinstance(parameter, DTensor)
            whole[name] = distribute_tensor(
                state[name].to(parameter.device), parameter.device_mesh, parameter.placements
            )
        super().restore(whole)


class _Gathered(Mapping[str, Tensor]):
    """Parameters as whole tensors, gathered one at a time when they are looked at: by all ranks, in the same order."""

    def __init__(self, parameters: Mapping[str, Tensor]) -> None:
        self._parameters = parameters

    def __getitem__(self, name: str) -> Tensor:
        found = self._parameters[name].detach()
        return found.full_tensor() if isinstance(found, DTensor) else found

    def __iter__(self) -> Iterator[str]:
        return iter(self._parameters)

    def __len__(self) -> int:
        return len(self._parameters)


def _whole(state: dict[str, Any]) -> dict[str, Any]:
    """An optimizer's state with whole tensors."""
    entries = {
        place: {
            name: value.full_tensor().cpu() if isinstance(value, DTensor) else value for name, value in entry.items()
        }
        for place, entry in state["state"].items()
    }
    return {**state, "state": entries}
