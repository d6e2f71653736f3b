"""What can be known to fail before anything is loaded: sizes, model folder, tokenizer, device, trackers.

Reads configuration, tokenizer and the headers of the weights files; no weight is touched and, on the CPU, no torch is
imported (but for models that only transformers knows: see ``generic_preflight``). Nothing here asks for a pad token
(packs are flat, nothing is padded) or for the folder's chat template (turns are written by ``engines.tokenizer``,
append-only by construction).
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

from flightschool.engines.architecture import TransformerConfig
from flightschool.engines.settings import EngineSettings
from flightschool.engines.tokenizer import ChatTokenizer
from flightschool.engines.weight_files import check_weights, shapes_in
from flightschool.errors import ConfigError, ModelFolderError
from flightschool.training.generic_preflight import ModelSizes, generic_preflight
from flightschool.training.placing import check_placing
from flightschool.training.settings import TrainingSettings
from flightschool.training.trackers import exports_itself

__all__ = ["check_machine", "own_config", "preflight"]

_OTLP = "opentelemetry.exporter.otlp.proto.http"
_MODULES = {"trackio": ("trackio",), "opentelemetry": ("opentelemetry.sdk", _OTLP)}


def preflight(settings: TrainingSettings, model: Path, engine: EngineSettings | None = None) -> None:
    """Raise the first thing that cannot work.

    Args:
        settings: of the run.
        model: folder of the model that it begins with.
        engine: what samples; our own on the trainer's device by default.

    Raises:
        ConfigError: a setting asks for what is not there, or for more than the model or the machine has.
        InputError: the model needs transformers, which is not installed.
        ModelFolderError: the folder is no model that can be trained, or its parts are of different models.
    """
    engine = engine or EngineSettings()
    config = own_config(model, engine)
    tokenizer = ChatTokenizer.from_folder(model)
    if config is None:
        names = {name for path in model.glob("*.safetensors") for name in shapes_in(path)}
        sizes = generic_preflight(settings, model, engine, names)
    else:
        ends = tuple(config.eos_token_ids)
        sizes = ModelSizes(config.vocab, config.hidden, config.num_layers, config.max_context, ends)
    if tokenizer.num_ids > sizes.vocab:
        raise ModelFolderError(
            f"the tokenizer has {tokenizer.num_ids} ids, the model only {sizes.vocab} rows",
            where=str(model),
            expected="the tokenizer that the model was trained with",
            mend="copy the right tokenizer.json into the folder",
        )
    _check_ends(sizes, tokenizer, model)
    if config is not None:
        check_weights(config, model)
    _check_sizes(settings, sizes)
    check_machine(settings, engine)


def check_machine(settings: TrainingSettings, engine: EngineSettings | None = None) -> None:
    """What is known without a model: devices and trackers. Raises ``ConfigError`` for what is not there."""
    check_placing(settings, engine or EngineSettings())
    _check_trackers(settings)


def _check_trackers(settings: TrainingSettings) -> None:
    """Every package that a tracker imports later: figures without an exporter would be lost at the end of the run."""
    for tracker in settings.trackers:
        for module in _MODULES.get(tracker, ()):
            if not _installed(module) and not (module == _OTLP and exports_itself()):
                raise ConfigError(
                    f"tracker {tracker!r} needs a package that is not installed: no module {module}",
                    where="training.trackers",
                    expected=f"the extra {tracker!r} of flightschool",
                    mend=f"pip install 'flightschool[{tracker}]', or leave it out",
                )


def _installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:
        return False


def own_config(model: Path, engine: EngineSettings) -> TransformerConfig | None:
    """Configuration of our own transformer; None: the model is one for transformers, and the engine takes it.

    Raises:
        ModelFolderError: config.json cannot be read, or is of a model that this engine does not know.
    """
    path = model / "config.json"
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelFolderError(
            f"config.json cannot be read: {error}",
            where=str(model),
            expected="a Hugging Face model folder",
            mend="name a folder with config.json, tokenizer.json and *.safetensors",
        ) from None
    if not isinstance(table, dict):
        raise ModelFolderError("config.json is no object", where=str(path), expected="a JSON object")
    try:
        return TransformerConfig.from_hf(table, where=str(path))
    except ModelFolderError as refusal:
        if engine.kind != "torch":
            return None
        raise ModelFolderError(
            refusal.what,
            where=refusal.where,
            expected=refusal.expected,
            mend=f"{refusal.mend}; or set engine.kind = 'hf', with which whatever transformers loads is trained",
        ) from None


def _check_ends(sizes: ModelSizes, tokenizer: ChatTokenizer, model: Path) -> None:
    """A model that knows other ends of a turn than its tokenizer never learned to end one."""
    named = set(sizes.ends)
    if named and not named & set(tokenizer.stop_token_ids):
        raise ModelFolderError(
            f"config.json ends with {sorted(named)}, the tokenizer ends turns with {list(tokenizer.stop_token_ids)}",
            where=str(model),
            expected="model and tokenizer of one another",
            mend="copy the tokenizer that the model was trained with into the folder, or mend eos_token_id",
        )


def _check_sizes(settings: TrainingSettings, sizes: ModelSizes) -> None:
    longest = min(settings.max_context, sizes.max_context)
    wrong = [
        (
            settings.max_new_tokens >= longest,
            "max_new_tokens",
            settings.max_new_tokens,
            f"less than a context of {longest}",
        ),
        (settings.lora_rank > sizes.hidden, "lora_rank", settings.lora_rank, f"at most the model's {sizes.hidden}"),
        (
            (settings.trained_layers or 0) > sizes.num_layers,
            "trained_layers",
            settings.trained_layers,
            f"at most the model's {sizes.num_layers} layers; without the key, all of the model trains",
        ),
    ]
    for refused, name, value, expected in wrong:
        if refused:
            raise ConfigError(
                f"{name} = {value} is too large", where=f"training.{name}", expected=expected, mend="make it smaller"
            )
