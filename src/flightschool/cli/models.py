"""``models get · check``: model folders."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from flightschool.cli import output
from flightschool.cli.references import existing_path
from flightschool.cli.verb import group, verb

if TYPE_CHECKING:
    from flightschool.engines.onboarding import FolderCheck

__all__ = ["register"]


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
    """Check that an unknown model folder can be trained and served; ends with 1 when something falls short.

    Vocabulary, end and padding tokens, chat template, tool calls, the engine's log-probabilities against the trainer's,
    and routing of experts. Our own engine and trainer are taken where they know the architecture, generic ones else.
    """
    path = existing_path(folder, "model folder")
    engine, facts, checks = _examine(path)
    short = [item for item in checks if not item.passed]
    output.table("", ("what", "found"), [*facts.items(), *((item.name, _shown(item)) for item in checks)])
    for item in short:
        output.say(f"{item.name}: {item.found}; expected {item.expected}; mend: {item.mend}", style="red")
    if not short:
        output.say(f"this folder can be trained; engine.kind = {engine!r} samples it token-exactly")
        output.say(_TRAINERS[engine])
    output.finish(
        {
            "folder": folder,
            "engine": engine,
            "trainer": _TRAINERS.get(engine, "none").partition(":")[0],
            **facts,
            "exact": all(item.passed for item in checks if item.name == "engine and trainer"),
            "checks": [
                {"name": i.name, "passed": i.passed, "found": i.found, "expected": i.expected, "mend": i.mend}
                for i in checks
            ],
        },
        fell_short=bool(short),
    )


_HEADS = {
    "own": "logits by the model's own code, some positions at a time",
    "embedding": "logits by the output embedding, some positions at a time",
    "whole": "cannot be cut off: logits of a whole path are held until its backward pass",
}
_TRAINERS = {
    "torch": "own trainer: what members of a group share goes through the model once",
    "hf": "generic trainer: every path of an attempt is a plain sequence of its own, exact and slower",
}
"""Who trains what an engine samples; the word before the colon stands in the reply."""


def _shown(item: FolderCheck) -> str:
    return item.found if item.passed else f"FALLS SHORT: {item.found}"


def _examine(path: Path) -> tuple[str, dict[str, object], list[FolderCheck]]:
    """Engine, facts and checks of a folder.

    Raises:
        ModelFolderError: it cannot be loaded at all.
    """
    from flightschool.engines.onboarding import check_ends, check_padding, check_template, check_vocabulary, read_tables
    from flightschool.engines.tokenizer import ChatTokenizer
    from flightschool.rollouts.onboarding import check_calls

    config, table = read_tables(path)
    tokenizer = ChatTokenizer.from_folder(path)
    text = config.get("text_config") or config
    checks = [
        check_vocabulary(tokenizer, int(text.get("vocab_size", 0))),
        check_ends(tokenizer, config),
        check_padding(tokenizer, config, table),
        check_template(path, tokenizer, table),
        check_calls(tokenizer),
    ]
    if not checks[0].passed:  # nothing that is computed with ids of another model means anything
        return "none", {"model_type": config.get("model_type")}, checks
    engine, facts, computed = _compute(path)
    return engine, facts, [*checks, *computed]


def _compute(path: Path) -> tuple[str, dict[str, object], list[FolderCheck]]:
    from flightschool.engines import load_model
    from flightschool.engines.onboarding import FolderCheck
    from flightschool.engines.opening import local_kind

    if local_kind(path) == "hf":
        return _compute_generic(path)
    loaded = load_model(path)
    from flightschool.engines.parity import check_parity, own_engine, own_scores

    facts: dict[str, object] = {
        "model_type": loaded.config.model_type,
        "num_parameters": sum(parameter.numel() for parameter in loaded.model.parameters()),
        "max_context": loaded.config.max_context,
        "digest": loaded.digest,
    }
    parity = asyncio.run(check_parity(own_engine(loaded), loaded.tokenizer, own_scores(loaded)))
    dense = FolderCheck(name="routing", passed=True, found="dense: no experts, nothing to replay")
    return "torch", facts, [parity, dense]


def _compute_generic(path: Path) -> tuple[str, dict[str, object], list[FolderCheck]]:
    """With transformers, for what our own engine does not know."""
    from flightschool.engines import load_hf_model
    from flightschool.engines.parity import check_parity, check_routing, hf_engine, hf_scores
    from flightschool.engines.plain_pass import PlainPass, extension_of

    model = load_hf_model(path)
    facts: dict[str, object] = {
        "model_type": model.model_type,
        "num_parameters": sum(parameter.numel() for parameter in model.model.parameters()),
        "max_context": model.max_context,
        "digest": model.digest,
    }
    plain = PlainPass(model.model)
    facts["output_head"] = _HEADS[plain.way]
    facts["cached_passes"] = f"new tokens {extension_of(model)}"
    parity = asyncio.run(check_parity(hf_engine(model), model.tokenizer, hf_scores(model)))
    return "hf", facts, [parity, check_routing(model, model.tokenizer)]
