"""The trainer: weights, gradients and optimizer of one model. It does not know which algorithm runs.

Gradients of the *summed* loss are accumulated pack by pack, so memory is bounded by one pack however many groups a
step turns out to hold; the step divides once by the algorithm's denominator. Only positions that predict a trained
token go through the output head, a chunk at a time: logits of all tokens never exist together.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from flightschool.engines import Attention, Transformer
from flightschool.engines.experts import ReplayedRouting
from flightschool.engines.folders import LoadedModel, load_model, read_state, save_model
from flightschool.engines.grammar import GrammarBook
from flightschool.engines.memory import trim
from flightschool.engines.products import accumulate_in_place
from flightschool.records import WeightsVersion
from flightschool.rollouts.routes import routes_of
from flightschool.training.algorithms import algorithm_of
from flightschool.training.folders import BlobFolder, RunFolder, durable_folder
from flightschool.training.head import PackTensors, head_losses, score_all
from flightschool.training.kept import keep_batch
from flightschool.training.loss import LossSums
from flightschool.training.messages import Accumulated, Manifest, Stepped, StepStats, TrainerSpec, TrainGroup
from flightschool.training.packing import Pack, pack_groups
from flightschool.training.publication import make_sink
from flightschool.training.settings import TrainingSettings
from flightschool.training.shared_prefix import SharedPrefixAttention
from flightschool.training.staleness import check_bound, check_fresh
from flightschool.training.stem import pack_over_stem
from flightschool.training.stem_attention import Stem
from flightschool.training.weights import PlainWeights, Weights, make_weights

__all__ = ["TorchTrainer", "trained_names", "warmed_up", "write_checkpoint"]

WEIGHTS_FILE = "model.safetensors"
"""Of a checkpoint: what ``Weights.state`` gives."""


class TorchTrainer:
    """Trains in place; see ``server`` for the conversation it is driven by.

    Args:
        spec: where everything is.

    Raises:
        ModelFolderError: the model cannot be loaded.
    """

    _fused = True
    """Whether the optimizer's step is one kernel."""
    _in_place = True
    """Whether the backward pass may add to gradients itself (see ``engines.products``)."""
    _may_stem = True
    """Whether what all packs begin with may be a pass of its own."""

    def __init__(self, spec: TrainerSpec) -> None:
        self.settings = TrainingSettings.model_validate_json(spec.settings)
        torch.set_num_threads(self.settings.num_threads)
        torch.manual_seed(self.settings.seed)
        self._spec = spec
        self._run_dir = Path(spec.run_dir)
        self._device = torch.device(self.settings.device)
        self._dtype: torch.dtype = getattr(torch, self.settings.dtype)
        self._loaded: LoadedModel = load_model(spec.model, device=self._device, dtype=self._dtype)
        self.model = self._prepared(self._loaded.model)
        self.model.checkpointing = self.settings.gradient_checkpointing
        self._book = GrammarBook(self._loaded.tokenizer, self._loaded.config.vocab)
        self._parameters = dict(self.model.named_parameters())
        self._weights = self._make_weights()
        if self._in_place and isinstance(self._weights, PlainWeights):
            accumulate_in_place(self.model)
        self._optimizer = torch.optim.AdamW(
            self._weights.trained, lr=self.settings.learning_rate, weight_decay=0.0, fused=self._fused
        )
        self._algorithm = algorithm_of(self.settings)
        read = lru_cache(maxsize=2)(BlobFolder(RunFolder(self._run_dir).routing).get)  # an attempt's spans share one
        replays = self._loaded.config.num_experts > 0 and self.settings.routing_replay
        self._routes = (lambda reference: routes_of(reference, read)) if replays else None
        self._reference = self._load_reference()
        self.step_number = spec.step
        if spec.checkpoint:
            self._restore(Path(spec.checkpoint))
        self._writer = make_sink(self.settings, Path(spec.weights), self._parameters) if spec.weights else None
        self._clear()

    def _prepared(self, model: Transformer) -> Transformer:
        return model

    def _make_weights(self) -> Weights:
        trained = trained_names(self._parameters, self._loaded.config.num_layers, self.settings.trained_layers)
        base = read_state(self._spec.model) if self.settings.lora_rank else {}
        return make_weights(self.model, trained, self.settings, base.__getitem__)

    @property
    def num_parameters(self) -> int:
        """Parameters, tied ones once."""
        return sum(parameter.numel() for parameter in self._parameters.values())

    def publish(self) -> WeightsVersion:
        """Make the present weights visible under the present step."""
        version = WeightsVersion(run=self._spec.run, incarnation=self._spec.incarnation, step=self.step_number)
        return self._writer.write(self._parameters, version) if self._writer else version

    # ------------------------------------------------------------------ gradient

    def accumulate(self, *groups: TrainGroup) -> Accumulated:
        """Add the gradient of groups, packed together: what their prompts share goes through the model once.

        Raises:
            TokenContractError: a completion is not token-exact, or too old for the coming step.
        """
        started = time.perf_counter()
        for group in groups:
            self._check_age(group)
        tokens, packs = self._packed(*groups)
        before = self._sums.num_tokens
        stem, reference = self._stems(tokens)
        for pack in packs:
            self._sums.add(self._backward(pack, stem, reference))
        if stem is not None:
            stem.backward()
            self._weights.collect()
        self._groups += groups
        members = [member for group in groups for member in group.members]
        trained = {target.member for pack in packs for target in pack.targets}
        self._num_members += len(trained)
        self._square_advantages += math.fsum(members[place].advantage ** 2 for place in trained)
        num_forward = len(tokens) + sum(pack.num_tokens for pack in packs)
        self._num_forward += num_forward
        seconds = time.perf_counter() - started
        self._seconds += seconds
        return Accumulated(
            num_forward_tokens=num_forward,
            num_trained_tokens=int(self._sums.num_tokens - before),
            seconds=seconds,
        )

    def _check_age(self, group: TrainGroup) -> None:
        for member in group.members:
            check_bound(
                member.spans,
                where=f"{group.id} {member.attempt}",
                version=self.step_number,
                max_staleness=self.settings.max_staleness,
            )

    def _packed(self, *groups: TrainGroup) -> tuple[tuple[int, ...], list[Pack]]:
        """What all packs begin with, and the packs."""
        if not self._may_stem or self._routes is not None or self.model.checkpointing:
            return (), self._packs(*groups)
        return pack_over_stem(groups, newest_step=self.step_number, max_tokens=self.settings.max_pack_tokens)

    def _stems(self, tokens: Sequence[int]) -> tuple[Stem | None, Stem | None]:
        """The stem through the model, and through the one that the run began with where the loss asks for it."""
        if not tokens:
            return None, None
        reference = None if self._reference is None else Stem(self._reference, tokens, self._device)
        return Stem(self.model, tokens, self._device), reference

    def _packs(self, *groups: TrainGroup) -> list[Pack]:
        return pack_groups(
            groups, newest_step=self.step_number, max_tokens=self.settings.max_pack_tokens, routes=self._routes
        )

    def _backward(self, pack: Pack, stem: Stem | None, reference: Stem | None) -> LossSums:
        tokens_N = torch.tensor(pack.tokens_N, dtype=torch.long, device=self._device)
        positions_N = torch.tensor(pack.positions_N, dtype=torch.long, device=self._device)
        routing = None
        if self._routes is not None:
            routing = ReplayedRouting(pack.routes_N, self._loaded.config, self._device)
            self._num_replayed += routing.num_replayed
        hidden_ND = self.model(tokens_N, positions_N, self._attention(pack, stem), routing)
        # The head works on a leaf of its own: its chunks go backward one by one, the body once at the end.
        leaf_ND = hidden_ND.detach().requires_grad_(True)
        targets = PackTensors.of(pack, self._device, self._book)
        if self._reference is not None:
            attention = self._attention(pack, reference)
            targets = replace(targets, reference_M=self._reference_logprobs(tokens_N, positions_N, attention, targets))
        sums = self._head(leaf_ND, targets)
        if leaf_ND.grad is not None:
            torch.autograd.backward(hidden_ND, leaf_ND.grad)
        self._weights.collect()
        return sums

    def _attention(self, pack: Pack, stem: Stem | None) -> SharedPrefixAttention:
        return SharedPrefixAttention(pack, self._device, stem, self._dtype)

    def _head(self, leaf_ND: Tensor, targets: PackTensors) -> LossSums:
        return head_losses(self.model.logits, leaf_ND, targets, self._algorithm.shape)

    def _load_reference(self) -> Transformer | None:
        kl = self._algorithm.shape.kl
        if kl.weight == 0.0 or kl.reference == "sampling":
            return None
        return load_model(self._spec.model, device=self._device, dtype=self._dtype).model.requires_grad_(False)

    @torch.no_grad()
    def _reference_logprobs(
        self, tokens_N: Tensor, positions_N: Tensor, attention: Attention, targets: PackTensors
    ) -> Tensor:
        assert self._reference is not None
        hidden_ND = self._reference(tokens_N, positions_N, attention)
        return score_all(self._reference.logits, hidden_ND, targets)

    # ------------------------------------------------------------------ step

    def step(self, rate: float = 1.0, *, num_flat_members: int = 0) -> Stepped:
        """Divide, clip, apply and publish; or skip, if loss or gradient are not finite.

        Args:
            rate: share of the learning rate that this step takes.
            num_flat_members: members of groups without a gradient, where they count in means over members.
        """
        started = time.perf_counter()
        sums = self._sums
        check_fresh(
            fresh=(sums.fresh_mismatch, int(sums.num_fresh)),
            stale=(sums.stale_mismatch, int(sums.num_stale)),
            floor=self.settings.mismatch_floor,
            where=f"step {self.step_number}",
        )
        denominator = self._step_denominator(num_flat_members) * self._advantage_scale()
        gradients = [tensor.grad for tensor in self._weights.trained if tensor.grad is not None]
        norm = self._total_norm(gradients) / denominator if gradients else 0.0
        version = None
        if math.isfinite(norm) and math.isfinite(self._sums.loss):
            scale = min(1.0, self.settings.max_grad_norm / (norm + 1e-6)) / denominator
            torch._foreach_mul_(gradients, scale)
            for group in self._optimizer.param_groups:
                group["lr"] = rate * warmed_up(self.settings, self.step_number)
            self._optimizer.step()
            self._weights.follow()
            self.step_number += 1
            self._optimizer.zero_grad(set_to_none=True)
            trim()  # what is published needs as much once more
            version = self.publish()
        else:
            self._keep_batch()
        stats = self._stats(norm, denominator, self._seconds + time.perf_counter() - started)
        self._clear()
        return Stepped(version=version, stats=stats)

    def _total_norm(self, gradients: list[Tensor]) -> float:
        return float(torch.nn.utils.get_total_norm(gradients))

    def _step_denominator(self, num_flat_members: int = 0) -> float:
        num_members = self._num_members + num_flat_members
        match self._algorithm.shape.denominator:
            case "token_mean":
                return max(1.0, self._sums.num_tokens)
            case "sequence_mean":
                return max(1.0, float(num_members))
            case "constant":
                return max(1.0, float(num_members * self.settings.max_new_tokens))

    def _advantage_scale(self) -> float:
        if not self._algorithm.batch_scale or self._square_advantages == 0.0:
            return 1.0
        return math.sqrt(self._square_advantages / self._num_members)

    def _stats(self, norm: float, denominator: float, seconds: float) -> StepStats:
        sums = self._sums
        count = max(1.0, sums.num_tokens)
        return StepStats(
            loss=sums.loss / denominator,
            grad_norm=norm,
            num_trained_tokens=int(sums.num_tokens),
            num_forward_tokens=self._num_forward,
            entropy=sums.entropy / count,
            surprisal=sums.surprisal / count,
            ess=sums.ess,
            k1=sums.k1 / count,
            k3=sums.k3 / count,
            clip_share=sums.num_clipped / count,
            tis_share=sums.num_truncated / count,
            reject_share=sums.num_rejected / count,
            kl=sums.kl / count,
            advantage_scale=self._advantage_scale(),
            fresh_mismatch=sums.fresh_mismatch / max(1.0, sums.num_fresh),
            stale_mismatch=sums.stale_mismatch / max(1.0, sums.num_stale),
            max_abs_mismatch=sums.max_abs_mismatch,
            replayed_share=self._num_replayed / max(1, self._num_forward),
            seconds=seconds,
        )

    def _clear(self) -> None:
        for tensor in self._weights.trained:  # kept and zeroed: fresh pages cost more than a memset
            if tensor.grad is not None:
                tensor.grad.zero_()
        self._sums = LossSums()
        self._groups: list[TrainGroup] = []
        self._num_members = self._num_forward = self._num_replayed = 0
        self._seconds = self._square_advantages = 0.0

    def _keep_batch(self) -> None:
        folder = RunFolder(self._run_dir).kept
        keep_batch(folder, self._groups, incarnation=self._spec.incarnation, step=self.step_number)

    # ------------------------------------------------------------------ durability

    def save(self, directory: Path, manifest: Manifest) -> None:
        """A checkpoint: weights, optimizer and manifest by one rename."""
        write_checkpoint(directory, self._weights.state(), self._optimizer.state_dict(), manifest)

    def export(self, directory: Path) -> str:
        """Write the model as a Hugging Face folder; returns its digest."""
        return save_model(self._loaded, directory)

    def _restore(self, directory: Path) -> None:
        self._weights.restore(load_file(directory / WEIGHTS_FILE))
        self._load_optimizer(torch.load(directory / "optimizer.pt", weights_only=True))

    def _load_optimizer(self, state: dict[str, Any]) -> None:
        self._optimizer.load_state_dict(state)


def write_checkpoint(
    directory: Path, weights: dict[str, Tensor], optimizer: dict[str, Any], manifest: Manifest
) -> None:
    """Weights, optimizer and manifest become a checkpoint by one rename."""
    with durable_folder(directory) as fresh:
        save_file(weights, fresh / WEIGHTS_FILE)
        torch.save(optimizer, fresh / "optimizer.pt")
        (fresh / "manifest.json").write_bytes(msgspec.json.encode(manifest))


def warmed_up(settings: TrainingSettings, step: int) -> float:
    """Learning rate of the step that follows ``step`` made ones."""
    return settings.learning_rate * min(1.0, (step + 1) / max(1, settings.warmup_steps))


def trained_names(names: Iterable[str], num_layers: int, trained_layers: int | None) -> list[str]:
    """Parameters that are trained, in order: all, or those of the topmost layers and of the final norm.

    Args:
        names: all parameters, as Hugging Face names them.
        num_layers: layers of the model.
        trained_layers: how many of them are trained; None or more than there are: everything.
    """
    names = [name for name in names if not name.endswith("e_score_correction_bias")]  # balances load, no gradient
    if trained_layers is None or trained_layers >= num_layers:
        return names
    first = num_layers - trained_layers
    layer = re.compile(r"^model\.layers\.(\d+)\.")
    matches = ((name, layer.match(name)) for name in names)
    return [
        name
        for name, match in matches
        if (match is not None and int(match.group(1)) >= first) or name.startswith("model.norm.")
    ]
