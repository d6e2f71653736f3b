"""Engine against trainer, in figures: what the engine says of its samples, and what one plain pass says of them.

The trainer's number is a forward pass over the whole sequence without any cache. The engine's was made token by token,
over two turns, with a shared prompt and whatever it reuses. Their difference is arithmetic alone, unless something is
wrong: positions, masks, a cache that is cut at the wrong place.

For mixtures of experts the experts of each token are compared too. Where cached and plain passes choose other experts,
no log-probability can agree, and routing replay is what mends it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from flightschool.engines.folders import LoadedModel
from flightschool.engines.hf_engine import HfEngine
from flightschool.engines.hf_folders import HfModel
from flightschool.engines.onboarding import FolderCheck
from flightschool.engines.plain_pass import num_experts
from flightschool.engines.tokenizer import ChatTokenizer
from flightschool.engines.torch_engine import TorchEngine
from flightschool.engines.transformer import CausalAttention
from flightschool.protocols import Engine, GenerationRequest

__all__ = ["PARITY", "check_parity", "check_routing", "hf_scores", "own_scores"]

PARITY = 1e-4
"""Largest difference of log-probabilities between cached and plain computation in float32 that counts as equal."""
_NEW_TOKENS = 16
_MEMBERS = 3

Scores = Callable[[Sequence[int]], Tensor]
"""Token ids [T] → log-probabilities of the next token after each, [T, V]."""


def own_scores(loaded: LoadedModel) -> Scores:
    """Plain passes of our own transformer: what the trainer computes."""

    def scores(tokens: Sequence[int]) -> Tensor:
        tokens_N = torch.tensor(list(tokens))
        with torch.inference_mode():
            hidden_ND = loaded.model(tokens_N, torch.arange(len(tokens_N)), CausalAttention([len(tokens_N)]))
            return torch.log_softmax(loaded.model.logits(hidden_ND).float(), dim=-1)

    return scores


def hf_scores(loaded: HfModel) -> Scores:
    """Plain passes of transformers."""

    def scores(tokens: Sequence[int]) -> Tensor:
        with torch.inference_mode():
            logits = loaded.model(input_ids=torch.tensor([list(tokens)]), use_cache=False).logits[0]
            return torch.log_softmax(logits.float(), dim=-1)

    return scores


async def check_parity(engine: Engine, tokenizer: ChatTokenizer, scores: Scores) -> FolderCheck:
    """Sample two turns of a small group, and score them again."""
    prompt = (*tokenizer.turn("system", "Use the tools."), *tokenizer.turn("user", "Name three parts of a pump."))
    opening = (*prompt, *tokenizer.open_assistant())
    gaps: list[float] = []
    for member in range(_MEMBERS):
        context = opening
        for turn in range(2):
            request = GenerationRequest(
                session=f"parity-{member}",
                token_ids_T=context,
                max_new_tokens=_NEW_TOKENS,
                stop_token_ids=(),
                seed=10 * member + turn,
                prefix_length=len(opening),
            )
            done = await engine.generate(request)
            whole = (*context, *done.token_ids_T)
            plain_TV = scores(whole)[len(context) - 1 : -1]
            plain_T = plain_TV.gather(1, torch.tensor(done.token_ids_T)[:, None])[:, 0]
            gaps += (plain_T.double() - torch.tensor(done.logprobs_T, dtype=torch.float64)).abs().tolist()
            context = (*whole, *tokenizer.turn("user", "And two more?"), *tokenizer.open_assistant())
        engine.release(f"parity-{member}")
    largest, mean = max(gaps), sum(gaps) / len(gaps)
    return FolderCheck(
        name="engine and trainer",
        passed=largest <= PARITY,
        found=f"log-probabilities differ by {largest:.1e} at most, {mean:.1e} on average, over {len(gaps)} tokens",
        expected=f"at most {PARITY:.0e} in float32",
        mend="" if largest <= PARITY else "report the architecture; training on it would be biased",
    )


def check_routing(loaded: HfModel, tokenizer: ChatTokenizer) -> FolderCheck:
    """Whether cached and plain passes route tokens to the same experts; dense models have nothing to route."""
    config: Any = loaded.model.config.get_text_config()
    experts = num_experts(config)
    if not experts:
        return FolderCheck(name="routing", passed=True, found="dense: no experts, nothing to replay")
    top = int(getattr(config, "num_experts_per_tok", 1))
    tokens = [*tokenizer.turn("system", "Use the tools."), *tokenizer.turn("user", "Name three parts of a pump.")]
    plain = _routes(loaded, [tokens], top)
    cached = _routes(loaded, [[token] for token in tokens], top)
    if not plain:
        return FolderCheck(
            name="routing",
            passed=False,
            found=f"{experts} experts, {top} a token, but no router was found in the model",
            expected="routers whose choices can be recorded",
            mend="training this mixture without routing replay is biased where engine and trainer route differently",
        )
    same = sum(a == b for a, b in zip(plain, cached, strict=True))
    passed = same == len(plain)
    return FolderCheck(
        name="routing",
        passed=passed,
        found=f"{experts} experts, {top} a token: {same} of {len(plain)} choices agree between cached and plain passes",
        expected="all of them",
        mend=""
        if passed
        else "training would be biased where passes choose otherwise: the generic engine records no routing",
    )


def _routes(loaded: HfModel, pieces: Sequence[Sequence[int]], top: int) -> list[tuple[int, frozenset[int]]]:
    """(layer, experts) of every token, in order of layers and tokens; ``pieces`` are fed one after the other."""
    chosen: dict[str, list[frozenset[int]]] = {}

    def note(name: str) -> Callable[[Any, Any, Any], None]:
        def hook(_module: Any, _inputs: Any, output: Any) -> None:
            parts = output if isinstance(output, tuple) else (output,)
            picked = next((part for part in parts if not part.is_floating_point() and part.shape[-1] == top), None)
            rows = parts[0].reshape(-1, parts[0].shape[-1]).topk(top).indices if picked is None else picked
            chosen.setdefault(name, []).extend(frozenset(row.tolist()) for row in rows.reshape(-1, top))

        return hook

    hooks = [
        module.register_forward_hook(note(name))
        for name, module in loaded.model.named_modules()
        if name.endswith((".gate", ".router"))
    ]
    try:
        state = None
        for piece in pieces:
            _, state = loaded.feed(torch.tensor([list(piece)]), state)
    finally:
        for hook in hooks:
            hook.remove()
    return [(layer, experts) for layer, name in enumerate(sorted(chosen)) for experts in chosen[name]]


def own_engine(loaded: LoadedModel) -> TorchEngine:
    """Our engine with room for the check."""
    return TorchEngine(loaded, max_context=256, max_step_tokens=24)  # prompts in pieces: that path is checked too


def hf_engine(loaded: HfModel) -> HfEngine:
    """The generic engine with room for the check."""
    return HfEngine(loaded, max_context=256)
