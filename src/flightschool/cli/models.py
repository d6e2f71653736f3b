"""``models get · check``: model folders."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from flightschool.cli import output
from flightschool.cli.references import existing_path
from flightschool.cli.verb import group, verb

if TYPE_CHECKING:
    from flightschool.engines import LoadedModel

__all__ = ["register"]

PARITY = 1e-4
"""Largest difference of log-probabilities between cached and plain computation that counts as equal."""


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    models = group(app, "models", "Models: get one by name, check a folder.")
    verb(models, "get", example="flightschool models get smollm2-135m")(get)
    verb(models, "check", example="flightschool models check ./my-model")(check)


def get(name: str = typer.Argument(..., help="Name in the catalogue.")) -> None:
    """Download a model by name into the user's cache, checked by digest; does nothing when it is there."""
    from flightschool.engines import get_model

    folder = get_model(name, progress=output.say)
    output.say(f"{name}: {folder}")
    output.finish({"name": name, "folder": str(folder)})


def check(folder: str = typer.Argument(..., metavar="DIR", help="A Hugging Face model folder.")) -> None:
    """Check that a model folder can be trained: shapes, chat format, and token-exact generation.

    Samples a few tokens with the engine's cache and scores them by a plain forward pass; ends with 1 when the two
    log-probabilities differ.
    """
    import asyncio

    from flightschool.engines import load_model

    loaded = load_model(existing_path(folder, "model folder"))
    num_parameters = sum(parameter.numel() for parameter in loaded.model.parameters())
    num_tokens, difference = asyncio.run(_parity(loaded))
    exact = difference <= PARITY
    output.table(
        "",
        ("what", "found"),
        [
            ("architecture", loaded.config.model_type),
            ("parameters", f"{num_parameters:,}"),
            ("context", loaded.config.max_context),
            ("chat format", "known; an assistant turn ends with one of its stop tokens"),
            ("digest", loaded.digest),
            ("cached against plain", f"largest difference {difference:.1e} over {num_tokens} sampled tokens"),
        ],
    )
    output.say("the engine runs this model token-exactly" if exact else "NOT token-exact", style="" if exact else "red")
    output.finish(
        {
            "folder": folder,
            "model_type": loaded.config.model_type,
            "num_parameters": num_parameters,
            "max_context": loaded.config.max_context,
            "digest": loaded.digest,
            "largest_difference": difference,
            "exact": exact,
        },
        fell_short=not exact,
    )


async def _parity(loaded: LoadedModel) -> tuple[int, float]:
    """Number of sampled tokens, and the largest difference between their log-probabilities, cached against plain."""
    import torch

    from flightschool.engines import CausalAttention, TorchEngine
    from flightschool.protocols import GenerationRequest

    tokenizer = loaded.tokenizer
    prompt = tokenizer.turn("user", "Name three parts of a pump.") + tokenizer.open_assistant()
    engine = TorchEngine(loaded)
    request = GenerationRequest(session="check", token_ids_T=prompt, max_new_tokens=16, stop_token_ids=(), seed=1)
    sampled = await engine.generate(request)
    tokens_N = torch.tensor(prompt + sampled.token_ids_T)
    with torch.inference_mode():
        hidden_ND = loaded.model(tokens_N, torch.arange(len(tokens_N)), CausalAttention([len(tokens_N)]))
        scores_TV = torch.log_softmax(loaded.model.logits(hidden_ND[len(prompt) - 1 : -1]).float(), dim=-1)
    plain_T = scores_TV.gather(1, tokens_N[len(prompt) :, None])[:, 0]
    difference = (plain_T - torch.tensor(sampled.logprobs_T)).abs().max()
    return len(sampled.token_ids_T), float(difference)
