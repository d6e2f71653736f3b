"""A model of transformers as a trainer needs it: the plain pass of one sequence, cut between body and output head.

A sequence goes through alone, under the mask and the positions that the model gives it by itself; so whatever an
architecture does (biases by distance, sliding windows, a state instead of attention) is done right. The cut is what
lets a trainer make logits a few positions at a time. No architecture is asked how its head works: three ways are tried
on a short sequence, and the first that gives the model's own logits is taken.

1. The model's own code with the body's outcome put in the body's place, so that whatever it scales, caps or adds is
   there (Gemma's cap, Cohere's and Granite's scales).
2. The output embedding alone, for models that do not ask their body by its usual name (OPT).
3. No cut: the logits of a whole sequence are made at once, in the model's type, and held until the backward pass.

Shape letters: ``T`` tokens of a sequence, ``M`` some positions, ``D`` hidden size, ``V`` vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from flightschool.engines.hf_folders import HfModel

__all__ = [
    "Extension",
    "PlainPass",
    "checkpoint_layers",
    "extension_of",
    "layers_of",
    "num_experts",
    "trained_parameters",
]

Extension = Literal["at once", "one by one", "anew"]
"""How what is cached of a sequence is gone on from: by all new tokens in a pass, by one token a pass, or not at all."""
_PROBE = 12
_NEAR = {torch.float32: 1e-5, torch.bfloat16: 0.02}
"""Difference relative to the largest logit that arithmetic in a type may cause: products of other sizes round
differently."""


class PlainPass:
    """See the module.

    Args:
        model: a causal language model of transformers, in evaluation mode.
    """

    def __init__(self, model: Any) -> None:  # transformers' own classes are not typed
        self._model = model
        self._kind: type[Any] = dict
        self.way: Literal["own", "embedding", "whole"] = self._found()
        """How logits are made."""

    def hidden(self, tokens_T: Tensor) -> Tensor:
        """What ``logits`` takes of every position of a sequence, ``[T, D]`` (without a cut: ``[T, V]``)."""
        body = self._model if self.way == "whole" else self._model.base_model
        found = body(input_ids=tokens_T.unsqueeze(0), use_cache=False)
        states_1TD: Tensor = found.logits if self.way == "whole" else found.last_hidden_state
        return states_1TD[0]

    def logits(self, hidden_MD: Tensor) -> Tensor:
        """Logits of some positions, ``[M, V]``."""
        if self.way == "whole":
            return hidden_MD
        if self.way == "embedding":
            logits_MV: Tensor = self._model.get_output_embeddings()(hidden_MD)
            return logits_MV
        return self._own(hidden_MD)

    def _own(self, hidden_MD: Tensor) -> Tensor:
        body, outcome = self._model.base_model, self._kind(last_hidden_state=hidden_MD.unsqueeze(0))
        tokens_1M = torch.zeros(1, hidden_MD.shape[0], dtype=torch.long, device=hidden_MD.device)
        body.forward = lambda *_, **__: outcome
        try:
            logits_1MV: Tensor = self._model(input_ids=tokens_1M, use_cache=False).logits
        finally:
            del body.forward  # the class's own is seen again
        return logits_1MV[0]

    @torch.no_grad()
    def _found(self) -> Literal["own", "embedding", "whole"]:
        model, body = self._model, self._model.base_model
        head = model.get_output_embeddings()
        device = next(model.parameters()).device
        tokens_1T = torch.arange(_PROBE, device=device).unsqueeze(0) % head.weight.shape[0]
        wanted_TV = model(input_ids=tokens_1T, use_cache=False).logits[0]
        if body is model:
            return "whole"
        outcome = body(input_ids=tokens_1T, use_cache=False)
        hidden_TD = getattr(outcome, "last_hidden_state", None)
        if hidden_TD is None:
            return "whole"
        self._kind = type(outcome)
        part = slice(_PROBE // 3, _PROBE)  # a part of the positions, as a chunk is
        if _alike(lambda: self._own(hidden_TD[0, part]), wanted_TV[part]):
            return "own"
        return "embedding" if _alike(lambda: head(hidden_TD[0, part]), wanted_TV[part]) else "whole"


def _alike(make: Any, wanted_MV: Tensor) -> bool:
    """Whether logits are the wanted ones; code that cannot be run with what stands in for the body makes others."""
    try:
        found_MV = make()
    except (RuntimeError, TypeError, AttributeError, ValueError, IndexError, KeyError):
        return False
    if found_MV.shape != wanted_MV.shape:
        return False
    near = _NEAR.get(wanted_MV.dtype, 1e-5) * float(wanted_MV.abs().max())
    return bool((found_MV - wanted_MV).abs().max() <= near)


def extension_of(loaded: HfModel) -> Extension:
    """Which passes over what is cached give the logits of plain ones, tried on short sequences.

    Some architectures with a state instead of attention take several tokens for the beginning of a sequence, whatever
    they are given as a state, and say nothing. One token a pass is slower and never wrong, so it also decides what
    difference the type's rounding alone makes.
    """
    device = next(loaded.model.parameters()).device
    probes = [torch.arange(start, start + _PROBE, device=device)[None] % loaded.vocab for start in (0, 7, 31)]
    half = _PROBE // 2
    with torch.inference_mode():
        wanted = [loaded.model(input_ids=probe, use_cache=False).logits[0, -1].float() for probe in probes]
        size = max(float(logits_V.abs().max()) for logits_V in wanted)
        one_by_one = _mean_gap(loaded, probes, wanted, [half, *[1] * half])
        at_once = _mean_gap(loaded, probes, wanted, [half, half])
    near = _NEAR.get(loaded.model.dtype, 1e-5) * size
    if at_once <= min(near, 1.5 * one_by_one + _NEAR[torch.float32] * size):
        return "at once"
    return "one by one" if one_by_one <= near else "anew"


def _mean_gap(loaded: HfModel, probes: Sequence[Tensor], wanted: Sequence[Tensor], sizes: list[int]) -> float:
    """Mean difference of the last logits from the wanted ones when sequences are fed in pieces."""
    gaps: list[float] = []
    for probe_1T, wanted_V in zip(probes, wanted, strict=True):
        state, logits_1NV = None, wanted_V[None, None]
        try:
            for piece_1N in torch.split(probe_1T, sizes, dim=1):
                logits_1NV, state = loaded.feed(piece_1N, state)
        except (RuntimeError, TypeError, AttributeError, ValueError, IndexError):  # a state that takes no such piece
            return math.inf
        gaps.append(float((logits_1NV[0, -1].float() - wanted_V).abs().mean()))
    return sum(gaps) / len(gaps)


def checkpoint_layers(model: Any) -> None:
    """Have layers computed again in the backward pass, by transformers' own switch.

    It is thrown in training mode only, and training mode would switch dropout on: so only the modules that carry the
    switch are told that they train, and those among them that drop by themselves are told to drop nothing.
    """
    renamed = getattr(model, "activation_checkpointing_enable", None)  # in transformers 5
    (renamed or model.gradient_checkpointing_enable)({"use_reentrant": False})
    for module in model.modules():
        if getattr(module, "gradient_checkpointing", False):
            module.training = True
            for name, value in list(vars(module).items()):
                if "drop" in name and isinstance(value, float):
                    setattr(module, name, 0.0)


def layers_of(model: Any) -> tuple[str, int] | None:
    """Name of the list of layers and their number; None where the model keeps them otherwise."""
    count = getattr(model.config.get_text_config(), "num_hidden_layers", None)
    lists = (name for name, part in model.named_modules() if isinstance(part, nn.ModuleList) and len(part) == count)
    name = next(lists, None)
    return None if name is None or count is None else (name, int(count))


def num_experts(config: Any) -> int:
    """Experts of a layer by a configuration of transformers; 0 for dense models."""
    names = ("num_experts", "n_routed_experts", "num_local_experts")
    return next((int(getattr(config, name)) for name in names if getattr(config, name, None)), 0)


def trained_parameters(model: Any, trained_layers: int | None) -> list[str]:
    """Parameters that are trained, in order: all, or those of the topmost layers and of the norm above them.

    Args:
        model: a causal language model of transformers, with ``layers_of`` where layers are counted.
        trained_layers: how many layers are trained; None or more than there are: everything.
    """
    names = [name for name, _ in model.named_parameters() if not name.endswith("e_score_correction_bias")]
    found = layers_of(model)
    if trained_layers is None or found is None or trained_layers >= found[1]:
        return names
    layers, count = found
    parent = layers.rpartition(".")[0]
    tops = [f"{layers}.{place}." for place in range(count - trained_layers, count)]
    for child, _ in model.get_submodule(parent).named_children():
        if ("norm" in child or child.startswith("ln_")) and "embed" not in child and "pre" not in child:
            tops.append(f"{parent}.{child}." if parent else f"{child}.")
    return [name for name in names if name.startswith(tuple(tops))]
