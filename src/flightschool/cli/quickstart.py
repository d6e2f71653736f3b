"""``quickstart``: the whole road on embedded defaults, from recorded traces to a report."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import typer

from flightschool.cli import output
from flightschool.cli.verb import verb

if TYPE_CHECKING:
    from flightschool.engines import EngineSettings
    from flightschool.stations import JobResult, JobSettings

__all__ = ["register", "resolve_model"]

OFFLINE_MODEL = "tiny"


def register(app: typer.Typer) -> None:
    """Add the verb."""
    verb(app, "quickstart", example="flightschool quickstart --workspace quickstart")(quickstart)


def quickstart(
    workspace: Path = typer.Option(Path("quickstart"), "--workspace", help="Folder of the workspace, made if missing."),
    seed: int = typer.Option(0, "--seed", help="Seed of the freeze, of task order, sampling and weather."),
    offline: bool = typer.Option(False, "--offline", help="Train the small model that ships with flightschool."),
    model: str | None = typer.Option(None, "--model", help="Another model: a catalogue name, or a local folder."),
    steps: int | None = typer.Option(None, "--steps", min=1, help="Optimizer steps."),
    control: int = typer.Option(0, "--control", min=0, help="Steps of a negative control with shuffled rewards."),
    greedy: bool = typer.Option(False, "--greedy", help="Measure greedy decoding beside sampling."),
) -> None:
    """Recorded traces in, a trained, audited and measured agent out; ends with the path of an HTML report.

    Takes a few minutes on two cores and downloads the model once (93 MB). Killed half-way, the same command goes on.
    """
    from flightschool.config import parse_settings
    from flightschool.stations.settings import JobSettings

    name = "offline.toml" if offline else "quickstart.toml"
    table = _embedded(name)
    table["seed"] = seed
    if model is not None:
        table["model"] = {"name": model}
    if steps is not None:
        table["training"]["num_steps"] = steps
    if control:
        table["evaluation"] = {**table.get("evaluation", {}), "negative_control_steps": control}
    if greedy:
        table["evaluation"] = {**table.get("evaluation", {}), "greedy": True}
    settings = parse_settings(table, JobSettings, where=name)
    result = run_in(
        workspace, settings, job="quickstart", commands=_commands(seed, offline, model, steps, control, greedy)
    )
    tell_result(result)
    output.finish({**msgspec.to_builtins(result)})


def run_in(workspace: Path, settings: JobSettings, *, job: str, commands: list[str]) -> JobResult:
    """Run a job in a workspace folder, made if missing, with live progress."""
    from flightschool.cli.jobs import fly_job, note_job
    from flightschool.stations import check_settings
    from flightschool.store import CONFIG_NAME, Workspace

    check_settings(settings)
    model = resolve_model(settings.model.name, settings.engine, output.say)
    exists = (workspace / CONFIG_NAME).is_file()
    with Workspace.find(workspace) if exists else Workspace.create(workspace) as space:
        record = note_job(space, settings, job=job, model=model, report="report.html", commands=tuple(commands))
        return fly_job(space, record)


def resolve_model(name: str, engine: EngineSettings, progress: object) -> Path:
    """Folder of a model: a path as it is, else a name of the catalogue, downloaded on first use.

    What can be wrong with a folder is said here, before any station begins; its weights are checked when they load.

    Raises:
        ModelFolderError: no model that can be trained.
    """
    from flightschool.cli.references import existing_path, is_path
    from flightschool.engines.catalogue import get_model

    if not is_path(name):
        return get_model(name, progress=progress if callable(progress) else None)
    folder = existing_path(name, "model folder").resolve()
    _check_folder(folder, engine)
    return folder


def _check_folder(folder: Path, engine: EngineSettings) -> None:
    from flightschool.engines.tokenizer import ChatTokenizer
    from flightschool.errors import ModelFolderError
    from flightschool.training.preflight import own_config

    own_config(folder, engine)
    ChatTokenizer.from_folder(folder)
    if not any(folder.glob("*.safetensors")):
        raise ModelFolderError(
            "the folder holds no weights",
            where=str(folder),
            expected="*.safetensors",
            mend="save the model with safe serialization",
        )


def tell_result(result: JobResult) -> None:
    """The figures, for people."""
    rows = [
        ("success, trained strata", result.success_before, result.success_after),
        ("success under faults", result.perturbed_before, result.perturbed_after),
        ("success, greedy decoding", result.greedy_before, result.greedy_after),
        ("violations, all traffic", result.violations_before, result.violations_after),
    ]
    shown = [(label, f"{a:.3f}", f"{b:.3f}") for label, a, b in rows if a is not None and b is not None]
    output.table("Before and after on the frozen suite", ("", "#before", "#after"), shown)
    output.say(f"gain {result.gain_low:+.3f} to {result.gain_high:+.3f} (95 %, paired, by family)")
    output.say(f"report: {result.report}")
    output.say(f"the trained agent is the policy run:{result.run}")
    output.say(f"a step's episodes: flightschool runs show {result.run} --step N")
    curves = Path(result.model_after).parent / "tensorboard"
    if curves.is_dir():
        output.say(f"curves: tensorboard --logdir {_from_here(curves)}")


def _from_here(path: Path) -> Path:
    """``path`` as it is typed in the working directory."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _embedded(name: str) -> dict[str, Any]:
    import tomllib

    return tomllib.loads((files("flightschool.stations") / name).read_text(encoding="utf-8"))


def _commands(seed: int, offline: bool, model: str | None, steps: int | None, control: int, greedy: bool) -> list[str]:
    words = ["flightschool quickstart", f"--seed {seed}"]
    words += ["--offline"] if offline else []
    words += [f"--model {model}"] if model else []
    words += [f"--steps {steps}"] if steps else []
    words += [f"--control {control}"] if control else []
    words += ["--greedy"] if greedy else []
    return [" ".join(words)]
