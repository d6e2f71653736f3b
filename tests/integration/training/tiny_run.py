"""A run of a tiny random model with our engine and the real trainer, for ``zygote``."""

from __future__ import annotations

from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tests.integration.training.bandit import BanditRunner

from flightschool.records import Task
from flightschool.training import PoolSource, TrainingSettings, resume, train
from flightschool.training.folders import RunFolder
from flightschool.training.link import Launch
from flightschool.training.server import serve as serve_trainer
from flightschool.training.trainer_process import build_torch_trainer

SETTINGS: dict[str, Any] = {
    "learning_rate": 3e-3,
    "max_new_tokens": 8,
    "group_size": 3,
    "groups_per_step": 2,
    "max_inflight_groups": 4,
    "checkpoint_every": 2,
    "restart_pause_s": 0.0,
    "max_restarts": 1000,
}


def prepare() -> None:
    """Import what is slow to import."""
    import torch

    from flightschool.engines import TorchEngine, load_model  # noqa: F401
    from flightschool.training.trainer import TorchTrainer  # noqa: F401

    torch.set_num_threads(1)


def serve(connection: Connection) -> None:
    serve_trainer(connection, build_torch_trainer)


def fly(run_dir: Path, arguments: dict[str, Any], launch: Launch) -> dict[str, Any]:
    num_tasks = arguments["num_tasks"]
    tasks = [
        Task(id=f"t{i}", family=f"f{i}", stratum="s", instruction=f"go {i}", initial_state="") for i in range(num_tasks)
    ]
    source, runner = PoolSource(tasks, num_rounds=1), BanditRunner()
    if RunFolder(run_dir).start.exists():
        result = resume(run_dir, source=source, runner=runner, launch=launch)
    else:
        settings = TrainingSettings.model_validate({**SETTINGS, "num_steps": 10_000, **arguments.get("settings", {})})
        model = Path(arguments["model"])
        result = train(
            settings, model=model, run_dir=run_dir, source=source, runner=runner, launch=launch, unaudited="a test"
        )
    return {"stopped": result.stopped, "incarnation": result.manifest.incarnation, "step": result.manifest.step}
