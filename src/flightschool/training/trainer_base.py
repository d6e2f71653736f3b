"""What every trainer does, whatever makes hidden states and logits: gradients, step, figures, durability.

Gradients of the *summed* loss are accumulated pack by pack, so memory is bounded by one pack however many groups a
step turns out to hold; the step divides once by the algorithm's denominator. Only positions that predict a trained
token go through the output head, a chunk at a time: logits of all tokens never exist together.

A trainer of a kind of model says how it is loaded and laid out, and what its hidden states and logits are: ``trainer``
for our own transformer, ``generic`` for any other that transformers loads.
"""

from __future__ import annotations

import math
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from flightschool.engines.grammar import GrammarBook
from flightschool.engines.memory import keep_freed_memory, trim
from flightschool.errors import FlightschoolError, StoreError
from flightschool.records import WeightsVersion
from flightschool.training.algorithms import algorithm_of
from flightschool.training.checkpoints import write_manifest
from flightschool.training.folders import RunFolder, durable_folder
from flightschool.training.head import PackTensors, head_losses
from flightschool.training.kept import keep_batch
from flightschool.training.loss import LossSums
from flightschool.training.messages import Accumulated, Manifest, Stepped, StepStats, TrainerSpec, TrainGroup
from flightschool.training.packing import Pack
from flightschool.training.publication import make_sink
from flightschool.training.settings import TrainingSettings
from flightschool.training.staleness import check_bound, check_fresh
from flightschool.training.stem_attention import Stem
from flightschool.training.weights import Weights

__all__ = ["WEIGHTS_FILE", "TrainerBase", "warmed_up", "write_checkpoint"]

WEIGHTS_FILE = "model.safetensors"
"""Of a checkpoint: what ``Weights.state`` gives."""
_UNLOADABLE = (SafetensorError, UnpicklingError, OSError, EOFError, RuntimeError, LookupError, ValueError)


class TrainerBase(ABC):
    """Trains in place; see ``server`` for the conversation it is driven by.

    Args:
        spec: where everything is.

    Raises:
        ModelFolderError: the model cannot be loaded.
    """

    _fused = True
    """Whether the optimizer's step is one kernel."""
    model: nn.Module

    def __init__(self, spec: TrainerSpec) -> None:
        self.settings = TrainingSettings.model_validate_json(spec.settings)
        torch.set_num_threads(self.settings.num_threads)
        torch.manual_seed(self.settings.seed)
        keep_freed_memory(always=not self.settings.spare_memory)
        self._spec = spec
        self._run_dir = Path(spec.run_dir)
        self._device = torch.device(self.settings.device)
        self._dtype: torch.dtype = getattr(torch, self.settings.dtype)
        self._book = self._load()
        self._parameters = dict(self.model.named_parameters())
        self._weights = self._make_weights()
        self._optimizer = torch.optim.AdamW(
            self._weights.trained, lr=self.settings.learning_rate, weight_decay=0.0, fused=self._fused
        )
        self._algorithm = algorithm_of(self.settings)
        kl = self._algorithm.shape.kl
        self._has_reference = kl.weight != 0.0 and kl.reference != "sampling"
        if self._has_reference:
            self._load_reference()
        self.step_number = spec.step
        if spec.checkpoint:
            self._restore(Path(spec.checkpoint))
        elif not self.settings.spare_memory and self._device.type == "cpu":
            self._claim_moments()
        self._writer = make_sink(self.settings, Path(spec.weights), self._parameters) if spec.weights else None
        self._clear()

    # ------------------------------------------------------------------ what a kind of model says

    @abstractmethod
    def _load(self) -> GrammarBook:
        """Set ``model``; returns the grammars of its tokenizer."""

    @abstractmethod
    def _make_weights(self) -> Weights:
        """What of ``model`` trains."""

    @abstractmethod
    def _load_reference(self) -> None:
        """Load the model that the run began with once more: the loss asks for its log-probabilities."""

    @abstractmethod
    def _packed(self, *groups: TrainGroup) -> tuple[tuple[int, ...], list[Pack]]:
        """What all packs begin with (nothing, where that is not computed apart), and the packs."""

    def _stems(self, tokens: Sequence[int]) -> tuple[Stem | None, Stem | None]:
        """What all packs begin with, through the model, and through the one that the run began with."""
        assert not tokens, "this trainer takes nothing apart"
        return None, None

    @abstractmethod
    def _hidden(self, pack: Pack, stem: Stem | None) -> Tensor:
        """Hidden states that the head takes, ``[N, D]``, with gradients."""

    @abstractmethod
    def _logits(self, hidden_MD: Tensor) -> Tensor:
        """Their logits, ``[M, V]``."""

    @abstractmethod
    def _reference_logprobs(self, pack: Pack, stem: Stem | None, targets: PackTensors) -> Tensor:
        """Log-probabilities of the targets, ``[M]``, under the model that the run began with; no gradients."""

    @abstractmethod
    def export(self, directory: Path) -> str:
        """Write the model as a Hugging Face folder; returns its digest."""

    def _claim_moments(self) -> None:
        """Make gradients and the optimizer's moments before any pass: as it would in the first step, but in one piece.

        Made later they stand where the first pass's activations were, and the next pass has to fetch new pages.
        """
        for tensor in self._weights.trained:
            tensor.grad = torch.zeros_like(tensor)
            self._optimizer.state[tensor] = {
                "step": torch.zeros((), dtype=torch.float32),
                "exp_avg": torch.zeros_like(tensor),
                "exp_avg_sq": torch.zeros_like(tensor),
            }

    # ------------------------------------------------------------------ what is served

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

    def _backward(self, pack: Pack, stem: Stem | None, reference: Stem | None) -> LossSums:
        hidden_ND = self._hidden(pack, stem)
        # The head works on a leaf of its own: its chunks go backward one by one, the body once at the end.
        leaf_ND = hidden_ND.detach().requires_grad_(True)
        targets = PackTensors.of(pack, self._device, self._book)
        if self._has_reference:
            targets = replace(targets, reference_M=self._reference_logprobs(pack, reference, targets))
        sums = self._head(leaf_ND, targets)
        if leaf_ND.grad is not None:
            torch.autograd.backward(hidden_ND, leaf_ND.grad)
        self._weights.collect()
        return sums

    def _head(self, leaf_ND: Tensor, targets: PackTensors) -> LossSums:
        return head_losses(self._logits, leaf_ND, targets, self._algorithm.shape)

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

    def _restore(self, directory: Path) -> None:
        """Raises ``StoreError``: sums of files are right by now, or were not written down by an older version."""
        try:
            self._weights.restore(load_file(directory / WEIGHTS_FILE))
            self._load_optimizer(torch.load(directory / "optimizer.pt", weights_only=True))
        except FlightschoolError:
            raise
        except _UNLOADABLE as error:
            raise StoreError(
                f"checkpoint {directory.name} cannot be loaded: {type(error).__name__}: {error}",
                where=str(directory),
                expected="weights and optimizer as this run's trainer writes them",
                mend="restore the folder, or rename it (damaged-…): --resume goes on with the checkpoint before it",
            ) from error

    def _load_optimizer(self, state: dict[str, Any]) -> None:
        self._optimizer.load_state_dict(state)


def write_checkpoint(
    directory: Path, weights: dict[str, Tensor], optimizer: dict[str, Any], manifest: Manifest
) -> None:
    """Weights, optimizer and manifest become a checkpoint by one rename.

    Raises:
        StoreError: they cannot be written; checkpoints before it are untouched.
    """
    with durable_folder(directory) as fresh:
        try:
            save_file(weights, fresh / WEIGHTS_FILE)
            torch.save(optimizer, fresh / "optimizer.pt")
            write_manifest(fresh, manifest)
        except (SafetensorError, RuntimeError, OSError) as error:
            # torch tells a full disk as a position in the file that it did not expect: say how much is free
            free_mb = shutil.disk_usage(fresh).free / 1e6
            raise StoreError(
                f"checkpoint {directory.name} cannot be written: {type(error).__name__}: {error}",
                where=str(directory),
                expected=f"room for weights and optimizer; {free_mb:.0f} MB are free",
                mend="free disk space and go on with --resume: the checkpoint before it is whole",
            ) from error


def warmed_up(settings: TrainingSettings, step: int) -> float:
    """Learning rate of the step that follows ``step`` made ones."""
    return settings.learning_rate * min(1.0, (step + 1) / max(1, settings.warmup_steps))
